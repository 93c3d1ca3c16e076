"""Where episodes are played: here, or by workers elsewhere; both give the learner the same thing.

A *player* is what ``make`` makes, with ``play`` as :class:`Players` has it; how it plays is in :mod:`.ppo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rlflow.crew import Crew, Workers
from rlflow.nn.observation import Observation

Weights = dict[str, np.ndarray]


class Task(NamedTuple):
    """An episode to play: of which problem, by which seed; ``greedy``: take the likeliest candidate always."""

    spec: int
    seed: int
    greedy: bool = False


@dataclass
class Trajectory:
    """What was played. ``observations`` [t] with embedding rows for rules; ``actions``, ``log_probs``, ``values``,
    ``rewards`` [t]; ``bootstrap``: value of the last state where the episode was truncated, else 0. ``gain``:
    ``log(start / best)``.
    """

    spec: int
    observations: list[Observation] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    bootstrap: float = 0.0
    terminated: bool = False
    gain: float = 0.0

    def __len__(self) -> int:
        return len(self.actions)


class Players(Protocol):
    """Who plays a batch of episodes."""

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """A trajectory a task, in their order."""
        ...

    def close(self) -> None:
        """Nothing is played any more."""
        ...


class _Episodes(NamedTuple):
    """What one worker plays at a time, all in step."""

    weights: Weights
    tasks: Sequence[Task]
    keep_observations: bool


class Playing:
    """A worker: plays with a player of its own, on one thread."""

    def __init__(self, make: partial[Any]) -> None:
        torch.set_num_threads(1)
        self._player: Players = make()

    def __call__(self, task: _Episodes) -> list[Trajectory]:
        """A trajectory an episode."""
        return self._player.play(task.weights, task.tasks, task.keep_observations)


class CrewPlayers:
    """Players elsewhere. Episode ``i`` is played beside all ``i + k * count``, whoever plays them."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """As a player does. Raises :class:`RlflowError` where one fails, or dies again and again."""
        count = min(self._crew.count, len(tasks))
        parts = [_Episodes(weights, list(tasks[number::count]), keep_observations) for number in range(count)]
        out: list[Any] = [None] * len(tasks)
        for number, played in enumerate(self._crew.in_order(parts)):
            out[number::count] = played
        return out

    def close(self) -> None:
        """End the workers."""
        self._crew.close()


def make_players(workers: str, make: partial[Any]) -> Players:
    """Who plays, as :class:`rlflow.crew.Workers` reads ``workers``; raises :class:`UsageError`.

    ``make``: a player's class and its arguments, which workers are sent.
    """
    chosen = Workers.parse(workers)
    if chosen.alone:
        player: Players = make()
        return player
    return CrewPlayers(chosen.crew(partial(Playing, make)))
