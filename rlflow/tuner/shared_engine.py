"""An engine whose programs are measured by several workers at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlflow.crew import Crew
from rlflow.errors import UsageError
from rlflow.tuner.engines import Engine, TunedSubgraph
from rlflow.tuner.spaces import TensorProgram


class MeasuringTask(NamedTuple):
    """Measure a program of a subgraph."""

    subgraph: int
    program: TensorProgram


class MeasuredProgram(NamedTuple):
    """Its seconds, where they hold, and the processor time that it took."""

    seconds: float
    place: str
    cpu_seconds: float


class Measurer:
    """A worker: measures programs with an engine of its own, which ``make`` makes."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._engine = make()

    def __call__(self, task: MeasuringTask) -> MeasuredProgram:
        """One program's time."""
        before = self._engine.cpu_seconds
        (seconds,) = self._engine.measure(task.subgraph, [task.program])
        return MeasuredProgram(seconds, self._engine.place, self._engine.cpu_seconds - before)


class SharedEngine:
    """``engine``, whose programs a crew of :class:`Measurer` times, each with an engine of the same subgraphs.

    Times of another place than the engine's own are refused with a :class:`UsageError`: another device has other times.
    """

    def __init__(self, engine: Engine, crew: Crew) -> None:
        self._engine, self._crew = engine, crew
        self._spent = 0.0
        self.place = engine.place

    @property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        return self._engine.subgraphs

    @property
    def cpu_seconds(self) -> float:
        return self._engine.cpu_seconds + self._spent

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return self._engine.features(subgraph, programs)

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        found: list[MeasuredProgram] = self._crew.in_order([MeasuringTask(subgraph, one) for one in programs])
        others = sorted({one.place for one in found} - {self.place})
        if others:
            raise UsageError(
                f"A worker measures on {others[0]!r}, and this machine is {self.place!r}: times of different machines "
                "are never mixed. Run the tuning on a machine like the workers."
            )
        self._spent += sum(one.cpu_seconds for one in found)
        return [one.seconds for one in found]

    def close(self) -> None:
        """End the workers; the engine stays its owner's."""
        self._crew.close()
