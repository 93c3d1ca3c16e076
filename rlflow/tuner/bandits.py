"""Which arm to pull where what arms give changes: sliding-window UCB (Garivier & Moulines, 2011)."""

from __future__ import annotations

import math
from collections import deque

from rlflow.errors import UsageError


class SlidingWindowUCB:
    """Upper confidence bounds over the last ``window`` rewards.

    The arm with the largest ``Q + exploration * sqrt(ln(min(t, window)) / N)`` is chosen: Q is the mean and N the
    number of its rewards within the window, t the number of all rewards so far. An arm without one in the window comes
    first; among equals the one of the lowest number. Rewards are expected in [0, 1].
    """

    def __init__(self, arms: int, window: int = 256, exploration: float = 0.25) -> None:
        if arms < 1 or window < 1 or not exploration >= 0:
            raise UsageError(
                f"A bandit of {arms} arms, a window of {window} and exploration {exploration} cannot be; expected at "
                "least 1, 1 and 0."
            )
        self.arms, self.window, self.exploration = arms, window, exploration
        self._rewards: deque[tuple[int, float]] = deque(maxlen=window)
        self._told = 0

    def scores(self) -> list[float]:
        """The bound of each arm."""
        counts, sums = [0] * self.arms, [0.0] * self.arms
        for arm, reward in self._rewards:
            counts[arm] += 1
            sums[arm] += reward
        spread = math.log(min(self._told, self.window)) if self._told else 0.0
        return [
            sums[arm] / count + self.exploration * math.sqrt(spread / count) if count else math.inf
            for arm, count in enumerate(counts)
        ]

    def choose(self) -> int:
        """The arm to pull."""
        scores = self.scores()
        return scores.index(max(scores))

    def tell(self, arm: int, reward: float) -> None:
        """What pulling ``arm`` gave."""
        if not 0 <= arm < self.arms or not math.isfinite(reward):
            raise UsageError(f"Arm {arm} of {self.arms} with the reward {reward} cannot be; expected a finite number.")
        self._rewards.append((arm, reward))
        self._told += 1
