"""Placers that build a schedule task by task: HEFT, ETF, and the critical path first.

All of them keep weights within the memory of a device while another has room, and know nothing of the values alive.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right, insort
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
    """A schedule under construction. ``end`` [D]: when each device has nothing more to do."""

    def __init__(self, task: PlacementTask) -> None:
        self.task, work = task, task.work
        count = len(task.devices)
        self.device = np.zeros(work.tasks, np.int32)
        self.finish = [0.0] * work.tasks
        self.end = [0.0] * count
        self._seconds: list[list[float]] = task.seconds.tolist()
        self._where = [0] * work.tasks
        self._maker: list[int] = work.maker.tolist()
        self._bytes_of: list[float] = work.bytes.tolist()
        self._latency: list[list[float]] = task.devices.latency.tolist()
        self._per_byte: list[list[float]] = task.devices.per_byte.tolist()
        self._slots = [_Slots(task.seconds[:, d]) for d in range(count)]
        self._limited = bool(work.weights) and bool(np.isfinite(task.devices.memory).any())
        self._held: list[set[int]] = [set() for _ in range(count)]
        self._bytes = [0.0] * count

    def arrival(self, one: int, device: int) -> float:
        """When the last input of a task is on a device."""
        latest = 0.0
        for value in self.task.work.inputs[one]:
            maker = self._maker[value]
            source, there = self._where[maker], self.finish[maker]
            if source != device:
                there += self._latency[source][device] + self._bytes_of[value] * self._per_byte[source][device]
            latest = max(latest, there)
        return latest

    def roomy(self, one: int) -> list[int]:
        """The devices on which the task's weights still fit; all, where there is none."""
        everywhere = list(range(len(self.end)))
        if not self._limited:
            return everywhere
        found = [d for d in everywhere if self._bytes[d] + self._more(one, d) <= self.task.devices.memory[d]]
        return found or everywhere

    def _more(self, one: int, device: int) -> float:
        weights = self.task.work.weights[one] if self.task.work.weights else ()
        return float(sum(self.task.work.weight_bytes[w] for w in weights if w not in self._held[device]))

    def gap(self, device: int, ready: float, takes: float) -> float:
        """The earliest start of a task in a gap of the device's schedule, or behind it (HEFT's insertion)."""
        return self._slots[device].earliest(ready, takes)

    def put(self, one: int, device: int, start: float) -> None:
        """Fix a task."""
        takes = self._seconds[one][device]
        self.device[one], self._where[one], self.finish[one] = device, device, start + takes
        if self._limited:
            self._bytes[device] += self._more(one, device)
            self._held[device].update(self.task.work.weights[one])
        self._slots[device].take(start, takes)
        self.end[device] = max(self.end[device], start + takes)


class _Slots:
    """What is taken of a device's time, and the gaps between. A gap in which no task of the graph could ever run is
    forgotten, so that a long schedule without room is not looked through again and again. ``seconds`` [n]: of the
    tasks on this device.
    """

    def __init__(self, seconds: np.ndarray) -> None:
        self._least = float(seconds[seconds > 0.0].min(initial=math.inf))
        self._end = 0.0
        self._taken: list[tuple[float, float]] = []
        self._begins: list[float] = []
        self._ends: list[float] = []

    def earliest(self, ready: float, takes: float) -> float:
        if takes <= 0.0:  # fits between any two tasks
            at = bisect_right(self._taken, (ready, math.inf)) - 1
            return max(ready, self._taken[at][1]) if at >= 0 else ready
        for at in range(bisect_right(self._ends, ready), len(self._ends)):
            start = max(self._begins[at], ready)
            if start + takes <= self._ends[at]:
                return start
        return max(self._end, ready)

    def take(self, start: float, takes: float) -> None:
        insort(self._taken, (start, start + takes))
        if start >= self._end:
            self._open(len(self._ends), self._end, start)
            self._end = start + takes
            return
        at = bisect_right(self._begins, start) - 1
        if at >= 0 and start + takes <= self._ends[at]:  # else it takes no time, and is between two tasks
            begin, end = self._begins.pop(at), self._ends.pop(at)
            self._open(at, start + takes, end)
            self._open(at, begin, start)

    def _open(self, at: int, begin: float, end: float) -> None:
        if begin + self._least <= end:
            self._begins.insert(at, begin)
            self._ends.insert(at, end)


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
