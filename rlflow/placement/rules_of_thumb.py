"""What rules decide that need no search: where searches begin, and what a policy is told first.

Of a placement: one device, HEFT, the critical path, ETF, consecutive stages. Of an order of jobs: that of the flow, by
breadth, by depth, by bytes. Of fusions: all that can be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlflow.placement.decisions import DecisionTask
from rlflow.placement.list_schedules import CriticalPath, Etf, Heft
from rlflow.placement.ordering import ORDERS, OrderingTask
from rlflow.placement.task import PlacementTask
from rlflow.placement.unsearched import Contiguous

__all__ = ["ALL_RULES", "MOST_NODES", "Ruled", "best_by_rule", "by_rule"]

#: Above this some of the rules take longer than what begins with them.
MOST_NODES = 5000
_OTHERS = (CriticalPath,)
_SLOW = (Contiguous, Etf)
#: How many rules a task has at most.
ALL_RULES = 2 + len(_OTHERS + _SLOW)


class Ruled(NamedTuple):
    """Decisions int32 [n], their score, and how many evaluations the choice took."""

    score: float
    decisions: np.ndarray
    spent: int


def best_by_rule(task: DecisionTask, most: int = ALL_RULES) -> Ruled:
    """The best of what at most so many rules decide. Nothing is drawn. For ``most`` of 0 it is what the first one
    decides, and nobody knows its score: it is given as infinite.
    """
    rows = by_rule(task, max(1, most))
    if most < 1:
        return Ruled(np.inf, rows[0], 0)
    scores = task.scores(rows)
    at = int(np.argmin(scores))
    return Ruled(float(scores[at]), rows[at], len(rows))


def by_rule(task: DecisionTask, most: int = ALL_RULES) -> np.ndarray:
    """Decisions int32 [rules, n] by at most so many rules. Of placements: HEFT, all on the device that is fastest with
    it, the critical path first; of up to 5,000 nodes also consecutive stages and the earliest task first.
    """
    if isinstance(task, OrderingTask):
        return np.stack([task.levels_of(make(task)) for make in list(ORDERS.values())[:most]])
    if not isinstance(task, PlacementTask):
        return np.ones((1, task.nodes), np.int32)
    rng = np.random.default_rng(0)
    rows = [Heft().decide(task, rng)]
    if most > 1:
        rows.append(np.full(task.nodes, np.argmin(task.seconds.sum(axis=0)), np.int32))
    others = (*_OTHERS, *(_SLOW if task.nodes <= MOST_NODES else ()))
    rows += [rule().decide(task, rng) for rule in others[: max(0, most - 2)]]
    return np.stack(rows)
