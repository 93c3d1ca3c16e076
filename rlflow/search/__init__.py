"""Choosing rewrites: problems, budgets, strategies and their results.

>>> from rlflow import search
>>> result = search.solve(problem, "backtracking:alpha=1.1")
"""

from __future__ import annotations

import numpy as np

from rlflow.search.backtracking import Backtracking
from rlflow.search.budget import Budget, BudgetMeter, StopReason
from rlflow.search.greedy import Greedy
from rlflow.search.interrupt import InterruptGuard, StopToken
from rlflow.search.prices import Prices
from rlflow.search.problem import MoveTable, Problem, Progress, SearchNode, SearchStopped, StrategyBase
from rlflow.search.random_walk import RandomRestarts
from rlflow.search.registry import (
    Strategy,
    describe,
    did_you_mean,
    make,
    names,
    option_table,
    register,
    strategy_class,
    unavailable,
)
from rlflow.search.result import Counts, CurvePoint, Result, TraceStep, Visited
from rlflow.search.trace import read_trace, replay, replay_states

__all__ = [
    "Backtracking",
    "Budget",
    "BudgetMeter",
    "Counts",
    "CurvePoint",
    "Greedy",
    "InterruptGuard",
    "MoveTable",
    "Prices",
    "Problem",
    "Progress",
    "RandomRestarts",
    "Result",
    "SearchNode",
    "SearchStopped",
    "StopReason",
    "StopToken",
    "Strategy",
    "StrategyBase",
    "TraceStep",
    "Visited",
    "describe",
    "did_you_mean",
    "generator",
    "make",
    "names",
    "option_table",
    "read_trace",
    "register",
    "replay",
    "replay_states",
    "solve",
    "strategy_class",
    "unavailable",
]


def generator(seed: int) -> np.random.Generator:
    """The generator that every search draws from: the same numbers for a seed in every process and on every machine."""
    return np.random.Generator(np.random.PCG64(seed))


def solve(problem: Problem, strategy: str | Strategy = "backtracking") -> Result:
    """Run a strategy on a problem, with the problem's seed."""
    return make(strategy).run(problem, generator(problem.seed))
