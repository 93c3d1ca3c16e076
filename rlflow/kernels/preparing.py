"""From a model with a plan to the file that uses the kernels on this machine: ONNX Runtime's own optimised graph with
the plan's nodes replaced. It fits one processor and one version of the runtime, so it is made here and kept in
the user's cache. Its weights are in a file of their own, which ONNX Runtime maps: they are neither parsed nor copied.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlflow import ledger
from rlflow.errors import ModelError, OutputError, RlflowError, RuntimeRefused
from rlflow.files import check_readable
from rlflow.kernels import generated_code, shared_library, tickets
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.kernels.plan import KEY, KernelPlan

#: Raised when prepared files of old are of no use any more; cext/kernels/ticket.cc has the same.
_FORM = "4"
#: The entry in a prepared file's metadata: what it was made of, and for what. The execution provider compares it.
_KEY = "rlflow.kernels.prepared"
#: The cache is kept below this: the files that were not used for longest go first.
_CACHE_BYTES = 4 << 30


@dataclass(frozen=True)
class Prepared:
    """What a session should load: ``source`` with the kernels' library where ``uses_kernels``, else the model as it
    came. ``note``: what the user should know, if anything. ``code``: a library of generated code that it calls.
    """

    source: bytes | str
    uses_kernels: bool
    note: str | None = None
    code: str | None = None


def prepare(
    path: str | os.PathLike[str], *, generated: str | os.PathLike[str] | None = None, beside: bool = False
) -> str:
    """The path of a file that uses the kernels, for programs in any language: they register the library
    :func:`rlflow.kernels.library_path` in their session options and open that file. Where it shall call the library
    ``generated``, they first give the options an entry ``rlflow.kernels.generated`` with its absolute path.

    ``beside``: also write a ticket beside the model, of its name and ``.kernels``. By it the execution provider finds
    the prepared file where a program opens the model itself.

    Where there is no plan, or it cannot be used here, it is ``path`` itself; :func:`rlflow.kernels.session` would say
    why. Raises ModelError where there is no such model, and OutputError where the ticket cannot be written.
    """
    model, code = os.fspath(path), None if generated is None else os.path.abspath(generated)
    found = ticketed(model, code, model + tickets.ENDING)[0] if beside else prepared(model, code)
    return found.source if isinstance(found.source, str) else os.fspath(path)


def prepared(model: bytes | str, generated: str | None = None) -> Prepared:
    """The model ready for a session; ``generated``: the library of generated code that the user named. Raises
    ModelError only where ``model`` is no model.
    """
    from rlflow.runtime import interface

    if isinstance(model, str):
        check_readable(model, "The model", ModelError)
    try:
        text = interface.metadata_entry(model, KEY)
    except RuntimeRefused as error:
        raise ModelError(str(error)) from error
    if text is None:
        return Prepared(model, False, "the model has no plan; write one with `rlflow optimize --kernels`")
    reason = shared_library.unavailable()
    if reason is not None:
        return Prepared(model, False, reason)
    try:
        return _with_plan(model, KernelPlan.parse(text), generated)
    except (RlflowError, OSError) as error:
        return Prepared(model, False, str(error))


def ticketed(model: str, generated: str | None = None, ticket: str | None = None) -> tuple[Prepared, str]:
    """The model prepared for the execution provider, and where its ticket is: at ``ticket``, or beside the prepared
    file. Raises as :func:`prepared`, and OutputError where ``ticket`` cannot be written.
    """
    found = prepared(model, generated)
    if found.uses_kernels and isinstance(found.source, str) and not _is_whole(found.source):
        forget(found.source)  # the provider cannot do that
        found = prepared(model, generated)
    if not found.uses_kernels:
        return found, ""
    if isinstance(found.source, bytes):
        return Prepared(model, False, f"the prepared file cannot be kept under {ledger.home()}"), ""
    target = ticket or tickets.cached(model, found.source)
    try:
        tickets.write(target, _FORM, model, found.source)
    except OutputError as error:
        if ticket is not None:
            raise
        return Prepared(model, False, str(error)), ""
    return found, target


def _is_whole(path: str) -> bool:
    """Whether a prepared file was not cut off, and has its weights."""
    from rlflow.runtime import interface

    try:
        weights = [Path(path).parent / name for name in interface.data_files(path)]
        return interface.metadata_entry(path, _KEY) == tickets.key_of(path) and all(one.is_file() for one in weights)
    except RuntimeRefused:
        return False


def forget(path: str) -> None:
    """Remove a prepared file with its weights; it is made again next time."""
    for one in _files_of(Path(path)):
        with suppress(OSError):
            one.unlink()


def _files_of(path: Path) -> list[Path]:
    """A prepared file, those of its weights, and its tickets."""
    return [path, *path.parent.glob(f"{path.name}.*")]


def _with_plan(model: bytes | str, plan: KernelPlan, generated: str | None) -> Prepared:
    code = _code(plan, generated)
    key = _key(model, code)
    path = ledger.home() / "kernels" / f"{key}.onnx"
    if path.is_file():
        with suppress(OSError):
            os.utime(path)  # used: it is kept for longer
        return Prepared(os.fspath(path), True, _unnamed(plan, generated), code)
    from rlflow.frontends import blocked  # the start of a session that finds its file does without

    made, note = applied(model, plan, with_code=code is not None)
    if made is None:
        return Prepared(model, False, note)
    if code is not None:
        _check_runs(made, model, code)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        blocked.write_apart(made, os.fspath(path), {_KEY: key})
    except (OSError, OutputError):
        return Prepared(made, True, note, code)  # without a cache it is made again next time
    _prune(path)
    return Prepared(os.fspath(path), True, note, code)


def _code(plan: KernelPlan, generated: str | None) -> str | None:
    """What is loaded of the library that the user named. Raises ModelError and RuntimeRefused, where it cannot be."""
    from rlflow.runtime import inprocess

    if generated is None:
        return None
    if plan.generated is None:
        raise ModelError(f"The model's plan knows of no generated code, and {generated} was named.")
    code = generated_code.admitted(generated, plan.generated)
    inprocess.with_library(inprocess.new_options(), shared_library.library_path(), code)  # the processor may lack it
    return code


def _check_runs(made: bytes, model: bytes | str, code: str) -> None:
    """Whether the code takes what its nodes get here: the runtime's graph does not say, and a plan may lie.

    Raises ModelError where the graph cannot run, and the model itself can.
    """
    from rlflow.runtime import inprocess

    try:
        inprocess.trial(made, shared_library.library_path(), code)
        return
    except RlflowError as error:
        why = error
    try:
        inprocess.trial(model)
    except RlflowError:  # no inputs can be made up for it, which says nothing of the code
        return
    raise ModelError(f"the generated code does not run in this model: {why}") from why


def _unnamed(plan: KernelPlan, generated: str | None) -> str | None:
    """What to say of generated code that nobody named."""
    if plan.generated is None or generated is not None:
        return None
    count = len(plan.generated.choices)
    return f'generated code does {count} nodes where its library is named: session(..., generated="kernels.so")'


def applied(model: bytes | str, plan: KernelPlan, with_code: bool = False) -> tuple[bytes | None, str | None]:
    """The runtime's graph with the plan's choices, ``None`` where none fits; and a note where some do not.
    ``with_code``: also those of generated code.
    """
    from rlflow.frontends.blocked import BlockedGraph, whole
    from rlflow.frontends.generated_sites import FUNCTION
    from rlflow.runtime import inprocess

    graph = BlockedGraph(inprocess.optimised(whole(model)), block_here(), plan.threads)
    known = {one.name: one for one in graph.sites()}
    present = (one for one in plan.choices if one.node in known)
    fitting = [one for one in present if one.fits(known[one.node].kind, known[one.node].sizes)]
    chosen = {one.node: one.attributes for one in fitting}
    coded = plan.generated if with_code else None
    if coded is not None:
        chosen |= {node: {FUNCTION: number} for node, number in coded.fitting(graph.code_sites()).items()}
    planned = len(plan.choices) + (len(coded.choices) if coded is not None else 0)
    unnamed = None if with_code else _unnamed(plan, None)
    if not chosen:
        return None, unnamed or "none of the plan's nodes is in the graph that this version of ONNX Runtime makes"
    more = sum(ALGORITHMS[one.algorithm].more_bytes(known[one.node].sizes) for one in fitting)
    if more and not graph.may_grow(more):
        return None, "with the plan's transformed weights the model would be too large for one piece"
    missing = planned - len(chosen)
    note = f"{missing} of the plan's {planned} nodes are not as planned here" if missing else unnamed
    return graph.with_kernels(chosen), note


@functools.cache
def block_here() -> int:
    """Channels in a block of ONNX Runtime's tensors on this processor; 0: it has no blocks."""
    from rlflow.frontends import blocked
    from rlflow.runtime import inprocess

    return blocked.block_of(inprocess.optimised(blocked.probe())) or 0


