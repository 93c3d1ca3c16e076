"""The task of ordering: a level of priority a node, judged by the memory that the order needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.footprint import Flow
from rlflow.footprint.lifetimes import aligned
from rlflow.footprint.order_peaks import order_peak
from rlflow.placement.task import Evaluation

__all__ = ["ORDERS", "OrderingTask"]


class OrderingTask:
    """Jobs on memory. Of the jobs that are ready, that of the highest level runs next, of equals the first in the
    flow's own order. The objective is the peak in bytes, by ONNX Runtime's own rules (:mod:`rlflow.footprint`): exact
    for the order, with buffers shared as the runtime shares them.

    ``levels``: how many there are.
    """

    evidence = "exact"

    def __init__(self, flow: Flow, levels: int = 8) -> None:
        if levels < 2:
            raise UsageError(f"An order needs at least 2 levels of priority; got {levels}.")
        self.flow, self.choices, self.spent = flow, levels, 0
        self._peaks = order_peak(flow)
        makers = {value: number for number, job in enumerate(flow.jobs) for value in job.outputs}
        read = [{makers[value] for value in job.inputs if value in makers} for job in flow.jobs]
        #: The jobs whose values each job reads.
        self.before: list[list[int]] = [sorted(one) for one in read]
        #: The jobs that read what each job makes.
        self.behind: list[list[int]] = [[] for _ in flow.jobs]
        for reader, ones in enumerate(self.before):
            for one in ones:
                self.behind[one].append(reader)

    @property
    def nodes(self) -> int:
        """Number of decisions."""
        return len(self.flow.jobs)

    def order(self, priority: Sequence[int] | np.ndarray) -> list[int]:
        """The jobs in the order that goes with a priority each."""
        return [int(job) for job in self._peaks.order(priority)]

    def levels_of(self, order: Sequence[int]) -> np.ndarray:
        """Levels int32 [n] for an order of all jobs: those that run in just that order, where it takes no more than
        there are. Else neighbouring levels are joined, and the jobs of one run as the flow has them.
        """
        jobs, place = np.asarray(order, np.int64), np.empty(self.nodes, np.int64)
        place[jobs] = np.arange(self.nodes)
        runs, begin = np.zeros(self.nodes, np.int64), 0
        for at, job in enumerate(jobs.tolist()):
            free = max([int(place[one]) for one in self.before[job]], default=-1) + 1  # could have run from here on
            if jobs[max(begin, free) : at].max(initial=-1) > job:  # one that the flow has later went before it
                begin = at
                runs[at:] += 1
        groups = int(runs[-1]) + 1 if self.nodes else 1
        found = np.empty(self.nodes, np.int32)
        found[jobs] = self.choices - 1 - runs * min(groups, self.choices) // groups
        return found

    def peak(self, order: Iterable[int]) -> float:
        """Bytes that a run in this order takes; counts as an evaluation."""
        self.spent += 1
        return float(self._peaks.peak(np.fromiter(order, np.int32)))

    def evaluate(self, decisions: Any) -> Evaluation:
        """What levels int [n] are worth. Raises UsageError for decisions of another kind."""
        found = checked_levels(decisions, self.nodes, self.choices)
        value = self.peak(self.order(found))
        return Evaluation(value, True, self.evidence, np.array([value]), np.zeros(1))

    def scores(self, decisions: Any) -> np.ndarray:
        """Peaks of many decisions [rows, n], float64 [rows]."""
        rows = [checked_levels(row, self.nodes, self.choices) for row in np.asarray(decisions)]
        self.spent += len(rows)
        return self._peaks.peaks(np.stack(rows)) if rows else np.zeros(0)

    def bound(self) -> float:
        """Bytes that no order is below: what the outputs take or, where it is more, what one job reads and makes."""
        flow = self.flow
        most = sum(aligned(flow.bytes(value)) for value in set(flow.outputs))
        views = {value for job in flow.jobs if job.alias for value in job.outputs}
        for job in flow.jobs:
            shared = {job.outputs[target] for _, target in job.reuses}
            held = {value for value in job.inputs if value not in flow.inputs} | (set(job.outputs) - shared)
            most = max(most, sum(aligned(flow.bytes(value)) for value in held - views))
        return float(most)


def checked_levels(decisions: Any, nodes: int, levels: int) -> np.ndarray:
    """Levels as an array; raises UsageError where they are something else."""
    found = np.asarray(decisions)
    if found.shape != (nodes,) or found.dtype.kind not in "iu":
        raise UsageError(f"Levels are {nodes} whole numbers; got {found.dtype} of the shape {list(found.shape)}.")
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < levels:
        raise UsageError(f"Levels run from 0 to {levels - 1}; got {int(found.min())} to {int(found.max())}.")
    return found


def _program(task: OrderingTask) -> list[int]:
    return task.order([0] * task.nodes)


def _breadth(task: OrderingTask) -> list[int]:
    """Jobs by how far they are from the start."""
    far = [0] * task.nodes
    for job in _program(task):
        far[job] = 1 + max((far[one] for one in task.before[job]), default=-1)
    return task.order([-one for one in far])


def _depth(task: OrderingTask) -> list[int]:
    """Depth first from the outputs, as ONNX Runtime walks by default."""
    found: list[int] = []
    done = [False] * task.nodes
    for root in (job for job in range(task.nodes) if not task.behind[job]):
        stack = [(root, False)]
        while stack:
            job, closed = stack.pop()
            if closed:
                found.append(job)
            elif not done[job]:
                done[job] = True
                stack.append((job, True))
                stack += [(one, False) for one in reversed(task.before[job]) if not done[one]]
    return found


def _greedy(task: OrderingTask, *, peaks: bool) -> list[int]:
    """Of the ready jobs the one that adds the fewest bytes next or, with ``peaks``, that needs the fewest while it
    runs (LPMF).
    """
    flow, uses = task.flow, [len(one) for one in task.behind]
    waiting = [len(one) for one in task.before]
    size = [sum(flow.bytes(value) for value in job.outputs) for job in flow.jobs]
    ready = {job for job, count in enumerate(waiting) if not count}
    found = []
    while ready:

        def added(job: int) -> tuple[int, int]:
            freed = sum(size[one] for one in task.before[job] if uses[one] == 1)
            return (size[job] if peaks else size[job] - freed), (-freed if peaks else 0)

        job = min(ready, key=lambda one: (added(one), one))
        ready.remove(job)
        found.append(job)
        for one in task.before[job]:
            uses[one] -= 1
        for reader in task.behind[job]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.add(reader)
    return found


#: Orders that take no search, by name.
ORDERS = {
    "program": _program,
    "bfs": _breadth,
    "dfs": _depth,
    "greedy": lambda task: _greedy(task, peaks=False),
    "lpmf": lambda task: _greedy(task, peaks=True),
}
