"""The loop: collect → fit → dream → act for real and be judged → repeat (Ha and Schmidhuber 2018, section 6.1).

Reads from top to bottom. What a form of world model does with the data is in its agent (``LatentAgent`` in
:mod:`rlflow.agents.rlflow.latent_agent`, ``GraphAgent`` in :mod:`rlflow.agents.rlflow.graph_agent`); what is real, and
counted, is in :mod:`rlflow.agents.rlflow.real`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.agents.logs import TrainingLog
from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.graph_agent import GraphAgent
from rlflow.agents.rlflow.latent_agent import LatentAgent
from rlflow.agents.rlflow.latent_fit import Memories
from rlflow.agents.rlflow.real import DownhillPilot, Pilot, RandomPilot, RealWorld, SteepestPilot
from rlflow.agents.rlflow.replay import Recorded, Replay
from rlflow.agents.rlflow.trained import (
    WorldCheckpoint,
    all_weights,
    load_weights,
    make_networks,
)
from rlflow.agents.torch_state import card_of
from rlflow.env.spec import ProblemSpec
from rlflow.errors import UsageError
from rlflow.nn.checkpoint import known_score, part_of, progress_of, resumed
from rlflow.nn.observation import STOP_RULE
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search import StopToken, generator


@dataclass
class WorldProgress:
    """How far a training is; what a resumed one goes on with."""

    rounds: int = 0
    steps: int = 0
    episodes: int = 0
    expansions: int = 0
    candidates: int = 0
    measurements: int = 0
    seconds: float = 0.0
    best_score: float = -math.inf
    best_gains: dict[str, float] = field(default_factory=dict)


class WorldTrainer:
    """Trains a world model and who acts by it on several problems.

    ``specs``: to learn on. ``out``: the checkpoint; ``<out>.last`` and the folder ``<out>.replay`` are what ``resume``
    goes on from. ``logs``: folder of JSON lines and TensorBoard. A training that is resumed has the weights, data and
    counts of the one that stopped; graphs that the engine no longer holds count again when they are opened again.
    """

    def __init__(
        self,
        specs: Sequence[ProblemSpec],
        config: WorldConfig,
        *,
        out: str | Path | None = None,
        seed: int = 0,
        logs: str | Path | None = None,
        resume: bool = False,
        capacity: int = 6000,
    ) -> None:
        if not specs:
            raise UsageError("The training was given no model; give at least one to learn on.")
        self.specs, self.config, self.seed = list(specs), config, seed
        self.out, self.logs = None if out is None else Path(out), None if logs is None else Path(logs)
        self.progress, self.rng = WorldProgress(), generator(seed)
        self.replay = Replay(None if self.out is None else self.out.with_name(self.out.name + ".replay"), capacity)
        self.stop = StopToken()
        self.real = RealWorld(self.specs, config, self.replay, stopped=lambda: self.stop.stopped)
        self.agent: Any = None
        self.best_weights: dict[str, np.ndarray] = {}
        self._begun = 0.0
        if resume:
            self._resume()
        elif self.replay.folder is not None:
            for path in self.replay.folder.glob("part-*.npz"):  # of an earlier training by this name
                path.unlink()

    def train(
        self, expansions: int, rounds: int = 1 << 30, *,
        on_round: Callable[[dict[str, Any]], None] | None = None, stop: StopToken | None = None,
    ) -> WorldCheckpoint:  # fmt: skip
        """Train until ``expansions`` graphs were really opened in all, or ``rounds`` rounds were made, or ``stop`` is
        set; returns the best checkpoint, which is also written to ``out``. Nothing is lost by stopping.
        """
        self.stop = stop or self.stop
        self.real.limit, self._begun = expansions, time.monotonic() - self.progress.seconds
        try:
            with TrainingLog(self.logs) as log:
                if self.agent is None:
                    self._begin()
                while self.progress.rounds < rounds and not self.real.finished():
                    figures = self._round()
                    log.write("round", self.progress.expansions, figures)
                    if on_round is not None:
                        on_round(figures)
                    self._save_last()
        finally:
            self.real.close()
        self._save_last()
        return self._save_best()

    def _begin(self) -> None:
        """Collect by price (the steepest way first) and by chance, then make networks for the rules that fired."""
        config, chance = self.config, RandomPilot(self.rng, self.config.stop_chance)
        pilots: list[Pilot] = [SteepestPilot(), *[DownhillPilot(self.rng)] * (config.downhill_episodes - 1)]
        pilots = [*pilots[: config.downhill_episodes], *[chance] * config.random_episodes]
        for spec in range(len(self.specs)):
            for pilot in pilots:
                if not self.real.finished():
                    self.real.play(spec, pilot)
        if not self.replay.states:
            self.real.play(0, chance)  # the starting graph at least
        fired = {
            self.real.rule_names(state.spec)[number]
            for state in self.replay.states.values()
            for number in np.unique(state.seen.rule)
            if number != STOP_RULE
        }
        self._make(TokenVocabulary.of(sorted(fired)))

    def _make(self, vocabulary: TokenVocabulary) -> None:
        networks = make_networks(self.config, vocabulary, self.seed)
        if self.config.worldmodel == "graph":
            self.agent = GraphAgent(self.config, networks, self.replay, self._rows, self.seed)
            return
        self.agent = LatentAgent(self.config, networks, Memories(networks["world"], self.replay, self._rows), self.seed)

    def _rows(self, spec: int) -> np.ndarray:
        vocabulary: TokenVocabulary = self.agent.networks["world"].vocabulary
        return vocabulary.rule_rows(self.real.rule_names(spec))

    def _round(self) -> dict[str, Any]:
        """Learn, act and be judged, explore."""
        learnt = self.agent.learn(self.progress.rounds, self.rng, lambda: self.stop.stopped)
        judged = {spec: self.agent.act(self.real, spec) for spec in range(len(self.specs)) if not self.real.finished()}
        fresh: list[Recorded] = []
        for spec in range(len(self.specs)):
            if not self.real.finished():
                fresh += self.agent.explore(self.real, spec, self.rng)
        calibration = self.agent.judge([*fresh, *judged.values()])
        self.replay.evict()
        self.progress.rounds += 1
        self._count()
        titles = {spec: self.specs[spec].title for spec in judged}
        gains = {titles[spec]: max(one.best, 0.0) for spec, one in judged.items()}
        score = float(np.mean(list(gains.values()))) if len(judged) == len(self.specs) else None
        if score is not None and score > self.progress.best_score:
            self.progress.best_score, self.best_weights = score, all_weights(self.agent.networks)
            self._save_best()
        return {**asdict(self.progress), "score": score, "gains": gains, **learnt, **calibration}

    def _count(self) -> None:
        progress = self.progress
        for name, value in self.real.counts().items():
            setattr(progress, name, value)
        progress.steps, progress.episodes = self.real.steps, self.real.episodes
        progress.seconds = time.monotonic() - self._begun
        for number, spec in enumerate(self.specs):
            found = self.real.opened(number).best_gain
            progress.best_gains[spec.title] = max(found, progress.best_gains.get(spec.title, 0.0))

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _card(self) -> dict[str, Any]:
        shown = asdict(self.progress)
        score = known_score(shown.pop("best_score"))
        shown["seconds"] = round(self.progress.seconds, 1)
        return card_of(self.specs, self.seed, worldmodel=self.config.worldmodel, score=score, **shown)

    def _checkpoint(self, weights: dict[str, np.ndarray]) -> WorldCheckpoint:
        vocabulary = self.agent.networks["world"].vocabulary
        return WorldCheckpoint(self.config, vocabulary, weights, card=self._card())

    def _save_best(self) -> WorldCheckpoint:
        checkpoint = self._checkpoint(self.best_weights or all_weights(self.agent.networks))
        if self.out is not None:
            checkpoint.save(self.out)
        return checkpoint

    @property
    def _last(self) -> Path | None:
        return None if self.out is None else self.out.with_name(self.out.name + ".last")

    def _save_last(self) -> None:
        if self._last is None:
            return
        self._count()
        self.replay.save()
        checkpoint = self._checkpoint(all_weights(self.agent.networks))
        checkpoint.extra |= self.agent.arrays()
        checkpoint.extra |= {f"best/{name}": array for name, array in self.best_weights.items()}
        checkpoint.progress = {
            **asdict(self.progress),
            "best_score": known_score(self.progress.best_score),
            "rng": self.rng.bit_generator.state,
            "seed": self.seed,
            "models": [spec.model for spec in self.specs],
            "parts": self.replay.parts,
        }
        checkpoint.save(self._last)

    def _resume(self) -> None:
        """Go on where ``<out>.last`` ended. Raises :class:`UsageError` where that was another training."""
        last = resumed(self._last, WorldCheckpoint.load, self.config, [spec.model for spec in self.specs], self.seed)
        plain = last.progress
        self.rng.bit_generator.state = plain["rng"]
        self.progress = progress_of(WorldProgress, plain)
        self.real.before = {name: plain[name] for name in ("expansions", "candidates", "measurements")}
        self.real.steps, self.real.episodes = plain["steps"], plain["episodes"]
        self.replay.load(plain["parts"])
        self._make(last.vocabulary)
        load_weights(self.agent.networks, last.weights)
        self.agent.load(last.extra)
        self.best_weights = part_of(last.extra, "best/")
