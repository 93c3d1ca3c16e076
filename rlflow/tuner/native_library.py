"""From compiled functions to a library of generated code: a small C file that lists them, and the system's linker.

The library needs nothing but the C library. Its form is that of ``cext/kernels/generated.h``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rlflow.errors import OutputError
from rlflow.files import ScratchFolder

#: Compilers of C that also link, in the order in which they are tried; $CC comes first.
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 60.0

#: What code of TVM may call for memory that does not fit on the stack; it finds it by a pointer.
_HEAD = """\
#include <stdint.h>
#include <stdlib.h>

static void *rlflow_alloc(int kind, int device, uint64_t bytes, int code, int bits) {
  void *found = 0;
  return posix_memalign(&found, 64, bytes ? bytes : 1) ? 0 : found;
}
static int rlflow_free(int kind, int device, void *memory) { free(memory); return 0; }
void *__TVMBackendAllocWorkspace = (void *)rlflow_alloc;
void *__TVMBackendFreeWorkspace = (void *)rlflow_free;

struct function { int32_t inputs; const int64_t *shapes; int32_t (*call)(const float *const *, float *); };
"""
_TAIL = """\
__attribute__((visibility("default")))
const struct {{ const char *isa; int32_t count; const struct function *functions; }}
rlflow_generated_1 = {{"{isa}", {count}, functions}};
"""


class CompiledFunction(NamedTuple):
    """``symbol``: of a C function that takes pointers to the inputs and to the output. ``shapes``: of these."""

    symbol: str
    file: Path
    shapes: Sequence[Sequence[int]]


def unavailable() -> str | None:
    """Why no library can be made here, or ``None``."""
    return None if _compiler() else "there is no C compiler (cc, gcc or clang), which links generated code"


def write_library(path: Path, functions: Sequence[CompiledFunction], isa: str) -> None:
    """Link ``functions``, numbered in their order. The file is new, so that a process keeps the one it has open.

    Raises OutputError where it cannot be made.
    """
    compiler = _compiler()
    if compiler is None:
        raise OutputError(f"{path} cannot be made: {unavailable()}.")
    with ScratchFolder("rlflow-code-") as folder:
        source, made = Path(folder, "table.c"), Path(folder, "library.so")
        source.write_text(_source(functions, isa), encoding="utf-8")
        objects = [os.fspath(one.file) for one in functions]
        bound = ["-Wl,-Bsymbolic"] if sys.platform == "linux" else []  # its names are its own, whatever else is loaded
        command = [compiler, "-shared", "-fPIC", "-O1", "-w", *bound, os.fspath(source), *objects, "-lm"]
        command += ["-o", os.fspath(made)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if ended.returncode:
                raise OutputError(f"{compiler} cannot link the generated code: {ended.stderr.strip()[-300:]}")
            path.unlink(missing_ok=True)
            shutil.copyfile(made, path)
            path.chmod(0o644)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OutputError(f"{path} cannot be made by {compiler}: {error}") from error


def _compiler() -> str | None:
    wanted = filter(None, (os.environ.get("CC", "").split(" ")[0], *_COMPILERS))
    return next((found for one in wanted if (found := shutil.which(one))), None)


def _source(functions: Sequence[CompiledFunction], isa: str) -> str:
    parts, rows = [_HEAD], list[str]()
    for number, one in enumerate(functions):
        inputs = len(one.shapes) - 1
        numbers = ", ".join(str(size) for shape in one.shapes for size in (len(shape), *shape))
        taken = ", ".join([*(f"in[{at}]" for at in range(inputs)), "out"])
        pointers = ", ".join(["const float *"] * inputs + ["float *"])
        parts.append(
            f"extern int32_t {one.symbol}({pointers});\n"
            f"static const int64_t shapes{number}[] = {{{numbers}}};\n"
            f"static int32_t call{number}(const float *const *in, float *out) {{ return {one.symbol}({taken}); }}\n"
        )
        rows.append(f"{{{inputs}, shapes{number}, call{number}}}")
    parts.append(f"static const struct function functions[] = {{{', '.join(rows)}}};\n")
    return "".join([*parts, _TAIL.format(isa=isa, count=len(functions))])
