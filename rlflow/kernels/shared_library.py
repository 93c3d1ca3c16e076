"""The library of kernels that was built with this package, or why there is none."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

NAME = "_kernels.so"
#: What the library takes for ``RLFLOW_KERNELS_ISA``; it refuses others when it is loaded, which is late.
_INSTRUCTION_SETS = ("", "avx512", "avx2", "portable")


def library_path() -> str:
    """The library's path, whether it is there or not; what ``RegisterCustomOpsLibrary`` of ONNX Runtime takes."""
    return os.fspath(Path(__file__).resolve().parent.parent / NAME)


def unavailable() -> str | None:
    """Why there are no kernels here, or ``None``."""
    asked = os.environ.get("RLFLOW_KERNELS_ISA", "")
    if asked not in _INSTRUCTION_SETS:
        return f"RLFLOW_KERNELS_ISA is {asked!r}; expected avx512, avx2 or portable"
    if os.path.isfile(library_path()):
        return None
    if sys.platform == "win32":
        return "the kernels are not built on Windows"
    return "the library of kernels was not built with this installation; it needs GCC or Clang"


@functools.cache
def digest() -> str:
    """The library's own digest: another build prepares models again."""
    return hashlib.sha256(Path(library_path()).read_bytes()).hexdigest()
