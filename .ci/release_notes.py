"""What CHANGELOG.md says of a version, for the release's page.

    python .ci/release_notes.py [VERSION]      without one: what is unreleased

Exit code 1 where the page knows no such version, or says nothing of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(page: str, version: str) -> str:
    """The section of a version; raises :class:`SystemExit` with a sentence where there is none."""
    parts = re.split(r"^## +", page, flags=re.MULTILINE)[1:]
    known = {part.split(None, 1)[0].rstrip(","): part.split("\n", 1)[1].strip() for part in parts}
    if not known.get(version):
        raise SystemExit(f"CHANGELOG.md says nothing of {version}; it knows {', '.join(known)}.")
    return known[version]


if __name__ == "__main__":
    wanted = sys.argv[1].removeprefix("v") if len(sys.argv) > 1 else "Unreleased"
    print(notes(PAGE.read_text(encoding="utf-8"), wanted))
