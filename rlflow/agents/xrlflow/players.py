"""Where episodes are played: here, in other processes, or on a Ray cluster; all three give the learner the same thing.

A *player* is what ``make`` makes, with ``play`` as :class:`Players` has it; how it plays is in :mod:`.ppo`.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rlflow.errors import RlflowError, UsageError
from rlflow.nn.observation import Observation
from rlflow.processes import safe_context
from rlflow.registry import not_installed

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


class ProcessPlayers:
    """``count`` players in processes of their own, with one thread each; task ``i`` goes to player ``i % count``."""

    def __init__(self, make: partial[Any], count: int = 2) -> None:
        context = safe_context()
        self._workers: list[tuple[Any, Any]] = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, make), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """As a player does. Raises what a player raised, or :class:`RlflowError` where one died."""
        count = len(self._workers)
        for number, (_, pipe) in enumerate(self._workers):
            pipe.send((weights, list(tasks[number::count]), keep_observations))
        out: list[Trajectory | None] = [None] * len(tasks)
        for number, (process, pipe) in enumerate(self._workers):
            try:
                good, answer = pipe.recv()
            except EOFError:
                process.join(5)
                raise RlflowError(
                    f"Player {number + 1} of {count} died (exit code {process.exitcode}) while playing episodes; "
                    "use fewer workers if memory ran out."
                ) from None
            if not good:
                raise RlflowError(f"Player {number + 1} of {count} failed while playing episodes: {answer}")
            out[number::count] = answer
        return [one for one in out if one is not None]

    def close(self) -> None:
        """Ends the processes."""
        for process, pipe in self._workers:
            pipe.close()
            process.join(5)
            if process.is_alive():
                process.terminate()
        self._workers.clear()


def _serve(pipe: Any, make: partial[Any]) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to handle
    torch.set_num_threads(1)
    player = make()
    while True:
        try:
            weights, tasks, keep = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send((True, player.play(weights, tasks, keep)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the learner has to hear of it
            last = traceback.extract_tb(error.__traceback__)[-1]
            pipe.send((False, f"{type(error).__name__} in {last.name}, line {last.lineno}: {error}"))


class RayPlayers:
    """Players on a Ray cluster (``pip install 'rlflow[ray]'``), one an actor; ``count`` 0: one a core."""

    def __init__(self, make: partial[Any], count: int = 0) -> None:
        try:
            import ray
        except ImportError as error:
            raise UsageError(
                f"The workers 'ray' were asked for, and {not_installed('Ray', 'ray', '[ray]')}; or give a number of "
                "processes of this machine."
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init()
        actor = ray.remote(make.func)
        self._count = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actors = [actor.remote(*make.args) for _ in range(self._count)]

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """As a player does."""
        shared = self._ray.put(weights)
        answers = self._ray.get(
            [
                actor.play.remote(shared, list(tasks[number :: self._count]), keep_observations)
                for number, actor in enumerate(self._actors)
            ]
        )
        out: list[Any] = [None] * len(tasks)
        for number, answer in enumerate(answers):
            out[number :: self._count] = answer
        return out

    def close(self) -> None:
        """Ends the actors; the cluster stays."""
        for actor in self._actors:
            self._ray.kill(actor)


def make_players(workers: str, make: partial[Any]) -> Players:
    """``workers``: ``"0"`` for this process, a number of processes, or ``"ray"``; raises :class:`UsageError`.

    ``make``: a player's class and its arguments, which other processes are sent.
    """
    if workers == "ray":
        return RayPlayers(make)
    if not workers.isdigit():
        raise UsageError(f"The number of workers is {workers!r}; expected a whole number, 0 for none, or ray.")
    if int(workers) == 0:
        player: Players = make()
        return player
    return ProcessPlayers(make, int(workers))
