"""The incumbent: the best graph that a search visited so far, what comes close to it, and when each was found."""

from __future__ import annotations

from collections.abc import Callable

from rlflow.search.archive import Archive
from rlflow.search.budget import StopReason
from rlflow.search.limits import Limits
from rlflow.search.node import SearchNode
from rlflow.search.result import Counts, CurvePoint, Result, Visited


class Incumbent:
    """``archive``: the cheapest graphs and those that come close with fewer rewrites. ``curve``: a point for each
    graph that was the best when it was found. ``nominees``: what a strategy wants compared by the clock besides.
    ``keeps``: whether a graph may become the result at all.
    """

    def __init__(
        self, limits: Limits, runners_up: int, keeps: Callable[[SearchNode | Visited], bool] = lambda found: True
    ) -> None:
        self._limits, self._keeps = limits, keeps
        self.archive = Archive(runners_up)
        self.curve: list[CurvePoint] = []
        self.nominees: list[Visited] = []

    @property
    def cost(self) -> float:
        """Cost of the best graph in milliseconds; infinite before the first visit."""
        return self.archive.best_cost

    def visit(self, node: SearchNode) -> None:
        """Remember what is worth it."""
        if self._keeps(node) and self.archive.add(node.depth, node.cost, node.size, lambda: node.visited):
            meter = self._limits.meter
            spent = (meter.candidates, meter.expansions, meter.measurements)
            self.curve.append(CurvePoint(meter.seconds, *spent, node.cost))
            self._limits.gained(node.cost)

    def nominate(self, found: Visited, start: SearchNode) -> None:
        """Hand ``found`` on whatever it is priced at, unless it is there already or is the ``start`` itself."""
        known = [start.digest.hex(), *(other.digest for other in self.nominees)]
        if found.digest not in known and self._keeps(found):
            self.nominees.append(found)

    def result(
        self, before_ms: float, reason: StopReason, strategy: str, seed: int, overweight: int, has_trace: bool
    ) -> Result:
        """The outcome so far; traces that say nothing are left out."""
        meter = self._limits.meter
        found, nominees = (
            [one if has_trace else one._replace(trace=None) for one in ones]
            for ones in (self.archive.finalists(), self.nominees)
        )
        known = {one.digest for one in found}
        return Result(
            best=found[0],
            cost_before_ms=before_ms,
            stop_reason=reason,
            counts=Counts(meter.candidates, meter.expansions, meter.measurements, overweight),
            curve=tuple(self.curve),
            seconds=meter.seconds,
            strategy=strategy,
            seed=seed,
            runners_up=tuple(found[1:]),
            nominees=tuple(one for one in nominees if one.digest not in known),
        )
