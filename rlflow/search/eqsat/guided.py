"""Which rule to apply next to an e-graph that must stay small: tree search over rules, extraction in the loop.

After Hartmann, He and Yoneki (PACT 2024, "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo
Tree Search"): a state is an e-graph, an action is one rule applied once everywhere, rules that change nothing are
pruned, play-outs draw at random, and an e-graph is worth what is gained by the best graph extracted from it. A cap on
e-nodes that saturation would spend on one family of rules is spent where it pays. Differences: the value is the
problem's own cost of the extracted graph, and a play-out is worth the best of its two ends.

With a policy of chains (``rlflow.search.levin``) the rules that it thinks likely after the last two come first, in the
tree (PUCT) and in play-outs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlflow._core import EGraph, EGraphRule, Graph, Saturation
from rlflow.rewrite import RuleSet
from rlflow.search.eqsat.table import SaturatedGraph, SaturationLimits, saturate, usable
from rlflow.search.levin.chain_policy import ChainPolicy
from rlflow.search.tree import UNTRIED, Vertex, back_up, puct, select, uct

#: E-nodes besides twice those of the graph itself, as in the paper.
CAP = 2000
#: Steps of a play-out, and of the tree; weight of exploration (UCT).
PLAYOUT, DEPTH, EXPLORATION = 10, 30, math.sqrt(2)
#: Iterations of the short saturation that tells which rules have anything to do.
SCOUT = 4
#: Part of the probability that all rules share alike, whatever the policy thinks of them.
EVEN = 0.1


class RulePrior:
    """How likely each action is to be the next that pays, by a policy of chains that knows the rules ``known``.

    ``actions``: the rules by number.
    """

    def __init__(self, policy: ChainPolicy, known: Sequence[str], actions: Sequence[str]) -> None:
        self._policy = policy.bound(known, actions)
        self._seen: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, path: tuple[int, ...]) -> np.ndarray:
        """[actions] probabilities after those that were applied, of which the last two count."""
        last = (path[-1] if path else -1, path[-2] if len(path) > 1 else -1)
        if last not in self._seen:
            self._seen[last] = self._policy.of_rules(*last, EVEN)
        return self._seen[last]


@dataclass(eq=False)
class _Vertex(Vertex):
    """An e-graph in the tree, and the actions that were not tried in it. Its edges are places for as many: the next
    action that changes anything takes the next place. ``path``: the actions that made it.
    """

    egraph: EGraph
    untried: list[int]
    path: tuple[int, ...]

    @property
    def passed(self) -> int:
        """How many simulations came here, the one that made it included."""
        return int(self.visits.sum()) + bool(self.path)


class RuleSearch:
    """One tree. ``value`` gives the gain (at least 0) of an e-graph's best graph; ``stopped`` ends the search.

    ``nodes``: e-nodes at most, beyond :data:`CAP` and what the graph itself has none are made on purpose. ``policy``:
    of chains, and the rules that it knows; without it all rules are alike before they were tried.
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
        policy: tuple[ChainPolicy, Sequence[str]] | None = None,
    ) -> None:
        self.graph, self.rng, self.value, self.stopped, self.cycles = graph, rng, value, stopped, cycles
        egraph, self.outputs = EGraph.of_graph(graph)
        self.cap = min(nodes, CAP + 2 * egraph.node_count)
        self.actions = self._live(egraph, rules)
        names = [shapes[0].name for shapes in self.actions]
        self.prior = None if policy is None else RulePrior(*policy, names)
        self.high = 0.0
        self.best = self._saturated(egraph)
        self.best_path: tuple[int, ...] = ()
        self.root = self._vertex(egraph, ())

    def run(self, simulations: int) -> SaturatedGraph:
        """The e-graph of the largest value that was seen, the starting one included."""
        for _ in range(simulations):
            if self.root.closed or self.stopped():
                break
            self._simulate()
        return self.best

    def gain_of(self, path: Sequence[int]) -> float:
        """What the e-graph is worth that these ``actions`` make, by number, one after the other."""
        egraph = self.root.egraph.clone()
        for action in path:
            self._apply(egraph, action)
        return self._valued(egraph, tuple(path))

    def _live(self, egraph: EGraph, rules: RuleSet) -> list[list[EGraphRule]]:
        """The rules that match anywhere near the graph: for each, its shapes."""
        limits = SaturationLimits(SCOUT, self.cap, None, SCOUT, self.cycles)
        matched = {count["rule"] for count in saturate(self.graph, rules, limits).counts if count["matches"]}
        shapes: dict[str, list[EGraphRule]] = {}
        for rule in usable(egraph, rules):
            if rule.name in matched:
                shapes.setdefault(rule.name, []).append(rule)
        return list(shapes.values())

    def _vertex(self, egraph: EGraph, path: tuple[int, ...]) -> _Vertex:
        room = len(path) < DEPTH and egraph.node_count <= self.cap
        order = self.rng.permutation(len(self.actions)) if room else np.empty(0, dtype=np.int64)
        n, prior = len(order), np.zeros(len(order))
        if room and self.prior is not None:
            chances = self.prior(path)
            order = order[np.argsort(chances[order], kind="stable")]  # the likeliest is taken first, from the end
            prior = chances[order][::-1].copy()
        return _Vertex(
            prior, np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n, dtype=bool), egraph, order.tolist(), path
        )

    def _simulate(self) -> None:
        path = select(self.root, self._score)
        child = self._expand(*path[-1])
        back_up(path, 0.0 if child is None else max(self._valued(child.egraph, child.path), self._playout(child)))

    def _score(self, vertex: _Vertex) -> np.ndarray:
        visits = vertex.visits
        mean = vertex.total / (np.maximum(visits, 1) * (self.high or 1.0))
        if self.prior is None:
            return np.where(visits > 0, mean + EXPLORATION * uct(visits, vertex.passed), UNTRIED)
        places = np.arange(len(visits))
        return np.where(places <= np.count_nonzero(visits), mean + EXPLORATION * puct(vertex.prior, visits), -math.inf)

    def _expand(self, vertex: _Vertex, k: int) -> _Vertex | None:
        """A new e-graph below the vertex, at its edge ``k``; None where no rule is left that changes anything."""
        egraph, child = vertex.egraph.clone(), None
        while vertex.untried and child is None:
            action = vertex.untried.pop()
            if self._apply(egraph, action):
                child = vertex.children[k] = self._vertex(egraph, (*vertex.path, action))
                if self.prior is not None:
                    left = [action, *reversed(vertex.untried)]
                    vertex.prior[k : k + len(left)] = self.prior(vertex.path)[left]
        if not vertex.untried:
            vertex.open_[k + 1 :] = False
        return child

    def _playout(self, vertex: _Vertex) -> float:
        if not vertex.untried:
            return 0.0
        egraph, path = vertex.egraph.clone(), vertex.path
        for drawn in self._drawn():
            action = drawn if self.prior is None else int(np.searchsorted(np.cumsum(self.prior(path)), drawn))
            if self._apply(egraph, action):
                path = (*path, action)
            if egraph.node_count > self.cap or self.stopped():
                break
        return self._valued(egraph, path) if len(path) > len(vertex.path) else 0.0

    def _drawn(self) -> list[Any]:
        """What the actions of a play-out are chosen by: they themselves, or places among their summed chances."""
        n = len(self.actions)
        if self.prior is None:
            return self.rng.integers(n, size=PLAYOUT).tolist()
        return (self.rng.random(PLAYOUT) * (1 - 1e-9)).tolist()

    def _apply(self, egraph: EGraph, action: int) -> bool:
        """Apply every shape of a rule once; whether that changed anything."""
        shapes = self.actions[action]
        step = Saturation(egraph, shapes, self.outputs, nodes=self.cap, cycles=self.cycles)
        return sum(step.apply_rule(i) for i in range(len(shapes))) > 0

    def _saturated(self, egraph: EGraph) -> SaturatedGraph:
        return SaturatedGraph(self.graph, egraph, self.outputs, "rule", [], [])

    def _valued(self, egraph: EGraph, path: tuple[int, ...]) -> float:
        found = self._saturated(egraph)
        gain = self.value(found) if found.extractable else 0.0
        if gain > self.high:
            self.high, self.best, self.best_path = gain, found, path
        return gain
