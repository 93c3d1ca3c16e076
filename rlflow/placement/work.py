"""Work to be placed: tasks, the values between them, the devices and their links, as the simulator takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rlflow.errors import UsageError

__all__ = ["Devices", "Work"]


@dataclass(frozen=True)
class Devices:
    """A machine. ``speed`` [D]: a task takes its seconds divided by this. ``memory`` [D]: bytes, infinite where nothing
    is said. ``latency`` [D, D] in seconds and ``per_byte`` [D, D] in seconds a byte: of the link from one to the other.
    ``serial_links``: a link carries one transfer at a time.
    """

    names: tuple[str, ...]
    speed: np.ndarray
    memory: np.ndarray
    latency: np.ndarray
    per_byte: np.ndarray
    serial_links: bool = True

    @classmethod
    def alike(
        cls,
        count: int,
        *,
        memory: float = np.inf,
        bandwidth: float = 1e9,
        latency: float = 1e-5,
        serial_links: bool = True,
    ) -> Devices:
        """``count`` equal devices with equal links; ``bandwidth`` in bytes a second."""
        between = 1.0 - np.eye(count)
        return cls(
            tuple(f"device{number}" for number in range(count)),
            np.ones(count),
            np.full(count, float(memory)),
            latency * between,
            between / bandwidth,
            serial_links,
        )

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Work:
    """Tasks 0 to n - 1 and the values between them.

    ``seconds`` [n]: time on a device of speed 1; ``own_seconds`` [n, D], where given, the time on each device instead.
    ``maker`` [m]: task that makes each value, -1 where it is there from the start; ``bytes`` [m]; ``readers``: the
    tasks that read each, without repetition; ``kept`` [m]: whether it stays to the end. ``weights``: of each task,
    numbers of what it needs all the time; ``weight_bytes``. ``names``: of the tasks, for people.
    """

    seconds: np.ndarray
    maker: np.ndarray
    bytes: np.ndarray
    readers: Sequence[Sequence[int]]
    kept: np.ndarray
    weights: Sequence[Sequence[int]] = ()
    weight_bytes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    names: tuple[str, ...] = ()
    own_seconds: np.ndarray | None = None

    @classmethod
    def of_edges(
        cls,
        seconds: Iterable[float],
        edges: Iterable[tuple[int, int]],
        sizes: Iterable[float],
        names: Sequence[str] = (),
    ) -> Work:
        """Tasks that make one value each, of ``sizes`` bytes; ``edges`` run from maker to reader."""
        time, size = np.asarray(list(seconds), np.float64), np.asarray(list(sizes), np.float64)
        readers: list[set[int]] = [set() for _ in time]
        for source, target in edges:
            readers[source].add(target)
        kept = np.array([not one for one in readers], bool)
        return cls(time, np.arange(len(time)), size, [sorted(one) for one in readers], kept, names=tuple(names))

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.seconds)

    def times(self, devices: Devices) -> np.ndarray:
        """Seconds of each task on each device, float64 [n, D]. Raises UsageError where they do not fit."""
        if self.own_seconds is None:
            return np.asarray(self.seconds[:, None] / devices.speed[None, :], np.float64)
        if self.own_seconds.shape != (self.tasks, len(devices)):
            raise UsageError(
                f"The tasks have times for {self.own_seconds.shape[-1]} devices, and there are {len(devices)}."
            )
        return self.own_seconds

    @cached_property
    def inputs(self) -> list[list[int]]:
        """Values that each task reads and another makes."""
        found: list[list[int]] = [[] for _ in range(self.tasks)]
        for value, tasks in enumerate(self.readers):
            if self.maker[value] >= 0:
                for task in tasks:
                    found[task].append(value)
        return found

    @cached_property
    def outputs(self) -> list[list[int]]:
        """Values that each task makes."""
        found: list[list[int]] = [[] for _ in range(self.tasks)]
        for value, task in enumerate(self.maker.tolist()):
            if task >= 0:
                found[task].append(value)
        return found

    @cached_property
    def order(self) -> list[int]:
        """The tasks in a topological order, the lowest number first. Raises UsageError for a cycle."""
        import heapq

        waiting = [len(one) for one in self.inputs]
        ready = [task for task, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        found: list[int] = []
        while ready:
            task = heapq.heappop(ready)
            found.append(task)
            for value in self.outputs[task]:
                for reader in self.readers[value]:
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        heapq.heappush(ready, reader)
        if len(found) < self.tasks:
            raise UsageError("The tasks wait for each other in a cycle; nothing can be placed.")
        return found
