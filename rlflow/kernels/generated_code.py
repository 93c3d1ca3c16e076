"""Generated code: a library of kernels that a compiler made for one model, which the user names beside it.

No model makes rlflow load code. A plan only describes a library: its digest, its instruction set, the shapes of its
functions, and the nodes that they do. Where the user names a library, it must be the one that the plan describes, and a
file that nobody else could have written. What is loaded is a copy of the bytes that were checked, in a folder that only
this user can write to.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow import ledger
from rlflow.errors import ModelError, OutputError
from rlflow.files import write_atomically
from rlflow.kernels.plan_fields import fields_of, integer_of, ratio_of, refused, text_of

if TYPE_CHECKING:
    from rlflow.frontends.kernel_sites import Site

#: Instruction sets that code may need, as the kernels' library names them.
ISAS = ("portable", "avx2", "avx512")
#: What a plan may say at most, and how large a library may be.
_MOST_FUNCTIONS, _MOST_NODES, _MOST_TENSORS, _MOST_RANK, _MOST_SIZE = 1024, 4096, 5, 8, 1 << 31
_MOST_LIBRARY = 64 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_MOST_SIZES = 16

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CodeChoice:
    """``function``: the number of the function that does the ``node``. ``kind``, ``sizes``: of its site
    (:mod:`rlflow.frontends.generated_sites`). ``ratio``: the runtime's time over the function's.
    """

    node: str
    kind: str
    sizes: tuple[int, ...]
    function: int
    ratio: float


@dataclass(frozen=True)
class GeneratedCode:
    """``digest``: SHA-256 of the library. ``isa``: the instruction set that it needs. ``functions``: of each the shapes
    of its inputs, then of its output.
    """

    digest: str
    isa: str
    functions: tuple[Shapes, ...]
    choices: tuple[CodeChoice, ...]

    @classmethod
    def parse(cls, given: Any) -> GeneratedCode:
        """Raises ModelError with the reason for what may not be."""
        fields = fields_of(given, ("digest", "isa", "functions", "choices"), "the field 'generated'")
        digest, isa = text_of(fields["digest"], "digest"), text_of(fields["isa"], "isa")
        if not _DIGEST.match(digest):
            raise refused("the digest of the generated code is no SHA-256 in small letters")
        if isa not in ISAS:
            raise refused(f"the generated code is for {isa[:40]!r}; known are {', '.join(ISAS)}")
        functions = _list(fields["functions"], "functions", 1, _MOST_FUNCTIONS)
        shapes = tuple(_shapes(one) for one in functions)
        choices = _list(fields["choices"], "choices", 1, _MOST_NODES)
        return cls(digest, isa, shapes, tuple(_choice(one, len(shapes)) for one in choices))

    def fitting(self, sites: Sequence[Site]) -> dict[str, int]:
        """The numbers of functions by nodes, for those that are as planned among ``sites``."""
        from rlflow.frontends.generated_sites import tensor_shapes

        known = {one.name: one for one in sites}
        found = {}
        for one in self.choices:
            site, shapes = known.get(one.node), self.functions[one.function]
            if site is None or (site.kind, site.sizes) != (one.kind, one.sizes):
                continue
            if tensor_shapes(site, shapes[0]) == list(shapes):
                found[one.node] = one.function
        return found


def _choice(given: Any, functions: int) -> CodeChoice:
    fields = fields_of(given, ("node", "kind", "sizes", "function", "ratio"), "a choice of generated code")
    sizes = _list(fields["sizes"], "sizes", 1, _MOST_SIZES)
    return CodeChoice(
        text_of(fields["node"], "node"),
        text_of(fields["kind"], "kind"),
        tuple(integer_of(one, "sizes", range(_MOST_SIZE)) for one in sizes),
        integer_of(fields["function"], "function", range(functions)),
        ratio_of(fields["ratio"], "ratio"),
    )


def _shapes(given: Any) -> Shapes:
    tensors = _list(given, "a function's shapes", 2, _MOST_TENSORS)
    return tuple(
        tuple(integer_of(size, "a shape", range(1, _MOST_SIZE)) for size in _list(one, "a shape", 1, _MOST_RANK))
        for one in tensors
    )


def _list(given: Any, what: str, least: int, most: int) -> list[Any]:
    if not isinstance(given, list) or not least <= len(given) <= most:
        raise refused(f"of the generated code, {what} is no list of {least} to {most}")
    return given


# --- the library ------------------------------------------------------------------------------------------------------


def admitted(path: str | os.PathLike[str], planned: GeneratedCode) -> str:
    """The path of a copy of the library that the user named, ready to be loaded. Raises ModelError with the reason
    where it is not the planned one, or where others could have written it.
    """
    content = _read(Path(path))
    if hashlib.sha256(content).hexdigest() != planned.digest:
        raise ModelError(f"The library {path} is not the one that the plan describes: its digest differs.")
    return _kept(content, planned.digest)


def _read(path: Path) -> bytes:
    _check_private(path.parent, os.lstat, stat.S_ISDIR, "folder")
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise ModelError(f"The library {path} cannot be opened: {error.strerror or error}.") from error
    try:
        _check_private(path, lambda _: os.fstat(descriptor), stat.S_ISREG, "file")
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            content = stream.read(_MOST_LIBRARY + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MOST_LIBRARY:
        raise ModelError(f"The library {path} has more than {_MOST_LIBRARY >> 20} MiB.")
    return content


def _check_private(path: Path, status: Any, is_kind: Any, what: str) -> None:
    """Whether nobody but this user, or the system's, could have written there."""
    try:
        found = status(path.resolve() if what == "folder" else path)
    except OSError as error:
        raise ModelError(f"The {what} {path} cannot be read: {error.strerror or error}.") from error
    if not is_kind(found.st_mode):
        raise ModelError(f"The library of generated code should be a regular {what}, and {path} is none.")
    if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
        raise ModelError(f"The {what} {path} belongs to somebody else; its code is not loaded.")
    if hasattr(os, "getuid") and found.st_mode & 0o022:
        raise ModelError(f"Others may write to the {what} {path}; its code is not loaded. Try chmod go-w.")


def _kept(content: bytes, digest: str) -> str:
    """A copy in the user's cache, in a folder that only this user can use."""
    folder = ledger.home() / "generated"
    path = folder / f"{digest[:40]}.so"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not ledger.trusted(folder):
            raise ModelError(f"Others could have written to {folder}; no code is loaded from there.")
        if not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
    except (OSError, OutputError) as error:
        raise ModelError(f"The generated code cannot be copied to {folder}: {error}") from error
    return os.fspath(path)
