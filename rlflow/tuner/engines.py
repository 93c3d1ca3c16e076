"""What measures programs: an engine has subgraphs, each with a space of programs, and times what it is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlflow.tuner.spaces import Space, TensorProgram

#: The time of a program that cannot be built or run.
INVALID = math.inf


@dataclass(frozen=True)
class TunedSubgraph:
    """Part of a network that is tuned by itself. ``weight``: how often the network runs it. ``flops``: operations of
    one run. ``family``: subgraphs of one family are alike, so that the rate of one says what another may reach.
    ``sizes``: what a cost model may know of it; their meaning is the family's.
    """

    name: str
    space: Space
    flops: float
    weight: float = 1.0
    family: str = ""
    sizes: tuple[int, ...] = ()


class Engine(Protocol):
    """Builds and times programs.

    ``place`` names everything that a time depends on beside the program: engine and version, device, clock.
    ``cpu_seconds``: processor time that its own processes have taken, or a recorded engine's would have.
    """

    @property
    def place(self) -> str: ...

    @property
    def subgraphs(self) -> Sequence[TunedSubgraph]: ...

    @property
    def cpu_seconds(self) -> float: ...

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n, f] float64 What a cost model sees of programs."""
        ...

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        """Seconds of each program, :data:`INVALID` for those that cannot run. Raises CostError where nothing can."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...
