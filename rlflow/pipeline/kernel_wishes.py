"""Whether a plan of kernels is wanted, and can be made; :mod:`rlflow.pipeline.kernel_planning` makes it."""

from __future__ import annotations

from typing import Any

from rlflow.errors import UsageError

__all__ = ["check_kernels", "wants_kernels"]


def wants_kernels(options: Any) -> bool:
    """Whether a plan is made at the end: it was asked for, or the graph was chosen by prices with kernels."""
    return bool(options.kernels) or options.place.with_kernels


def check_kernels(options: Any) -> None:
    """Refuse ``--kernels`` where no plan can be made, before any work begins. Raises :class:`UsageError`."""
    if not wants_kernels(options):
        return
    if not (options.place.is_default or options.place.with_kernels) or options.place.command is not None:
        raise UsageError("--kernels is for ONNX Runtime on the processor; leave out the other runtime, or --kernels.")
    from rlflow.kernels.shared_library import unavailable

    reason = unavailable()
    if reason is not None:
        raise UsageError(f"--kernels cannot be used here: {reason}.")
