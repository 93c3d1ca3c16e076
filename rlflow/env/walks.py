"""Walks over a problem, and what a policy sees at each place of a walk.

The environment, the rollouts of an agent and the agent as a search strategy all stand on this file, so that what was
trained is what is used.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.graph.features import GraphFeatures
from rlflow.nn.observation import DELTA_COLUMNS, STOP_RULE, Observation, squash
from rlflow.search import MoveTable, Problem, SearchNode

STOP = 0
_NOTHING = 1e-12  # milliseconds; keeps logarithms of costs finite
_ROUNDING = 1e-9


@dataclass(eq=False)
class Place:
    """An opened graph and its candidates."""

    node: SearchNode
    table: MoveTable
    _features: GraphFeatures | None = field(default=None, repr=False)
    _children: tuple[GraphFeatures, ...] | None = field(default=None, repr=False)

    def features(self, pricer: Any) -> GraphFeatures:
        """The graph as arrays; made once."""
        if self._features is None:
            self._features = GraphFeatures.of(self.node.graph, pricer)
        return self._features

    def children(self, pricer: Any) -> tuple[GraphFeatures, ...]:
        """The current graph and every candidate's, as arrays; made once, and dear: one graph a candidate."""
        if self._children is None:
            graphs = (self.node.child(int(i)) for i in self.table.index)
            self._children = (self.features(pricer), *(GraphFeatures.of(graph, pricer) for graph in graphs))
        return self._children


class Walks:
    """Opens the graphs of a problem, each once, however many walks come by; its trace is that of the first.

    ``keep``: how many opened graphs are remembered. ``expansions`` counts those that were really opened.
    """

    def __init__(self, problem: Problem, keep: int = 256) -> None:
        self.problem, self.keep = problem, keep
        self.expansions = 0
        self._places: OrderedDict[bytes, Place] = OrderedDict()
        self._root: Place | None = None
        self._best: SearchNode | None = None

    @property
    def root(self) -> Place:
        """The starting graph."""
        if self._root is None:
            node = self.problem.root()
            self._root = Place(node, self.problem.moves(node))
        return self._root

    @property
    def best(self) -> SearchNode:
        """The cheapest graph opened so far."""
        return self._best or self.root.node

    def follow(self, place: Place, k: int) -> Place:
        """The graph that candidate ``k`` (a position in the table) leads to."""
        digest = place.table.digests[k]
        if digest == self.root.node.digest:
            return self.root
        found = self._places.pop(digest, None)
        if found is None:
            node = self.problem.open(place.node, int(place.table.index[k]))
            self.expansions += 1
            self._best = node if node.cost < self.best.cost else self.best
            found = Place(node, self.problem.moves(node))
        self._places[digest] = found
        while len(self._places) > self.keep:
            self._places.popitem(last=False)
        return found


