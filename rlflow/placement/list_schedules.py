"""Placers that build a schedule task by task: HEFT, ETF, and the critical path first.

All of them keep weights within the memory of a device while another has room, and know nothing of the values alive.
"""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass

import numpy as np

from rlflow.placement.task import PlacementTask


def upward_ranks(task: PlacementTask) -> np.ndarray:
    """Seconds from the start of each task to the end of the work along the longest path, float64 [n]: mean times of
    tasks and of hand-overs, as in HEFT.
    """
    work, devices = task.work, task.devices
    mean = task.seconds.mean(axis=1)
    pairs = max(len(devices) * (len(devices) - 1), 1)
    # A hand-over costs nothing on one device: the mean is over all pairs of devices, equal ones included.
    share = pairs / len(devices) ** 2
    latency = float(devices.latency.sum()) / pairs * share
    per_byte = float(devices.per_byte.sum()) / pairs * share
    ranks = np.zeros(work.tasks)
    for one in reversed(work.order):
        behind = [
            latency + work.bytes[value] * per_byte + ranks[reader]
            for value in work.outputs[one]
            for reader in work.readers[value]
        ]
        ranks[one] = mean[one] + max(behind, default=0.0)
    return ranks


class _Partial:
    """A schedule under construction."""

    def __init__(self, task: PlacementTask) -> None:
        self.task, work = task, task.work
        self.device = np.zeros(work.tasks, np.int32)
        self.finish = np.zeros(work.tasks)
        self.slots: list[list[tuple[float, float]]] = [[] for _ in range(len(task.devices))]
        self.end = [0.0] * len(task.devices)
        self._held: list[set[int]] = [set() for _ in range(len(task.devices))]
        self._bytes = [0.0] * len(task.devices)

    def arrival(self, one: int, device: int) -> float:
        """When the last input of a task is on a device."""
        work, devices, latest = self.task.work, self.task.devices, 0.0
        for value in work.inputs[one]:
            maker = int(work.maker[value])
            source = self.device[maker]
            moved = devices.latency[source, device] + work.bytes[value] * devices.per_byte[source, device]
            latest = max(latest, self.finish[maker] + (moved if source != device else 0.0))
        return float(latest)

    def roomy(self, one: int) -> list[int]:
        """The devices on which the task's weights still fit; all, where there is none."""
        found = [d for d in range(len(self.end)) if self._bytes[d] + self._more(one, d) <= self.task.devices.memory[d]]
        return found or list(range(len(self.end)))

    def _more(self, one: int, device: int) -> float:
        weights = self.task.work.weights[one] if self.task.work.weights else ()
        return float(sum(self.task.work.weight_bytes[w] for w in weights if w not in self._held[device]))

    def gap(self, device: int, ready: float, takes: float) -> float:
        """The earliest start of a task in a gap of the device's schedule, or behind it (HEFT's insertion)."""
        last = 0.0
        for begin, end in self.slots[device]:
            if max(last, ready) + takes <= begin:
                break
            last = end
        return max(last, ready)

    def put(self, one: int, device: int, start: float) -> None:
        """Fix a task."""
        takes = float(self.task.seconds[one, device])
        self.device[one], self.finish[one] = device, start + takes
        self._bytes[device] += self._more(one, device)
        if self.task.work.weights:
            self._held[device].update(self.task.work.weights[one])
        insort(self.slots[device], (start, start + takes))
        self.end[device] = max(self.end[device], start + takes)


@dataclass(frozen=True)
class Heft:
    """Heterogeneous Earliest Finish Time (Topcuoglu, Hariri and Wu 2002): tasks by their upward rank, each where it
    ends first, gaps filled.
    """

    name = "heft"

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        ranks, made = upward_ranks(task), _Partial(task)
        place = {one: number for number, one in enumerate(task.work.order)}
        for one in sorted(task.work.order, key=lambda one: (-ranks[one], place[one])):
            starts = {d: made.gap(d, made.arrival(one, d), float(task.seconds[one, d])) for d in made.roomy(one)}
            best = min(starts, key=lambda d: (starts[d] + task.seconds[one, d], d))
            made.put(one, best, starts[best])
        return made.device


@dataclass(frozen=True)
class CriticalPath:
    """The ready task with the longest way to the end goes next, to the device on which it starts first."""

    name = "critical-path"

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        ranks, made = upward_ranks(task), _Partial(task)
        waiting = [len(one) for one in task.work.inputs]
        ready = [(-ranks[one], one) for one, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        while ready:
            _, one = heapq.heappop(ready)
            starts = {d: max(made.end[d], made.arrival(one, d)) for d in made.roomy(one)}
            best = min(starts, key=lambda d: (starts[d], starts[d] + task.seconds[one, d], d))
            made.put(one, best, starts[best])
            for reader in _freed(task, one, waiting):
                heapq.heappush(ready, (-ranks[reader], reader))
        return made.device


@dataclass(frozen=True)
class Etf:
    """Earliest Task First (Hwang, Chow, Anger and Lee 1989): of all ready tasks and devices the pair that starts first;
    of equals the task with the longest way to the end. Takes time in proportion to n times the tasks that are ready.
    """

    name = "etf"

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        ranks, made = upward_ranks(task), _Partial(task)
        waiting = [len(one) for one in task.work.inputs]
        count = len(task.devices)
        arrived = {one: [0.0] * count for one, missing in enumerate(waiting) if not missing}
        while arrived:
            keys = (
                (max(made.end[d], there[d]), -ranks[one], one, d)
                for one, there in arrived.items()
                for d in range(count)
            )
            start, _, one, best = min(keys)
            roomy = made.roomy(one)
            if best not in roomy:
                start, best = min((max(made.end[d], arrived[one][d]), d) for d in roomy)
            del arrived[one]
            made.put(one, best, start)
            for reader in _freed(task, one, waiting):
                arrived[reader] = [made.arrival(reader, d) for d in range(count)]
        return made.device


def _freed(task: PlacementTask, one: int, waiting: list[int]) -> list[int]:
    """Tasks that waited for this one last."""
    found = []
    for value in task.work.outputs[one]:
        for reader in task.work.readers[value]:
            waiting[reader] -= 1
            if not waiting[reader]:
                found.append(reader)
    return found
