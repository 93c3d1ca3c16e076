"""Annealing for any task of decisions: what a policy is compared with at equal evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.errors import UsageError
from rlflow.placement.decisions import DecisionTask

__all__ = ["AnnealedLevels"]


@dataclass(frozen=True)
class AnnealedLevels:
    """Simulated annealing from the best of ``start``, decisions that are known, or from equal ones: a run of
    consecutive nodes gets another value.

    ``evaluations``: how many; ``hottest``, ``coldest``: temperatures, as shares of the first score.
    """

    evaluations: int = 10_000
    hottest: float = 0.02
    coldest: float = 2e-5

    def decide(
        self, task: DecisionTask, rng: np.random.Generator, start: tuple[np.ndarray, ...] = ()
    ) -> tuple[float, np.ndarray]:
        """(objective, decisions int32 [n]) of the best that was seen."""
        rows = np.stack([np.ones(task.nodes, np.int32), *start])
        if self.evaluations < len(rows):
            raise UsageError(f"The search needs at least {len(rows)} evaluations; got {self.evaluations}.")
        scores = task.scores(rows)
        now, score = rows[int(np.argmin(scores))].astype(np.int32), float(scores.min())
        best, found, first = score, now.copy(), score
        steps = self.evaluations - len(rows)
        for step in range(steps):
            heat = first * self.hottest * (self.coldest / self.hottest) ** (step / max(steps - 1, 1))
            other = now.copy()
            begin = int(rng.integers(task.nodes))
            other[begin : begin + int(rng.geometric(0.3))] = rng.integers(task.choices)
            moved = float(task.scores(other[None])[0])
            if moved <= score or rng.random() < np.exp((score - moved) / max(heat, 1e-300)):
                now, score = other, moved
            if score < best:
                best, found = score, now.copy()
        return best, found
