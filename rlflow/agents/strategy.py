"""The trained agent as a search strategy: ``--search xrlflow`` or ``--search xrlflow:checkpoint=mine.npz``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.problem import Problem, StrategyBase
from rlflow.search.registry import register
from rlflow.search.result import Result

if TYPE_CHECKING:
    from rlflow.agents.config import TrainConfig
    from rlflow.agents.walker import Walker
    from rlflow.env.walks import Place
    from rlflow.nn.policy import Policy

DECODERS = ("sample", "greedy", "beam")
#: Walks in a row that open nothing new, after which a search that samples has converged; each of them makes the next
#: one's draws this much more even.
_QUIET = 12
_WARMER = 1.3
#: Of the drawn walks, one in so many begins at the start; the others at the best graph.
_FROM_START = 3
#: A way down is about so many times as long as what is open at its beginning: improvements open others.
_ENABLED = 1.1
_SAME = 1e-9
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
        return self.walk(problem, policy_of(problem, self.checkpoint, self.train, rng), rng)

    def walk(self, problem: Problem, loaded: tuple[Policy, TrainConfig], rng: np.random.Generator) -> StopReason:
        """Walk by this policy, trained like this."""
        from rlflow.agents.walker import Walker

        walker = Walker.of(problem, loaded, self.temperature, _KEEP, self.horizon, self.patience)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        if self.decode == "beam":
            walker.beam(self.width)
            return StopReason.CONVERGED
        best = first_ways(walker, problem, self.descent)
        quiet, turn = 0, 0
        while self.decode == "sample" and quiet < _QUIET:
            before = walker.walks.expansions
            walker.temperature = self.temperature * _WARMER**quiet
            found = walker.sample(rng, best if turn % _FROM_START else ())
            if self.descent and found[-1].node.cost < best[-1].node.cost:
                best = better(best, walker.descend(found))
            turn += 1
            quiet = 0 if walker.walks.expansions > before else quiet + 1
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED


def check_training(text: str) -> None:
    """Raises :class:`UsageError` where the text is no amount of training."""
    if text and not (text.removesuffix("s").isdigit() and int(text.removesuffix("s")) > 0):
        raise UsageError(f"The training budget is {text!r}; expected steps, as in 2000, or seconds, as in 60s.")


def policy_of(problem: Problem, checkpoint: str, training: str, rng: np.random.Generator) -> tuple[Policy, TrainConfig]:
    """The policy of a checkpoint (empty: the shipped one), trained on the problem's graph where that is asked for."""
    from rlflow.agents.checkpoint import load_policy

    if not training or len(problem.moves(problem.root())) == 0:
        return load_policy(checkpoint or None)
    from rlflow.agents.tune import tuned

    return tuned(problem, checkpoint, training, rng)


def first_ways(walker: Walker, problem: Problem, descent: bool) -> list[Place]:
    """The policy's first walk and on downhill from its best graph; the same by its likeliest choices alone; and
    downhill from the start, so that with budget enough the result is no worse than greedy's. Returns the best way.

    The first walk ends early where it has fallen behind the way down from the start, which then comes next, or where
    the budget is only just enough for that and it promises as much.
    """
    if not descent:
        return walker.greedy()
    lead = Lead(walker, problem)
    way = walker.lead(lead.enough)
    best = walker.descend() if lead.no_better(way) else walker.descend(way)
    best = better(best, walker.descend(walker.greedy()))
    best = better(best, walker.descend(way))
    return better(best, walker.descend())


class Lead:
    """How long the policy's first walk goes on, when a way down is to follow."""

    def __init__(self, walker: Walker, problem: Problem) -> None:
        from rlflow.agents.walker import downhill

        self.walker, self.problem, self.downhill = walker, problem, downhill
        self._judged = False
        self.promised = np.concatenate(([0.0], np.cumsum(downhill(walker.walks.root))))

    def behind(self, steps: int, way: Sequence[Place]) -> bool:
        """Whether so many steps downhill from the start promise more than the walk has found."""
        gained = way[0].node.cost - min(place.node.cost for place in way)
        return bool(self.promised[min(max(steps, 0), len(self.promised) - 1)] > gained * (1 + _SAME))

    def no_better(self, way: Sequence[Place]) -> bool:
        """Whether the way down from the start promises as much as the walk found, and the way down from there."""
        best = min(way, key=lambda place: place.node.cost)
        found = way[0].node.cost - best.node.cost + float(self.downhill(best).sum())
        return len(way) > 1 and bool(found <= self.promised[-1] * (1 + _SAME))

    def enough(self, way: Sequence[Place]) -> bool:
        """Behind by as many steps as a walk may take without a better graph; or what is left of the budget is only
        enough for the way down from the start, and that promises as much.
        """
        steps = len(way) - 1
        if self.behind(steps - self.walker.patience, way):
            return True
        left = self.problem.meter.expansions_left()
        down = _ENABLED * (len(self.promised) - 1)
        if left is None or left > down or self._judged:
            return False
        self._judged = True
        return steps == 0 or self.no_better(way)


def better(one: list[Place], other: list[Place]) -> list[Place]:
    """The way to the cheaper graph; the first where they cost the same."""
    return other if other[-1].node.cost < one[-1].node.cost else one


@register
@dataclass(frozen=True)
class XRLflowTree(Learned):
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
        from rlflow.agents.tree import TreeSearch
        from rlflow.agents.walker import Walker

        walker = Walker.of(problem, policy_of(problem, self.checkpoint, self.train, rng), 1.0, _KEEP, self.horizon)
        if len(walker.walks.root.table) == 0:
            return StopReason.EXHAUSTED
        best = first_ways(walker, problem, self.descent)
        walker.horizon, walker.patience = walker.horizon + len(best), _NO_PATIENCE
        tree = TreeSearch(walker, self.exploration)
        tree.plant(best)
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
