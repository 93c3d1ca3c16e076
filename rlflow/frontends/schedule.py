"""What ONNX Runtime made of a model, as a flow: its own graph, in the order in which it runs it.

The runtime writes the nodes of its optimised graph in the order of their execution. Which outputs it may compute in
place is fixed in its kernels; the table below says it for its processor kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import onnx
from onnx import numpy_helper

from rlflow.errors import RuntimeRefused
from rlflow.footprint import Flow, FlowJob, footprint
from rlflow.frontends.flows import captured
from rlflow.frontends.opening import parse_model

__all__ = ["IN_PLACE", "VIEWS", "NodeRun", "UnknownOrder", "held", "schedule_of"]

_MICROSOFT, _BLOCKED = "com.microsoft", "com.microsoft.nchwc"
_FIRST, _SUM = ((0, 0),), ((3, 0),)
#: Views: the output is the input's buffer.
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
#: Operators whose kernels may write over their first input.
IN_PLACE = frozenset({
    "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Shrink", "Sigmoid",
    "Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
})  # fmt: skip
#: (input, output) places that may share a buffer, by (domain, operator): a sum that a convolution adds to.
_REUSES = {**{("", op): _FIRST for op in IN_PLACE}, (_MICROSOFT, "FusedConv"): _SUM, (_BLOCKED, "Conv"): _SUM}
#: Bytes of an element, by the runtime's names of types.
_WIDTHS = {
    "float": 4, "double": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8,
    "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip


class UnknownOrder(RuntimeRefused):
    """The runtime ran other nodes than those of its graph, such as those of a branch."""


class NodeRun(Protocol):
    """One node in a run: its name and operator, (type, shape) of each output, bytes given out when it ends, and of
    workspace.
    """

    @property
    def name(self) -> str: ...

    @property
    def operator(self) -> str: ...

    @property
    def outputs(self) -> tuple[tuple[str, tuple[int, ...]], ...]: ...

    @property
    def held(self) -> int: ...

    @property
    def workspace(self) -> int: ...


def schedule_of(optimised: bytes, nodes: Sequence[NodeRun], feeds: Mapping[str, Any]) -> Flow:
    """The flow of the runtime's graph ``optimised`` as it ran on ``feeds``, ``nodes`` saying how.

    Raises :class:`UnknownOrder` where nobody can say in which order it ran that graph's nodes.
    """
    graph = parse_model(optimised, "the runtime's graph").graph
    ran = _as_they_ran(graph.node, nodes)
    if ran is None:
        raise UnknownOrder("ONNX Runtime did not run the nodes of its graph in the order in which it wrote them.")
    shapes = {name: tuple(value.shape) for name, value in feeds.items()}
    widths = {name: int(value.dtype.itemsize) for name, value in feeds.items()}
    jobs = []
    for number, (node, one) in enumerate(zip(ran, nodes, strict=True)):
        jobs.append(_job(number, node, one.workspace, shapes))
        for name, (kind, shape) in zip(jobs[-1].outputs, one.outputs, strict=False):
            shapes[name], widths[name] = shape, _WIDTHS.get(kind, 4)
        for name in jobs[-1].outputs[len(one.outputs) :]:  # nobody reads them
            shapes[name], widths[name] = (0,), 1
    ends, hidden = tuple(one.name for one in graph.output), _hidden(graph)
    return Flow(tuple(jobs), shapes, widths, frozenset(feeds), ends, hidden=hidden)


def _as_they_ran(nodes: Sequence[onnx.NodeProto], runs: Sequence[NodeRun]) -> list[onnx.NodeProto] | None:
    """The nodes in the order of the run: by their names, where all have one of their own; else as they are written, or
    by the numbers with which the runtime calls those without a name. ``None`` where none of it is an order of these.
    """
    named = {node.name: node for node in nodes if node.name}
    by_name = [named[one.name] for one in runs if one.name in named]
    orders = [by_name] if len(named) == len(nodes) else [list(nodes), _by_number(named, nodes, runs)]
    return next((found for found in orders if _is_an_order(found, nodes, runs)), None)


def _by_number(
    named: Mapping[str, onnx.NodeProto], nodes: Sequence[onnx.NodeProto], runs: Sequence[NodeRun]
) -> list[onnx.NodeProto]:
    """The nodes in the order of the run: one without a name is called by its operator and a number, which grow with the
    places where they are written.
    """
    nameless: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        if not node.name:
            nameless.setdefault(node.op_type, []).append(node)
    numbers: dict[str, list[int]] = {}
    for one in runs:
        if one.name not in named:
            numbers.setdefault(one.operator, []).append(_number(one.name))
    found = []
    for one in runs:
        ours, known = nameless.get(one.operator, []), sorted(numbers.get(one.operator, []))
        if one.name in named:
            found.append(named[one.name])
        elif len(ours) == len(known):
            found.append(ours[known.index(_number(one.name))])
    return found


def _number(name: str) -> int:
    """The number at the end of what the runtime calls a node; -1: there is none."""
    end = name.rpartition("_")[2]
    return int(end) if end.isdecimal() else -1


def _is_an_order(
    found: Sequence[onnx.NodeProto], nodes: Sequence[onnx.NodeProto], runs: Sequence[NodeRun]
) -> bool:
    """Whether these are all nodes, each of the operator that ran, none before what it reads."""
    if [node.op_type for node in found] != [one.operator for one in runs]:
        return False
    waiting = {name for node in nodes for name in node.output if name}
    for node in found:
        if not waiting.isdisjoint((*node.input, *captured(node))):
            return False
        waiting.difference_update(node.output)
    return not waiting


def _hidden(graph: onnx.GraphProto) -> frozenset[str]:
    """The values whose shape the runtime does not infer: what is reshaped as another node says, and what is made of
    that, until a Reshape says all dimensions.
    """
    constants = {one.name: one for one in graph.initializer}
    told = {info.name for info in graph.value_info if _is_told(info)}
    hidden: set[str] = set()
    for node in graph.node:
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
            target = constants.get(node.input[1])
            says_all = target is not None and bool((numpy_helper.to_array(target) > 0).all())
            unknown = target is None or (node.input[0] in hidden and not says_all)
        else:
            unknown = node.op_type not in ("Shape", "Size") and not hidden.isdisjoint(node.input)
        if unknown:
            hidden.update(name for name in node.output if name not in told)
    return frozenset(hidden)


def _is_told(info: onnx.ValueInfoProto) -> bool:
    """Whether the file says all dimensions of a value, by size or by name."""
    kind = info.type.tensor_type
    return kind.HasField("shape") and all(dim.HasField("dim_value") or dim.dim_param for dim in kind.shape.dim)


def held(flow: Flow) -> list[int]:
    """Bytes that the runtime's allocator has given out when each job ends, by the rules of
    :mod:`rlflow.footprint.lifetimes`: all live buffers and the outputs so far.
    """
    needs, outputs = footprint(flow), set(flow.outputs)
    found, given = [], 0
    for number, job in enumerate(flow.jobs):
        given += sum(flow.bytes(value) for value in job.outputs if value in outputs)
        live = (flow.bytes(one.value) for one in needs.buffers if one.first <= number <= one.last)
        found.append(given + sum(live))
    return found


def _job(number: int, node: onnx.NodeProto, workspace: int, known: Mapping[str, tuple[int, ...]]) -> FlowJob:
    inputs = tuple(name for name in (*node.input, *captured(node)) if name in known)
    places = {place: inputs.index(name) for place, name in enumerate(node.input) if name in known}
    domain = "" if node.domain == "ai.onnx" else node.domain
    alias = not domain and node.op_type in VIEWS
    reuses = _FIRST if alias else _REUSES.get((domain, node.op_type), ())
    found = tuple((places[source], target) for source, target in reuses if source in places)
    return FlowJob(inputs, tuple(filter(None, node.output)), number, reuses=found, alias=alias, workspace=workspace)
