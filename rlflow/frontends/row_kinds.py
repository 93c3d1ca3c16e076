"""How rows go through ONNX's operators: a :class:`rlflow.footprint.RowMap` for each node that bands can go through.

An operator that is not in the table, or has attributes that are not understood, needs whole values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

from rlflow.footprint import Along, Blending, Repeating, Sliding, Spreading
from rlflow.footprint.flow import ROWS
from rlflow.footprint.rowmaps import RowMap
from rlflow.frontends import inference
from rlflow.frontends.row_axes import REDUCTIONS, RESHAPES, SPATIAL, Carrier

__all__ = ["Asked", "explicit_pads", "forget_shapes", "rows_of", "settle_pools", "whole_places"]

_UNARY = frozenset({
    "Abs", "Acos", "Asin", "Atan", "Cast", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
_MANY = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod",
    "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip


def rows_of(asked: Asked) -> RowMap | None:
    """How rows go through a node of the default domain, or ONNX Runtime's FusedConv; ``None`` where it needs whole
    values.
    """
    maker = _MAKERS.get(asked.node.op_type)
    if maker is None or len({asked.rows(name) for name in asked.outputs}) > 1:
        return None
    if asked.node.op_type in SPATIAL and any(asked.rows(name) != ROWS for name in (*asked.computed, *asked.outputs)):
        return None
    return maker(asked)


def whole_places(asked: Asked, rows: RowMap) -> frozenset[int] | None:
    """The places among ``asked.computed`` that every band takes whole; ``None`` where one would have to be cut, and
    cannot be.
    """
    if not isinstance(rows, Along):
        return frozenset()
    carrier, axis = Carrier(asked.node, asked.shape), asked.rows(asked.outputs[0])
    found = set()
    for place, (at, name) in enumerate(_computed_places(asked)):
        if at is not None and carrier.source(at, axis) == asked.rows(name):
            continue
        if at == 0 and not _may_be_whole(asked, name, axis):
            return None
        found.add(place)
    return frozenset(found)


def _computed_places(asked: Asked) -> Iterator[tuple[int | None, str]]:
    """The place among a node's inputs of each value that is computed; ``None``: it is read from inside a body."""
    own = [(place, name) for place, name in enumerate(asked.node.input) if name and name in asked.computed]
    yield from own
    yield from ((None, name) for name in asked.computed[len(own) :])


def _may_be_whole(asked: Asked, name: str, axis: int) -> bool:
    """Whether the first input may be taken whole: it has one row only, which counts for all."""
    if asked.node.op_type not in _MANY and asked.node.op_type != "Expand":
        return False
    ours, theirs = asked.shape(asked.outputs[0]) or [], asked.shape(name) or []
    behind = len(ours) - axis
    return len(theirs) < behind or theirs[-behind] == 1


@dataclass(frozen=True)
class Asked:
    """A node, and what is known about it. ``computed``: its inputs that are no constants; ``rows``: the axis of the
    rows of a value.
    """

    node: onnx.NodeProto
    opset: int
    shape: Callable[[str], list[Any] | None]
    constant: Callable[[str], Any]
    computed: tuple[str, ...]
    outputs: tuple[str, ...]
    rows: Callable[[str], int]

    @property
    def attributes(self) -> dict[str, Any]:
        values = {one.name: helper.get_attribute_value(one) for one in self.node.attribute}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def axis(self, default: int) -> int | None:
        """The attribute ``axis``, counted from the front."""
        axis, shape = int(self.attributes.get("axis", default)), self.shape(self.node.input[0])
        return None if shape is None else axis + len(shape) if axis < 0 else axis


def _along(asked: Asked) -> RowMap | None:
    return Along()


def _many(asked: Asked) -> RowMap | None:
    """Elementwise over several inputs: what is computed has as many rows as the result; the rest has one, or none."""
    ours = asked.shape(asked.outputs[0])
    assert ours is not None
    axis = asked.rows(asked.outputs[0])
    behind = len(ours) - axis  # the axis of the rows, from the end
    for name in asked.node.input:
        theirs = asked.shape(name)
        if not name or theirs is None:
            return None
        own = theirs[-behind] if len(theirs) >= behind else 1
        along = asked.rows(name) == axis and len(theirs) == len(ours) and own == ours[axis]
        cut = name in asked.computed and along
        if own != 1 and not cut:
            return None
    return Along()


def _normalisation(asked: Asked) -> RowMap | None:
    training = asked.attributes.get("training_mode", 0) or len(asked.outputs) > 1
    return None if training or len(asked.computed) != 1 else Along()


