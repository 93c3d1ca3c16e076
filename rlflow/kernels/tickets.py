"""Tickets: small texts that say which prepared file belongs to a model on this machine. The execution provider in the
library of kernels reads them (``cext/kernels/ticket.cc``), in programs of any language and without Python.

A ticket knows a model by the size and the time of its file and of those with its weights, as ``make`` does: hashing
them takes as long as loading them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rlflow.errors import ModelError
from rlflow.files import write_atomically

#: What stands behind a model's name in that of the ticket beside it.
ENDING = ".kernels"
#: What a processor has that runs the kernels of an instruction set, the widest first; as ``cext/kernels/isa.cc``.
_FLAGS = {"avx512": {"avx2", "fma", "avx512f", "avx512vl", "avx512dq", "avx512bw"}, "avx2": {"avx2", "fma"}}


def write(path: str, form: str, model: str, prepared: str) -> None:
    """Write the ticket for the file ``prepared``, which was made of ``model`` in this ``form``. Raises OutputError, and
    ModelError where there is no such model.
    """
    try:
        lines = list(_lines(form, model, prepared))
    except OSError as error:
        raise ModelError(f"The file {error.filename} cannot be read: {error.strerror or error}.") from error
    if any("\n" in line for line in lines):
        raise ModelError(f"The names of the files of {model!r} have line breaks, which a ticket cannot hold.")
    text = "".join(f"{line}\n" for line in lines)
    if not _says(path, text):  # where it says so already, the folder may be one that nobody writes to
        write_atomically(path, text)


def _says(path: str, text: str) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8") == text
    return False


def cached(model: str, prepared: str) -> str:
    """The name of the ticket that lies beside the prepared file; it goes when that goes."""
    return f"{prepared}.{hashlib.sha256(os.fsencode(model)).hexdigest()[:16]}.ticket"


def key_of(prepared: str) -> str:
    """What the metadata of a prepared file must say: its name, which is made of all that it depends on."""
    return Path(prepared).stem


def _lines(form: str, model: str, prepared: str) -> Iterator[str]:
    from rlflow.runtime import inprocess, interface

    yield f"rlflow.kernels.ticket {form}"
    yield f"runtime {inprocess.version()}"
    yield f"processor {instruction_set()}"
    yield f"model {_mark(Path(model))}"
    for name in interface.data_files(model):
        yield f"weights {_mark(Path(model).resolve().parent / name)} {name}"
    yield f"prepared {os.stat(prepared).st_size} {os.path.abspath(prepared)}"
    yield f"key {key_of(prepared)}"


def instruction_set() -> str:
    """As the library of kernels names it. It decides how many channels are in a block of the runtime's tensors."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, flags = line.partition(":")
            if name.strip() == "flags":
                return next((isa for isa, needed in _FLAGS.items() if needed <= set(flags.split())), "portable")
    return "portable"


def _mark(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns // 10**9} {found.st_mtime_ns % 10**9}"
