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
from rlflow.search.descent import Descent
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Signature
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase


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
    goes_on: ClassVar[bool] = True
    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.width < 1 or self.patience < 1 or self.twins < 1 or not self.slack >= 1.0:
            raise UsageError(
                f"The options of search strategy 'beam' are width={self.width}, patience={self.patience}, "
                f"twins={self.twins}, slack={self.slack:g}; expected at least 1 each."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Layers until none brings a better graph; then again from that one."""
        run = problem.recall() or _Run(self, problem, problem.root(), Descent(problem.root()))
        run.go()
        return StopReason.CONVERGED if run.cut else StopReason.EXHAUSTED

    def below(self, problem: Problem, start: SearchNode) -> SearchNode:
        """The first part alone, from ``start``, any opened graph of the problem: downhill and layers, as long as they
        find a better graph; the best found.
        """
        return _Run(self, problem, start, Descent(start)).down_and_on()


@resumable
@dataclass(eq=False)
class _Member:
    """A graph of a layer. ``explored``: what its parent's candidates of this layer left open, shared by siblings."""

    node: SearchNode
    sleep: Sleep
    table: MoveTable | None = None  # of the parent, with the position there: needed once, to find what sleeps
    k: int = -1
    explored: dict[Signature, frozenset[Signature]] = field(default_factory=dict)


@resumable
@dataclass(eq=False)
class _Layers:
    """The layers below ``base``. ``idle``: how many since the last one with a better graph. ``common``: whether the
    next layer is the same for all workers of a search that is shared out, so that each takes its part of it.
    """

    base: SearchNode
    best: SearchNode
    layer: list[_Member]
    go_on: bool = False
    idle: int = 0
    common: bool = False


#: Down and on from the root; layers from the root; down and on from what these found.
_DOWN, _ONCE_MORE, _FOUND = range(3)


@resumable
@dataclass(eq=False)
class _Run:
    """``best``: the end of the first way down and on. ``descent``, ``layers``: what it is in the middle of."""

    options: Beam
    problem: Problem
    best: SearchNode
    descent: Descent
    layers: _Layers | None = None
    stage: int = _DOWN
    alone: bool = False  # whether it has found a better graph, from where on other workers cannot follow
    cut: bool = False  # whether anything was left out, so that the end of the layers proves nothing
    seen: set[bytes] = field(default_factory=set)
    met_again: set[bytes] = field(default_factory=set)  # graphs that two members of the layer before lead to

    def go(self) -> None:
        """All stages, from wherever it is."""
        if self.stage == _DOWN:
            self.best = self.down_and_on() if self.options.macro else self.best
            self.stage = _ONCE_MORE
        if self.stage == _ONCE_MORE:
            found = self._down_the_layers(self.problem.root(), go_on=True)
            floor = self.problem.gain_floor(self.best.cost)
            if not self.options.macro or found is None or found.cost >= self.best.cost - floor:
                return
            self.descent, self.stage = Descent(found), _FOUND
        self.down_and_on()

    def _keep(self) -> None:
        self.problem.keep(self)

    def down_and_on(self) -> SearchNode:
        """Downhill, then layers, again from every better graph; the best found."""
        while True:
            node = self.descent.finish(self.problem, self._keep)[0]
            better = self._down_the_layers(node)
            if better is None:
                return node
            self.descent, self.alone = Descent(better), True

    def _down_the_layers(self, base: SearchNode, go_on: bool = False) -> SearchNode | None:
        """A better graph than ``base``: the best of its layer, or with ``go_on`` of all layers; ``None`` where there is
        none.
        """
        if self.layers is None:
            common = self.stage == _ONCE_MORE or not self.alone
            self.layers, self.seen = _Layers(base, base, [_Member(base, Sleep())], go_on, 0, common), {base.digest}
        found = self._next_layers(self.layers)
        self.layers = None
        return found

    def _next_layers(self, at: _Layers) -> SearchNode | None:
        while at.layer and at.idle < self.options.patience:
            self._keep()
            at.layer = self._next(at.layer, self.options.slack * at.base.cost, at.common)
            at.common = False
            found = min((member.node for member in at.layer), key=lambda node: node.cost, default=at.best)
            better = found.cost < at.best.cost - self.problem.gain_floor(at.best.cost)
            at.best, at.idle = (found, 0) if better else (at.best, at.idle + 1)
            if better and not at.go_on:
                return found
        self.cut = self.cut or bool(at.layer)
        return None if at.best is at.base else at.best

    def _next(self, layer: Sequence[_Member], ceiling: float, common: bool) -> list[_Member]:
        tables = [self._expand(member) for member in layer]
        below: list[dict[Signature, frozenset[Signature]]] = [{} for _ in layer]
        members = []
        self.met_again = set()
        for parent, k in self._chosen(tables, ceiling, common):
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

    def _chosen(self, tables: Sequence[MoveTable], ceiling: float, common: bool) -> Iterator[tuple[int, int]]:
        """The cheapest ``width`` new children, as (parent, position), with at most ``twins`` alike a parent."""
        unit = ceiling or 1.0
        found = [
            (float(table.cost[k]), table.node.size + int(table.growth[k]), parent, k)
            for parent, table in enumerate(tables)
            for k in range(len(table))
            if table.digests[k] not in self.seen and (not common or self.problem.is_mine(k))
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
