"""Placers that search by evaluations: random ones, annealing, a genetic algorithm with biased random keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.errors import UsageError
from rlflow.placement.annealed_walk import COLDEST, HOTTEST, AnnealedWalk, cooled
from rlflow.placement.rules_of_thumb import best_by_rule
from rlflow.placement.task import PlacementTask

_BATCH = 256


@dataclass(frozen=True)
class RandomPlacements:
    """The best of uniformly random placements.

    ``evaluations``: how many.
    """

    evaluations: int = 10_000
    name = "random"
    keeps_limits = False

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]."""
        _require(self.evaluations, 1)
        best, found = np.inf, np.zeros(task.nodes, np.int32)
        left = self.evaluations
        while left > 0:
            rows = rng.integers(0, task.choices, (min(left, _BATCH), task.nodes), dtype=np.int32)
            scores = task.scores(rows)
            at = int(np.argmin(scores))
            if scores[at] < best:
                best, found = float(scores[at]), rows[at]
            left -= len(rows)
        return found


@dataclass(frozen=True)
class AnnealedPlacement:
    """Simulated annealing from the best placement by rule: a node, or a node with its neighbours, moves to another
    device.

    ``evaluations``: how many, those of the rules included; ``back``: after so many it goes back to the best so far, 0
    for never; ``hottest``, ``coldest``: temperatures, as shares of the first score.
    """

    evaluations: int = 10_000
    back: int = 0
    hottest: float = HOTTEST
    coldest: float = COLDEST
    name = "annealing"

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]."""
        _require(self.evaluations, 1)
        if self.back < 0:
            raise UsageError(f"Annealing goes back after some evaluations, or after 0 for never; got {self.back}.")
        score, now, spent = best_by_rule(task, self.evaluations)
        walk, steps = AnnealedWalk(task, now, score), self.evaluations - spent
        for step in range(0 if walk.stuck else steps):
            heat = cooled(self.hottest, self.coldest, step / max(steps - 1, 1))
            if self.back and step and step % self.back == 0:
                walk.hear(walk.found, walk.best)
            walk.step(walk.score * heat, rng)
        return walk.found


@dataclass(frozen=True)
class RandomKeys:
    """A genetic algorithm with biased random keys (Gonçalves and Resende 2011): a key in [0, 1) a node, read as a
    device; children take each key from the better parent with probability ``bias``.

    ``evaluations``: how many; ``population``: placements in a generation, of which the best fifth stay and as many as
    ``fresh`` says are new.
    """

    evaluations: int = 10_000
    population: int = 100
    fresh: float = 0.15
    bias: float = 0.7
    name = "brkga"

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]."""
        _require(self.evaluations, 1)
        size = max(1, min(self.population, self.evaluations - 1))
        elite, new = max(1, size // 5), int(size * self.fresh)
        keys = rng.random((size, task.nodes))
        begun = best_by_rule(task, self.evaluations - size)
        keys[0] = (begun.decisions + 0.5) / task.choices
        scores = task.scores(self._read(keys, task))
        left = self.evaluations - size - begun.spent
        while left > 0:
            order = np.argsort(scores, kind="stable")
            keys, scores = keys[order], scores[order]
            born = min(left, size - elite)
            first = keys[rng.integers(0, elite, born)]
            second = keys[rng.integers(elite, size, born)] if size > elite else first
            children = np.where(rng.random(first.shape) < self.bias, first, second)
            children[: min(new, born)] = rng.random((min(new, born), task.nodes))
            keys[elite : elite + born], scores[elite : elite + born] = children, task.scores(self._read(children, task))
            left -= born
        return np.asarray(self._read(keys[[int(np.argmin(scores))]], task)[0])

    def _read(self, keys: np.ndarray, task: PlacementTask) -> np.ndarray:
        return np.minimum((keys * task.choices).astype(np.int32), task.choices - 1)


def _require(evaluations: int, least: int) -> None:
    if evaluations < least:
        raise UsageError(f"A search of placements needs evaluations, at least {least}; got {evaluations}.")
