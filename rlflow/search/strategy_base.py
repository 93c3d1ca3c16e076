"""The base of strategies that walk nodes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rlflow.search.budget import StopReason
from rlflow.search.limits import SearchStopped
from rlflow.search.problem import Problem
from rlflow.search.result import Result


class StrategyBase:
    """Turns the end of the budget into the result."""

    name: ClassVar[str]
    has_trace: ClassVar[bool] = True
    #: Whether another seed can give another result, so that several workers are worth having.
    randomised: ClassVar[bool] = False
    #: Expansions without a worthwhile gain after which going on is pointless (``patience.py``); ``None``: the strategy
    #: ends by itself, or spends its budget by a plan.
    patience_by_default: ClassVar[int | None] = None
    #: Whether several workers can share out its first choices (:meth:`Problem.is_mine`).
    shares: ClassVar[bool] = False
    #: Whether it begins at the best graph so far where it is one of several; others begin where all do, to differ.
    from_best: ClassVar[bool] = False
    #: Whether it keeps its run (:meth:`Problem.keep`), so that it can be resumed as if it had not been interrupted.
    goes_on: ClassVar[bool] = False

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        """Search until nothing is left or the problem says stop."""
        try:
            reason = self.search(problem, rng)
        except SearchStopped as stop:
            reason = stop.reason
        return problem.result(reason, self.name, has_trace=self.has_trace)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Visit nodes; return why nothing is left."""
        raise NotImplementedError
