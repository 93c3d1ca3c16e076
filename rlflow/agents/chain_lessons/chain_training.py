"""How a policy of chains is learnt: search, learn from what paid, search again by what was learnt (expert iteration;
Anthony et al., NeurIPS 2017).

In the first round the weights are those by hand, which know no rule. So nobody has to show a chain: what the search
finds in ten thousand graphs of each model leads it in the next round, where it then finds more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlflow.agents.chain_lessons.chain_fit import Decisions, fitted
from rlflow.agents.logs import TrainingLog
from rlflow.errors import UsageError
from rlflow.nn.checkpoint import part_of, progress_of, resumed
from rlflow.search import Problem, StopToken
from rlflow.search.levin.chain_policy import ChainPolicy, ChainShape, by_hand
from rlflow.search.levin.chains import LevinOptions, LevinSearch, Paid
from rlflow.search.levin.trained import LevinCheckpoint, LevinConfig
from rlflow.search.limits import SearchStopped
from rlflow.search.strategies import strategy_class
from rlflow.synthesis import load_rules

_DECISIONS = "decisions/"
#: The policy's part of a chain's probability while it learns, and how many candidates a lesson keeps: its blocks are
#: small, so it can remember more than a search.
_TAUGHT, _QUEUE = 0.75, 20_000


class Lesson(Protocol):
    """A model to learn on; :class:`rlflow.env.spec.ProblemSpec` is one."""

    @property
    def title(self) -> str:
        """What the card calls it."""
        ...

    def load(self) -> Any:
        """Something with ``problem(budget, stop=…)`` and ``ruleset``."""
        ...


@dataclass
class LevinProgress:
    """How far a training is. ``lessons``: of the round at hand, that are over; ``gains``: the sum of their logarithms.
    ``scores``: of each round, the mean logarithm of cost before over cost after; ``chains``: learnt from so far.
    """

    rounds: int = 0
    lessons: int = 0
    expansions: int = 0
    chains: int = 0
    gains: float = 0.0
    seconds: float = 0.0
    loss: float = 0.0
    scores: tuple[float, ...] = ()
    best_score: float = -math.inf


class LevinTraining:
    """A training's state.

    ``specs``: to learn on; all have the same rules. ``out``: the checkpoint; ``<out>.last`` is what ``resume`` goes on
    from, to the same end as without a break. ``logs``: folder of JSON lines and TensorBoard. Nothing is drawn.
    """

    def __init__(
        self,
        specs: Sequence[Lesson],
        config: LevinConfig,
        *,
        out: str | Path | None = None,
        logs: str | Path | None = None,
        resume: bool = False,
    ) -> None:
        if not specs:
            raise UsageError("The training was given no model; give at least one to learn on.")
        self.specs = list(specs)
        self.out, self.logs = (None if path is None else Path(path) for path in (out, logs))
        self.rules = tuple(specs[0].load().ruleset.names)
        self.config = dataclasses.replace(config, families=families_of(self.rules))
        numbers, count = self.config.numbered()
        shape = ChainShape(len(self.rules), count)
        self.policy = ChainPolicy(shape, numbers, by_hand(shape))
        self.decisions, self.progress = Decisions(), LevinProgress()
        if resume:
            self._resume()

    def train(
        self,
        rounds: int,
        *,
        on_lesson: Callable[[dict[str, Any]], None] | None = None,
        stop: StopToken | None = None,
    ) -> LevinCheckpoint:
        """Train until there were ``rounds`` in all, or ``stop`` is set; returns the checkpoint, which is also written
        to ``out``. What is stopped in a lesson begins that lesson again. ``on_lesson`` gets the figures of each.
        """
        stop = stop or StopToken()
        with TrainingLog(self.logs) as log:
            while self.progress.rounds < rounds and not stop.stopped:
                while self.progress.lessons < len(self.specs) and not stop.stopped:
                    figures = self._lesson(self.specs[self.progress.lessons], stop)
                    if figures is not None:
                        log.write("lesson", self.progress.expansions, figures)
                        if on_lesson is not None:
                            on_lesson(figures)
                if self.progress.lessons == len(self.specs):
                    self._end_round()
        return self._save()

    def _lesson(self, spec: Lesson, stop: StopToken) -> dict[str, Any] | None:
        """Search on one model and take what paid; its figures. Where it was stopped ``None``, and nothing is kept."""
        begun = time.process_time()
        problem = spec.load().problem(f"{self.config.expansions}x", stop=stop, macros=True)
        paid = played(self.policy, problem, self.config.even)
        if stop.stopped:
            return None
        chains = self.decisions.learn_from(paid, self.config.same)
        gain = math.log(problem.start_cost / problem.best_cost)
        told = self.progress
        told.lessons, told.gains, told.chains = told.lessons + 1, told.gains + gain, told.chains + chains
        told.expansions += problem.meter.expansions
        told.seconds += time.process_time() - begun
        self._save_last()
        return {
            "round": told.rounds,
            "model": spec.title,
            "gain": gain,
            "chains": chains,
            "expansions": problem.meter.expansions,
            "seconds": told.seconds,
        }

    def _end_round(self) -> None:
        begun, told = time.process_time(), self.progress
        self.policy, told.loss = fitted(self.policy, self.decisions.steps, self.config)
        told.scores = (*told.scores, told.gains / len(self.specs))
        told.rounds, told.lessons, told.gains = told.rounds + 1, 0, 0.0
        told.seconds += time.process_time() - begun
        self._save()
        self._save_last()

    # --- files ------------------------------------------------------------------------------------------------------

    def _save(self) -> LevinCheckpoint:
        checkpoint = LevinCheckpoint.of(self.policy, self.rules, self.config, card=self._card())
        if self.out is not None:
            checkpoint.save(self.out)
        return checkpoint

    def _save_last(self) -> None:
        if self._last is None:
            return
        state = {_DECISIONS + name: array for name, array in self.decisions.arrays().items()}
        state["flat"] = self.policy.flat
        progress = dataclasses.asdict(self.progress) | {"best_score": None, "seed": 0, "models": self._titles}
        LevinCheckpoint.of(
            self.policy, self.rules, self.config, extra=state, progress=progress, card=self._card()
        ).save(self._last)

    def _resume(self) -> None:
        last = resumed(self._last, LevinCheckpoint.load, self.config, self._titles, 0)
        self.progress = progress_of(LevinProgress, last.progress)
        self.progress.scores = tuple(self.progress.scores)
        self.decisions = Decisions.of(part_of(last.extra, _DECISIONS))
        self.policy = ChainPolicy(self.policy.shape, self.policy.families, last.extra["flat"])

    @property
    def _last(self) -> Path | None:
        return None if self.out is None else self.out.with_name(self.out.name + ".last")

    @property
    def _titles(self) -> list[str]:
        return [spec.title for spec in self.specs]

    def _card(self) -> dict[str, Any]:
        from rlflow import __version__

        told = self.progress
        return {
            "rlflow": __version__,
            "numpy": np.__version__,
            "models": self._titles,
            "rounds": told.rounds,
            "expansions": told.expansions,
            "chains": told.chains,
            "decisions": len(self.decisions),
            "loss": round(told.loss, 4),
            "scores": [round(score, 5) for score in told.scores],
        }  # no seconds: the same training makes the same file


def families_of(rules: Sequence[str]) -> tuple[str, ...]:
    """Of each rule by name its family; empty for one that does not ship."""
    known = {rule.name: rule.family for rule in load_rules().values()}
    return tuple(known.get(name, "") for name in rules)


def played(policy: ChainPolicy, problem: Problem, even: float) -> list[Paid]:
    """The chains that pay which a search by ``policy`` finds, its options those of ``--search levin`` but for
    ``even``, ``taught`` and ``queue``. The policy is for the problem's rules.
    """
    usual = strategy_class("levin")()
    with contextlib.suppress(SearchStopped):
        settings = LevinOptions(usual.alpha, usual.chain, _QUEUE, even, _TAUGHT)
        run = LevinSearch(settings, policy, problem)
        run.arrive(problem.root())
        with contextlib.suppress(SearchStopped):
            while run.step():
                pass
        return run.paid
    return []
