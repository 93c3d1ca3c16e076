"""The tree search of ``rlflow.search.tree`` as a policy guides it: PUCT over distinct graphs, without rollouts.

An edge's value is the largest gain that was found through it, as a part of the largest found anywhere: what counts is
the best graph visited, not the average one. A graph stands in the tree once, where it was found first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlflow.agents.xrlflow.walker import Walker
from rlflow.env.walks import STOP, Episode, Place
from rlflow.search.tree import Vertex, back_up, puct, select

_TINY = 1e-12


@dataclass(eq=False)
class _Vertex(Vertex):
    """A graph of a walk; its edges are the candidates, stop aside. ``gain``: of the graph itself, and so what its
    edges are worth before they were tried, and at least.
    """

    episode: Episode
    gain: float

    @property
    def least(self) -> float:
        return self.gain


class TreeSearch:
    """``exploration``: weight of the policy's prior against the gains found."""

    def __init__(self, walker: Walker, exploration: float) -> None:
        self.walker, self.exploration = walker, exploration
        episode = walker.begin()
        self.start = episode.start_ms
        self._seen = {episode.place.node.digest}
        self._best = 0.0
        self._root = self._vertex(episode)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left that walks of the horizon reach."""
        return self._root.closed

    def plant(self, way: Sequence[Place]) -> None:
        """Grow the branch that leads through these graphs, the first of which is the start; what was opened already
        costs nothing.
        """
        vertex, path = self._root, []
        for place in way[1:]:
            k = vertex.episode.place.table.digests.index(place.node.digest)
            path.append((vertex, k))
            if k not in vertex.children:
                back_up(path, self._open(vertex, k))
            if k not in vertex.children:
                return
            vertex = vertex.children[k]

    def simulate(self) -> None:
        """Go down to something new and open it."""
        path = select(self._root, self._score)
        back_up(path, self._open(*path[-1]))

    def _score(self, vertex: _Vertex) -> np.ndarray:
        """The best gain behind each edge, as a part of the best anywhere, and the policy's choice."""
        explore = puct(vertex.prior, vertex.visits)
        return np.asarray(np.maximum(vertex.best, 0) / max(self._best, _TINY) + self.exploration * explore)

    def _open(self, vertex: _Vertex, k: int) -> float:
        """The gain of the graph behind candidate ``k``; it becomes a vertex unless it is in the tree or ends a walk."""
        digest = vertex.episode.place.table.digests[k]
        if digest in self._seen:
            return 0.0
        self._seen.add(digest)
        episode = vertex.episode.fork()
        episode.step(1 + k)
        if not episode.ended:
            vertex.children[k] = self._vertex(episode)
        gain = self._gain(episode)
        self._best = max(self._best, gain)
        return gain

    def _vertex(self, episode: Episode) -> _Vertex:
        prior = self.walker.probabilities(episode)
        prior[STOP] = 0
        prior = prior[1:] / max(prior.sum(), _TINY)
        n, gain = len(prior), self._gain(episode)
        return _Vertex(prior, np.zeros(n), np.full(n, gain), np.zeros(n), np.ones(n, dtype=bool), episode, gain)

    def _gain(self, episode: Episode) -> float:
        return math.log(max(self.start, _TINY) / max(episode.place.node.cost, _TINY))
