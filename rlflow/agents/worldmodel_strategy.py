"""A world model as a search strategy: ``--search rlflow`` or ``--search rlflow:checkpoint=mine.npz``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlflow.agents import FORMS
from rlflow.agents.strategy import Learned
from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.problem import Problem
from rlflow.search.registry import register

_KEEP = 512
#: Walks in a row that open nothing new, after which a search that samples has converged; each of them makes the next
#: one's draws this much more even.
_QUIET, _WARMER = 12, 1.3


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
    model nothing, so that on a graph unlike those it learnt from the result is no worse than greedy's.
    """

    worldmodel: str = "graph"
    checkpoint: str = ""
    breadth: int = 0
    depth: int = 0
    verify: int = 0
    temperature: float = 1.0
    horizon: int = 0
    descent: bool = True

    name: ClassVar[str] = "rlflow"

    def __post_init__(self) -> None:
        numbers = (self.breadth, self.depth, self.verify, self.horizon)
        if self.worldmodel not in FORMS or min(numbers) < 0 or not self.temperature > 0:
            raise UsageError(
                f"The options of search strategy 'rlflow' are worldmodel={self.worldmodel}, breadth={self.breadth}, "
                f"depth={self.depth}, verify={self.verify}, horizon={self.horizon}, temperature={self.temperature:g}; "
                f"expected one of {', '.join(FORMS)}, numbers of 0 or more, and a temperature above 0."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Open what the model says until the budget ends or nothing new is left."""
        from rlflow.agents.walker import descend
        from rlflow.agents.worldmodel_checkpoint import load_world
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
        if checkpoint.config.worldmodel == "graph":
            return self._ranked(problem, checkpoint, walks, rows, horizon)
        return self._walked(problem, checkpoint, walks, rows, horizon, rng)

    def _ranked(self, problem: Problem, checkpoint: Any, walks: Any, rows: np.ndarray, horizon: int) -> StopReason:
        from rlflow.agents.worldmodel_rank import RankedSearch, Ranker

        config, world = checkpoint.config, checkpoint.networks()["world"]
        ranker = Ranker(world, rows, self.breadth or config.breadth, self.depth or config.depth, config.discount)
        search = RankedSearch(
            walks, ranker, horizon, self.verify or config.verify, config.patience or RankedSearch.patience
        )
        while search.step():
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED

    def _walked(
        self, problem: Problem, checkpoint: Any, walks: Any, rows: np.ndarray, horizon: int, rng: np.random.Generator
    ) -> StopReason:
        from rlflow.agents.dream import random_of
        from rlflow.agents.dream_pilot import ControllerPilot
        from rlflow.env.reward import Improvement
        from rlflow.env.walks import Episode

        networks, config = checkpoint.networks(), checkpoint.config
        pilot = ControllerPilot(networks["world"], networks["controller"], rows)
        quiet = 0
        while quiet < _QUIET:
            before = walks.expansions
            episode = Episode(walks, Improvement(), horizon, patience=config.patience)
            pilot.begin(episode)
            while not episode.ended:
                episode.step(pilot.choose(episode))
            quiet = 0 if walks.expansions > before else quiet + 1
            pilot.random, pilot.temperature = pilot.random or random_of(rng), self.temperature * _WARMER**quiet
            if (reason := problem.stopped()) is not None:
                return reason
        return StopReason.CONVERGED
