"""Builds the stand-in for NVIDIA's libraries (fake_cuda.cc), once for each of its contents."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("fake_cuda.cc")
LIBRARIES = ("libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9")


def compiler() -> list[str] | None:
    """$CXX, else the first C++ compiler on the path."""
    asked = shlex.split(os.environ.get("CXX", ""))
    if asked and shutil.which(asked[0]):
        return asked
    return next(([name] for name in ("g++", "c++", "clang++") if shutil.which(name)), None)


def build() -> Path:
    """A folder that holds the stand-in under the four names."""
    command = compiler()
    assert command is not None
    parts = [SOURCE, *sorted((ROOT / "cext" / "src" / "cudnn").glob("*.h"))]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:16]
    folder = ROOT / "build" / "gpu-stand-in" / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / LIBRARIES[-1]).exists():
            library = folder / "fake_cuda.so"
            flags = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", f"-I{ROOT / 'cext' / 'src'}"]
            subprocess.run([*command, *flags, os.fspath(SOURCE), "-o", os.fspath(library)], check=True)
            for name in LIBRARIES:
                (folder / name).symlink_to(library.name)
    return folder
