"""The task of fusing: a level of priority a node, judged by a roofline over the groups that come of it.

A greedy pass takes the pairs of maker and reader, those of the highest level first, and joins their groups where that
is legal. Level 0 is never joined to its readers. A group may hold one product and a bounded number of nodes and
operands, and joining must not close a cycle: that is certain where all readers of the one group are in the other, or
all makers that the other reads are in the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlflow._core import GroupTimes
from rlflow.errors import UsageError
from rlflow.placement.ordering import checked_levels
from rlflow.placement.sketches import NetworkSketch
from rlflow.placement.task import Evaluation
from rlflow.price import analytic

__all__ = ["FusingTask"]


class FusingTask:
    """Groups of a network's nodes, each run as one kernel. The objective is seconds: of each group the larger of its
    operations and of the bytes that enter and leave it, and an overhead, on the machine of
    :mod:`rlflow.price.analytic`. No kernel is built or timed, so the evidence is ``analytic``.

    ``levels``: how many; ``most``: nodes of a group; ``operands``: values and weights that a group reads.
    """

    evidence = "analytic"

    def __init__(self, sketch: NetworkSketch, levels: int = 8, *, most: int = 8, operands: int = 6) -> None:
        if levels < 2:
            raise UsageError(f"Fusion needs at least 2 levels of priority; got {levels}.")
        self.sketch, self.choices, self.spent = sketch, levels, 0
        self.most, self.operands = most, operands
        self.readers: list[list[int]] = [[] for _ in range(sketch.nodes)]
        for reader, ones in enumerate(sketch.inputs):
            for one in ones:
                self.readers[one].append(reader)
        rate = np.where(sketch.products, analytic.GFLOPS, analytic.VECTOR_GFLOPS) * 1e9
        self._busy = sketch.flops / rate
        self._times = GroupTimes(
            nodes=sketch.nodes,
            input_begin=np.cumsum([0, *map(len, sketch.inputs)]),
            input=[one for ones in sketch.inputs for one in ones],
            busy=self._busy,
            bytes=sketch.sizes,
            weight_bytes=sketch.weight_bytes,
            product=sketch.products,
            most=most,
            operands=operands,
            bytes_per_second=analytic.GBPS * 1e9,
            overhead=1e-6 * analytic.OVERHEAD_US,
        )

    @property
    def nodes(self) -> int:
        """Number of decisions."""
        return self.sketch.nodes

    def groups(self, decisions: Any) -> np.ndarray:
        """The group of each node, int32 [n]: the number of its first node. Raises UsageError for bad levels."""
        return np.asarray(self._times.groups(checked_levels(decisions, self.nodes, self.choices)))

    def seconds(self, group: np.ndarray) -> float:
        """Seconds of all groups, one kernel each."""
        return float(self._times.seconds(group).sum())

    def evaluate(self, decisions: Any) -> Evaluation:
        """What levels int [n] are worth."""
        self.spent += 1
        value = self.seconds(self.groups(decisions))
        return Evaluation(value, True, self.evidence, np.zeros(1), np.array([value]))

    def scores(self, decisions: Any) -> np.ndarray:
        """Seconds of many decisions [rows, n], float64 [rows]."""
        return np.array([self.evaluate(row).objective for row in np.asarray(decisions)])

    def bound(self) -> float:
        """Seconds that no grouping is below: all operations, the bytes of weights and outputs, and the overhead of as
        few groups as there may be.
        """
        sketch = self.sketch
        outputs = sum(float(sketch.sizes[node]) for node in range(self.nodes) if not self.readers[node])
        moved = (float(sketch.weight_bytes.sum()) + outputs) / (analytic.GBPS * 1e9)
        least = max(-(-self.nodes // self.most), int(sketch.products.sum()))
        return max(float(self._busy.sum()), moved) + 1e-6 * analytic.OVERHEAD_US * least
