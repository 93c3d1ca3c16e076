"""What no placement can be quicker than."""

from __future__ import annotations

import numpy as np

from rlflow.placement.task import PlacementTask

__all__ = ["lower_bound"]


def lower_bound(task: PlacementTask) -> float:
    """Seconds: the larger of the longest path, each task on its quickest device and hand-overs for nothing, and of the
    whole work spread evenly (exactly so where every device is faster than another by one factor for all tasks, else
    each task on its quickest). Memory is not looked at.
    """
    if not task.nodes:
        return 0.0
    return max(_path(task), _load(task))


def _path(task: PlacementTask) -> float:
    quickest = task.seconds.min(axis=1)
    end = np.zeros(task.nodes)
    for one in task.work.order:
        before = [end[int(task.work.maker[value])] for value in task.work.inputs[one]]
        end[one] = quickest[one] + max(before, default=0.0)
    return float(end.max())


def _load(task: PlacementTask) -> float:
    if task.work.own_seconds is None:
        return float(task.work.seconds.sum() / task.devices.speed.sum())
    return float(task.seconds.min(axis=1).sum() / task.choices)
