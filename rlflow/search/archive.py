"""The graphs that are worth remembering: the cheapest, and those that come close to it with fewer rewrites.

Prices of regions are added up and are not exact. Two graphs whose sums differ by half a per cent may differ the other
way round on the machine, and of two such graphs the one with fewer rewrites is the safer bet: the last fifty steps of a
long search buy little and may be noise. So the search remembers the front of the two quantities, cost and number of
rewrites, and hands the final comparison a few points of it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

from rlflow.search.result import Visited

#: How much dearer than the best a graph may be to be handed on for its fewer rewrites: one runner-up for each.
MARGINS = (0.005, 0.015, 0.04)


@dataclass(frozen=True)
class Point:
    """A graph on the front: number of rewrites, cost in ms, and nodes that work at run time."""

    steps: int
    cost: float
    size: int
    visited: Visited


class Archive:
    """The front of cost (milliseconds) and number of rewrites near the best. ``runners_up``: how many to hand on."""

    def __init__(self, runners_up: int = len(MARGINS)) -> None:
        self._margins = MARGINS[:runners_up]
        self.front: list[Point] = []  # steps rise, costs fall

    @property
    def best_cost(self) -> float:
        """Lowest cost so far; infinite where nothing was added."""
        return self.front[-1].cost if self.front else float("inf")

    def add(self, steps: int, cost: float, size: int, visited: Callable[[], Visited]) -> bool:
        """Offer a graph; ``visited`` is called only if it is kept. Returns whether it is the cheapest so far."""
        at = bisect.bisect_right([point.steps for point in self.front], steps)
        if at and (self.front[at - 1].cost, self.front[at - 1].size) <= (cost, size):
            return False
        is_best = cost < self.best_cost
        if not is_best and not cost <= self.best_cost * (1 + MARGINS[-1]):  # nan is neither
            return False
        point = Point(steps, cost, size, visited())
        fewer = [other for other in self.front if other.steps < steps]
        more = [other for other in self.front if other.steps >= steps and other.cost < cost]
        limit = min(cost, self.best_cost) * (1 + MARGINS[-1])
        self.front = [other for other in [*fewer, point, *more] if other.cost <= limit or other.steps == 0]
        return is_best

    def finalists(self) -> list[Visited]:
        """The cheapest graph, then for each margin the one with the fewest rewrites, cheapest first, each once."""
        best = self.front[-1]
        chosen = [best]
        for margin in self._margins:
            near = next(point for point in self.front if point.cost <= best.cost * (1 + margin))
            if near not in chosen:
                chosen.append(near)
        return [point.visited for point in sorted(chosen, key=lambda point: point.cost)]
