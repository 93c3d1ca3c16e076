"""Gets the files of other projects that some tables and tests need, and checks each against its hash.

    python reproduce/fetch_data.py                     into ../shared/data, where scripts and tests look
    python reproduce/fetch_data.py --check             get nothing; say what is missing or different
    python reproduce/fetch_data.py --list              say where each file comes from, and its licence

sources.json names each file's repository, commit, path and licence. A file is kept only if its SHA-256 is the expected
one. Nothing is sent anywhere; the addresses are those of raw files on GitHub (--from: another address or folder).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "sources.json"
BASE = "https://raw.githubusercontent.com"
INTO = HERE.parents[1] / "shared" / "data"
SECONDS = 60.0


@dataclass(frozen=True)
class Source:
    """One file. ``packed``: it is kept as gzip, and ``sha256`` and ``bytes`` are of what is inside."""

    file: str
    repository: str
    commit: str
    path: str
    licence: str
    sha256: str
    bytes: int
    packed: bool = False

    def address(self, base: str = BASE) -> str:
        """Where the file is; ``base`` stands for the server, or a folder as ``file:///…``."""
        return f"{base.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"

    def state(self, folder: Path) -> str | None:
        """What is wrong with the file below ``folder``; ``None`` where nothing is."""
        path = folder / self.file
        if not path.is_file():
            return "is missing"
        data = path.read_bytes()
        try:
            return self.fault(gzip.decompress(data) if self.packed else data)
        except (OSError, EOFError):
            return "cannot be unpacked"

    def fault(self, data: bytes) -> str | None:
        """Why ``data`` is not the file, or ``None``."""
        found = hashlib.sha256(data).hexdigest()
        return None if found == self.sha256 else f"has the SHA-256 {found}, expected {self.sha256}"

    def fetch(self, folder: Path, base: str) -> str | None:
        """Get the file; why that failed, or ``None``. A file that is not the right one is not kept."""
        try:
            with urllib.request.urlopen(self.address(base), timeout=SECONDS) as answer:
                data = answer.read(self.bytes + 1)
        except (urllib.error.URLError, OSError) as error:
            return f"could not be fetched from {self.address(base)}: {error}"
        fault = self.fault(data)
        if fault is not None:
            return f"{fault} at {self.address(base)}"
        _write(folder / self.file, gzip.compress(data, mtime=0) if self.packed else data)
        return None


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.replace(partial, path)


def sources() -> list[Source]:
    """All files, by name."""
    rows = json.loads(SOURCES.read_text(encoding="utf-8"))
    return [Source(**row) for row in rows]


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 where a file is missing or different at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=INTO, help="folder of the files")
    parser.add_argument("--only", nargs="*", default=[""], metavar="PREFIX", help="files whose names begin so")
    parser.add_argument("--from", dest="base", default=BASE, metavar="ADDRESS", help="instead of GitHub")
    parser.add_argument("--check", action="store_true", help="get nothing")
    parser.add_argument("--list", action="store_true", help="say where each file comes from")
    given = parser.parse_args(arguments)
    wanted = [one for one in sources() if one.file.startswith(tuple(given.only))]
    if not wanted:
        parser.error(f"no file begins with {' or '.join(given.only)}")
    if given.list:
        for one in wanted:
            print(f"{one.file}: {one.address(given.base)} ({one.licence}, {one.bytes} bytes)")
        return 0
    bad = [f"{one.file} {fault}" for one in wanted if (fault := _settle(one, given.into, given.base, given.check))]
    print("\n".join(bad) or f"all {len(wanted)} files are in {given.into}", file=sys.stderr if bad else sys.stdout)
    return 1 if bad else 0


def _settle(source: Source, folder: Path, base: str, only_check: bool) -> str | None:
    """What is wrong with a file in the end."""
    fault = source.state(folder)
    return fault if fault is None or only_check else source.fetch(folder, base)


if __name__ == "__main__":
    sys.exit(main())
