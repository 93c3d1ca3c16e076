"""The real side of a world model's training: episodes in the engine, with every expansion and measurement counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlflow.agents.downhill import steepest
from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.replay import Recorded, Replay, State
from rlflow.env.reward import Improvement
from rlflow.env.spec import ProblemSpec
from rlflow.env.walks import STOP, Episode, Walks
from rlflow.errors import UsageError
from rlflow.nn.draws import draw

_KEEP = 256


class Pilot(Protocol):
    """Who chooses in real episodes."""

    name: str

    def begin(self, episode: Episode) -> None:
        """A new episode: forget the last one."""
        ...

    def choose(self, episode: Episode) -> int:
        """A candidate's number, 0 to stop."""
        ...


@dataclass
class RandomPilot:
    """First a rule, all that fire alike, then one of its matches; now and then to stop."""

    rng: np.random.Generator
    stop_chance: float
    name: str = "random"

    def begin(self, episode: Episode) -> None:
        """There is nothing to forget."""

    def choose(self, episode: Episode) -> int:
        table = episode.place.table
        if len(table) == 0 or self.rng.random() < self.stop_chance:
            return STOP
        fired = np.flatnonzero(table.rule == self.rng.choice(np.unique(table.rule)))
        return 1 + int(self.rng.choice(fired))


class SteepestPilot:
    """Takes the cheapest candidate while it is an improvement, then stops: the greedy walk."""

    name = "steepest"

    def begin(self, episode: Episode) -> None:
        """There is nothing to forget."""

    def choose(self, episode: Episode) -> int:
        k = steepest(episode)
        return STOP if k is None else 1 + k


@dataclass
class DownhillPilot:
    """Draws candidates by their share of the largest price gain: a walk near the greedy one, never quite the same."""

    rng: np.random.Generator
    sharpness: float = 12.0
    name: str = "downhill"

    def begin(self, episode: Episode) -> None:
        """There is nothing to forget."""

    def choose(self, episode: Episode) -> int:
        table = episode.place.table
        if len(table) == 0:
            return STOP
        gain = table.node.cost - table.cost
        score = self.sharpness * gain / max(float(np.abs(gain).max()), 1e-12)
        weights = np.exp(score - score.max())
        return 1 + draw(weights / weights.sum(), self.rng.random())


class PriceJudge:
    """A graph's gain is its price's: known for every graph that was opened."""

    timings = 0

    def gain(self, episode: Episode, start_ms: float) -> float:
        """``log(start / here)``, or nan where this graph is not measured."""
        return math.log(max(start_ms, 1e-12) / max(episode.place.node.cost, 1e-12))

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class ClockJudge:
    """A graph's gain is the clock's on the whole model, every ``every`` steps and at the end; each graph once."""

    timer: Any
    every: int
    timings: int = 0
    _known: dict[bytes, float] = field(default_factory=dict)

    def gain(self, episode: Episode, start_ms: float) -> float:
        digest = episode.place.node.digest
        if episode.place.node.depth == 0:
            return 0.0
        if not (episode.ended or episode.steps % self.every == 0):
            return self._known.get(digest, math.nan)
        if digest not in self._known:
            self._known[digest] = self.timer.gain(episode.place.node.graph)[0]
            self.timings += 1
        return self._known[digest]

    def close(self) -> None:
        """Ends the timing process."""
        close = getattr(self.timer, "close", None)
        if close is not None:
            close()


@dataclass
class Opened:
    """A problem that episodes are played in."""

    walks: Walks
    judge: Any
    cost_model: Any

    @property
    def problem(self) -> Any:
        return self.walks.problem

    @property
    def best_gain(self) -> float:
        """Log of the starting price over the best one visited."""
        return math.log(max(self.problem.start_cost, 1e-12) / max(self.problem.best_cost, 1e-12))


class RealWorld:
    """Plays episodes of several problems and records them. ``limit``: most expansions in all, 0 for any number;
    ``stopped``: asked before every step.
    """

    def __init__(
        self,
        specs: Sequence[ProblemSpec],
        config: WorldConfig,
        replay: Replay,
        limit: int = 0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.specs, self.config, self.replay, self.limit = list(specs), config, replay, limit
        self.stopped = stopped
        self._opened: dict[int, Opened] = {}
        self.steps = self.episodes = 0
        self.before = {"expansions": 0, "candidates": 0, "measurements": 0}  # of a training that is resumed

    def opened(self, spec: int) -> Opened:
        """The problem, read when it is first needed."""
        if spec not in self._opened:
            loaded = self.specs[spec].load(weights=self.config.gains == "clock")
            walks = Walks(loaded.problem(), _KEEP)
            self._opened[spec] = Opened(walks, self._judge(loaded), loaded.cost_model)
        return self._opened[spec]

    def rule_names(self, spec: int) -> list[str]:
        """The names behind the rule numbers of a problem's states."""
        return self.opened(spec).problem.rule_names

    def play(self, spec: int, pilot: Pilot, keep: bool = True) -> Recorded:
        """One episode, as far as the limit reaches; ``keep``: into the replay buffer."""
        opened = self.opened(spec)
        episode = Episode(opened.walks, Improvement(), self.config.horizon, patience=self.config.patience)
        record = Recorded(spec, [self._see(spec, episode)], [], [0.0], by=pilot.name)
        pilot.begin(episode)
        while not episode.ended and not self.finished():
            action = pilot.choose(episode)
            episode.step(action)
            record.actions.append(action)
            record.keys.append(self._see(spec, episode))
            record.gains.append(opened.judge.gain(episode, episode.start_ms))
            record.terminated = episode.terminated
            self.steps += 1
        self.episodes += 1
        if keep and len(record):
            self.replay.add(record)
        return record

    def finished(self) -> bool:
        """Whether the limit is reached or the user asked for the end."""
        return self.stopped() or (self.limit > 0 and self.counts()["expansions"] >= self.limit)

    def counts(self) -> dict[str, int]:
        """What was really spent, all problems and resumed trainings together: graphs that were built
        (``expansions``), candidates that were priced, and ``measurements``: timed regions and timed models.
        """
        meters = [opened.problem.meter for opened in self._opened.values()]
        timings = sum(opened.judge.timings for opened in self._opened.values())
        return {
            "expansions": self.before["expansions"] + sum(meter.expansions for meter in meters),
            "candidates": self.before["candidates"] + sum(meter.candidates for meter in meters),
            "measurements": self.before["measurements"] + timings + sum(meter.measurements for meter in meters),
        }

    def close(self) -> None:
        """Ends cost models and timing processes."""
        for opened in self._opened.values():
            opened.judge.close()
            opened.cost_model.close()

    def see(self, spec: int, episode: Episode) -> State:
        """The state of an episode's present place, which is kept."""
        return self.replay.states[self._see(spec, episode)]

    def _see(self, spec: int, episode: Episode) -> tuple[int, bytes]:
        key = (spec, episode.place.node.digest)
        if key in self.replay.states:
            return key
        return self.replay.see(State.of(spec, episode.place, episode.observe(), episode.start_ms))

    def _judge(self, loaded: Any) -> Any:
        if self.config.gains == "price":
            return PriceJudge()
        if loaded.imported is None:
            raise UsageError(
                f"The gains of {loaded.spec.title} were asked for by the clock, and a graph has no weights; give a "
                "model's file or a name of the zoo."
            )
        from rlflow.env.timer import EndToEndTimer

        return ClockJudge(EndToEndTimer(loaded.imported), self.config.every)
