"""Writing a model for an older opset than it came with, where ONNX Runtime computes the older operators faster.

AveragePool has dilations from opset 19 on. ONNX Runtime 1.31 computes that one ten times as slowly as the older one, or
more slowly still, unless the pool becomes part of its blocked layout.
"""

from __future__ import annotations

from rlflow.frontends import raising
from rlflow.frontends.imported import ImportedModel
from rlflow.graph import Graph

__all__ = ["faster_opset"]

#: Operator -> the first opset of which the runtime's kernel is slow.
_SLOW_SINCE = {"AveragePool": 19}
#: Maps of so many channels, or a multiple, are in the runtime's blocked layout on every processor.
_BLOCK = 16


def faster_opset(imported: ImportedModel) -> int | None:
    """The older opset of the default domain for which ONNX Runtime computes the model faster; ``None`` where there is
    none, and where the model cannot be written for it.
    """
    graph, own = imported.graph, imported.origin.opset
    if imported.passthrough is not None:
        return None
    slow = {graph.op(node) for node in graph.order() if _is_slow(graph, node, own)}
    older = min((_SLOW_SINCE[op] - 1 for op in slow), default=own)
    return older if older < own and raising.hindrance(imported, older) is None else None


def _is_slow(graph: Graph, node: int, opset: int) -> bool:
    if opset < _SLOW_SINCE.get(graph.op(node), opset + 1):
        return False
    shape = graph.shape(graph.node_inputs(node)[0])
    return not (shape and len(shape) == 4 and isinstance(shape[1], int) and shape[1] % _BLOCK == 0)
