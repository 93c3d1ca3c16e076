"""Backtracking: best-first search over rewrites that may cost a little before they pay (Jia et al., TASO, SOSP 2019,
algorithm 2).

A queue of candidates is ordered by cost; every candidate that costs at most ``alpha`` times the best graph is admitted,
equal cost included, because useful rewrites come in steps that gain nothing alone. On graphs of hundreds of nodes the
plain algorithm drowns: thousands of rewrites are open at once, most of them independent, and their orders and subsets
are as many graphs. Three things keep the queue small, and each can be switched off (all off is TASO's search):

* ``macro``: from a better graph the search goes downhill in rounds of disjoint improving rewrites (``descent.py``).
* ``causal``: below a graph that does not improve on its base, only rewrites that the steps since the base made
  possible, or that lie near what these steps made (because a later step may need both), are followed. A set of rewrites
  that pays together falls into causally connected chains, and where prices add up one of the chains pays by itself.
* ranking: each further step of a chain, each twin (the same rule with the same change of cost, on a repeated block) and
  each chain that failed from an earlier base counts as a little dearer. Beginnings of chains that paid once come first,
  so that twins follow quickly.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import Alternative, descend, take_round
from rlflow.search.problem import Connected, MoveTable, Problem, SearchNode, Signature, StrategyBase
from rlflow.search.registry import register

#: Parts of the best cost that a twin and a chain that failed before count extra; at most that many twins are told
#: apart.
_TWIN, _FAILED, _MOST_TWINS = 2e-4, 2e-3, 16
#: Two branches of one value are two edges apart.
_NEAR = 2
#: A round departs from the greedy choice at most so many times (limited discrepancy search, Harvey and Ginsberg 1995).
_MOST_FORCED = 3


@register
@dataclass(frozen=True)
class Backtracking(StrategyBase):
    """Best-first search with a queue of candidates up to ``alpha`` times as dear as the best graph.

    ``queue``: candidates kept. ``chain``: longest run of rewrites without a gain. ``step``: part of the best cost that
    each step of a chain counts extra in the order of the queue.
    """

    alpha: float = 1.05
    queue: int = 4000
    chain: int = 8
    step: float = 0.002
    macro: bool = True
    causal: bool = True

    name: ClassVar[str] = "backtracking"

    def __post_init__(self) -> None:
        if not self.alpha >= 1.0:
            raise UsageError(
                f"The option alpha={self.alpha:g} of search strategy 'backtracking' admits nothing; "
                "expected at least 1."
            )
        if self.queue < 1 or self.chain < 1 or self.step < 0.0:
            raise UsageError(
                "The options of search strategy 'backtracking' are "
                f"queue={self.queue}, chain={self.chain}, step={self.step:g}; "
                "expected a queue and a chain of at least 1 and a step of at least 0."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Open the most promising candidate until none is admitted."""
        return _Search(self, problem).run()


@dataclass(eq=False)
class _Base:
    """A graph below which chains are searched, with the rewrites that were open there."""

    node: SearchNode
    known: frozenset[Signature]
    seen: set[bytes] = field(default_factory=set)


class _Entry(NamedTuple):
    """A candidate that was not opened yet; or, with ``plan``, a round that makes another choice."""

    base: _Base
    table: MoveTable
    k: int
    rules: tuple[int, ...]  # the rules of its chain, this one included
    start: Signature | None  # the signature of the chain's first rewrite
    plan: Alternative | None = None