def _dropout(asked: Asked) -> RowMap | None:
    return Along() if len(asked.outputs) == 1 and len(asked.computed) == 1 and len(asked.node.input) == 1 else None


def _not_over_rows(default: int) -> Callable[[Asked], RowMap | None]:
    def make(asked: Asked) -> RowMap | None:
        """Where the axis is not that of the rows."""
        axis = asked.axis(default)
        given = asked.node.input[0]
        return Along() if axis is not None and axis != asked.rows(given) and given in asked.computed else None

    return make


def _joined(asked: Asked) -> RowMap | None:
    """Concat along channels (or columns) of values that are computed."""
    if "axis" not in asked.attributes or not all(name in asked.computed for name in asked.node.input):
        return None
    return _not_over_rows(1)(asked)


def _picked(asked: Asked) -> RowMap | None:
    """Gather of whole channels (or columns), whose indices are a list that is not computed."""
    if asked.node.input[1] in asked.computed or len(asked.shape(asked.node.input[1]) or ()) != 1:
        return None
    return _not_over_rows(0)(asked)


def _sliced(asked: Asked) -> RowMap | None:
    """Slice of channels (or columns) between bounds that are not computed."""
    given, shape = asked.attributes, asked.shape(asked.node.input[0])
    if asked.computed != (asked.node.input[0],) or shape is None:
        return None
    axes = given.get("axes")
    if asked.opset >= 10:
        axes = asked.constant(asked.node.input[3]) if len(asked.node.input) > 3 and asked.node.input[3] else None
    if axes is None:
        return None
    rows = asked.rows(asked.node.input[0])
    return Along() if all((int(axis) + len(shape)) % len(shape) != rows for axis in axes) else None


def _padded(asked: Asked) -> RowMap | None:
    """More channels (or columns), by a number that is not computed, or of what is there."""
    shape = asked.shape(asked.node.input[0])
    if asked.computed != (asked.node.input[0],) or shape is None:
        return None
    pads, axes = asked.attributes.get("pads"), None
    if asked.opset >= 11:
        pads = asked.constant(asked.node.input[1])
        axes = asked.constant(asked.node.input[3]) if len(asked.node.input) > 3 and asked.node.input[3] else None
    if pads is None or (len(asked.node.input) > 3 and asked.node.input[3] and axes is None):
        return None
    padded = [int(axis) % len(shape) for axis in (range(len(shape)) if axes is None else axes)]
    ours = [place for place, axis in enumerate(padded) if axis == asked.rows(asked.node.input[0])]
    return Along() if not any(pads[place] or pads[place + len(padded)] for place in ours) else None


def _first(asked: Asked) -> RowMap | None:
    """Where rows of the first input make the rows of the output, whatever else there is."""
    return Along() if asked.node.input[0] in asked.computed else None


def _of_first_alone(asked: Asked) -> RowMap | None:
    return Along() if asked.computed == (asked.node.input[0],) else None


def _affine(asked: Asked) -> RowMap | None:
    """Gemm of a first factor that is not transposed; what is added is the same for each row."""
    if asked.attributes.get("transA", 0) or asked.node.input[0] not in asked.computed:
        return None
    added = asked.node.input[2] if len(asked.node.input) > 2 else ""
    shape = asked.shape(added) if added else []
    return Along() if shape is not None and (len(shape) < 2 or shape[0] == 1) else None


def _layer_normalisation(asked: Asked) -> RowMap | None:
    """Over axes behind that of the rows, by scales that are not computed."""
    axis = asked.axis(-1)
    if axis is None or axis <= asked.rows(asked.node.input[0]) or len(asked.outputs) > 1:
        return None
    return _of_first_alone(asked)


def _reduced(asked: Asked) -> RowMap | None:
    """Over axes that are not the rows' and stay."""
    given, shape = asked.attributes, asked.shape(asked.node.input[0])
    axes = given.get("axes") if len(asked.node.input) < 2 else asked.constant(asked.node.input[1])
    if axes is None or shape is None or not given.get("keepdims", 1):
        return None
    rows = asked.rows(asked.node.input[0])
    return _of_first_alone(asked) if all(int(axis) % len(shape) != rows for axis in axes) else None


def _reshaped(asked: Asked) -> RowMap | None:
    """Where the file says the new shape; a band has its own."""
    if asked.node.op_type not in ("Reshape", "Expand"):
        return _of_first_alone(asked)
    told = asked.constant(asked.node.input[1])
    if told is None or (asked.attributes.get("allowzero", 0) and 0 in told):
        return None
    return _of_first_alone(asked)


