"""What a model's outputs are in double precision: the reference evaluator of ONNX, with the operators for which it
needs minutes done by torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


def outputs_in_double(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Every output, in the model's order; what is float32 in the model is float64 here.

    Raises NotImplementedError for an operator or an attribute that neither does, and where the evaluation fails: at a
    limit of ONNX's evaluator, or at a float32 that is not widened here.
    """
    widened = _widened(onnx.ModelProto.FromString(model))
    wide = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in feeds.items()}
    evaluator = ReferenceEvaluator(widened, new_ops=[Conv, ConvTranspose, MaxPool, AveragePool, Resize])
    try:
        found = evaluator.run(None, wide)
    except NotImplementedError:
        raise
    except Exception as error:  # GatherElements of more than 64 choices, among others
        why = str(error).partition("\n")[0]
        raise NotImplementedError(f"the evaluation in double precision fails: {type(error).__name__}: {why}") from error
    return [np.asarray(one) for one in found]


def largest_error(truth: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The largest error of floating-point outputs over the largest value of the same output."""
    errors = [0.0]
    for right, one in zip(truth, found, strict=True):
        if right.dtype.kind == "f" and right.size:
            scale = max(float(np.abs(right).max()), np.finfo(np.float32).tiny)
            errors.append(float(np.abs(one.astype(np.float64) - right).max()) / scale)
    return max(errors)


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 for float32."""
    graph = model.graph
    for tensor in graph.initializer:
        _widen(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                raise NotImplementedError(f"the body of {node.op_type} is not widened")
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return model


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


# --- operators by torch -----------------------------------------------------------------------------------------------


def _pads(x: Any, given: Any, auto_pad: Any, kernel: list[int], strides: list[int], dilations: list[int]) -> list[int]:
    """Padding before and after each axis, in ONNX's order."""
    rank = len(kernel)
    if auto_pad in (None, "", "NOTSET"):
        return list(given or [0] * 2 * rank)
    if auto_pad == "VALID":
        return [0] * 2 * rank
    needed = []
    for axis in range(rank):
        size = x.shape[2 + axis]
        steps = (-(-size // strides[axis]) - 1) * strides[axis]
        total = max(steps + (kernel[axis] - 1) * dilations[axis] + 1 - size, 0)
        less, more = total // 2, total - total // 2
        needed.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    return [before for before, _ in needed] + [after for _, after in needed]


def _padded(x: np.ndarray, pads: list[int], value: float) -> Any:
    import torch

    rank = len(pads) // 2
    order = [amount for axis in reversed(range(rank)) for amount in (pads[axis], pads[rank + axis])]
    return torch.nn.functional.pad(torch.from_numpy(np.array(x)), order, value=value)


class Conv(OpRun):
    def _run(
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None
    ):  # fmt: skip
        import torch

        rank = w.ndim - 2
        strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
        wide = _padded(x, _pads(x, pads, auto_pad, list(w.shape[2:]), strides, dilations), 0.0)
        call = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 1]
        bias = None if b is None else torch.from_numpy(np.array(b))
        return (call(wide, torch.from_numpy(np.array(w)), bias, strides, 0, dilations, group or 1).numpy(),)


class ConvTranspose(OpRun):
    def _run(
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        import torch

        if output_shape or auto_pad not in (None, "", "NOTSET") or w.ndim != 4 or len(set(pads or [0])) > 1:
            raise NotImplementedError("this ConvTranspose is not done in double precision")
        bias = None if b is None else torch.from_numpy(np.array(b))
        given = (strides or 1, (pads or [0])[0], output_padding or 0, group or 1, dilations or 1)
        found = torch.nn.functional.conv_transpose2d(
            torch.from_numpy(np.array(x)), torch.from_numpy(np.array(w)), bias, *given
        )
        return (found.numpy(),)


class MaxPool(OpRun):
    def _run(
        self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None, storage_order=None,
        strides=None,
    ):  # fmt: skip
        import torch

        if x.ndim != 4 or len(self.onnx_node.output) > 1:
            raise NotImplementedError("this MaxPool is not done in double precision")
        strides, dilations = list(strides or [1, 1]), list(dilations or [1, 1])
        wide = _padded(x, _pads(x, pads, auto_pad, list(kernel_shape), strides, dilations), float("-inf"))
        found = torch.nn.functional.max_pool2d(wide, kernel_shape, strides, 0, dilations, bool(ceil_mode))
        return (found.numpy(),)


class AveragePool(OpRun):
    def _run(
        self, x, auto_pad=None, ceil_mode=None, count_include_pad=None, dilations=None, kernel_shape=None, pads=None,
        strides=None,
    ):  # fmt: skip
        import torch

        if x.ndim != 4 or ceil_mode or set(dilations or [1]) != {1}:
            raise NotImplementedError("this AveragePool is not done in double precision")
        strides = list(strides or [1, 1])
        room = _pads(x, pads, auto_pad, list(kernel_shape), strides, [1, 1])
        mean = torch.nn.functional.avg_pool2d(_padded(x, room, 0.0), kernel_shape, strides)
        inside = np.ones_like(x[:1, :1])
        counts = _padded(inside, room, float(bool(count_include_pad)))
        counted = torch.nn.functional.avg_pool2d(counts, kernel_shape, strides)
        return ((mean / counted).numpy(),)


class Resize(OpRun):
    def _run(self, x, roi=None, scales=None, sizes=None, **how):
        times = [float(one) for one in scales] if scales is not None and len(scales) else []
        if sizes is not None and len(sizes):
            times = [size / own for size, own in zip(sizes, x.shape, strict=True)]
        if how.get("mode") not in (None, "nearest") or any(one != int(one) or one < 1 for one in times):
            raise NotImplementedError("this Resize is not done in double precision")
        for axis, one in enumerate(times):
            x = np.repeat(x, int(one), axis=axis)
        return (x,)


__all__ = ["largest_error", "outputs_in_double"]
