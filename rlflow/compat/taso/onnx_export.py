"""A taso graph as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlflow.compat.taso.arguments import is_integer
from rlflow.compat.taso.handle import GraphHandle
from rlflow.errors import GraphError, UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

_BODIES = (5, 10)  # AttributeProto.GRAPH and GRAPHS


def export_onnx(graph: GraphHandle, *, opset: int | None = None) -> ModelProto:
    """The graph as a checked ONNX ModelProto.

    A graph that was loaded (or is the result of optimising a loaded one) and not added to is written with its own
    names and opset; others with opset 21 (or ``opset``), inputs by their names and outputs ``output_0``,
    ``output_1``, …. Raises GraphError where ``opset`` lacks an operator of the graph, or is none of ONNX's.
    """
    from rlflow.frontends import graph_to_model

    if not isinstance(graph, GraphHandle):
        raise UsageError(f"taso: export_onnx() got {type(graph).__name__}; expected a PyGraph.")
    model = graph._untouched_model()
    if model is not None and opset in (None, opset_of(model)):
        copy = type(model)()
        copy.CopyFrom(model)
        return copy
    if not graph.outputs():
        raise GraphError("taso: export_onnx(): the graph has no operator, so it has no output; add one first.")
    _check_opset(opset)
    written = graph_to_model(graph.to_rlflow(), graph.constants, seed=graph._store.seed, opset=opset)
    _rename_outputs(written, graph._store.output_names())
    return written


def _check_opset(opset: int | None) -> None:
    from rlflow.frontends import newest_opset

    newest = newest_opset()
    if opset is not None and not (is_integer(opset) and 1 <= opset <= newest):
        raise GraphError(f"taso: export_onnx(): opset={opset!r}; expected an integer of 1 to {newest}, ONNX's newest.")


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's own operators that a model uses; 0 where it names none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def _rename_outputs(model: ModelProto, names: Sequence[str]) -> None:
    """Gives the outputs these names, each once; another value that has one of them already moves out of the way.

    An output that is an input keeps the name it was written with, and so do all where a node has a body, which may
    read values by their names.
    """
    graph = model.graph
    if any(attribute.type in _BODIES for node in graph.node for attribute in node.attribute):
        return
    inputs = {info.name for info in graph.input}
    wanted: dict[str, str] = {}
    given = set(inputs)
    for old, new in zip((info.name for info in graph.output), names, strict=True):
        if new not in given and old != new:
            wanted[old] = new
        given.add(new)
    values = {value for node in graph.node for value in (*node.input, *node.output)}
    values |= {one.name for row in (graph.input, graph.output, graph.initializer) for one in row}
    for name in sorted(set(wanted.values()) & values - set(wanted)):
        moved = f"{name}_"
        while moved in values:
            moved += "_"
        values.add(moved)
        wanted[name] = moved
    for node in graph.node:
        for row in (node.input, node.output):
            for place, value in enumerate(row):
                row[place] = wanted.get(value, value)
    for item in (*graph.output, *graph.initializer):
        item.name = wanted.get(item.name, item.name)
