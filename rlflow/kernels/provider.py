"""The library of kernels as a plug-in execution provider of ONNX Runtime, for programs that make their session
themselves.

The session opens the model as it is. The provider takes the whole graph, and runs the prepared file in its place, in a
session of its own. Where that cannot be, it takes nothing, and ONNX Runtime logs a warning that says why.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from rlflow.errors import RuntimeUnavailable
from rlflow.kernels import preparing, shared_library
from rlflow.kernels.sessions import KernelsNotUsed

#: The provider's name in ONNX Runtime, and the one under which its library is registered.
NAME = "RlflowExecutionProvider"
#: Plug-in providers that compile came with this version.
_OLDEST = (1, 23)


def register() -> None:
    """Make the provider known to ONNX Runtime in this process; calling it again changes nothing.

    Raises RuntimeUnavailable where the kernels were not built or ONNX Runtime is older than 1.23, and RuntimeRefused
    where it refuses the library.
    """
    from rlflow.runtime import inprocess

    found = inprocess.version()
    if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
        raise RuntimeUnavailable(
            f"The execution provider needs ONNX Runtime 1.23 or later, and this is {found}; "
            "upgrade it, or use rlflow.kernels.session, which needs 1.17."
        )
    reason = shared_library.unavailable()
    if reason is not None:
        raise RuntimeUnavailable(f"The execution provider cannot be used: {reason}.")
    if not inprocess.provider_devices(NAME):
        inprocess.register_provider(NAME, shared_library.library_path())


def devices() -> list[Any]:
    """What ``SessionOptions.add_provider_for_devices`` takes; :func:`register` is called first."""
    from rlflow.runtime import inprocess

    register()
    return inprocess.provider_devices(NAME)


def add_provider(
    options: Any, model: str | os.PathLike[str], *, generated: str | os.PathLike[str] | None = None
) -> bool:
    """Let a session that opens the file ``model`` use the kernels of its plan: prepare the model, and add the execution
    provider to ``options``, ``onnxruntime.SessionOptions``. They are for this model only, opened by its path.

    ``generated``: as for :func:`rlflow.kernels.session`. Returns whether the provider was added: where the kernels
    cannot be used, the options stay as they are, and a :class:`KernelsNotUsed` warning says why. Raises ModelError
    where there is no such model, and what :func:`register` raises.
    """
    from rlflow.runtime import inprocess

    found_devices = devices()
    path = os.path.abspath(model)
    found, ticket = preparing.ticketed(path, None if generated is None else os.path.abspath(generated))
    if found.note is not None:
        warnings.warn(f"rlflow.kernels: {found.note}", KernelsNotUsed, stacklevel=2)
    if not found.uses_kernels:
        return False
    inprocess.add_devices(options, found_devices, {"ticket": ticket}, found.code)
    return True
