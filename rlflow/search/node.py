"""What a search walks over: graphs that were opened, and the candidates of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlflow.graph import Graph
from rlflow.search.macros import Macro, WithMacros
from rlflow.search.result import TraceStep, Visited
from rlflow.search.selection import Selection, Signature, signatures_of, touched_by, touches


class Link(NamedTuple):
    """The last step of a trace and what came before it; children share their parents' links."""

    step: TraceStep
    before: Link | None

    @staticmethod
    def after(before: Link | None, steps: Iterable[TraceStep]) -> Link | None:
        """The last of ``steps``, which follow ``before``."""
        for step in steps:
            before = Link(step, before)
        return before


@dataclass(eq=False)
class SearchNode:
    """An opened graph: its state in the core, its cost in milliseconds, and the steps that led to it.

    ``size``: nodes that do work at run time. ``traced``: whether there are such steps; not below a graph that no move
    led to.
    """

    state: Any
    cost: float
    digest: bytes
    size: int
    link: Link | None = None
    depth: int = 0
    raw: Any = field(default=None, repr=False)
    traced: bool = True
    _nodes: frozenset[int] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, state: Any, cost: float, link: Link | None = None, depth: int = 0, traced: bool = True) -> SearchNode:
        """The node of a state; its nodes are counted."""
        digest = bytes.fromhex(state.graph.digest)
        return cls(state, cost, digest, working_nodes(state.graph), link, depth, traced=traced)

    @property
    def graph(self) -> Any:
        return self.state.graph

    @property
    def trace(self) -> tuple[TraceStep, ...]:
        """The steps from the root to this node."""
        steps: list[TraceStep] = []
        link = self.link
        while link is not None:
            steps.append(link.step)
            link = link.before
        return tuple(reversed(steps))

    @property
    def nodes(self) -> frozenset[int]:
        """Ids of the graph's nodes; they persist from parent to child."""
        if self._nodes is None:
            self._nodes = frozenset(self.graph.order())
        return self._nodes

    @property
    def macros(self) -> list[Macro]:
        """The macros that were found here so far, in the order of their numbers."""
        return self.raw.macros if isinstance(self.raw, WithMacros) else []

    def number(self, singles: Any, more: Sequence[Macro] = ()) -> None:
        """Number the core's moves, the macros found so far, and ``more`` of them. Numbers of before stay: a table of
        one strategy is in use while another one lists the same node.
        """
        macros = [*self.macros, *more]
        self.raw = WithMacros(singles, macros) if macros else singles

    def macro(self, i: int) -> Macro | None:
        """Move ``i`` where it is a macro."""
        beyond = i - len(self.raw.singles) if isinstance(self.raw, WithMacros) else -1
        return self.raw.macros[beyond] if beyond >= 0 else None

    def child(self, i: int) -> Any:
        """The graph after move ``i``."""
        macro = self.macro(i)
        return self.state.child(i) if macro is None else macro.applied.state.graph

    def steps(self, i: int, rule_names: Sequence[str]) -> tuple[TraceStep, ...]:
        """Move ``i`` as it is written down: one step, or those of a macro."""
        macro = self.macro(i)
        if macro is not None:
            return tuple(TraceStep(rule, match) for rule, match in macro.applied.steps)
        match = tuple(int(ordinal) for ordinal in self.state.key(i))
        return (TraceStep(rule_names[int(self.raw.rule[i])], match),)

    def after(self, i: int) -> Any:
        """The state after move ``i``."""
        macro = self.macro(i)
        return self.state.open(i) if macro is None else macro.applied.state

    @property
    def visited(self) -> Visited:
        """This node in a result."""
        return Visited(self.graph, self.digest.hex(), self.cost, self.trace if self.traced else None)

    def neighbourhood(self, identifiers: Iterable[int], hops: int) -> set[int]:
        """Ids of the nodes at most ``hops`` edges away from the given ones, either way along the data."""
        reached = set(identifiers)
        edge = list(reached)
        for _ in range(hops):
            near = {n for identifier in edge for n in _adjacent(self.graph, identifier)} - reached
            reached |= near
            edge = list(near)
        return reached


class MoveTable:
    """The admitted candidates of a node as arrays, in the core's fixed order.

    ``index`` [n]: position among the core's moves, which :meth:`Problem.open` takes. ``cost`` [n]: the child's cost in
    ms, an estimate where ``exact`` [n] is False. ``rule`` [n]: rule number. ``growth`` [n]: nodes added less nodes
    removed. ``source``: the node that was asked about, what was selected there, and whether macros were.
    """

    def __init__(
        self,
        node: SearchNode,
        index: np.ndarray,
        cost: np.ndarray,
        exact: np.ndarray,
        source: tuple[SearchNode, Selection | None, bool] | None = None,
    ) -> None:
        self.node, self.raw = node, node.raw
        self.source = source or (node, None, False)
        self.index, self.cost, self.exact = index, cost, exact
        self.rule: np.ndarray = np.asarray(self.raw.rule)[index]
        self.growth: np.ndarray = (np.asarray(self.raw.nodes_added) - np.asarray(self.raw.nodes_removed))[index]
        self._digests: list[bytes] | None = None
        self._signatures: list[Signature] | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def digests(self) -> list[bytes]:
        """The children's digests, 16 bytes each."""
        if self._digests is None:
            self._digests = [row.tobytes() for row in np.ascontiguousarray(self.raw.digest)[self.index]]
        return self._digests

    def touched(self, k: int) -> np.ndarray:
        """Ids of the nodes that candidate ``k`` matched."""
        return touched_by(self.raw, int(self.index[k]))

    def touching(self, nodes: Iterable[int]) -> list[int]:
        """The candidates that touch one of the nodes."""
        return np.flatnonzero(touches(self.raw, nodes)[self.index]).tolist()

    @property
    def macros(self) -> list[int]:
        """The candidates that are macros."""
        raw = self.raw
        return np.flatnonzero(self.index >= len(raw.singles)).tolist() if isinstance(raw, WithMacros) else []

    @property
    def signatures(self) -> list[Signature]:
        """``(rule, touched ids)`` of each candidate: the same in parent and child where the match persists."""
        if self._signatures is None:
            self._signatures = signatures_of(self.raw, self.index)
        return self._signatures

    def beyond(self, k: int) -> MoveTable:
        """The candidates from number ``k`` on."""
        return MoveTable(self.node, self.index[k:], self.cost[k:], self.exact[k:], self.source) if k else self

    def thinned(self, count: int) -> MoveTable:
        """An evenly spread choice of ``count`` of the candidates; the table itself where there are no more."""
        if count >= len(self):
            return self
        some = np.arange(count) * len(self) // max(count, 1)
        return MoveTable(self.node, self.index[some], self.cost[some], self.exact[some], self.source)


def working_nodes(graph: Any) -> int:
    """Nodes that do work at run time: what only depends on constants is free."""
    if isinstance(graph, Graph):
        return graph.num_working_nodes
    return sum(not graph.is_const(node) and graph.op(node) != "Input" for node in graph.order())


def growth(raw: Any, i: int) -> int:
    """Nodes that the core's move ``i`` adds, less those that it removes."""
    return int(raw.nodes_added[int(i)]) - int(raw.nodes_removed[int(i)])


def _adjacent(graph: Any, identifier: int) -> Iterator[int]:
    for value in graph.node_inputs(identifier):
        if value >= 0:
            yield graph.producer(value)
    for value in graph.node_outputs(identifier):
        for user, _ in graph.users(value):
            yield user
