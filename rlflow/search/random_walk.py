"""Random restarts: the honest baseline that every other strategy has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.memory import resumable
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase


@resumable
@dataclass(eq=False)
class _Run:
    """``done``: how many walks are over."""

    rng: np.random.Generator
    done: int = 0


@register
@dataclass(frozen=True)
class RandomRestarts(StrategyBase):
    """Random walks of bounded length from the starting graph; the best graph on any of them wins.

    ``length``: longest walk. ``walks``: number of restarts, 0 for as many as the budget allows. ``slack``: a walk may
    step to graphs that cost at most this many times the starting graph.
    """

    length: int = 40
    walks: int = 0
    slack: float = 1.2

    name: ClassVar[str] = "random"
    randomised: ClassVar[bool] = True
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.length < 1 or self.walks < 0 or self.slack < 1.0:
            raise UsageError(
                "The options of search strategy 'random' are "
                f"length={self.length}, walks={self.walks}, slack={self.slack:g}; "
                "expected a length of at least 1, walks of at least 0 and a slack of at least 1."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Walk, and walk again."""
        root, run = problem.root(), problem.recall()
        if run is None:
            run = _Run(rng)
            if len(problem.moves(root)) == 0:
                return StopReason.EXHAUSTED
        while self.walks == 0 or run.done < self.walks:
            problem.keep(run)
            self._walk(problem, root, run.rng)
            run.done += 1
        return StopReason.CONVERGED

    def _walk(self, problem: Problem, root: SearchNode, rng: np.random.Generator) -> None:
        node = root
        for _ in range(int(rng.integers(1, self.length + 1))):
            table = problem.moves(node)
            choices = np.flatnonzero(table.cost <= self.slack * root.cost)
            if len(choices) == 0:
                return
            node = problem.open(node, table.index[int(rng.choice(choices))])