def _key(model: bytes | str, code: str | None) -> str:
    """Names everything that a prepared file depends on."""
    from rlflow.runtime import inprocess

    found = hashlib.sha256()
    for part in (_FORM, inprocess.version(), inprocess.processor(), shared_library.digest(), code or ""):
        found.update(part.encode() + b"\0")
    for piece in _contents(model):
        found.update(piece)
    return found.hexdigest()[:40]


def _contents(model: bytes | str) -> Iterator[bytes]:
    """The model's bytes, and those of the files with its weights."""
    from rlflow.runtime import interface

    if isinstance(model, bytes):
        yield model
        return
    folder = Path(model).resolve().parent
    for path in [Path(model), *(folder / name for name in interface.data_files(model))]:
        try:
            with open(path, "rb") as stream:
                while piece := stream.read(1 << 20):
                    yield piece
        except OSError as error:
            raise ModelError(f"The file {path} cannot be read: {error.strerror or error}.") from error


def _prune(kept: Path) -> None:
    """Remove the prepared files that were not used for longest while all of them take too much room."""
    with suppress(OSError):
        found = [
            (path.stat().st_mtime, sum(one.stat().st_size for one in _files_of(path)), path)
            for path in kept.parent.glob("*.onnx")
        ]
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= _CACHE_BYTES or path == kept:
                return
            forget(os.fspath(path))
            total -= size
