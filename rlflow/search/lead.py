"""A way down by the formula, before the prices are asked.

The analytic cost is the same everywhere and needs no clock, so what it leads to cannot hang on one noisy price. It
knows this machine less well than measurements do. So what it finds is priced by them like any other graph, and handed
on to the final comparison whatever that price is.

From there the way goes on by the prices. Some rewrites only a clock can judge, as algorithms for convolutions, and they
stand in the way of others: branches that were each given such an algorithm are merged no more. What the formula does is
done before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlflow.search.backtracking import Backtracking
from rlflow.search.budget import Budget
from rlflow.search.descent import descend
from rlflow.search.limits import SearchStopped
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.result import Result
from rlflow.search.view import View

#: Graphs that it may open, and the part of the seconds left that it may take.
EXPANSIONS, SHARE = 400, 0.1
#: The part of what is left of the budget, whatever it counts, that the way on by the prices may take.
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
    spent = problem.meter.fraction()
    until = spent + FURTHER_SHARE * (1.0 - spent)

    def turn() -> None:
        if problem.meter.fraction() >= until:
            raise _Enough

    view = View(problem, led, turn)
    try:
        end, *_ = descend(view, led)
    except _Enough:
        end = view.best
    if end is not led:
        problem.nominate(end)
    return end


class _Enough(Exception):  # noqa: N818 - it ends a way that has had its part of the budget
    """The way on may take no more."""


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
