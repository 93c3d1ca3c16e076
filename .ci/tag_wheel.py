"""Gives a wheel the manylinux tag that its compiled parts allow, and says which one that is.

    python .ci/tag_wheel.py WHEEL --into build/dist

What setuptools builds on Linux is tagged linux_x86_64, which no package index takes. The systems on which it runs
follow from the versions of the C and C++ libraries' symbols that it needs, and these from the compiler; auditwheel
reads them. Wheels of a release are built by cibuildwheel, on a system old enough for manylinux_2_28 (make wheels).
Where there is no such tag, as on macOS, the wheel is moved as it is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

_TAG = re.compile(r"manylinux_(\d+)_(\d+)_")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--into", type=Path, required=True, help="folder for the wheel with its tag")
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    if sys.platform != "linux":
        print(shutil.move(given.wheel, given.into / given.wheel.name))
        return 0
    there = set(given.into.iterdir())
    # Nothing is copied into the wheel, so no tool that changes libraries is needed.
    command = [sys.executable, "-m", "auditwheel", "repair", "--patcher", "none", "--wheel-dir", str(given.into)]
    done = subprocess.run([*command, str(given.wheel)], capture_output=True, text=True)
    if done.returncode != 0:
        told = re.sub(r"^[A-Z]+:[\w.]+:", "", (done.stderr.strip() or "it said nothing").splitlines()[-1])
        print(f"{given.wheel} has no manylinux tag; auditwheel ended with {done.returncode}: {told}", file=sys.stderr)
        return 1
    print(sentence(newest(given.into, there)))
    return 0


def newest(folder: Path, before: set[Path]) -> Path:
    """The wheel that came into the folder, or was written over there."""
    wheels = [one for one in folder.glob("*.whl") if _TAG.search(one.name)]
    return next((one for one in wheels if one not in before), max(wheels, key=lambda one: one.stat().st_mtime))


def sentence(wheel: Path) -> str:
    """What the wheel's name promises."""
    major, minor = min((int(major), int(minor)) for major, minor in _TAG.findall(wheel.name))
    return f"{wheel}: this machine's compiler allows manylinux_{major}_{minor}, which is glibc {major}.{minor} or newer"


if __name__ == "__main__":
    sys.exit(main())
