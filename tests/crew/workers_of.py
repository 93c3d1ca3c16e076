"""What the tests' workers do. They run in other processes, so they are a module's own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rlflow.errors import ModelError
from rlflow.tuner import TensorProgram
from tests.tuner import toys


def squaring() -> Callable[[int], tuple[int, int]]:
    """Squares, and says who it was."""
    return lambda number: (number * number, os.getpid())


def failing() -> Callable[[int], int]:
    """Fails at one task in a sentence, and at another by mistake."""

    def do(number: int) -> int:
        if number == 3:
            raise ModelError("The third one is no model.")
        return 1 // (number - 5)

    return do


def sleeping() -> Callable[[float], float]:
    """Sleeps."""

    def do(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    return do


def never_made() -> Callable[[int], int]:
    raise ModelError("There is nothing to work with.")


class Dying:
    """Squares; the first ``times`` that somebody does ``task``, they die of it, as by ``kill -9``."""

    def __init__(self, folder: Path, task: int, times: int) -> None:
        self._folder, self._task, self._times = folder, task, times

    def __call__(self, number: int) -> int:
        if number == self._task and len(list(self._folder.iterdir())) < self._times:
            (self._folder / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number


class FixedLatency:
    """A device that takes ``seconds`` for each program, whatever it is; the times that it tells are the toys'."""

    def __init__(self, seconds: float, place: str = "a board") -> None:
        self._seconds, self._engine = seconds, toys.engine(2)
        self.place, self.cpu_seconds = place, 0.0
        self.subgraphs, self.features = self._engine.subgraphs, self._engine.features

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        time.sleep(self._seconds * len(programs))
        return self._engine.measure(subgraph, programs)

    def close(self) -> None:
        """Nothing to end."""


class Late:
    """What its worker needs ``seconds`` to read, so that it is late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __setstate__(self, kept: dict[str, float]) -> None:
        time.sleep(kept["_seconds"])
        self.__dict__.update(kept)

    def __call__(self, make: Callable[[], Callable[[int], int]]) -> Callable[[int], int]:
        return make()
