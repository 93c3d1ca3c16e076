"""Operators as torch calls: the plain ones (no compiler), as most people deploy torch; pointwise ones are not fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - as torch's own manuals call it

from rlflow.errors import RuntimeRefused

Tensor: TypeAlias = torch.Tensor
Attrs = Mapping[str, Any]
#: (attributes, operands, types of the results) -> results
Op = Callable[[Attrs, Sequence[Any], Sequence[torch.dtype]], Any]


def _unary(function: Callable[[Tensor], Tensor]) -> Op:
    return lambda attrs, x, types: function(x[0])


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Op:
    return lambda attrs, x, types: function(x[0], x[1])


def _fold(function: Callable[[Any, Any], Any]) -> Op:
    def run(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
        total = x[0]
        for other in x[1:]:
            total = function(total, other)
        return total / len(x) if attrs["op"] == "Mean" else total

    return run


def _div(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return torch.div(x[0], x[1], rounding_mode=None if x[0].is_floating_point() else "trunc")


def _mod(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return torch.fmod(x[0], x[1]) if attrs.get("fmod") else torch.remainder(x[0], x[1])


def _clip(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    low, high = (x[1] if len(x) > 1 else None), (x[2] if len(x) > 2 else None)
    return x[0] if low is None and high is None else torch.clamp(x[0], low, high)


def _gelu(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.gelu(x[0], approximate=attrs.get("approximate", "none"))


def _cast(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return x[0].to(types[0])


def _hard_sigmoid(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return torch.clamp(x[0] * attrs["alpha"] + attrs["beta"], 0.0, 1.0)


def _matmul(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return torch.matmul(x[0], x[1])


def _gemm(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    a = x[0].t() if attrs["transA"] else x[0]
    b = x[1].t() if attrs["transB"] else x[1]
    if len(x) > 2 and x[2] is not None:
        return torch.addmm(x[2], a, b, beta=attrs["beta"], alpha=attrs["alpha"])
    return torch.mm(a, b) * attrs["alpha"] if attrs["alpha"] != 1.0 else torch.mm(a, b)


def _padded(x: Tensor, pads: Sequence[int], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """The operand, padded where its ends differ, and the symmetric padding that is left."""
    space = len(pads) // 2
    if list(pads[:space]) == list(pads[space:]):
        return x, list(pads[:space])
    order = [side for d in reversed(range(space)) for side in (pads[d], pads[space + d])]
    return F.pad(x, order, value=value), [0] * space


_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _conv(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    space = x[0].dim() - 2
    data, padding = _padded(x[0], attrs.get("pads") or [0] * (2 * space))
    bias = x[2] if len(x) > 2 else None
    strides, dilations = attrs.get("strides") or [1] * space, attrs.get("dilations") or [1] * space
    return _CONVOLUTIONS[space](data, x[1], bias, strides, padding, dilations, attrs.get("group", 1))


_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _max_pool(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    if len(attrs["shapes"]) > 1:
        raise RuntimeRefused("torch cannot run the model: a MaxPool gives the positions of its maxima.")
    space = x[0].dim() - 2
    low = float("-inf")
    data, padding = _padded(x[0], attrs.get("pads") or [0] * (2 * space), low)
    strides, dilations = attrs.get("strides") or [1] * space, attrs.get("dilations") or [1] * space
    ceil = bool(attrs.get("ceil_mode"))
    return _MAX_POOLS[space](data, attrs["kernel_shape"], strides, padding, dilations, ceil_mode=ceil)


def _average_pool(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    space = x[0].dim() - 2
    pads = list(attrs.get("pads") or [0] * (2 * space))
    counted, ceil = bool(attrs.get("count_include_pad")), bool(attrs.get("ceil_mode"))
    strides = attrs.get("strides") or [1] * space
    if any(d != 1 for d in attrs.get("dilations") or []):
        raise RuntimeRefused("torch cannot run the model: there is no average pool with dilations.")
    if pads[:space] == pads[space:]:
        return _AVERAGE_POOLS[space](x[0], attrs["kernel_shape"], strides, pads[:space], ceil, counted)
    data, _ = _padded(x[0], pads)
    total = _AVERAGE_POOLS[space](data, attrs["kernel_shape"], strides, 0, ceil, True)
    if counted:
        return total
    ones, _ = _padded(torch.ones_like(x[0][:1, :1]), pads)
    return total / _AVERAGE_POOLS[space](ones, attrs["kernel_shape"], strides, 0, ceil, True)


def _global_pool(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axes = tuple(range(2, x[0].dim()))
    reduce = torch.amax if attrs["op"] == "GlobalMaxPool" else torch.mean
    return reduce(x[0], dim=axes, keepdim=True)


def _batch_norm(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.batch_norm(x[0], x[3], x[4], x[1], x[2], training=False, eps=attrs["epsilon"])


def _layer_norm(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    shape = x[0].shape[attrs.get("axis", -1) :]
    scale, shift = (None if w is None else w.expand(shape) for w in (x[1], x[2] if len(x) > 2 else None))
    if attrs["op"] == "RMSNormalization":
        return F.rms_norm(x[0], shape, scale, attrs["epsilon"])
    return F.layer_norm(x[0], shape, scale, shift, attrs["epsilon"])


def _instance_norm(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.instance_norm(x[0], weight=x[1], bias=x[2], eps=attrs["epsilon"])


def _group_norm(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.group_norm(x[0], attrs["num_groups"], x[1], x[2], attrs["epsilon"])


def _lrn(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.local_response_norm(x[0], attrs["size"], attrs["alpha"], attrs["beta"], attrs["bias"])


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceSum": torch.sum,
    "ReduceMean": torch.mean,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceL1": lambda x, dim, keepdim: x.abs().sum(dim, keepdim=keepdim),
    "ReduceL2": lambda x, dim, keepdim: x.square().sum(dim, keepdim=keepdim).sqrt(),
    "ReduceLogSum": lambda x, dim, keepdim: x.sum(dim, keepdim=keepdim).log(),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceSumSquare": lambda x, dim, keepdim: x.square().sum(dim, keepdim=keepdim),
}


def _reduce(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axes = attrs.get("axes")
    if axes is None and len(x) > 1 and x[1] is not None:
        axes = [int(axis) for axis in x[1].tolist()]
    if not axes:
        axes = range(x[0].dim())
    keep = bool(attrs.get("keepdims", 1))
    if attrs["op"] == "ReduceProd":
        for axis in sorted((axis % x[0].dim() for axis in axes), reverse=True):
            x = [x[0].prod(axis, keepdim=keep)]
        return x[0]
    return _REDUCTIONS[attrs["op"]](x[0], dim=tuple(axes), keepdim=keep)


def _arg(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axis, find = attrs["axis"], torch.argmax if attrs["op"] == "ArgMax" else torch.argmin
    if not attrs.get("select_last_index"):
        return find(x[0], axis, keepdim=bool(attrs["keepdims"]))
    return x[0].shape[axis] - 1 - find(x[0].flip(axis), axis, keepdim=bool(attrs["keepdims"]))


def _view(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return x[0].reshape(attrs["shapes"][0])


def _transpose(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return x[0].permute(attrs["perm"])


def _split(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axis = attrs["axis"]
    return torch.split(x[0], [shape[axis] for shape in attrs["shapes"]], axis)


def _slice(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    if "starts" not in attrs or "axes" not in attrs:
        raise RuntimeRefused("torch cannot run the model: where a Slice cuts is computed while the graph runs.")
    result = x[0]
    steps = attrs.get("steps") or [1] * len(attrs["axes"])
    for start, axis, step in zip(attrs["starts"], attrs["axes"], steps, strict=True):
        count, extent = attrs["shapes"][0][axis], x[0].shape[axis]
        begin = min(max(start + extent if start < 0 else start, 0), extent - 1 if step < 0 else extent)
        if step < 0:
            index = torch.arange(count, device=result.device) * step + begin
            result = result.index_select(axis, index)
        else:
            result = result.narrow(axis, begin, max(min((count - 1) * step + 1, extent - begin), 0))
            result = result[(slice(None),) * axis + (slice(None, None, step),)] if step > 1 else result
    return result


def _expand(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return x[0].expand(attrs["shapes"][0])


def _tile(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return x[0].repeat([out // max(own, 1) for out, own in zip(attrs["shapes"][0], x[0].shape, strict=True)])


def _pad(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    mode = attrs.get("mode", "constant")
    if "pads" not in attrs or (mode != "constant" and attrs.get("axes") is not None):
        raise RuntimeRefused("torch cannot run the model: the amounts of a Pad are computed while the graph runs.")
    pads, axes = attrs["pads"], attrs.get("axes") or list(range(len(attrs["pads"]) // 2))
    result = x[0]
    if mode == "constant":
        sides = {axis: (pads[k], pads[k + len(axes)]) for k, axis in enumerate(axes)}
        order = [side for d in reversed(range(result.dim())) for side in sides.get(d, (0, 0))]
        return F.pad(result, order, value=attrs.get("value", 0.0))
    for k, axis in enumerate(axes):
        index = _reach(result.shape[axis], pads[k], pads[k + len(axes)], mode)
        result = result.index_select(axis, torch.tensor(index, device=result.device))
    return result


def _reach(extent: int, before: int, after: int, mode: str) -> list[int]:
    """Which elements a padded axis shows."""
    period = max(2 * (extent - 1), 1)
    found = []
    for i in range(-before, extent + after):
        if mode == "edge":
            found.append(min(max(i, 0), extent - 1))
        elif mode == "wrap":
            found.append(i % extent)
        else:
            found.append(min(i % period, period - i % period))
    return found


def _resize(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    mode, where = attrs.get("mode", "nearest"), attrs.get("coordinate_transformation_mode", "half_pixel")
    out, own = list(attrs["shapes"][0]), list(x[0].shape)
    whole = all(o % i == 0 for o, i in zip(out, own, strict=True))
    nearest = attrs.get("nearest_mode", "round_prefer_floor")
    simple = where == "asymmetric" and nearest == "floor"
    # With whole factors half_pixel and asymmetric repeat the same elements.
    if mode == "nearest" and whole and (simple or where in ("half_pixel", "pytorch_half_pixel")):
        result = x[0]
        for axis, (o, i) in enumerate(zip(out, own, strict=True)):
            if o != i:
                result = result.repeat_interleave(o // i, axis)
        return result
    if mode == "linear" and len(own) == 4 and out[:2] == own[:2] and where in ("half_pixel", "align_corners"):
        return F.interpolate(x[0], out[2:], mode="bilinear", align_corners=where == "align_corners")
    raise RuntimeRefused(f"torch cannot run the model: there is no translation of Resize with {mode} and {where}.")


def _depth_to_space(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    n, c, h, w = x[0].shape
    b = attrs["blocksize"]
    if attrs.get("mode", "DCR") == "DCR":
        parts = x[0].reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x[0].reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // (b * b), h * b, w * b)


def _space_to_depth(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    n, c, h, w = x[0].shape
    b = attrs["blocksize"]
    parts = x[0].reshape(n, c, h // b, b, w // b, b)
    rows_first = attrs.get("mode", "DCR") == "DCR"
    order = (0, 3, 5, 1, 2, 4) if rows_first else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, c * b * b, h // b, w // b)


def _gather(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axis, index = attrs["axis"], x[1]
    index = torch.where(index < 0, index + x[0].shape[axis], index)
    shape = [*x[0].shape[:axis], *index.shape, *x[0].shape[axis + 1 :]]
    return x[0].index_select(axis, index.reshape(-1)).reshape(shape)


def _gather_elements(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    axis = attrs["axis"]
    return torch.gather(x[0], axis, torch.where(x[1] < 0, x[1] + x[0].shape[axis], x[1]))


def _trilu(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    offset = int(x[1]) if len(x) > 1 and x[1] is not None else 0
    return torch.triu(x[0], offset) if attrs["upper"] else torch.tril(x[0], offset)


def _cumsum(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    if attrs["exclusive"] or attrs["reverse"]:
        raise RuntimeRefused("torch cannot run the model: there is no translation of an exclusive or reverse CumSum.")
    return torch.cumsum(x[0], int(x[1]))


def _is_inf(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    above = torch.isposinf(x[0]) if attrs["detect_positive"] else torch.zeros_like(x[0], dtype=torch.bool)
    return above | torch.isneginf(x[0]) if attrs["detect_negative"] else above


def _swish(attrs: Attrs, x: Sequence[Any], types: Sequence[torch.dtype]) -> Any:
    return F.silu(x[0]) if attrs["alpha"] == 1.0 else x[0] * torch.sigmoid(x[0] * attrs["alpha"])


OPS: dict[str, Op] = {
    **{
        name: _unary(getattr(torch, name.lower()))
        for name in (
            "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
            "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
            "IsNaN",
        )
    },
    "Not": _unary(torch.logical_not), "Softplus": _unary(F.softplus), "Softsign": _unary(F.softsign),
    "HardSwish": _unary(F.hardswish), "Mish": _unary(F.mish), "Identity": _unary(lambda x: x), "IsInf": _is_inf,
    "Elu": lambda a, x, t: F.elu(x[0], a["alpha"]), "Celu": lambda a, x, t: F.celu(x[0], a["alpha"]),
    "Selu": lambda a, x, t: torch.where(x[0] > 0, x[0], a["alpha"] * torch.expm1(x[0])) * a["gamma"],
    "LeakyRelu": lambda a, x, t: F.leaky_relu(x[0], a["alpha"]), "Gelu": _gelu, "Swish": _swish,
    "ThresholdedRelu": lambda a, x, t: torch.where(x[0] > a["alpha"], x[0], torch.zeros_like(x[0])),
    "HardSigmoid": _hard_sigmoid, "Clip": _clip, "Cast": _cast,
    "PRelu": _binary(lambda x, slope: torch.where(x >= 0, x, x * slope)),
    "Add": _binary(torch.add), "Sub": _binary(torch.sub), "Mul": _binary(torch.mul), "Div": _div, "Mod": _mod,
    "Pow": _binary(torch.pow), "And": _binary(torch.logical_and), "Or": _binary(torch.logical_or),
    "Xor": _binary(torch.logical_xor), "Equal": _binary(torch.eq), "Greater": _binary(torch.gt),
    "GreaterOrEqual": _binary(torch.ge), "Less": _binary(torch.lt), "LessOrEqual": _binary(torch.le),
    "Sum": _fold(torch.add), "Mean": _fold(torch.add), "Max": _fold(torch.maximum), "Min": _fold(torch.minimum),
    "Where": lambda a, x, t: torch.where(x[0], x[1], x[2]), "MatMul": _matmul, "Gemm": _gemm,
    "Einsum": lambda a, x, t: torch.einsum(a["equation"].replace(" ", ""), *x), "Conv": _conv,
    "MaxPool": _max_pool, "AveragePool": _average_pool, "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm, "LRN": _lrn,
    "Softmax": lambda a, x, t: torch.softmax(x[0], a["axis"]),
    "LogSoftmax": lambda a, x, t: torch.log_softmax(x[0], a["axis"]),
    **dict.fromkeys((*_REDUCTIONS, "ReduceProd"), _reduce), "ArgMax": _arg, "ArgMin": _arg,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _view), "Transpose": _transpose,
    "Concat": lambda a, x, t: torch.cat(list(x), a["axis"]), "Split": _split, "Slice": _slice, "Expand": _expand,
    "Tile": _tile, "Pad": _pad, "Resize": _resize, "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "Gather": _gather, "GatherElements": _gather_elements, "Trilu": _trilu, "CumSum": _cumsum,
}  # fmt: skip
