"""Builds the stand-in for NVIDIA's libraries (``fake/``), once for each of its contents."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake")
BACK_END = ROOT / "cext" / "src" / "cudnn"
LIBRARIES = ("libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9")
#: Kernels of our own alone, and faulty ones for the emulator's sentences.
KERNELS = ("blocks.cc", "launches.cc", "door.cc")
FAULTS = ("blocks.cc", "faults.cc", "door.cc")


def compiler() -> list[str] | None:
    """$CXX, else the first C++ compiler on the path."""
    asked = shlex.split(os.environ.get("CXX", ""))
    if asked and shutil.which(asked[0]):
        return asked
    return next(([name] for name in ("g++", "c++", "clang++") if shutil.which(name)), None)


def library(sources: Sequence[str]) -> Path:
    """A shared object of these files of ``fake/``."""
    command = compiler()
    assert command is not None
    read = [*(FAKE / name for name in sources), *sorted(FAKE.glob("*.h")), *sorted(BACK_END.glob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()[:16]
    folder = ROOT / "build" / "gpu-stand-in" / digest
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "fake.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = folder / "fake.partial"
            flags = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'cext' / 'src'}"]
            files = [os.fspath(FAKE / name) for name in sources]
            subprocess.run([*command, *flags, *files, "-o", os.fspath(partial)], check=True)
            partial.replace(target)
    return target


def build() -> Path:
    """A folder that holds the stand-in under the four names."""
    sources = sorted(path.name for path in FAKE.glob("*.cc") if path.name != "faults.cc")
    folder = library(sources).parent
    for name in LIBRARIES:
        if not (folder / name).exists():  # other workers of the tests may do the same now
            mine = folder / f"{name}.{os.getpid()}"
            mine.symlink_to("fake.so")
            mine.replace(folder / name)
    return folder
