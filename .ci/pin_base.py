"""Writes the digest of the Dockerfile's base into the Dockerfile, so that the same image is built again.

    make pin-base                       asks docker or skopeo, whichever is there
    make pin-base DIGEST=sha256:…       a digest that you have looked up yourself

The digest is that of the list of images, so it fits every processor.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_BASE = re.compile(r"^ARG BASE=(?P<name>[^@\s]+)(@\S+)?$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: How each tool prints the digest of the image NAME.
TOOLS = {
    "docker": ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", "NAME"],
    "skopeo": ["skopeo", "inspect", "--format", "{{.Digest}}", "docker://docker.io/library/NAME"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dockerfile", type=Path, default=Path("Dockerfile"))
    parser.add_argument("--digest", default="")
    given = parser.parse_args()
    text = given.dockerfile.read_text(encoding="utf-8")
    base = _BASE.search(text)
    if base is None:
        print(f"{given.dockerfile} has no line ARG BASE=NAME to write a digest into.", file=sys.stderr)
        return 1
    digest = given.digest or asked(base["name"])
    if not _DIGEST.fullmatch(digest):
        print(
            f"No digest of {base['name']} was found ({digest or 'nobody could be asked'}); expected sha256: and 64 "
            "digits. Look it up where there is a network, then: make pin-base DIGEST=sha256:…",
            file=sys.stderr,
        )
        return 1
    pinned = f"{text[: base.start()]}ARG BASE={base['name']}@{digest}{text[base.end() :]}"
    with tempfile.NamedTemporaryFile("w", dir=given.dockerfile.parent, delete=False, encoding="utf-8") as file:
        file.write(pinned)
    shutil.copymode(given.dockerfile, file.name)
    os.replace(file.name, given.dockerfile)
    print(f"{given.dockerfile}: the base is {base['name']}@{digest}")
    return 0


def asked(name: str) -> str:
    """The digest by the first tool that knows it; what the last one said where none does."""
    said = ""
    for tool, command in TOOLS.items():
        if shutil.which(tool) is None:
            continue
        done = subprocess.run(
            [word.replace("NAME", name) for word in command], capture_output=True, text=True, timeout=120
        )
        said = (done.stdout if done.returncode == 0 else done.stderr).strip()
        if _DIGEST.fullmatch(said):
            return said
    return said.splitlines()[-1] if said else ""


if __name__ == "__main__":
    sys.exit(main())
