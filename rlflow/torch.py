"""From a PyTorch module to a faster callable, in one call.

>>> import torch, rlflow.torch
>>> fast = rlflow.torch.optimize(module, (torch.randn(1, 3, 224, 224),))  # a tensor alone will do as well
>>> fast(torch.randn(1, 3, 224, 224))

The module is exported by ``torch.onnx.export``, optimised as :func:`rlflow.optimize` does, and run in ONNX Runtime.
Needs ``pip install 'rlflow[torch]'``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rlflow.errors import ModelError, RuntimeUnavailable, UsageError
from rlflow.optimizer import OptimizeResult
from rlflow.optimizer import optimize as optimize_model
from rlflow.registry import not_installed

__all__ = ["OptimizedModule", "optimize"]

#: What torch.onnx.export needs: how sentences call it, and its module.
_NEEDED = (("PyTorch", "torch"), ("onnxscript, which torch.onnx.export needs,", "onnxscript"))


class OptimizedModule:
    """Called like the module that it was made of, with tensors; returns what the module returns: a tensor, or tensors
    in the same tuple, list or dictionary. It runs on the processor, without gradients.

    ``result``: the :class:`rlflow.OptimizeResult`, with the report; its ``model`` is the ``torch.onnx.ONNXProgram``.
    """

    def __init__(self, result: OptimizeResult) -> None:
        self.result = result
        self._program = result.model
        self._shape = self._program.exported_program.call_spec.out_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree

        flat = list(self._program(*args, **kwargs))
        if self._shape is None or self._shape.num_leaves != len(flat):
            return tuple(flat)  # an output is no tensor, so the exported model has fewer
        return _pytree.tree_unflatten(flat, self._shape)

    def __repr__(self) -> str:
        return f"<OptimizedModule: {self.result!r}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ONNX model to ``path``; see :meth:`rlflow.OptimizeResult.save`."""
        self.result.save(path)


def optimize(
    module: Any,
    example: Any,
    *,
    example_keywords: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    opset: int | None = None,
    **keywords: Any,
) -> OptimizedModule:
    """Export a ``torch.nn.Module``, search for a faster equivalent model, and return it as a callable.

    ``example``: the arguments that the module is exported with, a tensor or a tuple of them; ``example_keywords``:
    those by name. Sizes are fixed to theirs, but for ``dynamic_shapes`` (as ``torch.onnx.export`` takes them).
    ``opset``: of the exported model (default: torch's own). The other keywords are those of :func:`rlflow.optimize`.

    The module is exported in evaluation mode; its own mode and its weights stay as they are. Raises
    :class:`rlflow.errors.RuntimeUnavailable` where PyTorch or onnxscript is absent, :class:`UsageError` for what is no
    module, :class:`ModelError` where torch cannot export it, and what :func:`rlflow.optimize` raises.
    """
    for title, name in _NEEDED:
        missing = not_installed(title, name, "[torch]")
        if missing is not None:
            raise RuntimeUnavailable(missing)
    arguments = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    program = _exported(module, arguments, example_keywords, dynamic_shapes, opset)
    return OptimizedModule(optimize_model(program, **keywords))


def _exported(
    module: Any, arguments: Sequence[Any], keywords: Mapping[str, Any] | None, dynamic_shapes: Any, opset: int | None
) -> Any:
    """The ``torch.onnx.ONNXProgram`` of a module."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"What is optimised is a torch.nn.Module; {type(module).__name__} is none.")
    training = {one: one.training for one in module.modules()}
    module.eval()
    try:
        return torch.onnx.export(
            module,
            tuple(arguments),
            kwargs=None if keywords is None else dict(keywords),
            dynamic_shapes=dynamic_shapes,
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"torch.onnx.export cannot export {type(module).__name__}: {first[0]}") from error
    finally:
        for one, mode in training.items():
            one.training = mode
