"""Ranges of a graph's integer inputs, as far as the graph itself tells: an index into V rows lies in [0, V - 1]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Operators whose first output holds elements of their input number 0 and no others.
_CARRIERS = frozenset(
    {
        "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Split", "Expand", "Tile", "Identity",
        "Gather", "GatherElements", "GatherND",
    }
)  # fmt: skip
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_FLOATS = frozenset({1, 10, 11, 16})


def input_ranges(graph: Any) -> dict[str, tuple[int, int]]:
    """``{input name: (low, high)}``, both ends included, for the integer inputs (and floats that are cast to indices)
    that index something.

    Inputs that index nothing are absent. Where an input indexes several tensors, the shortest one decides.
    """
    ranges = {}
    for node in graph.inputs():
        value = graph.node_outputs(node)[0]
        if graph.dtype(value) in _INTEGERS | _FLOATS:
            sizes = list(_indexed_sizes(graph, value))
            if sizes:
                ranges[graph.input_name(node)] = (0, max(0, min(sizes) - 1))
    return ranges


def _indexed_sizes(graph: Any, value: int) -> Iterator[int]:
    """Lengths of the dimensions that the elements of ``value`` are used to index."""
    seen, waiting = {value}, [value]
    while waiting:
        for user, slot in graph.users(waiting.pop()):
            yield from _sizes_at(graph, user, slot)
            for carried in _carried(graph, user, slot):
                if carried not in seen:
                    seen.add(carried)
                    waiting.append(carried)


def _carried(graph: Any, user: int, slot: int) -> list[int]:
    op, outputs = graph.op(user), list(graph.node_outputs(user))
    if op == "Concat":
        return outputs
    if op == "Cast" and graph.dtype(outputs[0]) in _INTEGERS:
        return outputs
    return outputs if op in _CARRIERS and slot == 0 else []


def _sizes_at(graph: Any, user: int, slot: int) -> Iterator[int]:
    op, inputs, attrs = graph.op(user), graph.node_inputs(user), graph.attrs(user)
    if op in ("Gather", "GatherElements", "ScatterElements") and slot == 1:
        yield from _dims(graph, inputs[0], [int(attrs.get("axis", 0))])
    elif op in ("GatherND", "ScatterND") and slot == 1:
        batch, shape = int(attrs.get("batch_dims", 0)), graph.shape(inputs[1])
        depth = shape[-1] if shape and isinstance(shape[-1], int) else 1
        yield from _dims(graph, inputs[0], range(batch, batch + depth))
    elif op == "OneHot" and slot == 0 and (depth_values := graph.data(inputs[1])):
        yield from (int(depth) for depth in depth_values[:1] if isinstance(depth, int))


def _dims(graph: Any, value: int, axes: Any) -> Iterator[int]:
    shape = graph.shape(value)
    for axis in axes:
        if shape is not None and -len(shape) <= axis < len(shape) and isinstance(shape[axis], int):
            yield shape[axis]
