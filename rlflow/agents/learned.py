"""What makes an agent a search strategy: a sentence where torch is absent, and one thread for its network."""

from __future__ import annotations

import numpy as np

from rlflow.errors import UsageError
from rlflow.nn.threads import one_thread
from rlflow.search.problem import Problem
from rlflow.search.result import Result
from rlflow.search.strategy_base import StrategyBase

__all__ = ["Learned", "one_thread", "ready_to_learn"]


def ready_to_learn(strategy: str) -> None:
    """Raises UsageError where what the strategy is to learn cannot be learned here."""
    from rlflow import nn

    reason = nn.available()
    if reason is not None:
        raise UsageError(f"The search strategy {strategy!r} cannot be used here: {reason}.")


class Learned(StrategyBase):
    """A strategy that runs a network of torch."""

    @staticmethod
    def available() -> str | None:
        """``None``, or why the strategy cannot be used here."""
        from rlflow import nn

        return nn.available()

    def ready(self) -> None:
        """Raises UsageError where torch is absent, ModelError for a checkpoint that cannot be read."""
        ready_to_learn(self.name)
        self.read()

    def read(self) -> None:
        """Read the checkpoint, once for the process; an agent that has one says how."""

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        self.ready()
        with one_thread():
            return super().run(problem, rng)
