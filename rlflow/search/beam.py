"""Beam search: all graphs of a layer are one rewrite further than those of the layer before, and the best are kept.

From a better graph the search goes downhill at once (``macro``; see ``descent.py``) and starts again at the end, so
that the layers are spent on what greedy cannot do: getting over what costs something first. Where that ends, it starts
once more from the beginning, layer by layer: a rewrite that was taken on the way down may exclude a better one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.commute import Sleep
from rlflow.search.descent import descend
from rlflow.search.problem import MoveTable, Problem, SearchNode, StrategyBase
from rlflow.search.registry import register
from rlflow.search.selection import Signature


@register
@dataclass(frozen=True)
class Beam(StrategyBase):
    """The cheapest graphs of every layer are rewritten further.

    ``width``: graphs kept of a layer. ``patience``: layers without a better graph after which it gives up. ``twins``:
    rewrites with the same rule, change of cost and change of size that one graph may bring into a layer (repeated
    blocks offer many). ``slack``: how much dearer than the first layer a graph may be. ``macro``: go downhill at once
    from better graphs.
    """

    width: int = 8
    patience: int = 12
    twins: int = 2
    slack: float = 1.2
    macro: bool = True

    name: ClassVar[str] = "beam"

    def __post_init__(self) -> None:
        if self.width < 1 or self.patience < 1 or self.twins < 1 or not self.slack >= 1.0:
            raise UsageError(
                f"The options of search strategy 'beam' are width={self.width}, patience={self.patience}, "
                f"twins={self.twins}, slack={self.slack:g}; expected at least 1 each."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Layers until none brings a better graph; then again from that one."""
        run = _Run(self, problem)
        best = run.down_and_on(problem.root()) if self.macro else problem.root()
        found = run.layers_from(problem.root(), go_on=True)
        if self.macro and found is not None and found.cost < best.cost - problem.gain_floor(best.cost):
            run.down_and_on(found)
        return StopReason.CONVERGED if run.cut else StopReason.EXHAUSTED

    def below(self, problem: Problem, start: SearchNode) -> SearchNode:
        """The first part alone, from ``start``, any opened graph of the problem: downhill and layers, as long as they
        find a better graph; the best found.
        """
        return _Run(self, problem).down_and_on(start)


@dataclass(eq=False)
class _Member:
    """A graph of a layer. ``explored``: what its parent's candidates of this layer left open, shared by siblings."""

    node: SearchNode
    sleep: Sleep
    table: MoveTable | None = None  # of the parent, with the position there: needed once, to find what sleeps
    k: int = -1
    explored: dict[Signature, frozenset[Signature]] = field(default_factory=dict)


@dataclass(eq=False)
class _Run:
    options: Beam
    problem: Problem
    cut: bool = False  # whether anything was left out, so that the end of the layers proves nothing
    seen: set[bytes] = field(default_factory=set)
    met_again: set[bytes] = field(default_factory=set)  # graphs that two members of the layer before lead to

    def down_and_on(self, node: SearchNode) -> SearchNode:
        """Downhill, then layers, again from every better graph; the best found."""
        while True:
            node = descend(self.problem, node)[0]
            better = self.layers_from(node)
            if better is None:
                return node
            node = better

    def layers_from(self, base: SearchNode, go_on: bool = False) -> SearchNode | None:
        """A better graph than ``base``: the best of its layer, or with ``go_on`` of all layers; ``None`` where there is
        none.
        """
        best, idle = base, 0
        self.seen = {base.digest}
        layer = [_Member(base, Sleep())]
        while layer and idle < self.options.patience:
            layer = self._next(layer, self.options.slack * base.cost)
            found = min((member.node for member in layer), key=lambda node: node.cost, default=best)
            better = found.cost < best.cost - self.problem.gain_floor(best.cost)
            best, idle = (found, 0) if better else (best, idle + 1)
            if better and not go_on:
                return found
        self.cut = self.cut or bool(layer)
        return None if best is base else best

    def _next(self, layer: Sequence[_Member], ceiling: float) -> list[_Member]:
        tables = [self._expand(member) for member in layer]
        below: list[dict[Signature, frozenset[Signature]]] = [{} for _ in layer]
        members = []
        self.met_again = set()
        for parent, k in self._chosen(tables, ceiling):
            table = tables[parent]
            child = self.problem.open(table.node, table.index[k])
            self.seen.add(child.digest)
            members.append(_Member(child, layer[parent].sleep, table, k, below[parent]))
        for member in members:
            if member.node.digest in self.met_again:
                member.sleep, member.table = Sleep(), None
        return members

    def _expand(self, member: _Member) -> MoveTable:
        """The candidates of a member, without those that a sibling before it has as well."""
        if member.table is not None:
            member.sleep = member.sleep.below(self.problem, member.table, member.k, member.explored)
        table = self.problem.moves(member.node, member.sleep)
        if member.table is not None:
            member.explored[member.table.signatures[member.k]] = frozenset(table.signatures)
            member.table = None
        return table

    def _chosen(self, tables: Sequence[MoveTable], ceiling: float) -> Iterator[tuple[int, int]]:
        """The cheapest ``width`` new children, as (parent, position), with at most ``twins`` alike a parent."""
        unit = ceiling or 1.0
        found = [
            (float(table.cost[k]), table.node.size + int(table.growth[k]), parent, k)
            for parent, table in enumerate(tables)
            for k in range(len(table))
            if table.digests[k] not in self.seen
        ]
        twins: Counter[tuple[int, int, float, int]] = Counter()
        chosen: set[bytes] = set()
        for cost, _, parent, k in sorted(found):
            table = tables[parent]
            digest = table.digests[k]
            if digest in chosen:
                self.met_again.add(digest)  # what sleeps on one of the ways there need not on the other
                continue
            alike = (parent, int(table.rule[k]), round((cost - table.node.cost) / unit, 6), int(table.growth[k]))
            twins[alike] += 1
            if cost > ceiling or len(chosen) == self.options.width or twins[alike] > self.options.twins:
                self.cut = True
                continue
            chosen.add(digest)
            yield parent, k
