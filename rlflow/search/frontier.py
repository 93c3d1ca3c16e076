"""The frontier of a search: the candidates of a node with their prices, estimated or measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlflow.errors import CostError
from rlflow.search.budget import StopReason
from rlflow.search.limits import Limits, SearchStopped
from rlflow.search.macros import MacroMoves, WithMacros
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.prices import Prices
from rlflow.search.rounding import Rounding
from rlflow.search.selection import Selection, position, signatures_of

WEIGHT_FACTOR = 1.25
#: Macros are looked at again in a graph that costs at most this part of the last one.
WIDENED_AGAIN = 0.99
#: Weights that may grow at all may grow by this much, so that a model of a few bytes is not forbidden
#: its first folded constant.
WEIGHT_SLACK_BYTES = 1 << 16


class Frontier:
    """Which candidates are admitted, and what each costs. ``weight_limit``: bytes that folded weights may take
    (default: ``growth`` times those of the starting graph). ``overweight``: candidates that were refused for them.
    ``macros`` finds the macro moves; ``None`` where none are offered. ``widened_at``: cost of the graph whose macros
    were looked at last, because no single move gained there. ``rounding``: which candidates the tolerance admits.
    """

    def __init__(
        self,
        prices: Prices,
        limits: Limits,
        weight_limit: int | None = None,
        growth: float = WEIGHT_FACTOR,
        macros: bool = True,
        rounding: Rounding | None = None,
    ) -> None:
        self.prices, self._limits = prices, limits
        self.macros = MacroMoves() if macros else None
        self.rounding = rounding or Rounding(None, ())
        self.weight_limit, self._growth = weight_limit, growth
        self.overweight = 0
        self.widened_at = float("inf")

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
        self.rounding.begin(state.graph)
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

    def listed(self, node: SearchNode, selection: Selection | None, macros: bool = False) -> tuple[MoveTable, int]:
        """The candidates of ``node`` within the tolerance, and how many were left out because of their folded weights;
        taking weights away is always welcome. ``macros``: with the macro moves after them. Nothing is counted.
        """
        source = (node, selection, macros)
        part = selection.part_of(node) if selection is not None else None
        if part is not None:
            node, selection = part, None
        raw = node.state.moves()
        node.number(raw, self.macros.found(node, raw) if macros and self.macros is not None else ())
        delta, exact = self._deltas(node)
        raw, index = node.raw, np.arange(len(node.raw) if macros else len(raw))
        if selection is not None:
            index = selection.select(raw, index)
        weights = np.asarray(raw.weight_bytes)[index]
        light = self.admits(weights) | (weights <= node.state.weight_bytes)
        index, heavy = index[light], int((~light).sum())
        index = index[self.rounding.within(node, raw, index)]
        return MoveTable(node, index, node.cost + delta[index], exact[index], source), heavy

    def standing(self, node: SearchNode, i: int, other: SearchNode) -> tuple[SearchNode, int] | None:
        """Move ``i`` of ``node`` at ``other``, a descendant: what to open, and its number there; ``None`` where it is
        gone.
        """
        macro = node.macro(i)
        if macro is not None:
            again = None if self.macros is None else self.macros.again(macro, other)
            if again is None or not self.rounding.within(other, again, np.array([len(again) - 1])).all():
                return None
            return replace(other, raw=again), len(again) - 1
        same = getattr(other.state, "same", None)
        part = other if same is None else replace(other, state=same(node.state, i))
        part.raw = part.state.moves()
        j: int | None = 0 if len(part.raw) else None
        if same is None:
            j = position(part.raw, signatures_of(node.raw, np.array([i]))[0])
        if j is None or not self.rounding.within(part, part.raw, np.array([j])).all():
            return None
        return part, j

    def widens(self, table: MoveTable) -> bool:
        """Whether the macros of a table's node are to be looked at now: not where it has them or is a part of the
        candidates, nor before the graph is a hundredth cheaper than the last one; finding them takes longer than all
        else.
        """
        node, selection, has_them = table.source
        if self.macros is None or has_them or selection is not None or node.cost > WIDENED_AGAIN * self.widened_at:
            return False
        self.widened_at = node.cost
        return True

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
        self._measure([node.child(i) for i in unknown], None if left is None else left // 2)
        node.number(node.state.moves())  # the same moves in the same order, with the new prices
        delta, exact = self._deltas(node)
        table.cost, table.exact = node.cost + delta[table.index], exact[table.index]

    def _deltas(self, node: SearchNode) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`Prices.deltas`, of the macros too."""
        if not isinstance(node.raw, WithMacros):
            return self.prices.deltas(node.state, node.raw)
        delta, exact = self.prices.deltas(node.state, node.raw.singles)
        priced = [self.prices.appraised(macro.applied.state) for macro in node.raw.macros]
        return (
            np.concatenate((delta, [cost - node.cost for cost, _ in priced])),
            np.concatenate((exact, [known for _, known in priced])),
        )

    def _measure(self, graphs: Sequence[Any], limit: int | None) -> None:
        limits = self._limits
        limits.meter.measurements += self.prices.measure(graphs, limit, lambda: limits.reached() is not None)
