"""Greedy: take the best rewrite until none is an improvement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import ROUNDING, Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase

#: How many of the most promising unmeasured candidates are measured before the best one is taken.
MEASURED_AT_ONCE = 8


@resumable
@dataclass(eq=False)
class _Walk:
    """How far the walk has come."""

    node: SearchNode | None


@register
@dataclass(frozen=True)
class Greedy(StrategyBase):
    """Steepest descent. ``pick``: ``best`` takes the cheapest of all children, ``first`` the first that improves."""

    pick: str = "best"

    name: ClassVar[str] = "greedy"
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pick not in ("best", "first"):
            raise UsageError(f"The option 'pick' of search strategy 'greedy' is {self.pick!r}; expected best or first.")

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Walk downhill; the end of the walk is the end of the search."""
        walk = problem.recall() or _Walk(problem.root())
        while walk.node is not None:
            problem.keep(walk)
            walk.node = self._step(problem, walk.node)
        return StopReason.EXHAUSTED

    def _step(self, problem: Problem, node: SearchNode) -> SearchNode | None:
        table = problem.moves(node)
        child = self._taken(problem, table)
        if child is None:  # no single rewrite gains; many of them together may
            wider = problem.widened(table)
            child = None if wider is table else self._taken(problem, wider)
        return child

    def _taken(self, problem: Problem, table: MoveTable) -> SearchNode | None:
        ranking = measured_ranking(problem, table) if self.pick == "best" else improving(problem, table, ordered=False)
        for k in ranking:
            child = problem.open(table.node, table.index[k])
            if problem.improves(child, table.node):
                return child
        return None


def improving(problem: Problem, table: MoveTable, ordered: bool = True) -> list[int]:
    """Positions of the candidates that promise a gain, or no higher cost with fewer nodes.

    Best first: by gain, then by fewer nodes, then in the fixed order; gains within the noise count as none.
    """
    here = table.node.cost
    gains = table.cost < here - problem.gain_floor(here)
    found = np.flatnonzero(gains | ((table.cost <= here * (1 + ROUNDING)) & (table.growth < 0)))
    if ordered:
        cost = np.where(gains, table.cost, here)[found]
        found = found[np.lexsort((found, table.growth[found], cost))]
    return [int(k) for k in found]


def measured_ranking(problem: Problem, table: MoveTable) -> list[int]:
    """As :func:`improving`, but the most promising candidates are measured before they are believed. So are all
    macros, where that is done by regions: they are few, and no formula knows what they are good for.
    """
    unknown = [k for k in table.macros if not table.exact[k]]
    if unknown and problem.prices.by_region:
        problem.refine(table, unknown)
    ranking = improving(problem, table)
    while True:
        doubtful = [k for k in ranking[:MEASURED_AT_ONCE] if not table.exact[k]]
        if not doubtful:
            return ranking
        problem.refine(table, doubtful)
        if not table.exact[doubtful].any():
            return ranking  # the runtime gives them no price; opening them will say so
        ranking = improving(problem, table)
