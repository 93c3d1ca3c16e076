"""Parts of a large graph as graphs of their own: how they are chosen, cut out, and recognised when they occur again.

A part is grown around an expensive node, nearest nodes first, in an order that depends on nothing but the surroundings,
so that the same surroundings give the same part. What enters a part is an input of the small graph, what is read
outside is an output; constants come along. A rewrite of the small graph is therefore a match in the large one, too,
except where a condition looks further than the part reaches; the large graph has the last word.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlflow.graph import Graph, GraphBuilder

#: Operators that stay outside every part.
_OUTSIDE = frozenset({"Input", "Opaque"})
#: A value with more readers than this (the mask of all layers) joins nothing: its readers are far from each other.
_SHARED = 8


@dataclass(frozen=True)
class Subgraph:
    """A part of ``whole`` as a graph of its own.

    ``members``: node numbers in ``whole``, in the order in which the small graph was built; ``places``: the small
    graph's number of each. ``key``: equal for two parts that differ in their weights only.
    """

    graph: Graph
    members: tuple[int, ...]
    places: tuple[int, ...]
    key: tuple[Any, ...]


def plan(whole: Graph, pricer: Any, size: int) -> list[list[int]]:
    """Parts of at most ``size`` nodes that together cover every node that costs something, dearest anchor first.

    They overlap: each grows around its own anchor as if the others were not there.
    """
    near = _neighbours(whole)
    rank = {node: place for place, node in enumerate(whole.order())}
    regions = sorted(pricer.regions(whole), key=lambda region: (-(region.ms or 0.0), rank[region.head]))
    covered: set[int] = set()
    parts = []
    for anchor in (region.head for region in regions if not region.view):
        if anchor not in covered and anchor in near:
            part = _grow(anchor, near, size)
            covered.update(part)
            parts.append(part)
    return parts


def _neighbours(graph: Graph) -> dict[int, list[int]]:
    """The nodes that work at run time, each with those it reads from and those that read it, in a fixed order."""
    working = {node for node in graph.order() if not graph.is_const(node) and graph.op(node) not in _OUTSIDE}

    def around(node: int) -> Iterator[int]:
        for value in (value for value in graph.node_inputs(node) if value >= 0):
            readers = [user for user, _ in graph.users(value)]
            yield from [graph.producer(value), *readers] if len(readers) <= _SHARED else []
        for value in graph.node_outputs(node):
            readers = [user for user, _ in graph.users(value)]
            yield from readers if len(readers) <= _SHARED else []

    return {node: [other for other in dict.fromkeys(around(node)) if other in working] for node in working}


def _grow(anchor: int, near: dict[int, list[int]], size: int) -> list[int]:
    """``anchor`` and the nodes nearest to it, in the order in which they were reached."""
    reached, waiting = {anchor: None}, deque([anchor])
    while waiting and len(reached) < size:
        for other in near[waiting.popleft()]:
            if other not in reached and len(reached) < size:
                reached[other] = None
                waiting.append(other)
    return list(reached)


def cut_out(whole: Graph, part: Sequence[int]) -> Subgraph:
    """The nodes of ``part`` that are still there, with the constants they read, as a graph of their own."""
    cutter = _Cutter(whole, [node for node in part if whole.alive(node)])
    return cutter.cut()


@dataclass
class _Cutter:
    whole: Graph
    part: list[int]
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    values: dict[int, int] = field(default_factory=dict)  # of the whole -> of the small graph
    names: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # of the whole's values, for the key
    members: list[int] = field(default_factory=list)
    first_value: list[int] = field(default_factory=list)  # of each member, in the small graph
    key: list[Any] = field(default_factory=list)
    inputs: int = 0

    def cut(self) -> Subgraph:
        inside = set(self.part)
        for node in _in_order(self.whole, self.part):
            for value in self.whole.node_inputs(node):
                self._fetch(value)
            self._add(node)
        outputs = [
            value
            for node in self.members
            if node in inside
            for value in self.whole.node_outputs(node)
            if self.whole.output_uses(value) or any(user not in inside for user, _ in self.whole.users(value))
        ]
        self.key.append(tuple(self.names[value] for value in outputs))
        graph = self.builder.finish([self.values[value] for value in outputs])
        places = tuple(graph.producer(value) for value in self.first_value)
        return Subgraph(graph, tuple(self.members), places, tuple(self.key))

    def _fetch(self, value: int) -> None:
        """Make a value that is not made inside: a constant with all it depends on, or an input."""
        if value < 0 or value in self.values:
            return
        node = self.whole.producer(value)
        if self.whole.is_const(node):
            for other in self.whole.node_inputs(node):
                self._fetch(other)
            if value not in self.values:
                self._add(node)
            return
        dtype, shape = self.whole.dtype(value), self.whole.shape(value)
        self.values[value] = self.builder.input(f"i{self.inputs}", dtype, shape)
        self.names[value] = ("input", self.inputs)
        self.key.append(("input", dtype, repr(shape)))
        self.inputs += 1

    def _add(self, node: int) -> None:
        whole, op, attributes = self.whole, self.whole.op(node), self.whole.attrs(node)
        outputs, inputs = whole.node_outputs(node), whole.node_inputs(node)
        if op == "Constant":
            value = attributes["value"]
            first = self.builder.constant(
                value["dtype"], value["shape"], value["digest"], value["values"], value["facts"]
            )
            self.key.append(("constant", value["dtype"], repr(value["shape"]), _telling(value)))
        else:
            first = self.builder.add(
                op, attributes, [self.values[value] if value >= 0 else -1 for value in inputs], len(outputs)
            )
            self.key.append((op, repr(sorted(attributes.items())), *(self.names.get(value) for value in inputs)))
        for k, output in enumerate(outputs):
            self.values[output] = first + k
            self.names[output] = (len(self.members), k)
        self.members.append(node)
        self.first_value.append(first)


def _telling(constant: dict[str, Any]) -> str | None:
    """What the key says about a constant: integers and single numbers are read by conditions, weights are not."""
    values = constant["values"]
    if values is None or (len(values) > 1 and constant["dtype"] in (1, 10, 11, 16)):  # ONNX floating-point types
        return None
    return repr(values)


def _in_order(whole: Graph, part: Sequence[int]) -> Iterator[int]:
    """``part`` sorted topologically; among the nodes that could be next, the one reached first is."""
    reached = {node: place for place, node in enumerate(part)}
    waits = {}
    readers: dict[int, list[int]] = {node: [] for node in part}
    for node in part:
        before = {whole.producer(value) for value in whole.node_inputs(node) if value >= 0} & reached.keys()
        waits[node] = len(before)
        for other in before:
            readers[other].append(node)
    ready = [reached[node] for node in part if waits[node] == 0]
    heapq.heapify(ready)
    while ready:
        node = part[heapq.heappop(ready)]
        yield node
        for reader in readers[node]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reached[reader])
