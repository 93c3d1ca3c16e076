"""A placer that cuts as little as it can: the devices get equal work, and few bytes run between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.placement.task import PlacementTask


@dataclass(frozen=True)
class MinCut:
    """Consecutive pieces of equal work, then greedy refinement (Karypis and Kumar 1998): tasks in random order move to
    the device where the most bytes of theirs are, while no device gets more than its share.

    ``imbalance``: by how much a device's work may exceed its share; ``passes``: over all tasks, at most.
    """

    imbalance: float = 0.1
    passes: int = 10
    name = "min-cut"
    keeps_limits = False

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]."""
        cost, speed = task.seconds.mean(axis=1), 1.0 / np.maximum(task.seconds.sum(axis=0), 1e-30)
        share = speed / speed.sum() * cost.sum()
        order = task.work.order
        ends = np.cumsum(share)
        ends[-1] = np.inf
        found = np.zeros(task.nodes, np.int32)
        found[order] = np.searchsorted(ends, np.cumsum(cost[order]) - cost[order] / 2, side="left")
        load = np.bincount(found, weights=cost, minlength=task.choices)
        near = _ties(task)
        for _ in range(self.passes if task.choices > 1 else 0):
            moved = 0
            for one in rng.permutation(task.nodes).tolist():
                here = int(found[one])
                pull = np.zeros(task.choices)
                for other, size in near[one].items():
                    pull[found[other]] += size
                pull[(load + cost[one] > share * (1.0 + self.imbalance)) & (np.arange(task.choices) != here)] = -1.0
                there = int(np.argmax(pull))
                if pull[there] > pull[here]:
                    found[one] = there
                    load[here] -= cost[one]
                    load[there] += cost[one]
                    moved += 1
            if not moved:
                break
        return found


def _ties(task: PlacementTask) -> list[dict[int, float]]:
    """Bytes between each task and each of its neighbours."""
    work = task.work
    found: list[dict[int, float]] = [{} for _ in range(task.nodes)]
    for value, readers in enumerate(work.readers):
        maker, size = int(work.maker[value]), float(work.bytes[value])
        for reader in readers if maker >= 0 else ():
            found[maker][reader] = found[maker].get(reader, 0.0) + size
            found[reader][maker] = found[reader].get(maker, 0.0) + size
    return found
