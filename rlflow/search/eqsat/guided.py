"""Which rule to apply next to an e-graph that must stay small: tree search over rules, extraction in the loop.

After Hartmann, He and Yoneki (PACT 2024, "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo
Tree Search"): a state is an e-graph, an action is one rule applied once everywhere, rules that change nothing are
pruned, play-outs draw at random, and an e-graph is worth what is gained by the best graph extracted from it. A cap on
e-nodes that saturation would spend on one family of rules is spent where it pays. Differences: the value is the
problem's own cost of the extracted graph, and a play-out is worth the best of its two ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlflow._core import EGraph, EGraphRule, Graph, Saturation
from rlflow.rewrite import RuleSet
from rlflow.search.eqsat.table import SaturatedGraph, SaturationLimits, saturate, usable
from rlflow.search.tree import UNTRIED, Vertex, back_up, select, uct

#: E-nodes besides twice those of the graph itself, as in the paper.
CAP = 2000
#: Steps of a play-out, and of the tree; weight of exploration (UCT).
PLAYOUT, DEPTH, EXPLORATION = 10, 30, math.sqrt(2)
#: Iterations of the short saturation that tells which rules have anything to do.
SCOUT = 4


@dataclass(eq=False)
class _Vertex(Vertex):
    """An e-graph in the tree, and the actions that were not tried in it. Its edges are places for as many: the next
    action that changes anything takes the next place.
    """

    egraph: EGraph
    depth: int
    untried: list[int]

    @property
    def passed(self) -> int:
        """How many simulations came here, the one that made it included."""
        return int(self.visits.sum()) + (self.depth > 0)


class RuleSearch:
    """One tree. ``value`` gives the gain (at least 0) of an e-graph's best graph; ``stopped`` ends the search.

    ``nodes``: e-nodes at most, beyond :data:`CAP` and what the graph itself has none are made on purpose.
    """

    def __init__(
        self,
        graph: Graph,
        rules: RuleSet,
        rng: np.random.Generator,
        value: Callable[[SaturatedGraph], float],
        stopped: Callable[[], bool],
        *,
        nodes: int,
        cycles: str,
    ) -> None:
        self.graph, self.rng, self.value, self.stopped, self.cycles = graph, rng, value, stopped, cycles
        egraph, self.outputs = EGraph.of_graph(graph)
        self.cap = min(nodes, CAP + 2 * egraph.node_count)
        self.actions = self._live(egraph, rules)
        self.high = 0.0
        self.best = self._saturated(egraph)
        self.root = self._vertex(egraph, 0)

    def run(self, simulations: int) -> SaturatedGraph:
        """The e-graph of the largest value that was seen, the starting one included."""
        for _ in range(simulations):
            if self.root.closed or self.stopped():
                break
            self._simulate()
        return self.best

    def _live(self, egraph: EGraph, rules: RuleSet) -> list[list[EGraphRule]]:
        """The rules that match anywhere near the graph: for each, its shapes."""
        limits = SaturationLimits(SCOUT, self.cap, None, SCOUT, self.cycles)
        matched = {count["rule"] for count in saturate(self.graph, rules, limits).counts if count["matches"]}
        shapes: dict[str, list[EGraphRule]] = {}
        for rule in usable(egraph, rules):
            if rule.name in matched:
                shapes.setdefault(rule.name, []).append(rule)
        return list(shapes.values())

    def _vertex(self, egraph: EGraph, depth: int) -> _Vertex:
        room = depth < DEPTH and egraph.node_count <= self.cap
        untried = self.rng.permutation(len(self.actions)).tolist() if room else []
        n = len(untried)
        return _Vertex(
            np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n, dtype=bool), egraph, depth, untried
        )

    def _simulate(self) -> None:
        path = select(self.root, self._score)
        child = self._expand(*path[-1])
        back_up(path, 0.0 if child is None else max(self._valued(child.egraph), self._playout(child)))

    def _score(self, vertex: _Vertex) -> np.ndarray:
        visits = vertex.visits
        tried = vertex.total / (np.maximum(visits, 1) * (self.high or 1.0)) + EXPLORATION * uct(visits, vertex.passed)
        return np.where(visits > 0, tried, UNTRIED)

    def _expand(self, vertex: _Vertex, k: int) -> _Vertex | None:
        """A new e-graph below the vertex, at its edge ``k``; None where no rule is left that changes anything."""
        egraph, child = vertex.egraph.clone(), None
        while vertex.untried and child is None:
            if self._apply(egraph, vertex.untried.pop()):
                child = vertex.children[k] = self._vertex(egraph, vertex.depth + 1)
        if not vertex.untried:
            vertex.open_[k + 1 :] = False
        return child

    def _playout(self, vertex: _Vertex) -> float:
        if not vertex.untried:
            return 0.0
        egraph, changed = vertex.egraph.clone(), False
        for action in self.rng.integers(len(self.actions), size=PLAYOUT).tolist():
            changed |= self._apply(egraph, action)
            if egraph.node_count > self.cap or self.stopped():
                break
        return self._valued(egraph) if changed else 0.0

    def _apply(self, egraph: EGraph, action: int) -> bool:
        """Apply every shape of a rule once; whether that changed anything."""
        shapes = self.actions[action]
        step = Saturation(egraph, shapes, self.outputs, nodes=self.cap, cycles=self.cycles)
        return sum(step.apply_rule(i) for i in range(len(shapes))) > 0

    def _saturated(self, egraph: EGraph) -> SaturatedGraph:
        return SaturatedGraph(self.graph, egraph, self.outputs, "rule", [], [])

    def _valued(self, egraph: EGraph) -> float:
        found = self._saturated(egraph)
        gain = self.value(found) if found.extractable else 0.0
        if gain > self.high:
            self.high, self.best = gain, found
        return gain
