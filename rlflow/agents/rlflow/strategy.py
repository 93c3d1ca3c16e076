"""A world model as a search strategy: ``--search rlflow`` or ``--search rlflow:checkpoint=mine.npz``."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlflow.agents.learned import Learned
from rlflow.agents.rlflow.config import FORMS
from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.strategies import register

_KEEP = 512
#: Walks in a row that open nothing new, after which a search that samples has converged; each of them makes the next
#: one's draws this much more even.
_QUIET, _WARMER = 12, 1.3
#: Openings without a better graph after which the model has said what it knows.
_IDLE = 100


@register
@dataclass(frozen=True)
class RLFlow(Learned):
    """A world model says what to open; the best graph visited wins.

    ``worldmodel``: which of the shipped checkpoints: ``graph`` ranks the candidates of all opened graphs, looks ahead
    in the latent graph and opens the most promising; ``latent`` walks by the controller that learnt in dreams, first by
    its likeliest choices, then drawn. ``checkpoint``: file of ``rlflow train worldmodel``, whose own form counts.
    ``breadth``, ``depth``: candidates that are looked ahead from, and how far (1: not at all); ``verify``: graphs
    opened at a time; 0 for what was trained with. ``temperature``: above 1 draws more evenly (``latent``). ``horizon``:
    longest way; 0 for the trained one. ``descent``: whether the first walk goes down the steepest price and asks the
    model nothing, so that on a graph unlike those it learnt from the result is no worse than greedy's. ``share``: part
    of the budget that is the model's. Once that is spent, or nothing better came for some time, a beam and then
    backtracking, which ask no model, go on from the best graph and from the start; 1: the model alone.
    """

    worldmodel: str = "graph"
    checkpoint: str = ""
    breadth: int = 0
    depth: int = 0
    verify: int = 0
    temperature: float = 1.0
    horizon: int = 0
    descent: bool = True
    share: float = 0.5

    name: ClassVar[str] = "rlflow"

    def __post_init__(self) -> None:
        numbers = (self.breadth, self.depth, self.verify, self.horizon)
        if self.worldmodel not in FORMS or min(numbers) < 0 or not self.temperature > 0 or not 0 <= self.share <= 1:
            raise UsageError(
                f"The options of search strategy 'rlflow' are worldmodel={self.worldmodel}, breadth={self.breadth}, "
                f"depth={self.depth}, verify={self.verify}, horizon={self.horizon}, temperature={self.temperature:g}, "
                f"share={self.share:g}; expected one of {', '.join(FORMS)}, numbers of 0 or more, a temperature above "
                "0, and a share from 0 to 1."
            )
        object.__setattr__(self, "randomised", self.worldmodel == "latent" or bool(self.checkpoint))

    def read(self) -> None:
        """Read the checkpoint, once for the process."""
        from rlflow.agents.rlflow.trained import load_world

        load_world(self.checkpoint or None, self.worldmodel)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Open what the model says, then what backtracking says, until the budget ends or nothing new is left."""
        from rlflow.agents.downhill import descend
        from rlflow.agents.rlflow.trained import load_world
        from rlflow.env.reward import Improvement
        from rlflow.env.walks import Episode, Walks

        checkpoint = load_world(self.checkpoint or None, self.worldmodel)
        walks = Walks(problem, _KEEP)
        if len(walks.root.table) == 0:
            return StopReason.EXHAUSTED
        horizon = self.horizon or checkpoint.config.horizon
        if self.descent:
            descend(Episode(walks, Improvement(), max(horizon, len(walks.root.node.nodes))))
        rows = checkpoint.vocabulary.rule_rows(problem.rule_names)
        by_model = self._ranked if checkpoint.config.worldmodel == "graph" else self._walked
        if self.share > 0:
            by_model(_Turn(problem, walks, self.share), checkpoint, rows, horizon, rng)
        if (reason := problem.stopped()) is not None:
            return reason
        return StopReason.CONVERGED if self.share == 1 else _without_model(problem, walks.best)

    def _ranked(self, turn: _Turn, checkpoint: Any, rows: np.ndarray, horizon: int, rng: np.random.Generator) -> None:
        from rlflow.agents.rlflow.ranked import RankedSearch, Ranker

        config, world = checkpoint.config, checkpoint.networks()["world"]
        ranker = Ranker(world, rows, self.breadth or config.breadth, self.depth or config.depth, config.discount)
        patience = config.patience or RankedSearch.patience
        search = RankedSearch(
            turn.walks, ranker, horizon, self.verify or config.verify, patience, descent=self.descent
        )  # fmt: skip
        while not turn.over() and search.step():
            pass

    def _walked(self, turn: _Turn, checkpoint: Any, rows: np.ndarray, horizon: int, rng: np.random.Generator) -> None:
        from rlflow.agents.rlflow.dream import random_of
        from rlflow.agents.rlflow.pilot import ControllerPilot
        from rlflow.env.reward import Improvement
        from rlflow.env.walks import Episode

        networks, config, walks = checkpoint.networks(), checkpoint.config, turn.walks
        pilot = ControllerPilot(networks["world"], networks["controller"], rows)
        quiet = 0
        while quiet < _QUIET:
            before = walks.expansions
            episode = Episode(walks, Improvement(), horizon, patience=config.patience)
            pilot.begin(episode)
            while not episode.ended:
                if turn.over():
                    return
                episode.step(pilot.choose(episode))
            quiet = 0 if walks.expansions > before else quiet + 1
            pilot.random, pilot.temperature = pilot.random or random_of(rng), self.temperature * _WARMER**quiet


@dataclass
class _Turn:
    """The model's part of a search: ``share`` of the budget, and an end where it has found nothing for long."""

    problem: Problem
    walks: Any
    share: float
    _best: float = math.inf
    _best_at: int = 0

    def over(self) -> bool:
        """Whether the model has had its turn; asked before every opening."""
        if self.walks.best.cost < self._best:
            self._best, self._best_at = self.walks.best.cost, self.walks.expansions
        idle = self.share < 1 and self.walks.expansions - self._best_at >= _IDLE
        spent = self.share < 1 and self.problem.meter.fraction() >= self.share
        return idle or spent or self.problem.stopped() is not None


def _without_model(problem: Problem, best: SearchNode) -> StopReason:
    """A beam below the best graph that the model led to, and below the start; then backtracking from the start and,
    every fourth turn, from the best.
    """
    from rlflow.search.backtracking import Backtracking
    from rlflow.search.beam import Beam

    search, beam, root = Backtracking(), Beam(), problem.root()
    ends = [beam.below(problem, node) for node in dict.fromkeys((best, root))]
    best = min(ends, key=lambda node: node.cost)
    turns = deque([search.steps(problem, root)] * 3)
    if best is not root:
        turns.append(search.steps(problem, best))
    reason = StopReason.EXHAUSTED
    while turns:
        try:
            next(turns[0])
            turns.rotate(-1)
        except StopIteration as end:
            reason, over = end.value, turns[0]
            turns = deque(one for one in turns if one is not over)
    return reason
