"""What a further round on a subgraph is expected to gain (Ansor, Zheng et al., OSDI 2020, section 6.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlflow.tuner.tasks import TuningTask


@dataclass(frozen=True)
class GradientRule:
    """``alpha``: how much the past counts against what may come. ``beta``: how many times slower than the best of its
    family a subgraph may stay. ``window``: rounds that the past reaches back. The values are those of TVM's Ansor.
    """

    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3

    def estimate(self, task: TuningTask, tasks: Sequence[TuningTask]) -> float:
        """Seconds of the network that a round on ``task`` saves, 0 or more; 0 where none of its programs ran.

        With g the best seconds after t rounds, and w its weight in the network, it is ``-w (alpha (g(t) - g(t -
        window)) / window + (1 - alpha) (min(g - g / t, beta flops / rate) - g))``, where rate is the best number of
        operations a second of its family.
        """
        rounds, best = task.rounds, task.seconds
        if not rounds or not math.isfinite(best):
            return 0.0
        before = len(rounds) - 1 - self.window
        past = (rounds[-1] - rounds[before]) / self.window if before >= 0 and math.isfinite(rounds[before]) else 0.0
        reachable = best - best / len(rounds)
        family = [one for one in tasks if one.subgraph.family == task.subgraph.family and math.isfinite(one.seconds)]
        rate = max(one.subgraph.flops / one.seconds for one in family)
        if rate > 0:
            reachable = min(reachable, self.beta * task.subgraph.flops / rate)
        ahead = reachable - best
        return max(0.0, -task.subgraph.weight * (self.alpha * past + (1 - self.alpha) * ahead))
