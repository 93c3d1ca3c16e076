"""A tree search that a policy guides: PUCT (Rosin 2011; Silver et al. 2017) over distinct graphs, without rollouts.

An edge's value is the largest gain that was found through it, as a part of the largest found anywhere: what counts is
the best graph visited, not the average one. A graph stands in the tree once, where it was found first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlflow.agents.walker import Walker
from rlflow.env.walks import STOP, Episode, Place

_TINY = 1e-12


@dataclass(eq=False)
class _Node:
    """``prior`` [k]: of the candidates, stop aside. ``visits``, ``value`` [k]. ``closed`` [k]: nothing new behind."""

    episode: Episode
    prior: np.ndarray
    visits: np.ndarray
    value: np.ndarray
    closed: np.ndarray
    children: dict[int, _Node] = field(default_factory=dict)


class TreeSearch:
    """``exploration``: weight of the policy's prior against the gains found."""

    def __init__(self, walker: Walker, exploration: float) -> None:
        self.walker, self.exploration = walker, exploration
        episode = walker.begin()
        self.start = episode.start_ms
        self._seen = {episode.place.node.digest}
        self._best = 0.0
        self._root = self._node(episode)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left that walks of the horizon reach."""
        return bool(self._root.closed.all())

    def plant(self, way: Sequence[Place]) -> None:
        """Grow the branch that leads through these graphs, the first of which is the start; what was opened already
        costs nothing.
        """
        node, trail = self._root, []
        for place in way[1:]:
            k = node.episode.place.table.digests.index(place.node.digest)
            trail.append((node, k))
            if k not in node.children:
                self._back_up(trail, self._open(node, k))
            if k not in node.children:
                return
            node = node.children[k]

    def simulate(self) -> None:
        """Go down to something new and open it."""
        way: list[tuple[_Node, int]] = []
        node = self._root
        while True:
            k = self._choose(node)
            way.append((node, k))
            if k not in node.children:
                break
            node = node.children[k]
        self._back_up(way, self._open(node, k))

    def _back_up(self, way: Sequence[tuple[_Node, int]], gain: float) -> None:
        for parent, chosen in reversed(way):
            parent.visits[chosen] += 1
            parent.value[chosen] = max(parent.value[chosen], gain)
            child = parent.children.get(chosen)
            parent.closed[chosen] = child is None or bool(child.closed.all())

    def _open(self, node: _Node, k: int) -> float:
        """The gain of the graph behind candidate ``k``; it becomes a node unless it is in the tree or ends a walk."""
        digest = node.episode.place.table.digests[k]
        if digest in self._seen:
            return 0.0
        self._seen.add(digest)
        episode = node.episode.fork()
        episode.step(1 + k)
        if not episode.ended:
            node.children[k] = self._node(episode)
        gain = math.log(max(self.start, _TINY) / max(episode.place.node.cost, _TINY))
        self._best = max(self._best, gain)
        return gain

    def _choose(self, node: _Node) -> int:
        scale = max(self._best, _TINY)
        explore = node.prior * math.sqrt(1 + node.visits.sum()) / (1 + node.visits)
        score = np.maximum(node.value, 0) / scale + self.exploration * explore
        return int(np.argmax(np.where(node.closed, -np.inf, score)))

    def _node(self, episode: Episode) -> _Node:
        prior = self.walker.probabilities(episode)
        prior[STOP] = 0
        prior = prior[1:] / max(prior.sum(), _TINY)
        count = len(prior)
        return _Node(episode, prior, np.zeros(count), np.full(count, self._gain(episode)), np.zeros(count, dtype=bool))

    def _gain(self, episode: Episode) -> float:
        """What an edge is worth before it was tried: the gain of the graph that it leaves."""
        return math.log(max(self.start, _TINY) / max(episode.place.node.cost, _TINY))
