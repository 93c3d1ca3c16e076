"""Channel shuffles as what they are: the same channels in another order.

ShuffleNet and its kin write a shuffle as three nodes: channels ``[N, g q, H, W]`` become ``[N, g, q, H, W]``, the two
axes change places, and both become one again. Rows stay where they are, but on the way they are another axis. One
Gather along the channels moves the same numbers, and bands of rows go through it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rlflow.frontends import inference, scopes
from rlflow.frontends.emitter import UniqueNames

__all__ = ["with_gathers"]

_SWAPS = [0, 2, 1, 3, 4]
_STANDARD = ("", "ai.onnx")


def with_gathers(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy of ``model`` in which each channel shuffle is a Gather; ``None`` where it has none."""
    types, _ = inference.infer(inference.bare_model(model), frozenset())
    found = list(_shuffles(model.graph, {name: dims for name, (_, dims) in types.items() if dims is not None}))
    if not found:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _put(made.graph, found)
    return made


def _shuffles(graph: onnx.GraphProto, dims: dict[str, list[Any]]) -> Any:
    """(places of the three nodes, groups) of each shuffle whose values in between nobody else reads."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output}
    readers: Counter[str] = Counter(info.name for info in graph.output)
    scopes.walk(graph, lambda node: readers.update(node.input))

    def maker_of(name: str, kind: str) -> int | None:
        place = makers.get(name)
        node = None if place is None else graph.node[place]
        fits = node is not None and node.op_type == kind and node.domain in _STANDARD
        return place if fits and readers[name] == 1 else None

    for last, node in enumerate(graph.node):
        if node.op_type != "Reshape" or node.domain not in _STANDARD:
            continue
        middle = maker_of(node.input[0], "Transpose")
        first = None if middle is None else maker_of(graph.node[middle].input[0], "Reshape")
        if middle is None or first is None or _perm(graph.node[middle]) != _SWAPS:
            continue
        names = (graph.node[first].input[0], graph.node[first].output[0], node.output[0])
        given, split, back = (dims.get(name) for name in names)
        if given is None or split is None or back is None or len(given) != 4 or len(split) != 5:
            continue
        channels, groups = given[1], split[1]
        known = all(isinstance(one, int) for one in (*given[1:], *split[1:]))
        if known and given == back and split[3:] == given[2:] and groups * split[2] == channels:
            yield (first, middle, last), channels, groups


def _perm(node: onnx.NodeProto) -> list[int]:
    return next((list(one.ints) for one in node.attribute if one.name == "perm"), [])


def _put(graph: onnx.GraphProto, found: list[tuple[tuple[int, int, int], int, int]]) -> None:
    """Writes a Gather in place of the last of the three nodes, and takes the others away, in place."""
    names: set[str] = {one.name for one in (*graph.initializer, *graph.input)}
    scopes.walk(graph, lambda node: names.update((node.name, *node.input, *node.output)))
    fresh, orders = UniqueNames(names), dict[tuple[int, int], str]()
    nodes: list[onnx.NodeProto | None] = list(graph.node)
    for (first, middle, last), channels, groups in found:
        key = channels, groups
        if key not in orders:
            orders[key] = fresh.fresh("order")
            order = np.arange(channels, dtype=np.int64).reshape(groups, -1).T.ravel()
            graph.initializer.append(numpy_helper.from_array(order, orders[key]))
        end = graph.node[last]
        given = [graph.node[first].input[0], orders[key]]
        gather = helper.make_node("Gather", given, list(end.output), end.name, axis=1)
        gather.metadata_props.extend(end.metadata_props)
        nodes[first], nodes[middle], nodes[last] = None, None, gather
    kept = [node for node in nodes if node is not None]
    del graph.node[:]
    graph.node.extend(kept)
