"""A model as a flow of values, with how rows go through its operators.

Only the main graph is read. An operator that is not known here, or has attributes that are not, needs whole values;
so nothing that is not understood is ever split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import onnx
from onnx import helper, numpy_helper

from rlflow.footprint import Flow, FlowJob
from rlflow.footprint.flow import BLOCK, ROWS, Layout
from rlflow.footprint.hoisting import hoisted
from rlflow.footprint.layout import blocked_values
from rlflow.footprint.rowmaps import RowMap
from rlflow.frontends import inference
from rlflow.frontends.constants import numpy_dtype
from rlflow.frontends.row_axes import row_axes
from rlflow.frontends.row_kinds import Asked, forget_shapes, rows_of, settle_pools, whole_places

__all__ = ["captured", "flow_of", "width"]

_ACTIVATIONS = frozenset({
    "Celu", "Clip", "Elu", "HardSigmoid", "Identity", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softmax",
    "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
})  # fmt: skip
#: What the runtime computes in one kernel with the convolution before it.
_FUSED = frozenset({"Add", "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Sum", "Tanh"})
#: Operators that stay in ONNX Runtime's blocked layout by themselves, and pools with whole blocks of channels.
_KEEPING = frozenset({
    "Add", "BatchNormalization", "Gelu", "HardSigmoid", "HardSwish", "Mul", "Relu", "Resize", "Sigmoid", "Sum", "Tanh",
})  # fmt: skip
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
#: A depthwise convolution stays in blocks where its channels are a multiple of this.
_DEPTHWISE = 4
#: Operators whose output is the buffer of their input.
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
#: (input, output) places.
_FIRST = ((0, 0),)
_EITHER = ((0, 0), (1, 0))
_STANDARD = ("", "ai.onnx")
#: What ONNX Runtime itself writes for a convolution and the activation behind it.
_FUSED_CONV = ("com.microsoft", "FusedConv")


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
        _unfuse(bare)
        self._odd = settle_pools(bare)
        self._said, _ = inference.infer(bare, _symbols(bare))
        if sizes:
            _bind(bare, sizes)
        self._types, _ = inference.infer(bare, frozenset())
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._folded = set(self._constants)
        fed = [info.name for info in model.graph.input if info.name not in self._constants]
        self._inputs = frozenset(fed)
        self._axes: Mapping[str, int] = {}

    def flow(self) -> Flow:
        self._axes = row_axes(self._graph.node, self._shape, lambda name: name not in self._constants)
        jobs = []
        for number, node in enumerate(self._graph.node):
            job = self._job(number, node)
            if job is not None:
                jobs.append(job)
        jobs = hoisted(_crossing(self._fused(jobs)))
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
        hides = self._hides()
        flow = replace(flow, axes={value: axis for value, axis in self._axes.items() if value in shapes})
        return replace(flow, blocked=blocked_values(flow), hides=hides, pools=hides and self._is_fixed())

    def _is_fixed(self) -> bool:
        """Whether the file says the sizes of all inputs."""
        return all(isinstance(dim, int) for name in self._inputs for dim in self._shape(name) or [None])

    def _hides(self) -> bool:
        """Whether the shapes of bands can be hidden from the runtime: the views for it need all dimensions but the
        first, and sums of integers.
        """
        said = [self._shape(name) for name in self._inputs]
        return self._opset >= 7 and all(
            shape is not None and all(isinstance(dim, int) for dim in shape[1:]) for shape in said
        )

    def _fused(self, jobs: Sequence[FlowJob]) -> list[FlowJob]:
        """The jobs, of which those know it that are computed with the convolution before them, or with the product
        behind them.
        """
        readers = Counter(value for job in jobs for value in job.inputs)
        ends: set[str] = set()
        found: list[FlowJob] = []
        makers: dict[str, int] = {}
        for place, job in enumerate(jobs):
            kind = _kind(self._graph.node[job.node])
            fuses = kind in _FUSED and any(value in ends and readers[value] == 1 for value in job.inputs)
            half = self._half(job, found, makers, readers) if kind == "Mul" else None
            if half is not None:
                found[half] = replace(found[half], halves=True)
                fuses = _kind(self._graph.node[found[half].node]) == "HardSigmoid"
            kept = job.reuses or (_EITHER if kind == "Mul" else _FIRST)
            found.append(replace(job, fuses=True, layout=Layout.KEEPS, reuses=kept) if fuses else job)
            if fuses or kind == "Conv":
                ends.update(job.outputs)
            makers.update(dict.fromkeys(job.outputs, place))
        return found

    def _half(
        self, product: FlowJob, jobs: Sequence[FlowJob], makers: Mapping[str, int], readers: Mapping[str, int]
    ) -> int | None:
        """The sigmoid in ``x * sigmoid(x)``, where nobody else reads it; or a hard one, where ``x`` is a convolution's
        and nobody else reads that either.
        """
        if len(product.inputs) != 2:
            return None
        for given, gate in (product.inputs, product.inputs[::-1]):
            place = makers.get(gate, -1)
            if place < 0 or readers[gate] > 1 or jobs[place].inputs != (given,):
                continue
            node, maker = self._graph.node[jobs[place].node], makers.get(given, -1)
            convolved = maker >= 0 and jobs[maker].convolves and readers[given] == 2
            if _kind(node) == "Sigmoid" or (convolved and _is_of_hard_swish(node)):
                return place
        return None

    def _job(self, number: int, node: onnx.NodeProto) -> FlowJob | None:
        outputs = tuple(name for name in node.output if name)
        read = [*node.input, *(name for name in captured(node))]
        computed = tuple(name for name in read if name and name not in self._folded)
        if not computed and outputs and node.op_type not in ("RandomNormal", "RandomUniform"):
            self._folded.update(outputs)
            return None
        rows = self._rows(node, computed)
        layout = self._layout(node, computed)
        reuses, convolves = _planned_reuse(node), node.op_type == "Conv"
        job = FlowJob(
            computed, outputs, number, flops=self._flops(node), reuses=reuses, layout=layout, convolves=convolves,
            averages=self._averages(node), alias=_kind(node) in _VIEWS,
        )  # fmt: skip
        if rows is None:
            return job
        whole = whole_places(self._asked(node, computed), rows)
        if whole is None or len(whole) == len(computed):
            return job
        return replace(job, rows=rows, whole=whole)

    def _averages(self, node: onnx.NodeProto) -> bool:
        """Whether a node takes the mean of each channel over all rows and columns, and keeps their axes."""
        if _kind(node) not in ("GlobalAveragePool", "ReduceMean"):
            return False
        kind, dims = self._types.get(node.input[0], inference.UNKNOWN)
        if kind != onnx.TensorProto.FLOAT or len(dims or ()) != 4:
            return False
        if _kind(node) == "GlobalAveragePool":
            return True
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        axes = given.get("axes") if len(node.input) < 2 else self._constant(node.input[1])
        return given.get("keepdims", 1) == 1 and axes is not None and sorted(axis % 4 for axis in axes) == [2, 3]

    def _layout(self, node: onnx.NodeProto, computed: tuple[str, ...]) -> Layout:
        """What ONNX Runtime's blocked layout means to a node."""
        if not _kind(node) or not computed or self._types.get(computed[0], inference.UNKNOWN)[0] != 1:
            return Layout.PLAIN
        if node.op_type in _POOLS:
            size = self._size(node.input[0])
            whole = len(size) == 4 and isinstance(size[1], int) and size[1] % BLOCK == 0
            return Layout.BLOCKED if whole and len(node.output) == 1 else Layout.PLAIN
        if _kind(node) == "Conv":
            return self._layout_of_convolution(node)
        channels = [(*self._size(name), None, None)[1] for name in computed]
        along = node.op_type == "Concat" and all(isinstance(one, int) and one % BLOCK == 0 for one in channels)
        return Layout.KEEPS if along or node.op_type in _KEEPING else Layout.PLAIN

    def _layout_of_convolution(self, node: onnx.NodeProto) -> Layout:
        weight = self._constants.get(node.input[1])
        if weight is None or len(weight.dims) != 4:
            return Layout.PLAIN
        groups = next((one.i for one in node.attribute if one.name == "group"), 1)
        made, each = int(weight.dims[0]), int(weight.dims[1])
        if groups > 1:
            depthwise = each == 1 and made == groups and made % _DEPTHWISE == 0
            whole = each % BLOCK == 0 and made // groups % BLOCK == 0
            return Layout.BLOCKED if depthwise or whole else Layout.PLAIN
        return Layout.MAKES if each < BLOCK else Layout.BLOCKED if each % 4 == 0 else Layout.PLAIN

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _asked(self, node: onnx.NodeProto, computed: tuple[str, ...]) -> Asked:
        outputs = tuple(name for name in node.output if name)
        return Asked(node, self._opset, self._shape, self._constant, computed, outputs, self._axis)

    def _axis(self, name: str) -> int:
        """The axis of the rows of a value."""
        return self._axes.get(name, ROWS)

    def _shape(self, name: str) -> list[Any] | None:
        """Dimensions as the file says them, open ones open."""
        if name in self._constants:
            return list(self._constants[name].dims)
        return self._said.get(name, inference.UNKNOWN)[1]

    def _rows(self, node: onnx.NodeProto, computed: tuple[str, ...]) -> RowMap | None:
        outputs = [name for name in node.output if name]
        if not _kind(node) or not computed or self._odd:
            return None
        for name in outputs:
            shape, axis = self._shape(name), self._axis(name)
            if shape is None or len(shape) <= axis or not isinstance(shape[axis], int) or shape[axis] < 2:
                return None
        return rows_of(self._asked(node, computed))

    def _constant(self, name: str) -> Any:
        """The elements of a small constant, ``None`` where there is none of that name."""
        tensor = self._constants.get(name)
        if tensor is None or prod(tensor.dims) > 1024 or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def _flops(self, node: onnx.NodeProto) -> float:
        """About the operations of a node: those of products, and one an element for the rest."""
        elements = _count(self._size(node.output[0])) if node.output else 0.0
        if _kind(node) not in ("Conv", "ConvTranspose", "MatMul", "Gemm") or len(node.input) < 2:
            return elements
        given, weight = self._size(node.input[0]), self._size(node.input[1])
        if _kind(node) == "Conv":
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


