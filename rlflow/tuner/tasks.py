"""What is known of one subgraph while it is tuned: its measurements, and a cost model that learns from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlflow.tuner.engines import INVALID, Engine, TunedSubgraph
from rlflow.tuner.program_scores import ScoreModel, levels_of
from rlflow.tuner.spaces import TensorProgram
from rlflow.tuner.warm_starts import Levels

#: Draws of new programs before a space counts as used up, for each one that is wanted.
_TRIES = 32
#: A space with no more programs than this is listed when it is nearly used up.
_LISTED = 1 << 16
#: Scores above this come from a model that errs.
_MOST_SCORE = 20.0
#: Programs that are chosen from one after another, each with regard to those before it.
_MOST_IN_TURN = 256


class TuningTask:
    """The subgraph ``number`` of an engine. ``measured``: seconds of each program. ``best``: the fastest and its
    seconds, ``None`` before one runs. ``rounds``: the best seconds after each round. ``prior``: levels that are
    expected before anything is measured; the model learns what differs from them.
    """

    def __init__(self, number: int, engine: Engine, model: ScoreModel, prior: Levels | None = None) -> None:
        self.number, self._engine, self.model, self._prior = number, engine, model, prior
        self.measured: dict[TensorProgram, float] = {}
        self.best: tuple[TensorProgram, float] | None = None
        self.rounds: list[float] = []
        self._features: dict[TensorProgram, np.ndarray] = {}
        self._expected: dict[TensorProgram, float] = {}
        self._fitted = False

    def expect(self, prior: Levels | None) -> None:
        """Begin with these levels instead; what was measured is learnt from again."""
        self._prior = prior
        self._expected.clear()
        self._learn()

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
        """Whether the cost model has learnt something, here or elsewhere."""
        return self._fitted or self._prior is not None

    def features(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n, f] What the cost model sees."""
        unknown = [one for one in dict.fromkeys(programs) if one not in self._features]
        if unknown:
            self._features.update(zip(unknown, self._engine.features(self.number, unknown), strict=True))
        return np.array([self._features[one] for one in programs])

    def predict(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n] Rates of programs, relative to the best so far, or to the best of all where none was measured."""
        return np.exp(np.minimum(self._levels(programs), math.log(_MOST_SCORE)))

    def _levels(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        return self.model.predict(self.features(programs)) + self._prior_levels(programs)

    def _prior_levels(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n] What was expected before anything was measured; each program is asked about once."""
        if self._prior is None:
            return np.zeros(len(programs))
        unknown = [one for one in dict.fromkeys(programs) if one not in self._expected]
        if unknown:
            self._expected.update(zip(unknown, self._prior(self.features(unknown)).tolist(), strict=True))
        return np.array([self._expected[one] for one in programs])

    def most_hopeful(self, programs: Sequence[TensorProgram], count: int, optimism: float) -> list[TensorProgram]:
        """The ``count`` programs with the highest levels when ``optimism`` times their spread is added, one after
        another: those before it narrow the spread of a program (GP-BUCB, Desautels et al., JMLR 2014).
        """
        if not programs or count < 1:
            return []
        features, levels = self.features(programs), self._levels(programs)
        hopes = levels + optimism * self.model.spread(features, features[:0])
        order = np.argsort(-hopes, kind="stable")[: max(count, _MOST_IN_TURN)]
        features, levels, chosen = features[order], levels[order], list[int]()
        while len(chosen) < min(count, len(order)):
            spread = self.model.spread(features, features[chosen]) if optimism else 0.0
            hopes = levels + optimism * spread
            hopes[chosen] = -math.inf
            chosen.append(int(np.argmax(hopes)))
        return [programs[at] for at in order[chosen].tolist()]

    def add(self, programs: Sequence[TensorProgram], seconds: Sequence[float]) -> None:
        """Take in measurements of one round, and learn from all of them."""
        for program, took in zip(programs, seconds, strict=True):
            self.measured[program] = took
            if took < self.seconds:
                self.best = program, took
        self.rounds.append(self.seconds)
        self._learn()

    def _learn(self) -> None:
        """Fit the cost model to all measurements."""
        known = list(self.measured)
        if len(known) > 1 and math.isfinite(self.seconds):
            levels = levels_of(np.array(list(self.measured.values())))
            self.model.fit(self.features(known), levels - self._prior_levels(known))
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