def _softmax(asked: Asked) -> RowMap | None:
    return None if asked.opset < 13 else _not_over_rows(-1)(asked)


def _quantised(asked: Asked) -> RowMap | None:
    """Scales by channel or for all; the quantised value itself comes first."""
    return _not_over_rows(1)(asked) if asked.computed == (asked.node.input[0],) else None


def _window(asked: Asked) -> tuple[Sliding, int, int] | None:
    """The window of the rows, the padding at their end, and the rows of the input."""
    given, shape = asked.attributes, asked.shape(asked.node.input[0])
    if shape is None or asked.node.input[0] != asked.computed[0] or len(asked.computed) != 1:
        return None
    height, space = shape[ROWS] if len(shape) > ROWS else None, len(shape) - 2
    if not isinstance(height, int) or space < 1:
        return None
    kernel = given.get("kernel_shape") or (asked.shape(asked.node.input[1]) or [])[2:]
    if len(kernel) != space or not isinstance(kernel[0], int):
        return None
    stride, dilation = (int((given.get(name) or [1])[0]) for name in ("strides", "dilations"))
    if given.get("auto_pad", "NOTSET").startswith("SAME") and not all(isinstance(dim, int) for dim in shape[2:]):
        return None
    pads = _pads(given, height, (int(kernel[0]) - 1) * dilation + 1, stride, space)
    return None if pads is None else (Sliding(int(kernel[0]), stride, dilation, pads[0]), pads[1], height)


