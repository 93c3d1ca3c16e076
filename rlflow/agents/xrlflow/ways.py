"""The ways that a search by a policy goes, one after the other: the first ones, which draw nothing, and drawn ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlflow.agents.xrlflow.walker import Walker, downhill
from rlflow.env.walks import Place
from rlflow.search import StopReason

#: Graphs whose candidates a search keeps at hand.
KEEP = 512
#: Walks in a row that open nothing new, after which a search that samples has converged; each of them makes the next
#: one's draws this much more even.
_QUIET = 12
_WARMER = 1.3
#: Of the drawn walks, one in so many begins at the start; the others at the best graph.
_FROM_START = 3
#: A way down is about so many times as long as what is open at its beginning: improvements open others.
_ENABLED = 1.1
_SAME = 1e-9


def drawn_ways(walker: Walker, rng: np.random.Generator, *, descent: bool) -> StopReason:
    """The first ways, then drawn ones, until they find nothing new or the budget ends. ``descent``: go downhill from
    what is better.
    """
    if len(walker.walks.root.table) == 0:
        return StopReason.EXHAUSTED
    best = first_ways(walker, descent)
    quiet, turn, temperature = 0, 0, walker.temperature
    while quiet < _QUIET:
        before = walker.walks.expansions
        walker.temperature = temperature * _WARMER**quiet
        found = walker.sample(rng, best if turn % _FROM_START else ())
        if descent and found[-1].node.cost < best[-1].node.cost:
            best = better(best, walker.descend(found))
        turn += 1
        quiet = 0 if walker.walks.expansions > before else quiet + 1
        if (reason := walker.walks.problem.stopped()) is not None:
            return reason
    return StopReason.CONVERGED


def first_ways(walker: Walker, descent: bool) -> list[Place]:
    """The policy's first walk and on downhill from its best graph; the same by its likeliest choices alone; and
    downhill from the start, so that with budget enough the result is no worse than greedy's. Returns the best way.

    The first walk ends early where it has fallen behind the way down from the start, which then comes next, or where
    the budget is only just enough for that and it promises as much.
    """
    if not descent:
        return walker.greedy()
    lead = Lead(walker)
    way = walker.lead(lead.enough)
    best = walker.descend() if lead.no_better(way) else walker.descend(way)
    best = better(best, walker.descend(walker.greedy()))
    best = better(best, walker.descend(way))
    return better(best, walker.descend())


class Lead:
    """How long the policy's first walk goes on, when a way down is to follow."""

    def __init__(self, walker: Walker) -> None:
        self.walker, self.problem = walker, walker.walks.problem
        self._judged = False
        self.promised = np.concatenate(([0.0], np.cumsum(downhill(walker.walks.root))))

    def behind(self, steps: int, way: Sequence[Place]) -> bool:
        """Whether so many steps downhill from the start promise more than the walk has found."""
        gained = way[0].node.cost - min(place.node.cost for place in way)
        return bool(self.promised[min(max(steps, 0), len(self.promised) - 1)] > gained * (1 + _SAME))

    def no_better(self, way: Sequence[Place]) -> bool:
        """Whether the way down from the start promises as much as the walk found, and the way down from there."""
        best = min(way, key=lambda place: place.node.cost)
        found = way[0].node.cost - best.node.cost + float(downhill(best).sum())
        return len(way) > 1 and bool(found <= self.promised[-1] * (1 + _SAME))

    def enough(self, way: Sequence[Place]) -> bool:
        """Behind by as many steps as a walk may take without a better graph; or what is left of the budget is only
        enough for the way down from the start, and that promises as much.
        """
        steps = len(way) - 1
        if self.behind(steps - self.walker.patience, way):
            return True
        left = self.problem.meter.expansions_left()
        down = _ENABLED * (len(self.promised) - 1)
        if left is None or left > down or self._judged:
            return False
        self._judged = True
        return steps == 0 or self.no_better(way)


def better(one: list[Place], other: list[Place]) -> list[Place]:
    """The way to the cheaper graph; the first where they cost the same."""
    return other if other[-1].node.cost < one[-1].node.cost else one
