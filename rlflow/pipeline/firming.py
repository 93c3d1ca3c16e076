"""Prices that were had in haste are made sure of before they decide, and the search goes once more by the better ones.

Beside other programs there is no time to price every region in sessions that agree, and the price of a few short
sessions may be off by a quarter: a graph that is no faster wins, or the one that is never gets looked at. So the search
ends early then, the regions in which the graphs it ended with differ are timed in full, then others as far as the time
reaches, and the search starts anew: nearly all of its prices are known by now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.search import Problem, Result, Visited
from rlflow.search.result import Counts

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context

__all__ = ["FIRST_SHARE", "firmed"]

#: The part of the search's time that the first search has where prices are hasty, and that of the rest which is for
#: better prices.
FIRST_SHARE, PRICES_SHARE = 0.5, 0.6
#: With fewer seconds left than this, nothing is made sure of.
LEAST_SECONDS = 1.0


def firmed(result: Result, problem: Problem, again: Callable[[], Problem], context: Context) -> Result:
    """``result`` of ``problem``, or that of the problem ``again`` by better prices, where some were hasty and there is
    time. The graphs that were found first stand beside those found then, at their new prices.
    """
    cost_model = context.cost_model
    if not cost_model.in_haste or context.stop.stopped or context.parts.search_left < LEAST_SECONDS:
        return result
    graphs = [problem.root().graph, result.graph, *(one.graph for one in result.runners_up)]
    if not cost_model.firm(graphs, PRICES_SHARE * context.parts.search_left, lambda: context.stop.stopped):
        return result
    anew = again()
    anew.observer = problem.observer
    anew.root()
    anew.meter.end_after(max(context.parts.search_left, LEAST_SECONDS))
    return _together(result, _search.solve(anew, context.options.strategy), cost_model)


def _together(first: Result, second: Result, cost_model: Any) -> Result:
    """Both results as one, by the prices of now; what was spent is added up."""
    found = {one.digest: one for one in (second.best, *second.runners_up)}
    for one in (first.best, *first.runners_up):
        if one.digest not in found:
            found[one.digest] = one._replace(cost_ms=float(cost_model.pricer.summary(one.graph)["ms"]))
    best, *others = sorted(found.values(), key=_by_cost)
    nominees = {one.digest: one for one in (*first.nominees, *second.nominees)}
    return replace(
        second,
        best=best,
        runners_up=tuple(others[: max(len(first.runners_up), len(second.runners_up))]),
        nominees=tuple(nominees.values()),
        counts=Counts(*map(sum, zip(first.counts, second.counts, strict=True))),
        seconds=first.seconds + second.seconds,
    )


def _by_cost(one: Visited) -> float:
    return one.cost_ms
