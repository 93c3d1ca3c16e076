"""Other libraries' models: read as a ModelProto, and handed back as what they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnx

__all__ = ["plain_model"]


def plain_model(model: Any) -> tuple[Any, Callable[[onnx.ModelProto], Any] | None]:
    """What this package reads of ``model``, and what makes the same kind of a ModelProto again.

    An ``onnx_ir.Model`` and a ``torch.onnx.ONNXProgram`` become a ModelProto; the objects stay as they are. Everything
    else (a path, bytes, a ModelProto) is returned unchanged, with ``None``.
    """
    if isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview, onnx.ModelProto)):
        return model, None
    import onnx_ir

    if isinstance(model, onnx_ir.Model):
        return onnx_ir.to_proto(model), onnx_ir.from_proto
    if type(model).__name__ == "ONNXProgram" and isinstance(getattr(model, "model", None), onnx_ir.Model):
        kind, exported = type(model), model.exported_program
        return onnx_ir.to_proto(model.model), lambda proto: kind(onnx_ir.from_proto(proto), exported)
    return model, None
