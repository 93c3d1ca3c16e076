"""Annealing for any task of decisions: what a policy is compared with at equal evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.errors import UsageError
from rlflow.placement.annealed_walk import COLDEST, HOTTEST, AnnealedWalk, cooled
from rlflow.placement.decisions import DecisionTask

__all__ = ["AnnealedLevels"]


@dataclass(frozen=True)
class AnnealedLevels:
    """Simulated annealing from the best of ``start``, decisions that are known, or from equal ones: a run of
    consecutive nodes gets another value.

    ``evaluations``: how many; ``hottest``, ``coldest``: temperatures, as shares of the first score.
    """

    evaluations: int = 10_000
    hottest: float = HOTTEST
    coldest: float = COLDEST

    def decide(
        self, task: DecisionTask, rng: np.random.Generator, start: tuple[np.ndarray, ...] = ()
    ) -> tuple[float, np.ndarray]:
        """(objective, decisions int32 [n]) of the best that was seen."""
        rows = np.stack([np.ones(task.nodes, np.int32), *start])
        if self.evaluations < len(rows):
            raise UsageError(f"The search needs at least {len(rows)} evaluations; got {self.evaluations}.")
        scores = task.scores(rows)
        first, steps = float(scores.min()), self.evaluations - len(rows)
        walk = AnnealedWalk(task, rows[int(np.argmin(scores))].astype(np.int32), first)
        for step in range(0 if walk.stuck else steps):
            walk.step(first * cooled(self.hottest, self.coldest, step / max(steps - 1, 1)), rng)
        return walk.best, walk.found
