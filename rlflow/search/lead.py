"""A way down by the formula, before the prices are asked.

The analytic cost is the same everywhere and needs no clock, so what it leads to cannot hang on one noisy price. It
knows this machine less well than measurements do. So what it finds is priced by them like any other graph, and handed
on to the final comparison whatever that price is.

From there the way goes on by the prices. Some rewrites only a clock can judge, as algorithms for convolutions, and they
stand in the way of others: branches that were each given such an algorithm are merged no more. What the formula does is
done before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlflow.search.backtracking import Backtracking
from rlflow.search.budget import Budget
from rlflow.search.descent import descend
from rlflow.search.limits import SearchStopped
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.result import Result
from rlflow.search.selection import Selection
from rlflow.search.view import View

#: Graphs that it may open, and the part of the seconds left that it may take.
EXPANSIONS, SHARE = 400, 0.1
#: The part of what is left of the budget, whatever it counts, that the way on by the prices may take; what it has begun
#: then may take as much again.
FURTHER_SHARE = 0.15


def follow_the_formula(problem: Problem) -> SearchNode | None:
    """Search by the analytic cost; what that finds, opened in ``problem`` and nominated. ``None`` where the problem's
    own prices need no clock, or nothing is gained. Where the budget ends before its prices are known, it is nominated
    by an estimate.
    """
    state = problem.root().state
    if not problem.prices.measures or getattr(state, "ruleset", None) is None:
        return None
    found = _by_the_formula(problem)
    if not found.trace:
        return None
    try:
        node = problem.led(found.trace)
    except SearchStopped:  # there was no time for its prices: then the formula's own word counts, and the clock's
        estimate = problem.start_cost * found.cost_after_ms / found.cost_before_ms
        problem.nominate(found.best._replace(cost_ms=estimate))
        raise
    problem.nominate(node)
    return node


def go_on_by_prices(problem: Problem, led: SearchNode) -> SearchNode:
    """From ``led`` downhill by the problem's own prices; the graph at the end, nominated where there is a better one
    than ``led``. Raises :class:`SearchStopped` where the budget of the whole search ends.
    """
    end = go_down(problem, led)
    if end is not led:
        problem.nominate(end)
    return end


def go_down(problem: Problem, start: SearchNode) -> SearchNode:
    """From ``start`` downhill by the problem's own prices, as far as this part of the budget lasts. Raises
    :class:`SearchStopped` where that of the whole search ends.
    """
    way = _Further(problem, start)
    try:
        return descend(way, start)[0]
    except _Enough:
        return way.best


class _Enough(Exception):  # noqa: N818 - it ends a way that has had its part of the budget
    """The way on may take no more."""


class _Further(View):
    """The problem as the way on sees it. When its part of the budget is spent, it begins no further round, and of the
    candidates at hand it takes those that are priced. Beside other programs the prices of the first few take all of
    that part, and there are many like them. What their neighbours lack then is still measured, for as long again.
    """

    __slots__ = ("_last", "_until")

    def __init__(self, problem: Problem, led: SearchNode) -> None:
        super().__init__(problem, led)
        spent = problem.meter.fraction()
        part = FURTHER_SHARE * (1.0 - spent)
        self._until, self._last = spent + part, spent + 2.0 * part

    def moves(self, node: SearchNode, connected: Selection | None = None) -> MoveTable:
        self._require_time()
        return super().moves(node, connected)

    def widened(self, table: MoveTable) -> MoveTable:
        self._require_time()
        return super().widened(table)

    def refine(self, table: MoveTable, ks: Sequence[int]) -> None:
        if not self._over():
            super().refine(table, ks)
        if self._over():
            table.cost = np.where(table.exact, table.cost, np.inf)

    def _open(self, node: SearchNode, i: int) -> SearchNode:
        if self.meter.fraction() >= self._last and not self.prices.is_settled(node.child(i)):
            raise _Enough
        return super()._open(node, i)

    def _over(self) -> bool:
        return self.meter.fraction() >= self._until

    def _require_time(self) -> None:
        if self._over():
            raise _Enough


def _by_the_formula(problem: Problem) -> Result:
    from rlflow import price

    left = problem.seconds_left()
    budget = Budget(expansions=EXPANSIONS, seconds=None if left is None else max(SHARE * left, 1e-3))
    root = problem.root()
    told = {"seed": problem.seed, "stop": problem.stop, "tolerance": problem.settings.tolerance,
            "clock": problem.meter.clock}  # fmt: skip
    shadow = Problem(root.graph, _priced_by_the_formula(problem), price.make("analytic"), budget, **told)
    return Backtracking().run(shadow, np.random.default_rng(problem.seed))


def _priced_by_the_formula(problem: Problem) -> Any:
    """The problem's rules without those that only a clock can price."""
    from rlflow.rewrite import RuleSet

    ruleset, clocked = problem.root().state.ruleset, problem.settings.clocked
    if clocked.isdisjoint(ruleset.names):
        return ruleset
    return RuleSet([rule for rule, name in zip(ruleset.rules, ruleset.names, strict=True) if name not in clocked])