def _crossing(jobs: Sequence[FlowJob]) -> list[FlowJob]:
    """The jobs, of which those know it that are means of all rows, or made of these alone."""
    made: set[str] = set()
    found = []
    for job in jobs:
        crosses = job.rows is None and (job.averages or (bool(job.inputs) and made.issuperset(job.inputs)))
        found.append(replace(job, crosses=True) if crosses else job)
        if crosses:
            made.update(job.outputs)
    return found


def _kind(node: onnx.NodeProto) -> str:
    """The operator of a node as the default domain has it; empty where it is none of that."""
    if (node.domain, node.op_type) == _FUSED_CONV:
        return "Conv"
    return node.op_type if node.domain in _STANDARD else ""


def _is_of_hard_swish(node: onnx.NodeProto) -> bool:
    """Whether a node is the hard sigmoid of HardSwish, ``min(max(x / 6 + 1 / 2, 0), 1)``."""
    given = {one.name: one.f for one in node.attribute}
    slope, shift = given.get("alpha", 0.2), given.get("beta", 0.5)
    return _kind(node) == "HardSigmoid" and abs(slope - 1 / 6) < 1e-6 and shift == 0.5


def _unfuse(bare: onnx.ModelProto) -> None:
    """Let inference see fused convolutions as convolutions, in place: their shapes are the same."""
    for node in bare.graph.node:
        if (node.domain, node.op_type) == _FUSED_CONV:
            node.domain, node.op_type = "", "Conv"
            del node.input[3:]
            kept = [one for one in node.attribute if not one.name.startswith("activation")]
            del node.attribute[:]
            node.attribute.extend(kept)


def _count(dims: Sequence[Any]) -> float:
    return float(prod(dim for dim in dims if isinstance(dim, int)))


def _planned_reuse(node: onnx.NodeProto) -> tuple[tuple[int, int], ...]:
    """What the runtime will probably compute in place, or in one kernel with what comes before."""
    if node.op_type in _ACTIVATIONS or _kind(node) in _VIEWS:
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
    forget_shapes(bare)
