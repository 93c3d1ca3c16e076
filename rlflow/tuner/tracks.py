"""Tracks: walks through programs by edits, side by side, most of which are given up when they promise little.

Every ``window`` steps the part ``drop`` of the tracks with the least advantage ends, until ``keep`` are left; these
walk one more window. Tracks of a fixed length make as many steps in all. What was visited is ranked by the cost model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlflow.errors import UsageError
from rlflow.tuner.spaces import Sketch, TensorProgram
from rlflow.tuner.tasks import TuningTask

if TYPE_CHECKING:
    from rlflow.tuner.actor_critic import Agent

#: Scores below this count as this in relative changes, which grow without bound near 0.
_FLOOR = 0.05
#: The most that one step may earn or lose.
_MOST = 2.0


@dataclass(frozen=True)
class TrackConfig:
    """``tracks`` begin, ``window`` steps make a round of judgement, of which the part ``drop`` ends until ``keep`` are
    left. ``adaptive``: whether any end before the others. ``train_every``: steps between trainings, 0: never.
    ``elite``: the part that begins at the fastest programs known; the others begin anywhere.
    """

    tracks: int = 32
    window: int = 8
    drop: float = 0.5
    keep: int = 8
    adaptive: bool = True
    train_every: int = 4
    elite: float = 0.5

    def __post_init__(self) -> None:
        good = self.tracks >= self.keep >= 1 and self.window >= 1 and 0 < self.drop < 1 and self.train_every >= 0
        if not good or not 0 <= self.elite <= 1:
            raise UsageError(
                f"Tracks cannot be walked so: {self}. Expected tracks >= keep >= 1, a window of 1 or more, drop "
                "between 0 and 1, elite from 0 to 1."
            )

    def lengths(self) -> list[tuple[int, int]]:
        """(tracks, steps) of each stretch between judgements."""
        if not self.adaptive:
            return [(self.tracks, max(1, math.ceil(self.steps / self.tracks)))]
        count, found = self.tracks, []
        while True:
            found.append((count, self.window))
            if count <= self.keep:
                return found
            count = max(self.keep, min(count - 1, math.ceil(count * (1 - self.drop))))

    @property
    def steps(self) -> int:
        """Of all tracks together."""
        if not self.adaptive:
            return TrackConfig(self.tracks, self.window, self.drop, self.keep).steps
        return sum(count * steps for count, steps in self.lengths())


def survivors(advantages: np.ndarray, count: int) -> np.ndarray:
    """The ``count`` tracks with the largest ``advantages`` [n], in their order; of equals the first."""
    return np.sort(np.argsort(-advantages, kind="stable")[:count])


@dataclass
class TrackWalk:
    """Walks the tracks of one round over programs of one sketch. ``visited``: every program seen, with its score;
    ``ended``: how many tracks ended at each judgement.
    """

    task: TuningTask
    number: int
    agent: Agent
    config: TrackConfig
    rng: np.random.Generator
    visited: dict[TensorProgram, float] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    trainings: int = 0

    @property
    def sketch(self) -> Sketch:
        """Whose programs are edited."""
        return self.task.subgraph.space.sketches[self.number]

    def run(self) -> dict[TensorProgram, float]:
        """TrackWalk all tracks; :attr:`visited`."""
        stretches = self.config.lengths()
        values = self._begins()
        scores = self._scores(values)
        highest, done = scores.copy(), 0
        steps = sum(length for _, length in stretches)
        for at, (_, length) in enumerate(stretches):
            values, scores, highest, gained = self._stretch(values, scores, highest, length, done, steps)
            done += length
            if at + 1 < len(stretches):
                kept = survivors(gained, stretches[at + 1][0])
                self.ended.append(len(values) - len(kept))
                values, scores, highest = values[kept], scores[kept], highest[kept]
        return self.visited

    def _begins(self) -> np.ndarray:
        """[tracks, width]"""
        config = self.config
        best = self.task.ranked(self.number)[: int(config.elite * config.tracks)]
        others = self.sketch.random(self.rng, config.tracks - len(best))
        known = np.array([one.values for one in best], dtype=np.int64).reshape(len(best), self.sketch.width)
        return np.concatenate([known, others])

    def _stretch(
        self, values: np.ndarray, scores: np.ndarray, highest: np.ndarray, length: int, done: int, steps: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """``length`` steps of all tracks: rows, scores and highest scores after them, and the mean advantage [tracks]
        of the steps.
        """
        rows, gained, last = _Rows(), np.zeros(len(values)), None
        for step in range(length):
            whole = self._whole(scores, highest, (done + step) / steps)
            acted = self.agent.act(self.sketch, values, whole, self.rng)
            gained += 0.0 if last is None else self._gamma * acted.worths
            after = self.sketch.moved(values, acted.moves)
            found = self._scores(after)
            reward = np.clip((found - scores) / np.maximum(scores, _FLOOR), -_MOST, _MOST)
            gained, highest, last = gained + reward - acted.worths, np.maximum(highest, found), acted
            rows.add(values, whole, acted.actions.reshape(len(values), -1), acted.log_probs, acted.worths, reward)
            values, scores = after, found
            if step + 1 == length or len(rows) == self.config.train_every:
                ahead = self._whole(scores, highest, (done + step + 1) / steps)
                following = self.agent.worths(self.sketch, values, ahead)
                gained += self._gamma * following if step + 1 == length else 0.0
                rows = self._learnt(rows, following)
        return values, scores, highest, gained / length

    @property
    def _gamma(self) -> float:
        return self.agent.config.gamma

    def _learnt(self, rows: _Rows, following: np.ndarray) -> _Rows:
        """Train on these steps, where that is wanted; where the next ones go."""
        if self.config.train_every:
            from rlflow.tuner.actor_critic import Experience

            values, whole, actions, log_probs, worths, rewards = rows.stacked()
            made = Experience(self.sketch, values, whole, actions, log_probs, worths, rewards, following)
            self.agent.learn(made)
            self.trainings += 1
        return _Rows()

    def _whole(self, scores: np.ndarray, highest: np.ndarray, part: float) -> np.ndarray:
        """[n, 4] What the agent is told of the whole program: score, the track's highest, how much of the walk is over,
        and the size of the subgraph.
        """
        size = math.log10(max(1.0, self.task.subgraph.flops)) / 12.0
        return np.stack([scores, highest, np.full(len(scores), part), np.full(len(scores), size)], axis=1)

    def _scores(self, values: np.ndarray) -> np.ndarray:
        programs = [TensorProgram(self.number, tuple(row)) for row in values.tolist()]
        scores = self.task.predict(programs)
        self.visited.update(zip(programs, scores.tolist(), strict=True))
        return scores


class _Rows:
    """Steps that were not learnt from yet."""

    def __init__(self) -> None:
        self._columns: list[list[np.ndarray]] = [[] for _ in range(6)]

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, *row: np.ndarray) -> None:
        """One step: rows, what is known of them, actions, log probabilities, worths, rewards."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def stacked(self) -> tuple[np.ndarray, ...]:
        """Each as one array [steps, tracks, ...]."""
        return tuple(np.stack(column) for column in self._columns)
