"""Hierarchical tuning: which subgraph, which of its sketches, which programs, measured round by round.

HARL (Zhang et al., ICPP 2022): sliding-window UCB chooses the subgraph by what a round is expected to gain, another one
the sketch by the best it gave, and an actor-critic edits parameters. Every level can be replaced, for comparison.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from rlflow.search import Budget, StopReason, StopToken
from rlflow.tuner.bandits import SlidingWindowUCB
from rlflow.tuner.engines import INVALID, Engine
from rlflow.tuner.gradients import GradientRule
from rlflow.tuner.program_scores import make_cost_model
from rlflow.tuner.proposers import Proposer
from rlflow.tuner.spaces import TensorProgram
from rlflow.tuner.tasks import TuningTask
from rlflow.tuner.tuning_methods import TunerConfig, make_proposer
from rlflow.tuner.warm_starts import TransferPrior, WarmStart

#: Programs of a sketch by which a prior judges it.
_EXPECTED = 256
#: Measurements of other subgraphs from which on they say something.
_LEAST_TRANSFERRED = 8


@dataclass(frozen=True)
class TuningRound:
    """What one round did. ``best``: seconds of the subgraph's fastest program so far. ``trials``, ``cpu_seconds``:
    spent in all, the latter by search and engine together. ``network``: seconds of the best programs, weighted;
    infinite before each subgraph has one.
    """

    subgraph: int
    sketch: int | None
    programs: tuple[TensorProgram, ...]
    seconds: tuple[float, ...]
    best: float
    trials: int
    cpu_seconds: float
    network: float


@dataclass
class TuneResult:
    """``best``: the fastest program of each subgraph and its seconds, ``None`` where none ran. ``rounds``: in order."""

    best: list[tuple[TensorProgram, float] | None]
    rounds: list[TuningRound] = field(default_factory=list)
    stop: StopReason = StopReason.EXHAUSTED

    @property
    def trials(self) -> int:
        """Programs that were measured."""
        return self.rounds[-1].trials if self.rounds else 0


class Tuner:
    """Tunes the subgraphs of ``engine``. The same ``seed`` and ``start`` make the same choices where measurements are
    the same.
    """

    def __init__(self, engine: Engine, config: TunerConfig, seed: int = 0, start: WarmStart | None = None) -> None:
        self.engine, self.config, start = engine, config, start or WarmStart()
        prior = start.prior if config.proposer != "random" else None
        self.tasks = [
            TuningTask(number, engine, make_cost_model(config.cost), None if prior is None else prior.levels(subgraph))
            for number, subgraph in enumerate(engine.subgraphs)
        ]
        self.proposer: Proposer = make_proposer(config, seed, start.weights)
        self._rng = np.random.default_rng(seed)
        self._rule = GradientRule()
        self._subgraphs = SlidingWindowUCB(len(self.tasks), config.window, config.exploration)
        self._sketches = [
            SlidingWindowUCB(len(task.subgraph.space.sketches), config.window, config.exploration)
            for task in self.tasks
        ]
        self._trials, self._search_seconds = 0, 0.0
        self._pace = 0.0  # seconds of the clock that a program of the last round took
        self._given = {task.number for task in self.tasks if task.informed}
        for task in self.tasks:
            self._expect(task)

    def run(
        self, budget: Budget, on_round: Callable[[TuningRound], None] | None = None, stop: StopToken | None = None
    ) -> TuneResult:
        """Tune until the budget is spent (measurements, or seconds of the clock), nothing is left to measure, or
        ``stop`` is set; then the best so far counts.
        """
        stop, began = stop or StopToken(), time.monotonic()
        result = TuneResult([])
        with self._threads():
            while True:
                reason = self._ended(budget, time.monotonic() - began, stop)
                if reason is not None:
                    break
                done = self._round(self._count(budget, time.monotonic() - began))
                result.rounds.append(done)
                if on_round is not None:
                    on_round(done)
        result.stop, result.best = reason, [task.best for task in self.tasks]
        return result

    def _threads(self) -> AbstractContextManager[None]:
        if self.config.proposer != "tracks":
            return nullcontext()
        from rlflow.nn.threads import one_thread

        return one_thread()

    def _ended(self, budget: Budget, seconds: float, stop: StopToken) -> StopReason | None:
        if stop.stopped:
            return StopReason.INTERRUPTED
        if budget.measurements is not None and self._trials >= budget.measurements:
            return StopReason.BUDGET_MEASUREMENTS
        if budget.seconds is not None and seconds >= budget.seconds:
            return StopReason.BUDGET_SECONDS
        return StopReason.EXHAUSTED if all(task.exhausted for task in self.tasks) else None

    def _count(self, budget: Budget, seconds: float) -> int:
        """How many programs the next round has: fewer than usual where the budget has no more measurements left, or no
        more time at the last round's pace; one at least.
        """
        left = math.inf if budget.measurements is None else budget.measurements - self._trials
        if budget.seconds is not None and self._pace > 0.0:
            left = min(left, max((budget.seconds - seconds) / self._pace, 1.0))
        return int(min(left, self.config.batch))

    # --- a round ----------------------------------------------------------------------------------------------------

    def _round(self, count: int) -> TuningRound:
        began = time.process_time()
        number = self._subgraph()
        task = self.tasks[number]
        self._transfer(task)
        begins = not task.rounds and not task.informed
        sketch = self._sketch(task) if self.proposer.by_sketch and not begins else None
        programs = self._first(task, count) if begins else self._proposed(task, sketch, count)
        self._search_seconds += time.process_time() - began
        started = time.monotonic()
        seconds = self.engine.measure(number, programs)
        self._pace = (time.monotonic() - started) / max(len(programs), 1)
        began = time.process_time()
        task.add(programs, seconds)
        self._reward(task, programs, seconds)
        self._trials += len(programs)
        self._search_seconds += time.process_time() - began
        network = sum(one.subgraph.weight * one.seconds for one in self.tasks)
        spent = self._search_seconds + self.engine.cpu_seconds
        return TuningRound(number, sketch, tuple(programs), tuple(seconds), task.seconds, self._trials, spent, network)

    def _subgraph(self) -> int:
        """The subgraph of the next round; each has one before any has two."""
        open_tasks = [task for task in self.tasks if not task.exhausted]
        new = next((task for task in open_tasks if not task.rounds), None)
        if new is not None or len(open_tasks) == 1:
            return (new or open_tasks[0]).number
        if self.config.subgraphs == "round-robin":
            return min(open_tasks, key=lambda task: (len(task.rounds), task.number)).number
        scores = self._gradients() if self.config.subgraphs == "gradient" else self._subgraphs.scores()
        return max(open_tasks, key=lambda task: (scores[task.number], -task.number)).number

    def _gradients(self) -> list[float]:
        return [self._rule.estimate(task, self.tasks) for task in self.tasks]

    def _sketch(self, task: TuningTask) -> int:
        """The sketch of the next round, among those with programs that were not measured."""
        left = [number for number in range(len(task.subgraph.space.sketches)) if not task.used_up(number)]
        if self.config.sketches == "uniform":
            return left[int(self._rng.integers(len(left)))]
        scores = self._sketches[task.number].scores()
        return max(left, key=lambda number: (scores[number], -number))

    def _first(self, task: TuningTask, count: int) -> list[TensorProgram]:
        """Before anything is known: as many programs of each sketch, at random."""
        sketches = len(task.subgraph.space.sketches)
        programs: list[TensorProgram] = []
        for number in range(sketches):
            share = count // sketches + (number < count % sketches)
            programs += task.fresh(self._rng, share, number, programs) if share else []
        return [*programs, *task.fresh(self._rng, count - len(programs), None, programs)]

    def _proposed(self, task: TuningTask, sketch: int | None, count: int) -> list[TensorProgram]:
        programs = self.proposer.propose(task, sketch, count, self._rng)
        return programs or task.fresh(self._rng, count, None, [])  # this sketch is used up

    def _transfer(self, task: TuningTask) -> None:
        """Let a subgraph's cost model begin with what its like were found to take so far, where no prior was given."""
        if not self.config.transfer or task.number in self._given or self.config.proposer == "random":
            return
        alike = [one is not task and one.subgraph.family == task.subgraph.family for one in self.tasks]
        known = [one.measured if there else {} for one, there in zip(self.tasks, alike, strict=True)]
        if sum(map(len, known)) < _LEAST_TRANSFERRED:
            return
        task.expect(TransferPrior.of(self.engine, known).levels(task.subgraph))
        if not task.rounds:
            self._expect(task)

    def _expect(self, task: TuningTask) -> None:
        """Tell the bandit over sketches what a prior expects of each: its best rate as a part of the best of all."""
        if not task.informed:
            return
        space = task.subgraph.space
        some = [space.random(self._rng, _EXPECTED, number) for number in range(len(space.sketches))]
        best = [float(task.predict(programs).max()) for programs in some]
        for number, one in enumerate(best):
            self._sketches[task.number].tell(number, one / max(best))

    def _reward(self, task: TuningTask, programs: Sequence[TensorProgram], seconds: Sequence[float]) -> None:
        """Tell both bandits what the round gave: the gradient as a part of the largest one; of each sketch that was
        measured, the best rate of the round as a part of the best so far.
        """
        gradients = self._gradients()
        most = max(gradients)
        self._subgraphs.tell(task.number, gradients[task.number] / most if most > 0 else 0.0)
        for sketch in sorted({one.sketch for one in programs}):
            least = min(took for one, took in zip(programs, seconds, strict=True) if one.sketch == sketch)
            self._sketches[task.number].tell(sketch, 0.0 if least == INVALID else task.seconds / least)
