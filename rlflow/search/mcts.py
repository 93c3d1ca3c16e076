"""Monte-Carlo tree search over rewrites, with values from costs instead of random play-outs.

The tree hangs below a graph that no single rewrite improves. A simulation walks down along the edges that promise
most, opens one new graph, goes downhill from it (``descent.py``), and hands the cost found there up the path. What an
edge promises is

* ``puct``: ``Q + c * prior * sqrt(N) / (1 + n)`` (Silver et al. 2017); the prior falls with the candidate's own cost;
* ``uct``: ``Q + c * sqrt(ln(N) / n)`` (Kocsis and Szepesvari 2006), edges that were never tried first;

where ``Q`` is between the mean and the best of the gains seen below, scaled to 0 … 1 over the tree. A graph that was
reached before is not searched twice: the edge to it ends there, with its value. Orders of independent rewrites are
pruned (``commute.py``). From a better graph the search starts a new tree; where the last tree ends, further ones grow
below the graphs on the way down to it, because a rewrite that was taken there may exclude a better one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.annealing import typical_change
from rlflow.search.budget import StopReason
from rlflow.search.commute import Sleep
from rlflow.search.descent import Descent, descend
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase
from rlflow.search.tree import UNTRIED, Vertex, back_up, puct, select, uct

#: Share of the prior at the root of a tree that is drawn at random (Dirichlet, as in AlphaZero).
_NOISE, _CONCENTRATION = 0.25, 0.3


@register
@dataclass(frozen=True)
class Mcts(StrategyBase):
    """Tree search that spends its simulations where gains were found.

    ``c``: weight of exploration. ``policy``: puct or uct. ``mix``: 1 values an edge by the best gain below it, 0 by the
    mean. ``depth``: longest chain of rewrites below the tree's root. ``vertices``: graphs that a tree may hold; a full
    tree is dropped and grown anew with other random numbers. ``temperature``: of the prior, in units of a typical
    change of cost. ``slack``: how much dearer than the tree's root a graph may be.
    """

    c: float = 1.0
    policy: str = "puct"
    mix: float = 0.7
    depth: int = 10
    vertices: int = 1000
    temperature: float = 0.5
    slack: float = 1.2

    name: ClassVar[str] = "mcts"
    randomised: ClassVar[bool] = True
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.policy not in ("puct", "uct"):
            raise UsageError(f"The option 'policy' of search strategy 'mcts' is {self.policy!r}; expected puct or uct.")
        if not (self.c >= 0.0 and 0.0 <= self.mix <= 1.0 and self.temperature > 0.0 and self.slack >= 1.0):
            raise UsageError(
                f"The options of search strategy 'mcts' are c={self.c:g}, mix={self.mix:g}, "
                f"temperature={self.temperature:g}, slack={self.slack:g}; expected c of at least 0, mix from 0 to 1, "
                "a temperature above 0 and a slack of at least 1."
            )
        if self.depth < 1 or self.vertices < 2:
            raise UsageError(
                f"The options of search strategy 'mcts' are depth={self.depth}, vertices={self.vertices}; "
                "expected a depth of at least 1 and at least 2 vertices."
            )

    def guided(self, problem: Problem, table: MoveTable, prior: np.ndarray) -> np.ndarray:
        """The prior over a table's candidates, given what their costs say; for strategies that know more."""
        return prior

    def promise(self, problem: Problem, table: MoveTable) -> float | None:
        """What a new graph is still worth beyond its own cost, as a part of the largest gain known; ``None``: go down
        from it and see. For strategies that know more.
        """
        return None

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Tree after tree, below the best graph and those on the way to it, until all were searched to the end."""
        run = problem.recall()
        if run is None:
            run = _Forest(self, problem, rng, typical_change(problem.moves(problem.root())), Descent(problem.root()))
        return run.grow()


@resumable
@dataclass(eq=False)
class _Forest:
    """The trees of a search, one after the other. ``unit``: typical change of cost in ms. ``descent``: the way down
    from the last better graph. ``met``: cost at the end of the way down, by digest.
    """

    options: Mcts
    problem: Problem
    rng: np.random.Generator
    unit: float
    descent: Descent | None
    starts: deque[SearchNode] = field(default_factory=deque)
    best: SearchNode | None = None
    met: dict[bytes, float] = field(default_factory=dict)
    cut: bool = False
    tree: _Tree | None = None

    def grow(self) -> StopReason:
        """Until nothing is left below any start."""
        while self.descent is not None or self.starts:
            if self.descent is not None:
                self._down(self.descent)
            self._grow_one(self.starts[0])
        return StopReason.CONVERGED if self.cut else StopReason.EXHAUSTED

    def _keep(self) -> None:
        self.problem.keep(self)

    def _down(self, descent: Descent) -> None:
        self.best, _, rounds = descent.finish(self.problem, self._keep)
        self.met[self.best.digest] = self.best.cost
        self.starts.extendleft([*(taken.table.node for taken in rounds), self.best])
        self.descent = None

    def _grow_one(self, start: SearchNode) -> None:
        """One tree, to its end or to a better graph."""
        assert self.best is not None
        if self.tree is None:
            self.tree = _Tree(self.options, self.problem, self.rng, start, self.best.cost, self.unit, self.met)
        better = self.tree.grow(self._keep)
        self.cut = self.cut or self.tree.cut
        closed, self.tree = self.tree.root.closed, None
        if better is not None:
            self.descent = Descent(better)
        elif closed:
            self.starts.popleft()
        else:
            self.starts.rotate(-1)  # full: the others first, then this one anew


@resumable
@dataclass(eq=False)
class _Vertex(Vertex):
    """A graph in the tree; its edges are its candidates. Gains are parts of the tree's starting cost; before an edge
    was tried, ``best`` is the gain that the candidate's cost promises. ``value``: the best gain seen here or below.
    """

    table: MoveTable
    sleep: Sleep
    depth: int
    value: float = 0.0


@resumable
class _Tree:
    """The tree below one graph."""

    def __init__(
        self,
        options: Mcts,
        problem: Problem,
        rng: np.random.Generator,
        base: SearchNode,
        target: float,
        unit: float,
        met: dict[bytes, float],
    ) -> None:
        self.options, self.problem, self.base, self.target, self.unit = options, problem, base, target, unit
        self.vertices: dict[bytes, _Vertex] = {}
        self.seen: dict[bytes, float] = {}  # gain at or below every graph that was opened
        self.met = met  # cost at the end of the way down from graphs that are in no vertex
        self.low, self.high = 0.0, 1e-12  # gains seen so far, to scale Q with
        self.cut = False
        self.root = self._vertex(base, Sleep(), 0)
        if len(self.root.prior):
            noise = rng.dirichlet(np.full(len(self.root.prior), _CONCENTRATION))
            self.root.prior = (1 - _NOISE) * self.root.prior + _NOISE * noise

    def grow(self, keep: Callable[[], None] = lambda: None) -> SearchNode | None:
        """Simulate until a graph cheaper than the target is found; ``None`` where the tree is full, or searched to its
        end. ``keep`` is called before every simulation.
        """
        floor = self.problem.gain_floor(self.target)
        while not self.root.closed and len(self.vertices) < self.options.vertices:
            keep()
            found = self._simulate()
            if found is not None and found.cost < self.target - floor:
                return found
        return None

    def _simulate(self) -> SearchNode | None:
        """Open one edge; the graph at the end of the way down from there."""
        path = select(self.root, self._score)
        gain, end = self._expand(*path[-1])
        self.low, self.high = min(self.low, gain), max(self.high, gain)
        back_up(path, gain)
        for vertex, _ in path:
            vertex.value = max(vertex.value, gain)
            digest = vertex.table.node.digest
            self.seen[digest] = max(self.seen.get(digest, -math.inf), gain)
        return end

    def _score(self, vertex: _Vertex) -> np.ndarray:
        o, visits = self.options, vertex.visits
        mean = np.where(visits > 0, vertex.total / np.maximum(visits, 1), vertex.best)
        q = ((1 - o.mix) * mean + o.mix * vertex.best - self.low) / (self.high - self.low)
        if o.policy == "puct":
            return np.asarray(q + puct(o.c * vertex.prior, visits))
        return np.where(visits > 0, q + o.c * uct(visits, 1 + visits.sum()), UNTRIED + vertex.prior)

    def _expand(self, vertex: _Vertex, k: int) -> tuple[float, SearchNode | None]:
        """Open edge ``k``: the gain there, and the graph at the end of the way down, unless it was known."""
        known = self.seen.get(vertex.table.digests[k])
        if known is not None:
            return known, None
        child = self.problem.open(vertex.table.node, vertex.table.index[k])
        explored = {vertex.table.signatures[j]: frozenset(one.table.signatures) for j, one in vertex.children.items()}
        below = self._vertex(child, vertex.sleep.below(self.problem, vertex.table, k, explored), vertex.depth + 1)
        gain, end = self._evaluated(below)
        self.seen[child.digest] = max(gain, self.seen.get(child.digest, -math.inf))
        if vertex.depth + 1 < self.options.depth and not below.closed:
            vertex.children[k] = below
        else:
            self.cut = self.cut or not below.closed
        return gain, end

    def _evaluated(self, vertex: _Vertex) -> tuple[float, SearchNode]:
        """The best gain on the way down from a new vertex, and the graph at its end.

        Where every step down leads to a graph that was met before, there is nothing to learn from going there.
        """
        node, table = vertex.table.node, vertex.table
        promise = self.options.promise(self.problem, table)
        if promise is not None:
            return self._gain(node.cost) + promise * max(self.high, 0.0), node
        down = np.flatnonzero(table.cost < node.cost - self.problem.gain_floor(node.cost)).tolist()
        met = [self.met[table.digests[k]] for k in down if table.digests[k] in self.met]
        if len(met) == len(down):
            return self._gain(min([node.cost, *met])), node
        end, _, rounds = descend(self.problem, node)
        self.met.update((digest, end.cost) for taken in rounds for digest in taken.visited)
        return self._gain(end.cost), end

    def _vertex(self, node: SearchNode, sleep: Sleep, depth: int) -> _Vertex:
        table = self.problem.moves(node, sleep)
        costs = table.cost
        allowed = costs <= self.options.slack * self.base.cost
        self.cut = self.cut or not bool(allowed.all())
        gains = np.array([self._gain(cost) for cost in costs.tolist()])
        self.seen.setdefault(node.digest, self._gain(node.cost))
        vertex = _Vertex(
            self._prior(table, allowed), np.zeros(len(table)), gains, np.zeros(len(table), dtype=int), allowed,
            table, sleep, depth,
        )  # fmt: skip
        self.vertices[node.digest] = vertex
        return vertex

    def _prior(self, table: MoveTable, allowed: np.ndarray) -> np.ndarray:
        costs = table.cost
        if not allowed.any():
            return np.zeros(len(costs))
        weights = np.where(allowed, np.exp(-(costs - costs[allowed].min()) / (self.options.temperature * self.unit)), 0)
        weights = np.where(allowed, self.options.guided(self.problem, table, weights / weights.sum()), 0)
        return np.asarray(weights / weights.sum())

    def _gain(self, cost: float) -> float:
        """Part of the tree's starting cost that ``cost`` saves."""
        return (self.base.cost - cost) / (self.base.cost or 1.0)
