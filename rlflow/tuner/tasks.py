"""What is known of one subgraph while it is tuned: its measurements, and a cost model that learns from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlflow.tuner.engines import INVALID, Engine, TunedSubgraph
from rlflow.tuner.program_scores import ScoreModel, scores_of
from rlflow.tuner.spaces import TensorProgram

#: Draws of new programs before a space counts as used up, for each one that is wanted.
_TRIES = 32
#: A space with no more programs than this is listed when it is nearly used up.
_LISTED = 1 << 16


class TuningTask:
    """The subgraph ``number`` of an engine. ``measured``: seconds of each program. ``best``: the fastest and its
    seconds, ``None`` before one runs. ``rounds``: the best seconds after each round.
    """

    def __init__(self, number: int, engine: Engine, model: ScoreModel) -> None:
        self.number, self._engine, self.model = number, engine, model
        self.measured: dict[TensorProgram, float] = {}
        self.best: tuple[TensorProgram, float] | None = None
        self.rounds: list[float] = []
        self._features: dict[TensorProgram, np.ndarray] = {}
        self._fitted = False

    @property
    def subgraph(self) -> TunedSubgraph:
        """What is tuned."""
        return self._engine.subgraphs[self.number]

    @property
    def seconds(self) -> float:
        """Of the best program; infinite before one runs."""
        return INVALID if self.best is None else self.best[1]

    @property
    def exhausted(self) -> bool:
        """Whether every program was measured."""
        return len(self.measured) >= self.subgraph.space.size

    def used_up(self, sketch: int) -> bool:
        """Whether every program of this sketch was measured."""
        return sum(one.sketch == sketch for one in self.measured) >= self.subgraph.space.sketches[sketch].size

    @property
    def informed(self) -> bool:
        """Whether the cost model has learnt something."""
        return self._fitted

    def features(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n, f] What the cost model sees."""
        unknown = [one for one in dict.fromkeys(programs) if one not in self._features]
        if unknown:
            self._features.update(zip(unknown, self._engine.features(self.number, unknown), strict=True))
        return np.array([self._features[one] for one in programs])

    def predict(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n] Scores of programs; 1 is the best so far."""
        return self.model.predict(self.features(programs))

    def add(self, programs: Sequence[TensorProgram], seconds: Sequence[float]) -> None:
        """Take in measurements of one round, and learn from all of them."""
        for program, took in zip(programs, seconds, strict=True):
            self.measured[program] = took
            if took < self.seconds:
                self.best = program, took
        self.rounds.append(self.seconds)
        known = list(self.measured)
        if len(known) > 1 and math.isfinite(self.seconds):
            self.model.fit(self.features(known), scores_of(np.array([self.measured[one] for one in known])))
            self._fitted = True

    def ranked(self, sketch: int | None = None) -> list[TensorProgram]:
        """Programs that ran, fastest first, of one sketch or of all."""
        found = [one for one, took in self.measured.items() if took < INVALID and sketch in (None, one.sketch)]
        return sorted(found, key=lambda one: (self.measured[one], one))

    def fresh(
        self, rng: np.random.Generator, count: int, sketch: int | None, taken: Sequence[TensorProgram]
    ) -> list[TensorProgram]:
        """At most ``count`` programs at random that are neither measured nor ``taken``."""
        space, found = self.subgraph.space, dict.fromkeys(taken)
        wanted = len(found) + count
        for _ in range(_TRIES):
            missing = wanted - len(found)
            if missing <= 0:
                break
            drawn = space.random(rng, missing, sketch)
            found.update(dict.fromkeys(one for one in drawn if one not in self.measured))
        if len(found) < wanted and space.size <= _LISTED:
            left = [
                one
                for one in space.programs()
                if one not in self.measured and one not in found and sketch in (None, one.sketch)
            ]
            picked = rng.permutation(len(left))[: wanted - len(found)]
            found.update(dict.fromkeys(left[at] for at in picked.tolist()))
        return list(found)[len(dict.fromkeys(taken)) :]
