"""One choice a node, with costs of single nodes and of pairs, under a limit on what all choices use at any time.

How a node of a graph is sharded over devices is such a choice (the IOPDDL contest of ASPLOS 2025 has instances). The
core first takes out what is decided anyway: nodes whose choice follows from a neighbour's, choices that another one of
the node beats whatever the neighbours do, uses that no limit can stop. On what is left it searches by message passing,
whose bound says how far from the best the result is at most, and by exact dynamic programmes over most of the nodes at
once, at prices of their use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlflow._core import choose
from rlflow.errors import UsageError

__all__ = ["Choices", "Chosen", "best_choices"]


@dataclass(frozen=True)
class Choices:
    """``costs`` and ``usages``: of each node an array [choices]; ``spans`` int [n, 2]: a node uses in [begin, end).
    ``edges`` int [m, 2] and ``tables``: of each edge an array [choices of the first, choices of the second].
    ``limit``: on the sum of uses at any time. A cost of 1e15 or more says that a choice, or a pair, must not be: no
    such choices are returned unless there are no others.
    """

    costs: Sequence[np.ndarray]
    usages: Sequence[np.ndarray]
    spans: np.ndarray
    edges: np.ndarray
    tables: Sequence[np.ndarray]
    limit: float

    @property
    def nodes(self) -> int:
        """Number of decisions."""
        return len(self.costs)

    def cost(self, choice: np.ndarray) -> float:
        """What the choices int [n] cost."""
        own = sum(float(costs[one]) for costs, one in zip(self.costs, choice, strict=True))
        pairs = zip(self.tables, self.edges.tolist(), strict=True)
        return own + sum(float(table[choice[a], choice[b]]) for table, (a, b) in pairs)

    def peak(self, choice: np.ndarray) -> float:
        """The most that the choices use at any time."""
        changes: dict[int, float] = {}
        for usages, one, (begin, end) in zip(self.usages, choice, self.spans.tolist(), strict=True):
            if begin < end:
                changes[begin] = changes.get(begin, 0.0) + float(usages[one])
                changes[end] = changes.get(end, 0.0) - float(usages[one])
        live = most = 0.0
        for time in sorted(changes):
            live += changes[time]
            most = max(most, live)
        return most


class Chosen(NamedTuple):
    """``choice`` int32 [n]; ``cost``; ``bound``: no choices within the limit cost less; ``rounds`` of the search."""

    choice: np.ndarray
    cost: float
    bound: float
    rounds: int


def best_choices(problem: Choices, seconds: float = 60.0, *, rounds: int = 0, seed: int = 0) -> Chosen:
    """The cheapest choices within the limit that are found in so many seconds of processor time, or in ``rounds``
    rounds where that is above 0, which does not depend on the clock. Raises UsageError for arrays that do not fit, and
    where no choices within the limit are found.
    """
    if seconds <= 0 and rounds <= 0:
        raise UsageError("A search for choices needs seconds or rounds above 0.")
    counts = [len(costs) for costs in problem.costs]
    edges = np.asarray(problem.edges, np.int64).reshape(-1, 2)
    sizes = [table.size for table in problem.tables]
    choice, cost, bound, done = choose(
        choice_begin=np.cumsum([0, *counts]),
        cost=_joined(problem.costs),
        usage=_joined(problem.usages),
        begin=problem.spans[:, 0] if counts else [],
        end=problem.spans[:, 1] if counts else [],
        first=edges[:, 0],
        second=edges[:, 1],
        table_begin=np.cumsum([0, *sizes]),
        table=_joined([table.reshape(-1) for table in problem.tables]),
        limit=problem.limit,
        seconds=seconds,
        rounds=rounds,
        seed=seed,
    )
    if choice is None:
        raise UsageError(f"No choices were found that use {problem.limit:g} at most at any time, in {done} rounds.")
    return Chosen(choice, cost, bound, done)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(one, np.float64) for one in arrays]) if len(arrays) else np.zeros(0)
