"""The trained agent as a search strategy: ``--search xrlflow`` or ``--search xrlflow:checkpoint=mine.npz``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rlflow.agents.learned import ready_to_learn
from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.problem import Problem
from rlflow.search.result import Result
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase
from rlflow.specs import whole_number

if TYPE_CHECKING:
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.nn.native_policy import NativePolicy

DECODERS = ("sample", "greedy", "beam")
_NO_PATIENCE = 1 << 30


class _ByPolicy(StrategyBase):
    """What is led by a trained policy. Only training needs torch."""

    checkpoint: str
    train: str

    def ready(self) -> None:
        """Raises ModelError for a checkpoint that cannot be read, UsageError for a training without torch."""
        from rlflow.agents.xrlflow.trained import load_policy

        load_policy(self.checkpoint or None)
        if self.train:
            ready_to_learn(f"{self.name}:train={self.train}")

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        self.ready()
        return super().run(problem, rng)


@register
@dataclass(frozen=True)
class XRLflow(_ByPolicy):
    """Walks as a trained policy says; the best graph visited on any of them wins.

    ``checkpoint``: file of ``rlflow train xrlflow`` (default: the one that ships). ``decode``: ``greedy`` takes the
    likeliest candidate until the policy stops; ``sample`` does that once, then draws walks from the best graph and from
    the start as long as the budget lasts (no graph is opened twice; walks that find nothing new make the next ones more
    even); ``beam`` keeps the likeliest walks side by side. ``width``: how many walks a beam has.
    ``temperature``: above 1 draws more evenly. ``horizon``: longest walk; ``patience``: most steps of a walk without a
    better graph; 0 for what was trained with. ``descent``: whether the first walk is followed by the steepest price,
    which asks the policy nothing, from its best graph and from the start, so that on a model unlike those it learnt
    from the result is no worse than greedy's where the budget is enough for both. ``train``: steps (2000) or seconds
    (60s) of training on the given model before the search; they are not part of the budget.
    """

    checkpoint: str = ""
    decode: str = "sample"
    temperature: float = 1.0
    width: int = 4
    horizon: int = 0
    patience: int = 0
    descent: bool = True
    train: str = ""

    name: ClassVar[str] = "xrlflow"
    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_training(self.train)
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
        from rlflow.agents.xrlflow.walker import Walker
        from rlflow.agents.xrlflow.ways import KEEP, drawn_ways, first_ways

        loaded = policy_of(problem, self.checkpoint, self.train, rng)
        walker = Walker.of(problem, loaded, self.temperature, KEEP, self.horizon, self.patience)
        if self.decode == "sample":
            return drawn_ways(walker, rng, descent=self.descent)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        if self.decode == "beam":
            walker.beam(self.width)
        else:
            first_ways(walker, self.descent)
        return StopReason.CONVERGED


def check_training(text: str) -> None:
    """Raises :class:`UsageError` where the text is no amount of training."""
    if text and not whole_number(text.removesuffix("s")):
        raise UsageError(f"The training budget is {text!r}; expected steps, as in 2000, or seconds, as in 60s.")


def policy_of(
    problem: Problem, checkpoint: str, training: str, rng: np.random.Generator
) -> tuple[NativePolicy, TrainConfig]:
    """The policy of a checkpoint (empty: the shipped one), trained on the problem's graph where that is asked for."""
    from rlflow.agents.xrlflow.trained import load_policy

    if not training or len(problem.moves(problem.root())) == 0:
        return load_policy(checkpoint or None)
    from rlflow.agents.xrlflow.tune import tuned
    from rlflow.nn.threads import one_thread

    with one_thread():
        return tuned(problem, checkpoint, training, rng)


@register
@dataclass(frozen=True)
class XRLflowTree(_ByPolicy):
    """A tree search that a trained policy guides; every simulation opens one graph.

    It begins as ``xrlflow`` does, with the policy's likeliest walk and ways down, and the tree holds the best of these.
    ``checkpoint``, ``descent``, ``train``: as for ``xrlflow``. ``exploration``: weight of the policy's choice against
    the gains found. ``horizon``: deepest way, beyond the first one; 0 for the one that was trained with.
    """

    checkpoint: str = ""
    exploration: float = 1.0
    horizon: int = 0
    descent: bool = True
    train: str = ""

    name: ClassVar[str] = "xrlflow-mcts"

    def __post_init__(self) -> None:
        check_training(self.train)
        if not self.exploration > 0 or self.horizon < 0:
            raise UsageError(
                f"The options of search strategy 'xrlflow-mcts' are exploration={self.exploration:g}, "
                f"horizon={self.horizon}; expected an exploration above 0 and a horizon of 0 or more."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Simulate until the budget or the graphs end. Nothing is drawn but for training."""
        from rlflow.agents.xrlflow.simulations import TreeSearch
        from rlflow.agents.xrlflow.walker import Walker
        from rlflow.agents.xrlflow.ways import KEEP, first_ways

        walker = Walker.of(problem, policy_of(problem, self.checkpoint, self.train, rng), 1.0, KEEP, self.horizon)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        best = first_ways(walker, self.descent)
        walker.horizon, walker.patience = walker.horizon + len(best), _NO_PATIENCE
        tree = TreeSearch(walker, self.exploration)
        tree.plant(best)
        while not tree.exhausted:
            tree.simulate()
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED
