"""The trained agent as a search strategy: ``--search xrlflow`` or ``--search xrlflow:checkpoint=mine.npz``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.problem import Problem, StrategyBase
from rlflow.search.registry import register
from rlflow.search.result import Result

DECODERS = ("sample", "greedy", "beam")
#: Walks in a row that open nothing new, after which a search that samples has converged; each of them makes the next
#: one's draws this much more even.
_QUIET = 12
_WARMER = 1.3
_KEEP = 512
_NO_PATIENCE = 1 << 30


class Learned(StrategyBase):
    """What strategies that run a network share: a sentence where torch is absent, and one thread."""

    @staticmethod
    def available() -> str | None:
        """``None``, or why the strategy cannot be used here."""
        from rlflow import nn

        return nn.available()

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        reason = self.available()
        if reason is not None:
            raise UsageError(f"The search strategy {self.name!r} cannot be used here: {reason}.")
        with one_thread():
            return super().run(problem, rng)


@register
@dataclass(frozen=True)
class XRLflow(Learned):
    """Walks as a trained policy says; the best graph visited on any of them wins.

    ``checkpoint``: file of ``rlflow train xrlflow`` (default: the one that ships). ``decode``: ``greedy`` takes the
    likeliest candidate until the policy stops; ``sample`` does that once, then draws walks as long as the budget lasts
    (no graph is opened twice; walks that find nothing new make the next ones more even); ``beam`` keeps the likeliest
    walks side by side. ``width``: how many walks a beam has.
    ``temperature``: above 1 draws more evenly. ``horizon``: longest walk; ``patience``: most steps of a walk without a
    better graph; 0 for what was trained with. ``descent``: whether the first walk goes down the steepest price and asks
    the policy nothing, so that on a model unlike those it learnt from the result is no worse than greedy's.
    """

    checkpoint: str = ""
    decode: str = "sample"
    temperature: float = 1.0
    width: int = 4
    horizon: int = 0
    patience: int = 0
    descent: bool = True

    name: ClassVar[str] = "xrlflow"

    def __post_init__(self) -> None:
        if (
            self.decode not in DECODERS
            or not self.temperature > 0
            or self.width < 1
            or min(self.horizon, self.patience) < 0
        ):
            raise UsageError(
                f"The options of search strategy 'xrlflow' are decode={self.decode}, "
                f"temperature={self.temperature:g}, width={self.width}, horizon={self.horizon}, "
                f"patience={self.patience}; expected one of {', '.join(DECODERS)}, a temperature above 0, a width of 1 "
                "or more, and a horizon and a patience of 0 or more."
            )
        object.__setattr__(self, "randomised", self.decode == "sample")

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Walk by the policy."""
        from rlflow.agents.walker import Walker

        walker = Walker.of(problem, self.checkpoint, self.temperature, _KEEP, self.horizon, self.patience)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        if self.descent:
            walker.descend()
        if self.decode == "beam":
            walker.beam(self.width)
            return StopReason.CONVERGED
        walker.greedy()
        quiet = 0
        while self.decode == "sample" and quiet < _QUIET:
            before = walker.walks.expansions
            walker.temperature = self.temperature * _WARMER**quiet
            walker.sample(rng)
            quiet = 0 if walker.walks.expansions > before else quiet + 1
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED


@register
@dataclass(frozen=True)
class XRLflowTree(Learned):
    """A tree search that a trained policy guides; every simulation opens one graph.

    ``checkpoint``: as for ``xrlflow``. ``exploration``: weight of the policy's choice against the gains found.
    ``horizon``: deepest way, 0 for the one that was trained with.
    """

    checkpoint: str = ""
    exploration: float = 1.0
    horizon: int = 0

    name: ClassVar[str] = "xrlflow-mcts"

    def __post_init__(self) -> None:
        if not self.exploration > 0 or self.horizon < 0:
            raise UsageError(
                f"The options of search strategy 'xrlflow-mcts' are exploration={self.exploration:g}, "
                f"horizon={self.horizon}; expected an exploration above 0 and a horizon of 0 or more."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Simulate until the budget or the graphs end. Nothing is drawn: ``rng`` is not used."""
        from rlflow.agents.tree import TreeSearch
        from rlflow.agents.walker import Walker

        walker = Walker.of(problem, self.checkpoint, 1.0, _KEEP, self.horizon, _NO_PATIENCE)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        tree = TreeSearch(walker, self.exploration)
        while not tree.exhausted:
            tree.simulate()
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED


@contextmanager
def one_thread() -> Iterator[None]:
    """Computes with one thread inside: sums of floats in one order, whatever the machine (DESIGN C9)."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
