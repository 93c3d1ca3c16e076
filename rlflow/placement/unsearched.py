"""Placers that take no evaluations of their own: one device, and consecutive stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.placement.contiguous import Chain, best_cuts
from rlflow.placement.task import PlacementTask


@dataclass(frozen=True)
class SingleDevice:
    """All tasks on the device that ends first with them."""

    name = "single"
    keeps_limits = False

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        rows = np.repeat(np.arange(task.choices, dtype=np.int32)[:, None], task.nodes, axis=1)
        return np.asarray(rows[int(np.argmin(task.scores(rows)))])


@dataclass(frozen=True)
class Contiguous:
    """Consecutive stages of a topological order, one a device in their order, cut so that the slowest is as quick as
    can be: how people split models by hand. Fewer stages than devices where that many find no room.
    """

    name = "contiguous"
    keeps_limits = False

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        order, n = task.work.order, task.nodes
        crossing, place = np.zeros(n + 2), {one: number for number, one in enumerate(order)}
        for value, readers in enumerate(task.work.readers):
            if readers and task.work.maker[value] >= 0:
                crossing[place[int(task.work.maker[value])] + 1] += task.work.bytes[value]
                crossing[max(place[one] for one in readers) + 1] -= task.work.bytes[value]
        links = task.devices.per_byte[task.devices.per_byte > 0]
        handed = np.cumsum(crossing)[: n + 1] * (float(links.mean()) if links.size else 0.0)
        handed[[0, n]] = 0.0
        parts = min(task.choices, n)
        cuts = best_cuts(Chain(task.seconds.mean(axis=1)[order], handed), parts) if n else []
        found = np.zeros(n, np.int32)
        for stage, (begin, end) in enumerate(zip([0, *cuts], [*cuts, n], strict=True)):
            found[order[begin:end]] = stage
        return found