def _pads(given: Mapping[str, Any], height: int, reach: int, stride: int, space: int) -> tuple[int, int] | None:
    how = given.get("auto_pad", "NOTSET")
    if how == "VALID":
        return 0, 0
    if how == "NOTSET":
        pads = given.get("pads") or [0] * (2 * space)
        return (int(pads[0]), int(pads[space])) if min(pads) >= 0 else None
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        return None
    total = max((-(-height // stride) - 1) * stride + reach - height, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if how == "SAME_UPPER" else (large, small)


def explicit_pads(node: onnx.NodeProto, space: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """The padding of a window over the extents ``space``: of all beginnings, then of all ends."""
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    how = given.get("auto_pad", b"NOTSET").decode()
    if how == "NOTSET":
        return [int(pad) for pad in given.get("pads") or [0] * (2 * len(space))]
    found = []
    for axis, extent in enumerate(space):
        stride, dilation = (int((given.get(name) or [1] * len(space))[axis]) for name in ("strides", "dilations"))
        pads = _pads({"auto_pad": how}, extent, (kernel[axis] - 1) * dilation + 1, stride, len(space))
        assert pads is not None
        found.append(pads)
    return [*(begin for begin, _ in found), *(end for _, end in found)]


def _convolution(asked: Asked) -> RowMap | None:
    found = _window(asked)
    return None if found is None else found[0]


def _largest(asked: Asked) -> RowMap | None:
    """MaxPool; the places of the largest elements would be counted in the whole."""
    return None if len(asked.outputs) > 1 else _convolution(asked)


def _average(asked: Asked) -> RowMap | None:
    """AveragePool; where padding counts in the average, a window beyond it would count too much in a band."""
    found = _window(asked)
    if found is None:
        return None
    window, end, _ = found
    counts = bool(asked.attributes.get("count_include_pad", 0))
    return Sliding(window.kernel, window.stride, window.dilation, window.begin, end if counts else None)


def _transposed(asked: Asked) -> RowMap | None:
    given = asked.attributes
    if given.get("output_shape") or given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    found = _window(asked)
    if found is None:
        return None
    window = found[0]
    return Spreading(window.kernel, window.stride, window.dilation, window.begin)


def _resized(asked: Asked) -> RowMap | None:
    """Resize by a whole factor, where a row's place in its surroundings does not depend on the height."""
    given, (before, after) = asked.attributes, (asked.shape(asked.node.input[0]), asked.shape(asked.outputs[0]))
    if (
        asked.computed != (asked.node.input[0],)
        or before is None
        or after is None
        or len(before) != 4
        or asked.opset < 11
    ):
        return None
    pairs = list(zip(before, after, strict=True))
    if not all(isinstance(one, int) and isinstance(other, int) and other % one == 0 for one, other in pairs[ROWS:]):
        return None
    if before[:ROWS] != after[:ROWS] or given.get("antialias", 0) or given.get("axes"):
        return None
    factor, mode = after[ROWS] // before[ROWS], given.get("mode", "nearest")
    where = given.get("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest":
        rounds = given.get("nearest_mode", "round_prefer_floor")
        same = (where, rounds) in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
        return Repeating(factor) if same else None
    # Powers of two: the place of a row within its surroundings is then the same number in a band.
    exact = factor & (factor - 1) == 0
    whole = where in ("half_pixel", "asymmetric") or (where == "pytorch_half_pixel" and after[ROWS] > 1)
    return Blending(factor) if mode == "linear" and whole and exact else None


def _upsampled(asked: Asked) -> RowMap | None:
    """Upsample by whole factors; a row's place is that of Resize with ``asymmetric`` and ``floor``."""
    given, (before, after) = asked.attributes, (asked.shape(asked.node.input[0]), asked.shape(asked.outputs[0]))
    scales = given.get("scales") if asked.opset < 9 else asked.constant(asked.node.input[1])
    if asked.computed != (asked.node.input[0],) or before is None or after is None or len(before) != 4:
        return None
    if scales is None or len(scales) != 4 or any(one < 1 or one != int(one) for one in scales):
        return None
    height, factor = before[ROWS], int(scales[ROWS])
    if scales[0] != 1 or scales[1] != 1 or not isinstance(height, int) or after[ROWS] != factor * height:
        return None
    if given.get("mode", "nearest") == "nearest":
        return Repeating(factor)
    return Blending(factor) if factor & (factor - 1) == 0 else None


_MAKERS: dict[str, Callable[[Asked], RowMap | None]] = {
    **dict.fromkeys(_UNARY, _along),
    **dict.fromkeys(_MANY, _many),
    "BatchNormalization": _normalisation,
    "Dropout": _dropout,
    "LRN": _along,
    "Concat": _joined,
    "Split": _not_over_rows(0),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "QuantizeLinear": _quantised,
    "DequantizeLinear": _quantised,
    "Gather": _picked,
    "Slice": _sliced,
    "Pad": _padded,
    "MatMul": _first,
    "Gemm": _affine,
    "LayerNormalization": _layer_normalisation,
    "RMSNormalization": _layer_normalisation,
    "Transpose": _of_first_alone,
    **dict.fromkeys(RESHAPES, _reshaped),
    **dict.fromkeys(REDUCTIONS, _reduced),
    "Conv": _convolution,
    "FusedConv": _convolution,
    "MaxPool": _largest,
    "AveragePool": _average,
    "ConvTranspose": _transposed,
    "Resize": _resized,
    "Upsample": _upsampled,
}


def settle_pools(bare: onnx.ModelProto) -> bool:
    """Make inference count the windows of pools as runtimes do: one that begins in the padding at the end does not
    count. Whether some pool is left that inference gets wrong.
    """
    for node in bare.graph.node:
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type not in ("MaxPool", "AveragePool") or not given.get("ceil_mode", 0):
            continue
        types, _ = inference.infer(bare, frozenset())
        dims = types.get(node.input[0], inference.UNKNOWN)[1]
        if dims is None or not all(isinstance(dim, int) for dim in dims[ROWS:]):
            return True
        rounded = [
            _rounds_up(node, [int(dim) for dim in dims[ROWS:] if isinstance(dim, int)], axis)
            for axis in range(len(dims) - 2)
        ]
        if None in rounded:  # a window that does not count
            if True in rounded:
                return True
            next(one for one in node.attribute if one.name == "ceil_mode").i = 0
            forget_shapes(bare)
    return False


def _rounds_up(node: onnx.NodeProto, space: Sequence[int], axis: int) -> bool | None:
    """Whether the number of windows along an axis is rounded up; ``None`` where it would be, by one that begins beyond
    the input.
    """
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    kernel = [int(size) for size in given["kernel_shape"]]
    pads = explicit_pads(node, space, kernel)
    stride, dilation = (int((given.get(name) or [1] * len(space))[axis]) for name in ("strides", "dilations"))
    room = space[axis] + pads[axis] + pads[axis + len(space)] - (kernel[axis] - 1) * dilation - 1
    if room % stride == 0:
        return False
    return True if (room // stride + 1) * stride < space[axis] + pads[axis] else None


def forget_shapes(bare: onnx.ModelProto) -> None:
    """Forget what the file says of values that are computed."""
    del bare.graph.value_info[:]
    for info in bare.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
