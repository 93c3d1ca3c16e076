"""The frontier of a search: the candidates of a node with their prices, estimated or measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlflow.errors import CostError
from rlflow.search.budget import StopReason
from rlflow.search.limits import Limits, SearchStopped
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.prices import Prices
from rlflow.search.selection import Selection

WEIGHT_FACTOR = 1.25
#: Weights that may grow at all may grow by this much, so that a model of a few bytes is not forbidden
#: its first folded constant.
WEIGHT_SLACK_BYTES = 1 << 16


class Frontier:
    """Which candidates are admitted, and what each costs. ``weight_limit``: bytes that folded weights may take
    (default: ``growth`` times those of the starting graph). ``overweight``: candidates that were refused for them.
    """

    def __init__(
        self, prices: Prices, limits: Limits, weight_limit: int | None = None, growth: float = WEIGHT_FACTOR
    ) -> None:
        self.prices, self._limits = prices, limits
        self.weight_limit, self._growth = weight_limit, growth
        self.overweight = 0

    def begin(self, state: Any) -> float:
        """What ``state`` costs, where the search starts. Raises :class:`CostError` where that cannot be."""
        cost = self.cost(state)
        if not cost >= 0.0:
            raise CostError(
                f"The search cannot start: the cost model says that the model as it came costs {cost} ms; expected "
                "a number that is not negative. Look at the cost model, or choose another one."
            )
        if self.weight_limit is None:
            slack = WEIGHT_SLACK_BYTES if self._growth > 1.0 else 0
            self.weight_limit = int(self._growth * state.weight_bytes) + slack
        return cost

    def admits(self, weight_bytes: Any) -> Any:
        """Whether folded weights of so many bytes, a number or an array, keep within the limit."""
        return weight_bytes <= self.weight_limit

    def taken_in(self, graph: Any, start: Any) -> Any:
        """The state of a graph that no move led to, opened and measured; ``None`` where its folded weights are too
        heavy. ``start``: the state where the search starts.
        """
        state = type(start)(graph, start.ruleset, start.pricer, stop=start.stop)
        if not self.admits(state.weight_bytes) and state.weight_bytes > start.weight_bytes:
            self.overweight += 1
            return None
        self._limits.meter.expansions += 1
        if not self.prices.measures:
            return state
        self.settle([graph])
        return type(start)(graph, start.ruleset, start.pricer, stop=start.stop)

    def listed(self, node: SearchNode, selection: Selection | None) -> tuple[MoveTable, int]:
        """The candidates of ``node``, and how many were left out because of their folded weights; taking weights away
        is always welcome. Nothing is counted.
        """
        source = (node, selection)
        part = selection.part_of(node) if selection is not None else None
        if part is not None:
            node, selection = part, None
        raw = node.raw = node.state.moves()
        delta, exact = self.prices.deltas(node.state, raw)
        index = np.arange(len(raw))
        if selection is not None:
            index = selection.select(raw, index)
        weights = np.asarray(raw.weight_bytes)[index]
        light = self.admits(weights) | (weights <= node.state.weight_bytes)
        index, heavy = index[light], int((~light).sum())
        return MoveTable(node, index, node.cost + delta[index], exact[index], source), heavy

    def cost(self, state: Any) -> float:
        """The cost of an opened state in milliseconds; raises :class:`CostError` where it is not finite."""
        cost = self.prices.cost(state)
        if not np.isfinite(cost):
            raise CostError(
                f"The price of a graph of {state.graph.num_nodes} nodes is {cost}; "
                "expected a finite number of milliseconds."
            )
        return cost

    def settle(self, graphs: Sequence[Any]) -> None:
        """Measure what is not known about ``graphs``; ends the search where the budget does not reach."""
        self._measure(graphs, self._limits.meter.measurements_left())
        if not all(map(self.prices.is_settled, graphs)):
            raise SearchStopped(self._limits.reached() or StopReason.BUDGET_MEASUREMENTS)

    def refine(self, table: MoveTable, unknown: Sequence[int]) -> None:
        """Measure the moves ``unknown`` in one batch and bring the table up to date.

        A look ahead like this spends at most half of the measurements that are left, so that what it finds can still be
        opened.
        """
        node, left = table.node, self._limits.meter.measurements_left()
        self._measure([node.state.child(i) for i in unknown], None if left is None else left // 2)
        node.raw = node.state.moves()  # the same moves in the same order, with the new prices
        delta, exact = self.prices.deltas(node.state, node.raw)
        table.cost, table.exact = node.cost + delta[table.index], exact[table.index]

    def _measure(self, graphs: Sequence[Any], limit: int | None) -> None:
        limits = self._limits
        limits.meter.measurements += self.prices.measure(graphs, limit, lambda: limits.reached() is not None)
