"""A flow in bands of rows as ONNX: a model whose nodes are those of the file, bands of them, Slice and Concat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rlflow.footprint import Flow, FlowJob
from rlflow.footprint.flow import ROWS
from rlflow.frontends import scopes
from rlflow.frontends.assembly import NODE_METADATA_IR, RULE_KEY
from rlflow.frontends.emitter import UniqueNames
from rlflow.frontends.row_kinds import explicit_pads

#: What new nodes say of themselves.
MAKER = "row-bands"


def with_bands(model: onnx.ModelProto, flow: Flow) -> onnx.ModelProto:
    """A copy of ``model``, of which ``flow`` was read and then put in bands. Weights are shared by the bands."""
    written = onnx.ModelProto()
    written.CopyFrom(model)
    writer = _Writer(written, flow)
    nodes = writer.nodes()
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    written.graph.initializer.extend(writer.constants.values())
    kept = {name for node in nodes for name in node.output} | {one.name for one in model.graph.input}
    infos = [info for info in model.graph.value_info if info.name in kept and info.name not in flow.hidden]
    del written.graph.value_info[:]
    written.graph.value_info.extend(infos)
    return written


class _Writer:
    def __init__(self, model: onnx.ModelProto, flow: Flow) -> None:
        self._model, self._flow = model, flow
        self._opset = max([one.version for one in model.opset_import if one.domain in ("", "ai.onnx")] or [1])
        taken = {one.name for one in (*model.graph.initializer, *model.graph.input)}
        own: set[str] = set()
        scopes.walk(model.graph, lambda node: own.update((node.name, *node.input, *node.output)))
        self._own = {name for node in model.graph.node for name in (*node.input, *node.output)} | taken
        self._names = UniqueNames(taken | own)
        self._written: dict[str, str] = {}
        dims = (dim for one in model.graph.input for dim in one.type.tensor_type.shape.dim)
        self._open = not all(dim.HasField("dim_value") for dim in dims)
        self._waiting: dict[str, onnx.NodeProto] = {}  # means of pieces, by what they make
        self.constants: dict[str, onnx.TensorProto] = {}

    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes in order; what folds away stays where it was."""
        source = self._model.graph.node
        known = {job.node for job in self._flow.jobs if job.node >= 0}
        idle = [number for number in range(len(source)) if number not in known]
        found: list[onnx.NodeProto] = []
        for job in self._flow.jobs:
            while idle and job.node > idle[0]:
                found.append(_copy(source[idle.pop(0)]))
            found += self._nodes_of(job)
        return [*found, *(_copy(source[number]) for number in idle)]

    def _node(self, job: FlowJob) -> onnx.NodeProto:
        if job.joins:
            inputs, outputs = self._named(job.inputs), self._named(job.outputs)
            return self._marked(helper.make_node("Concat", inputs, outputs, axis=self._flow.axis(job.outputs[0])))
        if job.cut is not None:
            return self._marked(self._crop(job) if job.crops else self._slice(job))
        if job.pools:
            inputs, outputs = self._named(job.inputs), self._named(job.outputs)
            return self._marked(helper.make_node("AveragePool", inputs, outputs, kernel_shape=[1, 1]))
        source = self._model.graph.node[job.node]
        return _copy(source) if job.band is None else self._marked(self._band(source, job))

    def _nodes_of(self, job: FlowJob) -> list[onnx.NodeProto]:
        if job.alias and job.node < 0:
            return self._hiding(job)
        if job.averages and job.band is not None:
            self._waiting[job.outputs[0]] = self._node(job)
            return []
        if job.weighs:
            return self._mean(job)
        return self._joint(job) if self._orders(job) else [self._node(job)]

    def _hiding(self, job: FlowJob) -> list[onnx.NodeProto]:
        """Two views whose batch no inference of shapes finds out: the first is as long as a sum says that adds 0."""
        given, made = self._named(job.inputs)[0], self._named(job.outputs)[0]
        size, zero, length, flat = (self._names.fresh("rows") for _ in range(4))
        shape = self._flow.shapes[job.inputs[0]]
        nodes = [
            helper.make_node("Size", [given], [size]),
            helper.make_node("Sub", [size, size], [zero]),
            helper.make_node("Add", [zero, self._ints([-1])], [length]),
            helper.make_node("Reshape", [given, length], [flat]),
            helper.make_node("Reshape", [flat, self._ints([-1, *shape[1:]])], [made]),
        ]
        return [self._marked(node) for node in nodes]

    def _mean(self, job: FlowJob) -> list[onnx.NodeProto]:
        """The mean of a whole, of the means of its pieces. These stand from the last to the first, as in a joint."""
        whole = sum(job.weighs)
        shares = np.asarray([rows / whole for rows in job.weighs], np.float32)
        joined, weighed = self._names.fresh("rows"), self._names.fresh("rows")
        nodes = [
            helper.make_node("Concat", self._named(job.inputs), [joined], axis=ROWS),
            helper.make_node("Mul", [joined, self._constant(shares.reshape(1, 1, -1, 1))], [weighed]),
            self._sum(weighed, self._named(job.outputs)[0]),
        ]
        return [*(self._waiting.pop(part) for part in reversed(job.inputs)), *(self._marked(node) for node in nodes)]

    def _sum(self, given: str, made: str) -> onnx.NodeProto:
        if self._opset < 13:
            return helper.make_node("ReduceSum", [given], [made], axes=[ROWS], keepdims=1)
        return helper.make_node("ReduceSum", [given, self._ints([ROWS])], [made], keepdims=1)

    def _orders(self, job: FlowJob) -> bool:
        """Whether this joins pieces whose order matters, and a view of them can be written."""
        behind = len(self._flow.shapes[job.outputs[0]]) - self._flow.axis(job.outputs[0]) - 1
        return job.joins and job.orders and (behind == 1 or (behind > 1 and not self._open))

    def _joint(self, job: FlowJob) -> list[onnx.NodeProto]:
        """The pieces joined, in an order of computation that is ours.

        ONNX Runtime walks depth first from the outputs, and to the input first whose node came last. Which of the
        copies out of its blocked layout that is changes from session to session. So each piece goes through a view,
        and the views stand in the file from the last to the first.
        """
        if self._opset < 5:
            return [self._node(job)]
        shape, axis = self._flow.shapes[job.outputs[0]], self._flow.axis(job.outputs[0])
        flat, pieces = self._ints([0] * axis + [-1]), self._named(job.inputs)
        views = {piece: self._names.fresh("rows") for piece in pieces}
        joined = self._names.fresh("rows")
        nodes = [helper.make_node("Reshape", [piece, flat], [views[piece]]) for piece in reversed(pieces)]
        nodes.append(helper.make_node("Concat", [views[piece] for piece in pieces], [joined], axis=axis))
        unsaid = self._open or job.outputs[0] in self._flow.hidden
        row = [-1] if len(shape) == axis + 2 else shape[axis + 1 :]
        whole = self._ints([*([0] * axis), shape[axis], *row] if unsaid else shape)
        nodes.append(helper.make_node("Reshape", [joined, whole], self._named(job.outputs)))
        return [self._marked(node) for node in nodes]

    def _marked(self, node: onnx.NodeProto) -> onnx.NodeProto:
        node.name = self._names.fresh(node.op_type)
        if self._model.ir_version >= NODE_METADATA_IR:
            helper.set_model_props(node, {RULE_KEY: MAKER})
        return node

    def _slice(self, job: FlowJob) -> onnx.NodeProto:
        assert job.cut is not None
        inputs, outputs = self._named(job.inputs), self._named(job.outputs)
        axis = self._flow.axis(job.inputs[0])
        if self._opset < 10:
            return helper.make_node("Slice", inputs, outputs, starts=[job.cut.first], ends=[job.cut.end], axes=[axis])
        bounds_of = [self._ints([bound]) for bound in (job.cut.first, job.cut.end, axis)]
        return helper.make_node("Slice", [*inputs, *bounds_of], outputs)

    def _crop(self, job: FlowJob) -> onnx.NodeProto:
        """The rows of each channel by a convolution with a single 1: in ONNX Runtime it needs no other layout."""
        assert job.cut is not None
        inputs, outputs = self._named(job.inputs), self._named(job.outputs)
        given = self._flow.shapes[job.inputs[0]]
        kernel = given[ROWS] - (job.cut.end - job.cut.first) + 1
        one_hot = np.zeros((given[1], 1, kernel, 1), np.float32)
        one_hot[:, :, job.cut.first] = 1.0
        weight = self._constant(one_hot, f"crop {given[1]} {kernel} {job.cut.first}")
        return helper.make_node("Conv", [*inputs, weight], outputs, kernel_shape=[kernel, 1], group=given[1])

    def _band(self, source: onnx.NodeProto, job: FlowJob) -> onnx.NodeProto:
        original = self._original(job)
        node = _copy(source)
        renamed = dict(
            zip((*original.inputs, *original.outputs), self._named((*job.inputs, *job.outputs)), strict=True)
        )
        _rename(node.input, renamed)
        _rename(node.output, renamed)
        del node.metadata_props[:]
        assert job.band is not None
        if node.op_type in ("Conv", "FusedConv", "MaxPool", "AveragePool"):
            self._set_pads(node, source, *job.band)
        elif node.op_type == "ConvTranspose":
            self._set_pads(node, source, job.band[0], max(job.band[1], 0))
            self._set_first(node, "output_padding", max(-job.band[1], 0))
        elif node.op_type in ("Reshape", "Expand"):
            node.input[1] = self._ints(self._extents(source, job))
            _set(node, "allowzero", None)
        elif node.op_type == "Resize":
            before, after = self._flow.shapes[original.inputs[0]], self._flow.shapes[original.outputs[0]]
            scales = [float(other // one) for one, other in zip(before, after, strict=True)]
            del node.input[1:]
            region = "" if self._opset >= 13 else self._constant(np.zeros(0, np.float32))
            node.input.extend([region, self._constant(np.asarray(scales, np.float32))])
        return node

    def _set_pads(self, node: onnx.NodeProto, source: onnx.NodeProto, before: int, after: int) -> None:
        shape = self._flow.shapes[source.input[0]]
        kernel = self._kernel(source)
        pads = explicit_pads(source, shape[2:], kernel)
        pads[0], pads[len(kernel)] = before, after
        _set(node, "auto_pad", None)
        _set(node, "pads", pads)

    def _extents(self, source: onnx.NodeProto, job: FlowJob) -> list[int]:
        """The shape that a Reshape or Expand of a band is told: what the file says, with the band's rows. An extent
        that the input has at the same place is left to it, because it may be hidden.
        """
        told = [int(extent) for extent in numpy_helper.to_array(self._weight(source.input[1]))]
        made = self._flow.shapes[job.outputs[0]]
        axis = self._flow.axis(job.outputs[0])
        behind = len(made) - axis
        if source.op_type == "Expand":
            if behind <= len(told) and told[-behind] != 1:
                told[-behind] = made[axis]
            return told
        given = self._flow.shapes[job.inputs[0]]
        told[axis] = made[axis]
        return [0 if place < min(axis, len(given)) and one == given[place] else one for place, one in enumerate(told)]

    def _set_first(self, node: onnx.NodeProto, name: str, value: int) -> None:
        given = next((list(one.ints) for one in node.attribute if one.name == name), [0] * len(self._kernel(node)))
        _set(node, name, [value, *given[1:]] if value or any(given) else None)

    def _kernel(self, node: onnx.NodeProto) -> list[int]:
        given = next((list(one.ints) for one in node.attribute if one.name == "kernel_shape"), [])
        if given:
            return given
        return list(self._weight(node.input[1]).dims[2:])

    def _weight(self, name: str) -> onnx.TensorProto:
        return next(one for one in self._model.graph.initializer if one.name == name)

    def _original(self, job: FlowJob) -> FlowJob:
        return self._flow.whole[job.node]

    # --- names and constants ------------------------------------------------------------------------------------------

    def _named(self, values: Sequence[str]) -> list[str]:
        return [self._name(value) for value in values]

    def _name(self, value: str) -> str:
        if value in self._own:
            return value
        if value not in self._written:
            self._written[value] = self._names.fresh("rows")
        return self._written[value]

    def _ints(self, values: Sequence[int]) -> str:
        return self._constant(np.asarray(values, np.int64))

    def _constant(self, array: np.ndarray[Any, Any], key: str = "") -> str:
        key = key or f"{array.dtype}{array.tolist()}"
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, self._names.fresh("bounds"))
        return self.constants[key].name


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied


def _rename(names: Any, renamed: dict[str, str]) -> None:
    for place, name in enumerate(names):
        names[place] = renamed.get(name, name)


def _set(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give an attribute its value; ``None`` removes it."""
    kept = [one for one in node.attribute if one.name != name]
    if value is not None:
        kept.append(helper.make_attribute(name, value))
    del node.attribute[:]
    node.attribute.extend(kept)
