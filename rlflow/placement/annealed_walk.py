"""Simulated annealing of decisions, a move at a time, so that others can search between its moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlflow.placement.decisions import DecisionTask
from rlflow.placement.task import PlacementTask

__all__ = ["COLDEST", "HOTTEST", "AnnealedWalk", "cooled", "moves_of"]

#: Temperatures of a search, as shares of a score.
HOTTEST, COLDEST = 0.02, 2e-5

#: Decisions int32 [n], and other ones nearby.
Move = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def cooled(hottest: float, coldest: float, share: float) -> float:
    """The temperature after so much of a search, from 0 to 1: it falls by equal factors."""
    return float(hottest * (coldest / hottest) ** share)


def moves_of(task: DecisionTask) -> Move:
    """How a step changes decisions: a node, or a node with its neighbours, goes to another device; levels and fusions
    of a run of consecutive nodes get another value.
    """
    return _to_devices(task) if isinstance(task, PlacementTask) else _to_levels(task)


class AnnealedWalk:
    """A walk from decisions whose score is known. ``now`` int32 [n] and ``score``: where it stands; ``found`` and
    ``best``: the best that it has seen.
    """

    def __init__(self, task: DecisionTask, now: np.ndarray, score: float) -> None:
        self.task, self.moves = task, moves_of(task)
        self.now, self.score = now, score
        self.found, self.best = now.copy(), score

    @property
    def stuck(self) -> bool:
        """Whether there is nowhere to go."""
        return self.task.choices < 2 or not self.task.nodes

    def step(self, heat: float, rng: np.random.Generator) -> None:
        """One evaluation: a move that is worse by ``heat``, in units of the objective, is made once in e times."""
        other = self.moves(self.now, rng)
        moved = float(self.task.scores(other[None])[0])
        if moved <= self.score or rng.random() < np.exp((self.score - moved) / max(heat, 1e-300)):
            self.now, self.score = other, moved
        if self.score < self.best:
            self.best, self.found = self.score, self.now.copy()

    def hear(self, decisions: np.ndarray, score: float) -> None:
        """Go on from what somebody else found, if it is no worse than all that the walk has seen."""
        if score <= self.best:
            self.now, self.score = decisions.astype(np.int32), score
            self.found, self.best = self.now.copy(), score


def _to_devices(task: PlacementTask) -> Move:
    near = _neighbours(task)

    def move(now: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        other = now.copy()
        node = int(rng.integers(task.nodes))
        group = [node, *near[node]] if rng.random() < 0.2 else [node]
        if near[node] and rng.random() < 0.5:
            other[group] = now[near[node][int(rng.integers(len(near[node])))]]
        else:
            other[group] = rng.integers(task.choices)
        return other

    return move


def _to_levels(task: DecisionTask) -> Move:
    def move(now: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        other = now.copy()
        begin = int(rng.integers(task.nodes))
        other[begin : begin + int(rng.geometric(0.3))] = rng.integers(task.choices)
        return other

    return move


def _neighbours(task: PlacementTask) -> list[list[int]]:
    """Makers of what a task reads, and readers of what it makes."""
    work, found = task.work, [set[int]() for _ in range(task.nodes)]
    for value, readers in enumerate(work.readers):
        maker = int(work.maker[value])
        if maker >= 0:
            found[maker].update(readers)
            for one in readers:
                found[one].add(maker)
    return [sorted(one) for one in found]
