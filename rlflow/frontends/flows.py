"""A model as a flow of values, with how rows go through its operators.

Only the main graph is read. An operator that is not known here, or has attributes that are not, needs whole values;
so nothing that is not understood is ever split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import onnx
from onnx import helper, numpy_helper

from rlflow.footprint import Along, Blending, Flow, Job, Repeating, Sliding, Spreading
from rlflow.footprint.flow import ROWS, Layout
from rlflow.footprint.layout import BLOCK, blocked_values
from rlflow.footprint.rowmaps import RowMap
from rlflow.frontends import inference
from rlflow.frontends.constants import numpy_dtype

__all__ = ["captured", "explicit_pads", "flow_of", "width"]

_UNARY = frozenset(
    [
        "Abs",
        "Acos",
        "Asin",
        "Atan",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    ]
)
_MANY = frozenset(
    [
        "Add",
        "And",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Or",
        "PRelu",
        "Pow",
        "Sub",
        "Sum",
        "Where",
        "Xor",
    ]
)
_ACTIVATIONS = frozenset(
    [
        "Celu",
        "Clip",
        "Elu",
        "HardSigmoid",
        "Identity",
        "LeakyRelu",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Softsign",
        "Tanh",
        "ThresholdedRelu",
    ]
)
#: Operators that stay in ONNX Runtime's blocked layout.
_KEEPING = _ACTIVATIONS | {"Add", "Sum", "Mul", "BatchNormalization", "Resize"}
#: (input, output) places.
_FIRST = ((0, 0),)
_EITHER = ((0, 0), (1, 0))
_STANDARD = ("", "ai.onnx")


def flow_of(model: onnx.ModelProto, sizes: Mapping[str, int] | None = None) -> Flow:
    """The main graph of a model; open dimensions have the ``sizes``. What folds away (computed of constants) is left
    out. Values of unknown size count as nothing, which ``notes`` says.
    """
    reader = _Reader(model, sizes or {})
    return reader.flow()


class _Reader:
    def __init__(self, model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
        self._graph = model.graph
        self._opset = max([one.version for one in model.opset_import if one.domain in _STANDARD] or [1])
        bare = inference.bare_model(model)
        self._odd = _settle_pools(bare)
        self._said, _ = inference.infer(bare, _symbols(bare))
        if sizes:
            _bind(bare, sizes)
        self._types, _ = inference.infer(bare, frozenset())
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._folded = set(self._constants)
        fed = [info.name for info in model.graph.input if info.name not in self._constants]
        self._inputs = frozenset(fed)

    def flow(self) -> Flow:
        jobs = []
        for number, node in enumerate(self._graph.node):
            job = self._job(number, node)
            if job is not None:
                jobs.append(job)
        values = {value for job in jobs for value in (*job.inputs, *job.outputs)} | self._inputs
        shapes: dict[str, tuple[int, ...]] = {}
        widths: dict[str, int] = {}
        unknown = []
        for value in sorted(values):
            kind, dims = self._types.get(value, inference.UNKNOWN)
            sizes = [dim for dim in dims or () if isinstance(dim, int)]
            if dims is None or len(sizes) < len(dims):
                unknown.append(value)
                shapes[value], widths[value] = (0,), 1
                continue
            shapes[value], widths[value] = tuple(sizes), width(kind)
        notes = (f"The size of {len(unknown)} values is not known, {unknown[0]!r} for one.",) if unknown else ()
        outputs = tuple(info.name for info in self._graph.output)
        flow = Flow(tuple(jobs), shapes, widths, self._inputs, outputs, notes, {job.node: job for job in jobs})
        return replace(flow, blocked=blocked_values(flow))

    def _job(self, number: int, node: onnx.NodeProto) -> Job | None:
        outputs = tuple(name for name in node.output if name)
        read = [*node.input, *(name for name in captured(node))]
        computed = tuple(name for name in read if name and name not in self._folded)
        if not computed and outputs and node.op_type not in ("RandomNormal", "RandomUniform"):
            self._folded.update(outputs)
            return None
        rows = self._rows(node, computed)
        layout = self._layout(node, computed)
        job = Job(computed, outputs, number, flops=self._flops(node), reuses=_planned_reuse(node), layout=layout)
        if rows is None:
            return job
        whole = frozenset(place for place, name in enumerate(computed) if not self._goes_along(name, outputs[0], rows))
        if len(whole) == len(computed):
            return job
        return replace(job, rows=rows, whole=whole)

    def _layout(self, node: onnx.NodeProto, computed: tuple[str, ...]) -> Layout:
        """What ONNX Runtime's blocked layout means to a node."""
        if node.domain not in _STANDARD or not computed or self._types.get(computed[0], inference.UNKNOWN)[0] != 1:
            return Layout.PLAIN
        if node.op_type in ("MaxPool", "AveragePool"):
            size = self._size(node.input[0])
            return Layout.BLOCKED if len(size) == 4 and size[1] % BLOCK == 0 and len(node.output) == 1 else Layout.PLAIN
        if node.op_type == "Conv":
            return self._layout_of_convolution(node)
        along = node.op_type == "Concat" and all(
            self._size(name)[1:2] and self._size(name)[1] % BLOCK == 0 for name in computed
        )
        return Layout.KEEPS if along or node.op_type in _KEEPING else Layout.PLAIN

    def _layout_of_convolution(self, node: onnx.NodeProto) -> Layout:
        weight = self._constants.get(node.input[1])
        if weight is None or len(weight.dims) != 4:
            return Layout.PLAIN
        groups = next((one.i for one in node.attribute if one.name == "group"), 1)
        made, each = int(weight.dims[0]), int(weight.dims[1])
        if groups > 1:
            depthwise = each == 1 and made == groups
            whole = made % BLOCK == 0 and (depthwise or (each % BLOCK == 0 and made // groups % BLOCK == 0))
            return Layout.BLOCKED if whole else Layout.PLAIN
        return Layout.MAKES if each < BLOCK else Layout.BLOCKED if each % 4 == 0 else Layout.PLAIN

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _goes_along(self, name: str, output: str, rows: RowMap) -> bool:
        """Whether an input has rows of its own; else every band takes it whole."""
        if not isinstance(rows, Along):
            return True
        ours, theirs = self._shape(output), self._shape(name)
        assert ours is not None
        return theirs is not None and len(theirs) == len(ours) and theirs[ROWS] == ours[ROWS]

    def _shape(self, name: str) -> list[Any] | None:
        """Dimensions as the file says them, open ones open."""
        if name in self._constants:
            return list(self._constants[name].dims)
        return self._said.get(name, inference.UNKNOWN)[1]

    def _rows(self, node: onnx.NodeProto, computed: tuple[str, ...]) -> RowMap | None:
        maker = _MAKERS.get(node.op_type) if node.domain in _STANDARD else None
        outputs = [name for name in node.output if name]
        if maker is None or not computed or self._odd:
            return None
        for name in outputs:
            shape = self._shape(name)
            if shape is None or len(shape) <= ROWS or not isinstance(shape[ROWS], int) or shape[ROWS] < 2:
                return None
        return maker(_Asked(node, self._opset, self._shape, self._constant, computed, tuple(outputs)))

    def _constant(self, name: str) -> Any:
        """The elements of a small constant, ``None`` where there is none of that name."""
        tensor = self._constants.get(name)
        if tensor is None or prod(tensor.dims) > 1024 or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def _flops(self, node: onnx.NodeProto) -> float:
        """About the operations of a node: those of products, and one an element for the rest."""
        elements = _count(self._size(node.output[0])) if node.output else 0.0
        if node.op_type not in ("Conv", "ConvTranspose", "MatMul", "Gemm") or len(node.input) < 2:
            return elements
        given, weight = self._size(node.input[0]), self._size(node.input[1])
        if node.op_type == "Conv":
            return 2.0 * elements * _count(weight[1:])
        return (
            2.0 * _count(given) * _count(weight[1:])
            if node.op_type == "ConvTranspose"
            else 2.0 * elements * _count(given[-1:])
        )

    def _size(self, name: str) -> list[Any]:
        """Dimensions, open ones bound."""
        if name in self._constants:
            return list(self._constants[name].dims)
        return self._types.get(name, inference.UNKNOWN)[1] or []


def _count(dims: Sequence[Any]) -> float:
    return float(prod(dim for dim in dims if isinstance(dim, int)))


@dataclass(frozen=True)
class _Asked:
    """A node, and what is known about it."""

    node: onnx.NodeProto
    opset: int
    shape: Callable[[str], list[Any] | None]
    constant: Callable[[str], Any]
    computed: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def attributes(self) -> dict[str, Any]:
        values = {one.name: helper.get_attribute_value(one) for one in self.node.attribute}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def axis(self, default: int) -> int | None:
        """The attribute ``axis``, counted from the front."""
        axis, shape = int(self.attributes.get("axis", default)), self.shape(self.node.input[0])
        return None if shape is None else axis + len(shape) if axis < 0 else axis


def _along(asked: _Asked) -> RowMap | None:
    return Along()


def _many(asked: _Asked) -> RowMap | None:
    """Elementwise over several inputs: what is computed has as many rows as the result; the rest has one, or none."""
    ours = asked.shape(asked.outputs[0])
    assert ours is not None
    behind = len(ours) - ROWS  # the axis of the rows, from the end
    for name in asked.node.input:
        theirs = asked.shape(name)
        if not name or theirs is None:
            return None
        own = theirs[-behind] if len(theirs) >= behind else 1
        cut = name in asked.computed and len(theirs) == len(ours) and own == ours[ROWS]
        if own != 1 and not cut:
            return None
    return Along()


def _normalisation(asked: _Asked) -> RowMap | None:
    training = asked.attributes.get("training_mode", 0) or len(asked.outputs) > 1
    return None if training or len(asked.computed) != 1 else Along()


def _dropout(asked: _Asked) -> RowMap | None:
    return Along() if len(asked.outputs) == 1 and len(asked.computed) == 1 and len(asked.node.input) == 1 else None


def _not_over_rows(default: int) -> Callable[[_Asked], RowMap | None]:
    def make(asked: _Asked) -> RowMap | None:
        """Where the axis is not that of the rows."""
        axis = asked.axis(default)
        return Along() if axis is not None and axis != ROWS and asked.node.input[0] in asked.computed else None

    return make


def _joined(asked: _Asked) -> RowMap | None:
    """Concat along channels (or columns) of values that are computed."""
    if "axis" not in asked.attributes or not all(name in asked.computed for name in asked.node.input):
        return None
    return _not_over_rows(1)(asked)


def _softmax(asked: _Asked) -> RowMap | None:
    return None if asked.opset < 13 else _not_over_rows(-1)(asked)


def _quantised(asked: _Asked) -> RowMap | None:
    """Scales by channel or for all; the quantised value itself comes first."""
    return _not_over_rows(1)(asked) if asked.computed == (asked.node.input[0],) else None


def _window(asked: _Asked) -> tuple[Sliding, int, int] | None:
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


def _convolution(asked: _Asked) -> RowMap | None:
    found = _window(asked)
    return None if found is None else found[0]


def _largest(asked: _Asked) -> RowMap | None:
    """MaxPool; the places of the largest elements would be counted in the whole."""
    return None if len(asked.outputs) > 1 else _convolution(asked)


def _average(asked: _Asked) -> RowMap | None:
    """AveragePool; where padding counts in the average, a window beyond it would count too much in a band."""
    found = _window(asked)
    if found is None:
        return None
    window, end, _ = found
    counts = bool(asked.attributes.get("count_include_pad", 0))
    return Sliding(window.kernel, window.stride, window.dilation, window.begin, end if counts else None)


def _transposed(asked: _Asked) -> RowMap | None:
    given = asked.attributes
    if given.get("output_shape") or given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    found = _window(asked)
    if found is None:
        return None
    window = found[0]
    return Spreading(window.kernel, window.stride, window.dilation, window.begin)


def _resized(asked: _Asked) -> RowMap | None:
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


_MAKERS: dict[str, Callable[[_Asked], RowMap | None]] = {
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
    "Conv": _convolution,
    "MaxPool": _largest,
    "AveragePool": _average,
    "ConvTranspose": _transposed,
    "Resize": _resized,
}


def _planned_reuse(node: onnx.NodeProto) -> tuple[tuple[int, int], ...]:
    """What the runtime will probably compute in place, or in one kernel with what comes before."""
    if node.op_type in _ACTIVATIONS:
        return _FIRST
    return _EITHER if node.op_type in ("Add", "Sum") else ()


def width(kind: int) -> int:
    """Bytes of an element."""
    return int(numpy_dtype(kind).itemsize) if kind else 1


def captured(node: onnx.NodeProto) -> list[str]:
    """What the bodies of a node read from outside (and names of their own, which do no harm)."""
    found: list[str] = []
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            own = {name for inner in body.node for name in inner.output} | {
                one.name for one in (*body.input, *body.initializer)
            }
            for inner in body.node:
                found += [name for name in (*inner.input, *captured(inner)) if name and name not in own]
    return list(dict.fromkeys(found))


def _settle_pools(bare: onnx.ModelProto) -> bool:
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
            _forget_shapes(bare)
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


def _symbols(bare: onnx.ModelProto) -> frozenset[str]:
    return frozenset(
        dim.dim_param for info in bare.graph.input for dim in info.type.tensor_type.shape.dim if dim.dim_param
    )


def _bind(bare: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
    """Give open dimensions of inputs their sizes, and forget what the file says of other values."""
    for info in bare.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            size = sizes.get(dim.dim_param or f"{info.name}.{axis}")
            if size is not None and not dim.HasField("dim_value"):
                dim.dim_value = size
    _forget_shapes(bare)


def _forget_shapes(bare: onnx.ModelProto) -> None:
    """Forget what the file says of values that are computed."""
    del bare.graph.value_info[:]
    for info in bare.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
