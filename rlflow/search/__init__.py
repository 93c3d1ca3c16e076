"""Choosing rewrites: problems, budgets, strategies and their results.

>>> from rlflow import search
>>> result = search.solve(problem, "backtracking:alpha=1.1")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlflow.search.annealing import Annealing
    from rlflow.search.backtracking import Backtracking
    from rlflow.search.beam import Beam
    from rlflow.search.budget import Budget, BudgetMeter, StopReason
    from rlflow.search.commute import Sleep
    from rlflow.search.eqsat.saturation import EqSat, Tensat
    from rlflow.search.events import Chronicle, Event, History
    from rlflow.search.genetic import Genetic
    from rlflow.search.greedy import Greedy
    from rlflow.search.interrupt import InterruptGuard, StopToken
    from rlflow.search.limits import SearchStopped
    from rlflow.search.mcts import Mcts
    from rlflow.search.node import MoveTable, SearchNode
    from rlflow.search.parallel import solve_in_parallel
    from rlflow.search.partitioned import PartitionedSearch
    from rlflow.search.patience import Patience
    from rlflow.search.patience import of as patience_of
    from rlflow.search.portfolio import Mixed, Portfolio
    from rlflow.search.prices import Prices
    from rlflow.search.problem import Problem
    from rlflow.search.progress import Progress
    from rlflow.search.random_walk import RandomRestarts
    from rlflow.search.result import Counts, CurvePoint, Result, TraceStep, Visited
    from rlflow.search.resume import SavedSearch, solve_resumably
    from rlflow.search.rule_profile import RuleUse, rule_rows, rule_uses
    from rlflow.search.statistics import RuleCounts, Statistics
    from rlflow.search.strategies import (
        Strategy,
        catalogue,
        describe,
        make,
        names,
        option_table,
        register,
        require_ready,
        strategy_class,
        unavailable,
    )
    from rlflow.search.strategy_base import StrategyBase
    from rlflow.search.trace import read_trace, replay, replay_states
    from rlflow.search.view import View

__all__ = [
    "Annealing",
    "Backtracking",
    "Beam",
    "Budget",
    "BudgetMeter",
    "Chronicle",
    "Counts",
    "CurvePoint",
    "EqSat",
    "Event",
    "Genetic",
    "Greedy",
    "History",
    "InterruptGuard",
    "Mcts",
    "Mixed",
    "MoveTable",
    "PartitionedSearch",
    "Patience",
    "Portfolio",
    "Prices",
    "Problem",
    "Progress",
    "RandomRestarts",
    "Result",
    "RuleCounts",
    "RuleUse",
    "SavedSearch",
    "SearchNode",
    "SearchStopped",
    "Sleep",
    "Statistics",
    "StopReason",
    "StopToken",
    "Strategy",
    "StrategyBase",
    "Tensat",
    "TraceStep",
    "View",
    "Visited",
    "catalogue",
    "describe",
    "generator",
    "make",
    "names",
    "option_table",
    "patience_of",
    "read_trace",
    "register",
    "replay",
    "replay_states",
    "require_ready",
    "rule_rows",
    "rule_uses",
    "solve",
    "solve_in_parallel",
    "solve_resumably",
    "strategy_class",
    "unavailable",
]


#: Where each name is: a file, and the names in it that are handed on. They are opened when they are first used, because
#: most commands need one strategy of all.
_NAMES = {
    "annealing": "Annealing",
    "backtracking": "Backtracking",
    "beam": "Beam",
    "budget": "Budget BudgetMeter StopReason",
    "commute": "Sleep",
    "eqsat.saturation": "EqSat Tensat",
    "events": "Chronicle Event History",
    "genetic": "Genetic",
    "greedy": "Greedy",
    "interrupt": "InterruptGuard StopToken",
    "limits": "SearchStopped",
    "mcts": "Mcts",
    "node": "MoveTable SearchNode",
    "parallel": "solve_in_parallel",
    "partitioned": "PartitionedSearch",
    "patience": "Patience patience_of",
    "portfolio": "Mixed Portfolio",
    "prices": "Prices",
    "problem": "Problem",
    "progress": "Progress",
    "random_walk": "RandomRestarts",
    "result": "Counts CurvePoint Result TraceStep Visited",
    "resume": "SavedSearch solve_resumably",
    "rule_profile": "RuleUse rule_rows rule_uses",
    "statistics": "RuleCounts Statistics",
    "strategies": (
        "Strategy catalogue describe make names option_table register require_ready strategy_class unavailable"
    ),
    "strategy_base": "StrategyBase",
    "trace": "read_trace replay replay_states",
    "view": "View",
}
_HOMES = {name: file for file, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.search' has no attribute {name!r}")
    inside = "of" if name == "patience_of" else name
    globals()[name] = value = getattr(importlib.import_module(f"rlflow.search.{_HOMES[name]}"), inside)
    return value


def generator(seed: int) -> np.random.Generator:
    """The generator that every search draws from: the same numbers for a seed in every process and on every machine."""
    return np.random.Generator(np.random.PCG64(seed))


def solve(problem: Problem, strategy: str | Strategy = "backtracking") -> Result:
    """Run a strategy on a problem, with the problem's seed."""
    from rlflow.search.strategies import make

    return make(strategy).run(problem, generator(problem.seed))