class Episode:
    """One walk from the start: where it is, the best it saw, and whether it has ended.

    ``horizon``: most rewrites; reaching it is a *truncation*. Stopping, or having nothing left to do, is a
    *termination*. ``patience``: rewrites without a better graph after which it is truncated too, 0 for any number.
    ``reward`` has ``start(episode)`` and ``step(episode, before, after)`` (:mod:`rlflow.env.reward`). ``children``:
    whether observations hold every candidate's graph. ``at``: where it begins instead of the problem's own graph; gains
    are still against that.
    """

    def __init__(
        self,
        walks: Walks,
        reward: Any,
        horizon: int,
        children: bool = False,
        patience: int = 0,
        at: Place | None = None,
    ) -> None:
        self.walks, self.reward, self.horizon, self.children_too = walks, reward, horizon, children
        self.patience = patience or horizon
        self._best_at = 0
        self.place = at or walks.root
        self.steps = 0
        self.start_ms, self.best_ms = walks.root.node.cost, self.place.node.cost
        self.seen = {self.place.node.digest}
        self.terminated = self.truncated = False
        self.total = 0.0
        reward.start(self)

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    @property
    def candidates(self) -> int:
        """How many actions there are: one a candidate, and stop."""
        return 1 + len(self.place.table)

    @property
    def gain(self) -> float:
        """Log of the starting graph's cost over the best one's."""
        return float(np.log(max(self.start_ms, _NOTHING) / max(self.best_ms, _NOTHING)))

    def step(self, action: int) -> float:
        """Take candidate ``action - 1``, or stop where it is 0; returns the reward."""
        self._check(action)
        before = self.place
        if action == STOP:
            self.terminated = True
        else:
            self.place = self.walks.follow(before, action - 1)
            self.steps += 1
            if self.place.node.cost < self.best_ms * (1 - _ROUNDING):
                self._best_at = self.steps
            idle = self.steps - self._best_at
            self.terminated = len(self.place.table) == 0
            self.truncated = not self.terminated and (self.steps >= self.horizon or idle >= self.patience)
        reward = float(self.reward.step(self, before, self.place))
        self.best_ms = min(self.best_ms, self.place.node.cost)
        self.seen.add(self.place.node.digest)
        self.total += reward
        return reward

    def _check(self, action: int) -> None:
        if self.ended:
            raise UsageError("While stepping: the episode has ended; call reset() to begin another.")
        if not 0 <= action < self.candidates:
            raise UsageError(
                f"While stepping: action {action} was taken where there are {self.candidates - 1} candidates; "
                f"expected 0 to stop, or 1 to {self.candidates - 1}."
            )

    def fork(self) -> Episode:
        """A walk that continues from here on its own."""
        twin = object.__new__(Episode)
        twin.__dict__.update(self.__dict__)
        twin.seen, twin.reward = set(self.seen), self.reward.fork()
        return twin

    def observe(self) -> Observation:
        """What a policy sees here; new arrays at every call, but for the graph's."""
        pricer = self.walks.problem.prices.pricer
        graph = self.place.features(pricer)
        touched, touched_by = _touched_rows(self.place.table, graph.row)
        return Observation(
            graph,
            self._globals(graph),
            np.concatenate(([STOP_RULE], self.place.table.rule)).astype(np.int32),
            self._delta(),
            touched,
            touched_by,
            self.place.children(pricer) if self.children_too else (),
        )

    def _globals(self, graph: GraphFeatures) -> np.ndarray:
        cost, best, start = (max(ms, _NOTHING) for ms in (self.place.node.cost, self.best_ms, self.start_ms))
        return np.array(
            [
                (np.log10(cost) + 3) / 4,
                squash(np.log(start / cost)),
                squash(np.log(start / best)),
                squash(np.log(cost / best)),
                self.steps / self.horizon,
                np.log2(1 + len(graph.op)) / 10,
                np.log2(self.candidates) / 10,
            ],
            dtype=np.float32,
        )

    def _delta(self) -> np.ndarray:
        table, node = self.place.table, self.place.node
        raw, index = table.raw, table.index
        out = np.zeros((self.candidates, len(DELTA_COLUMNS)), dtype=np.float32)
        out[STOP, -1] = 1
        child = np.maximum(table.cost, _NOTHING)
        gain = np.log(max(node.cost, _NOTHING) / child)
        gain[np.abs(gain) < _ROUNDING] = 0
        out[1:, 0], out[1:, 1] = squash(gain), squash(np.log(max(self.best_ms, _NOTHING) / child))
        out[1:, 2] = gain / max(np.abs(gain).max(initial=0), _ROUNDING)
        for column, name in enumerate(("nodes_added", "nodes_removed", "edges_added", "edges_removed"), 3):
            out[1:, column] = np.asarray(getattr(raw, name))[index] / 8
        weights = np.asarray(raw.weight_bytes, dtype=float)[index]
        out[1:, 7] = np.log1p(weights) / 8 - np.log1p(float(node.state.weight_bytes)) / 8
        out[1:, 8] = ~table.exact
        out[1:, 9] = [digest in self.seen for digest in table.digests] if self.steps else False
        return out


def _touched_rows(table: MoveTable, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the nodes that the candidates matched, and the candidates (stop is 0); nodes without a row left out."""
    begins, touched = np.asarray(table.raw.touched_begin).astype(np.int64), np.asarray(table.raw.touched)
    owner = np.full(len(table.raw), -1, dtype=np.int32)
    owner[table.index] = np.arange(1, len(table) + 1, dtype=np.int32)
    by = np.repeat(owner, np.diff(begins))
    rows = row[touched] if len(touched) else np.empty(0, dtype=np.int32)
    kept = (by >= 0) & (rows >= 0)
    return rows[kept].astype(np.int32), by[kept]
