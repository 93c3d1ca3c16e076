"""Random inputs for graphs that are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlflow.errors import CostError
from rlflow.runtime import FeedSpec

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: Operators that leave the real numbers for some inputs; theirs are kept away from zero and below.
_PARTIAL = frozenset({"Sqrt", "Log", "Pow", "Reciprocal", "Div", "Acosh", "Asin", "Acos", "Atanh", "Mod"})
_POSITIVE = (0.5, 2.0)
#: By ONNX element type.
NUMPY_NAMES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip


def input_specs(graph: Graph, dims: Mapping[str, int] | None = None) -> dict[str, FeedSpec]:
    """Random inputs that the graph accepts: indices in range, nothing outside an operator's domain. ``dims``: values of
    symbolic dimensions; others count as 1 where it is given, and are refused where not.
    """
    from rlflow.graph.ranges import input_ranges

    ranges = input_ranges(graph)
    positive = any(graph.op(node) in _PARTIAL for node in graph.order())
    specs = {}
    for node in graph.inputs():
        value, name = graph.node_outputs(node)[0], graph.input_name(node)
        dtype, shape = NUMPY_NAMES.get(graph.dtype(value)), _sizes(graph.shape(value), dims)
        if dtype is None or shape is None:
            raise CostError(
                f"A region cannot be priced by itself: no random input can be made for an operand of type "
                f"{graph.type_text(value)}."
            )
        low, high = ranges.get(name, _POSITIVE if positive and dtype.startswith("float") else (None, None))
        specs[name] = FeedSpec(shape, dtype, low, high)
    return specs


def _sizes(shape: Sequence[Any] | None, dims: Mapping[str, int] | None) -> tuple[int, ...] | None:
    """A shape in numbers; ``None`` where it has none."""
    from rlflow.frontends import symbolic

    if shape is None or any(dim is None or (dims is None and not isinstance(dim, int)) for dim in shape):
        return None
    values = {name: (dims or {}).get(name, 1) for name in symbolic.names(shape)}
    return tuple(int(symbolic.evaluate(dim, values)) for dim in shape)
