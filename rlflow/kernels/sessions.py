"""A session of ONNX Runtime that uses the kernels where it can."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from rlflow.errors import RuntimeRefused
from rlflow.kernels import shared_library
from rlflow.kernels.preparing import Prepared, forget, prepared


class KernelsNotUsed(UserWarning):
    """The model runs as ONNX Runtime runs it by itself; the message says why."""


def session(
    model: str | os.PathLike[str] | bytes,
    options: Any = None,
    *,
    providers: Sequence[Any] | None = None,
    generated: str | os.PathLike[str] | None = None,
) -> Any:
    """An ``onnxruntime.InferenceSession`` of ``model`` (a path, or serialised ONNX) that uses the kernels of its plan.

    ``options``: ``onnxruntime.SessionOptions`` of your own, fresh ones for each session: the kernels' library is
    registered in them and their optimisation level is switched off, because the graph is already optimised.
    ``providers``: as for an ``InferenceSession``; another first provider than the CPU's gets the plain model.
    ``generated``: the library of generated code that ``rlflow tune --generate`` wrote beside the model. Its code runs
    in this process, so name only what you trust; no model names one by itself.

    Where the kernels cannot be used, the session is the plain one, and a :class:`KernelsNotUsed` warning says why.
    Raises ModelError where there is no such model, RuntimeRefused where ONNX Runtime itself refuses it.
    """
    from rlflow.runtime import inprocess

    source = model if isinstance(model, bytes) else os.fspath(model)
    chosen = inprocess.new_options() if options is None else options
    library = None if generated is None else os.path.abspath(generated)
    found = prepared(source, library) if _on_processor(providers) else Prepared(source, False, "it shall run elsewhere")
    if found.uses_kernels:
        try:
            opened = _with_kernels(found, chosen, providers)
            _tell(found.note)
            return opened
        except RuntimeRefused as error:
            if isinstance(found.source, str):
                forget(found.source)
            found = Prepared(source, False, str(error))
    _tell(found.note)
    return inprocess.open_session(source, chosen, providers)


def _with_kernels(found: Prepared, options: Any, providers: Sequence[Any] | None) -> Any:
    from rlflow.runtime import inprocess

    undo = inprocess.with_library(options, shared_library.library_path(), found.code)
    try:
        return inprocess.open_session(found.source, options, providers)
    except RuntimeRefused:
        undo()
        raise


def _on_processor(providers: Sequence[Any] | None) -> bool:
    return not providers or providers[0] == "CPUExecutionProvider"


def _tell(note: str | None) -> None:
    if note is not None:
        warnings.warn(f"rlflow.kernels: {note}", KernelsNotUsed, stacklevel=3)
