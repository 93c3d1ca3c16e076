"""The task of placing: one device a node, judged by the simulator. Whatever decides for it has one method.

A *decision* is an integer for each node of the graph. ``evaluate`` says what a decision is worth, whether it is valid,
and how that is known: ``measured`` by a clock, ``simulated``, ``exact``, or ``analytic`` (a formula).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from rlflow._core import Simulator
from rlflow.errors import UsageError
from rlflow.placement.work import Devices, Work

__all__ = ["Evaluation", "PlacementTask", "Placer"]


class Evaluation(NamedTuple):
    """``objective``: seconds, or bytes where a task says so (lower is better); ``valid``: whether every limit is kept;
    ``evidence``: ``measured``, ``simulated``, ``exact`` or ``analytic``. ``peak`` [D]: bytes; ``busy`` [D]: seconds of
    work.
    """

    objective: float
    valid: bool
    evidence: str
    peak: np.ndarray
    busy: np.ndarray


class Placer(Protocol):
    """What decides. ``name`` is its name in :data:`rlflow.placement.PLACERS`."""

    name: str

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]."""
        ...


class PlacementTask:
    """Work on devices. ``spent`` counts the evaluations, so that placers can be compared at equal numbers of them."""

    evidence = "simulated"

    def __init__(self, work: Work, devices: Devices) -> None:
        self.work, self.devices, self.spent = work, devices, 0
        self.seconds = work.times(devices)
        lengths = [len(tasks) for tasks in work.readers]
        weights = list(work.weights) or [[] for _ in range(work.tasks)]
        self._simulator = Simulator(
            tasks=work.tasks,
            devices=len(devices),
            seconds=self.seconds,
            maker=work.maker,
            bytes=work.bytes,
            kept=work.kept,
            reader_begin=np.cumsum([0, *lengths]),
            reader=[task for tasks in work.readers for task in tasks],
            weight_begin=np.cumsum([0, *(len(one) for one in weights)]),
            weight=[one for ones in weights for one in ones],
            weight_bytes=work.weight_bytes,
            latency=devices.latency,
            per_byte=devices.per_byte,
            memory=devices.memory,
            serial_links=devices.serial_links,
        )
        slowest = float(self.seconds.max(axis=1).sum()) if work.tasks else 0.0
        moves = float(work.bytes.sum()) * float(devices.per_byte.max(initial=0.0)) * len(devices)
        waits = len(work.bytes) * float(devices.latency.max(initial=0.0)) * len(devices)
        #: No valid placement takes longer.
        self.horizon = slowest + moves + waits

    @property
    def nodes(self) -> int:
        """Number of decisions."""
        return self.work.tasks

    @property
    def choices(self) -> int:
        """Number of values that each decision may have."""
        return len(self.devices)

    def evaluate(self, decisions: Any, priority: np.ndarray | None = None) -> Evaluation:
        """What a placement int [n] is worth; with ``priority`` [n] the ready task of the highest goes first on each
        device, else the one that became ready first. Raises UsageError for decisions of another kind.
        """
        self.spent += 1
        makespan, overflow, _, _, peak, busy = self._simulator.run(self._checked(decisions), priority)
        return Evaluation(makespan, overflow == 0.0, self.evidence, peak, busy)

    def timeline(self, decisions: Any, priority: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """When each task starts and ends, float64 [n] each, in seconds."""
        _, _, start, finish, _, _ = self._simulator.run(self._checked(decisions), priority)
        return start, finish

    def scores(self, decisions: Any) -> np.ndarray:
        """Seconds of many placements [rows, n], float64 [rows]; one that breaks a limit is worse than all that do not,
        the worse the more it needs.
        """
        rows = np.asarray(decisions)
        self.spent += len(rows)
        makespan, overflow = self._simulator.scores(rows)
        return np.asarray(np.where(overflow > 0.0, self.horizon * (1.0 + overflow), makespan))

    def _checked(self, decisions: Any) -> np.ndarray:
        found = np.asarray(decisions)
        if found.shape != (self.nodes,) or found.dtype.kind not in "iu":
            raise UsageError(
                f"A placement is {self.nodes} whole numbers; got {found.dtype} of the shape {list(found.shape)}."
            )
        return found.astype(np.int32, copy=False)