class _Search:
    """One run."""

    def __init__(self, options: Backtracking, problem: Problem) -> None:
        self.options, self.problem = options, problem
        self.heap: list[tuple[int, float, int, int, _Entry]] = []
        self.pushed = 0
        self.dropped = False
        self.paid: set[tuple[int, ...]] = set()  # beginnings of chains of rules that led to a better graph
        self.failures: Counter[Signature] = Counter()
        self.rebased: set[bytes] = set()
        self.goal = float("inf")  # the cost that a graph has to beat to become a base

    def run(self) -> StopReason:
        self._rebase(self.problem.root())
        while self.heap:
            *_, entry = heapq.heappop(self.heap)
            if entry.plan is not None:
                self._replan(entry.base, entry.plan)
            else:
                self._open(entry)
        return StopReason.CONVERGED if self.dropped else StopReason.EXHAUSTED

    # --- bases --------------------------------------------------------------------------------------------------------

    def _rebase(self, node: SearchNode) -> None:
        """Go down from ``node`` and search on from there."""
        if self.options.macro:
            self._adopt(*descend(self.problem, node))
        else:
            self._adopt(node, self.problem.moves(node), [])

    def _adopt(self, node: SearchNode, table: MoveTable, alternatives: list[Alternative]) -> None:
        if node.digest in self.rebased:
            return
        self.rebased.add(node.digest)
        self.goal = min(self.goal, node.cost)
        base = _Base(node, frozenset(table.signatures), {node.digest})
        self._push_moves(base, table, (), None)
        for alternative in alternatives:
            self._push_plan(base, alternative)

    def _replan(self, base: _Base, plan: Alternative) -> None:
        lower, passed = take_round(self.problem, plan)
        if lower is None:
            return
        for alternative in passed:
            if alternative.forced <= _MOST_FORCED:
                self._push_plan(base, alternative)
        node, table, alternatives = descend(self.problem, lower)
        if node.cost < self.goal - self.problem.gain_floor(self.goal):
            self._adopt(node, table, alternatives)

    # --- chains -------------------------------------------------------------------------------------------------------

    def _open(self, entry: _Entry) -> None:
        if entry.table.digests[entry.k] in entry.base.seen:
            return
        # Admitted when it was found, by the best graph of that moment: a better one since then does not take that back.
        limit = max(self._admitted(), float(entry.table.cost[entry.k]))
        child = self.problem.open(entry.table.node, entry.table.index[entry.k])
        entry.base.seen.add(child.digest)
        if entry.start is not None:
            self.failures[entry.start] += 1
        if child.cost < self.goal - self.problem.gain_floor(self.goal):
            self.paid.update(entry.rules[:length] for length in range(1, len(entry.rules) + 1))
            if entry.start is not None:
                self.failures[entry.start] = 0
            self._rebase(child)
        elif child.cost <= limit and len(entry.rules) < self.options.chain:
            table = self.problem.moves(child, self._connected(entry.base, child) if self.options.causal else None)
            self._push_moves(entry.base, table, entry.rules, entry.start)

    def _connected(self, base: _Base, child: SearchNode) -> Connected:
        """The rewrites that belong to the chain: those that were not open in the base, and those near what the chain
        made.
        """
        made = child.nodes - base.node.nodes
        return Connected(base.known, self.problem.neighbourhood(child, made, _NEAR))

    def _admitted(self) -> float:
        return self.options.alpha * self.goal * (1 + 1e-12)

    def _push_moves(self, base: _Base, table: MoveTable, rules: tuple[int, ...], start: Signature | None) -> None:
        unit = self.goal if np.isfinite(self.goal) else table.node.cost
        twins: Counter[tuple[int, float, int]] = Counter()
        for k in np.flatnonzero(table.cost <= self._admitted()).tolist():
            if table.digests[k] in base.seen:
                continue
            rule, cost, growth = int(table.rule[k]), float(table.cost[k]), int(table.growth[k])
            twin = (rule, round((cost - table.node.cost) / (unit or 1.0), 6), growth)
            first = start or table.signatures[k]
            extra = (
                self.options.step * len(rules) + _TWIN * min(twins[twin], _MOST_TWINS) + _FAILED * self.failures[first]
            )
            twins[twin] += 1
            entry = _Entry(base, table, k, (*rules, rule), first)
            self._push(entry, cost + unit * extra, table.node.size + growth)

    def _push_plan(self, base: _Base, plan: Alternative) -> None:
        # Not held to alpha: each of these choices is a gain, only not the greatest.
        rank = base.node.cost + plan.regret_ms + self.goal * self.options.step * plan.forced
        self._push(_Entry(base, plan.table, plan.ranking[0], (), None, plan), rank, base.node.size)

    def _push(self, entry: _Entry, rank: float, nodes: int) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (0 if entry.rules in self.paid else 1, rank, nodes, self.pushed, entry))
        if len(self.heap) > 2 * self.options.queue:
            self.dropped = True
            self.heap = heapq.nsmallest(self.options.queue, self.heap)
