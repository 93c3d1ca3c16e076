"""Fine-tuning on the very graph that is to be searched: ``--search xrlflow --train-budget 2000``."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.agents.xrlflow.ppo import Trainer
from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint
from rlflow.env.spec import ENDLESS
from rlflow.nn.native_policy import NativePolicy
from rlflow.search import Problem, StopToken

_EVALUATE_EVERY = 4
_EPISODES = 16
_FOREVER = 1 << 60


@dataclass(frozen=True)
class _Opened:
    """What a training asks of a :class:`rlflow.env.spec.ProblemSpec`, of a problem that is open already."""

    searched: Problem
    title: str = "the model given"
    model: str = "the model given"
    cost: str = "the search's"

    def load(self, weights: bool = False) -> Any:
        return SimpleNamespace(spec=self, imported=None, problem=self.problem)

    def problem(self) -> Problem:
        """Another problem over the same graph, rules and prices, without end; the search's budget is not touched."""
        mine = self.searched
        shared = {"prices": mine.prices, "stop": mine.stop, "tolerance": mine.settings.tolerance}
        return Problem.over(mine.root().state, mine.rule_names, ENDLESS, **shared)


def tuned(problem: Problem, checkpoint: str, text: str, rng: np.random.Generator) -> tuple[NativePolicy, TrainConfig]:
    """The policy of a checkpoint (empty: the shipped one) after so much training on the problem's graph.

    What the training opens is not part of the search: neither its expansions nor its seconds are counted, and no graph
    of it becomes the result. ``problem.stop`` ends it too.
    """
    start = PolicyCheckpoint.load(checkpoint or SHIPPED)
    number = int(text.removesuffix("s"))
    steps, seconds = (_FOREVER, number) if text.endswith("s") else (number, _FOREVER)
    stop = StopToken()
    problem.stop.when_stopped(stop.stop)
    begun = time.monotonic()

    def on_update(figures: dict[str, Any]) -> None:
        if time.monotonic() - begun >= seconds:
            stop.stop()

    opened: Any = _Opened(problem)
    # Its own play alone: what is to be shown has no budget here. One model needs fewer episodes an update.
    config = dataclasses.replace(start.config, rounds=0, episodes=min(_EPISODES, start.config.episodes))
    trainer = Trainer([opened], config, seed=int(rng.integers(2**31)), start=start, evaluate_every=_EVALUATE_EVERY)
    found = trainer.train(steps, on_update=on_update, stop=stop)
    problem.meter.leave_out(time.monotonic() - begun)
    return found.native(), found.config
