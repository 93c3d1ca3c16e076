"""Backtracking: best-first search over rewrites that may cost a little before they pay (Jia et al., TASO, SOSP 2019,
algorithm 2).

A queue of candidates is ordered by cost; every candidate that costs at most ``alpha`` times the best graph is admitted,
equal cost included, because useful rewrites come in steps that gain nothing alone. On graphs of hundreds of nodes the
plain algorithm drowns: thousands of rewrites are open at once, most of them independent, and their orders and subsets
are as many graphs. Three things keep the queue small, and each can be switched off (all off is TASO's search):

* ``macro``: from a better graph the search goes downhill in rounds of disjoint improving rewrites (``descent.py``), and
  the end is the next base of the search. What a round passed over in the same places is queued too, at the price of
  what was taken there instead.
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
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import Descent, Round
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Connected, Signature
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase

#: Parts of the best cost that a twin and a chain that failed before count extra; at most that many twins are told
#: apart.
_TWIN, _FAILED, _MOST_TWINS = 2e-4, 2e-3, 16
#: A queue that overflowed and then ran dry is made so many times wider, so many times.
_WIDER, _WIDENINGS = 4, 3
#: Two branches of one value are two edges apart.
_NEAR = 2


@register
@dataclass(frozen=True)
class Backtracking(StrategyBase):
    """Best-first search with a queue of candidates up to ``alpha`` times as dear as the best graph.

    ``alpha``: how many times as dear as the best a graph may be. ``queue``: candidates kept (more, once all of these
    were tried and time is left). ``chain``: longest run of rewrites without a gain. ``step``: part of the best cost
    that each step of a chain counts extra in the order of the queue. ``macro``: go downhill at once from better graphs.
    ``causal``: in a chain, follow only rewrites that its steps made possible or that lie near them.
    """

    alpha: float = 1.05
    queue: int = 4000
    chain: int = 8
    step: float = 0.002
    macro: bool = True
    causal: bool = True

    name: ClassVar[str] = "backtracking"
    patience_by_default: ClassVar[int | None] = 3000
    goes_on: ClassVar[bool] = True
    shares: ClassVar[bool] = True

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
        steps = (problem.recall() or _Search(self, problem, problem.root())).run()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return StopReason(end.value)

    def steps(self, problem: Problem, start: SearchNode) -> Generator[None, None, StopReason]:
        """The search from ``start``, any opened graph of the problem, one candidate of the queue at a time: for
        searches that take turns.
        """
        return _Search(self, problem, start).run()


@resumable
@dataclass(eq=False)
class _Base:
    """A graph below which chains are searched, with the rewrites that were open there.

    ``final``: cost of the graph that the descent from here arrived at; the base's own cost where it was the last one.
    ``common``: whether all workers of a search that is shared out come here, so that each follows its part.
    """

    node: SearchNode
    known: frozenset[Signature]
    final: float
    seen: set[bytes] = field(default_factory=set)
    common: bool = False


@resumable
class _Entry(NamedTuple):
    """A candidate that was not opened yet."""

    base: _Base
    table: MoveTable
    k: int
    rules: tuple[int, ...]  # the rules of its chain, this one included
    start: Signature  # of the chain's first rewrite
    regret: float  # gain of what the descent took in the chain's place; 0 for chains from the end of a descent


@resumable
class _Search:
    """One run."""

    def __init__(self, options: Backtracking, problem: Problem, start: SearchNode) -> None:
        self.options, self.problem = options, problem
        self.heap: list[tuple[int, float, int, int, _Entry]] = []
        self.pushed = 0
        self.dropped = False
        self.paid: set[tuple[int, ...]] = set()  # beginnings of chains of rules that led to a better graph
        self.failures: Counter[Signature] = Counter()
        self.descended: set[bytes] = set()
        self.best = start  # of all bases
        self.goal = self.best.cost
        self.width = options.queue
        self.widenings = 0
        self.first = b""  # digest of the end of the first descent
        self.descent: Descent | None = Descent(self.best)  # the first; None once it is over

    def run(self) -> Generator[None, None, StopReason]:
        """From here on; what was kept of an interrupted run goes on where that was."""
        if self.descent is not None:
            self._rebase(self.best, float("inf"), self.descent)
            self.descent = None
        yield from self._drain()
        while self.dropped and self.widenings < _WIDENINGS:
            # The queue ran dry, but not before it had let go of something: once more from the best, with more patience.
            self.dropped, self.width = False, self.width * _WIDER
            self.widenings += 1
            self.descended.clear()
            self.failures.clear()
            self._rebase(self.best, float("inf"))
            yield from self._drain()
        return StopReason.CONVERGED if self.dropped else StopReason.EXHAUSTED

    def _keep(self) -> None:
        self.problem.keep(self)

    def _drain(self) -> Iterator[None]:
        while self.heap:
            self._keep()
            self._open(heapq.heappop(self.heap)[-1])
            yield

    # --- bases ------------------------------------------------------------------------------------------------------

    def _rebase(self, node: SearchNode, better_than: float, descent: Descent | None = None) -> bool:
        """Go down from ``node``; where that ends below ``better_than``, search on from there.

        ``descent``: a way down that is kept, from the same node.
        """
        if descent is None and node.digest in self.descended:
            return False
        self.descended.add(node.digest)
        rounds: list[Round] = []
        if self.options.macro:
            keep = self._keep if descent is not None else lambda: None
            node, table, rounds = (descent or Descent(node)).finish(self.problem, keep)
            self.descended.update(digest for taken in rounds for digest in taken.visited)
        else:
            table = self.problem.moves(node)
        if not node.cost < better_than:
            return False
        if node.cost <= self.goal:
            self.goal, self.best = node.cost, node
        if descent is not None:
            self.first = node.digest
        common = node.digest == self.first
        base = _Base(node, frozenset(table.signatures), node.cost, {node.digest}, common)
        self._push_moves(base, table, (), None, 0.0)
        for taken in rounds:
            self._push_passed_over(taken, node.cost, common)
        return True

    def _push_passed_over(self, taken: Round, final: float, common: bool) -> None:
        """What a round of the descent could have done in the same places instead."""
        table = taken.table
        base = _Base(table.node, frozenset(table.signatures), final, {table.node.digest, *taken.visited}, common)
        slack = self._slack()
        for k, regret in taken.passed_over():
            if table.cost[k] <= base.node.cost + slack and self._follows(base, (), k):
                self._push(base, table, k, (), None, regret, 0)

    # --- chains -----------------------------------------------------------------------------------------------------

    def _open(self, entry: _Entry) -> None:
        base, table, k = entry.base, entry.table, entry.k
        if table.digests[k] in base.seen:
            return
        child = self.problem.open(table.node, table.index[k])
        base.seen.add(child.digest)
        self.failures[entry.start] += 1
        if self._pays(child, entry):
            better_than = min(base.final, self.goal if entry.regret == 0.0 else base.final)
            if self._rebase(child, better_than - self.problem.gain_floor(better_than)):
                self.paid.update(entry.rules[:length] for length in range(1, len(entry.rules) + 1))
                self.failures[entry.start] = 0
                return
        # Admitted when it was found, by the best graph of that moment: a better one since then does not take that back.
        if len(entry.rules) < self.options.chain and child.cost <= max(
            base.node.cost + self._slack(), float(table.cost[k])
        ):
            connected = self._connected(base, child) if self.options.causal else None
            self._push_moves(base, self.problem.moves(child, connected), entry.rules, entry.start, entry.regret)

    def _pays(self, child: SearchNode, entry: _Entry) -> bool:
        """Whether a chain gained more than what was, or would have to be, given up for it."""
        target = min(entry.base.node.cost, self.goal) if entry.regret == 0.0 else entry.base.node.cost - entry.regret
        return child.cost < target - self.problem.gain_floor(target)

    def _slack(self) -> float:
        """How much dearer than its base a graph may be, in milliseconds."""
        return (self.options.alpha - 1.0 + 1e-12) * self.goal

    def _connected(self, base: _Base, child: SearchNode) -> Connected:
        """The rewrites that belong to the chain: not open in the base, or near what the chain made."""
        made = child.nodes - base.node.nodes
        return Connected(base.known, child.neighbourhood(made, _NEAR), base.node)

    def _push_moves(
        self, base: _Base, table: MoveTable, rules: tuple[int, ...], start: Signature | None, regret: float
    ) -> None:
        twins: Counter[tuple[int, float, int]] = Counter()
        unit = self.goal or 1.0
        for k in np.flatnonzero(table.cost <= base.node.cost + self._slack()).tolist():
            if table.digests[k] in base.seen or not self._follows(base, rules, k):
                continue
            change = round((float(table.cost[k]) - table.node.cost) / unit, 6)
            twin = (int(table.rule[k]), change, int(table.growth[k]))
            self._push(base, table, k, rules, start, regret, twins[twin])
            twins[twin] += 1

    def _follows(self, base: _Base, rules: tuple[int, ...], k: int) -> bool:
        """Whether a chain may begin with, or go on by, a candidate: others may be another worker's part."""
        return bool(rules) or not base.common or self.problem.is_mine(k)

    def _push(
        self,
        base: _Base,
        table: MoveTable,
        k: int,
        rules: tuple[int, ...],
        start: Signature | None,
        regret: float,
        twins: int,
    ) -> None:
        entry = _Entry(base, table, k, (*rules, int(table.rule[k])), start or table.signatures[k], regret)
        # A rewrite that was open all along and only lies near is one step further away than one that the chain opened.
        steps = len(rules) + (1 if rules and table.signatures[k] in base.known else 0)
        extra = self.options.step * steps + _TWIN * min(twins, _MOST_TWINS) + _FAILED * self.failures[entry.start]
        # What the chain would cost at the end of the descent that it departs from.
        cost = base.final + (float(table.cost[k]) - base.node.cost) + regret
        rank = cost + self.goal * extra
        self.pushed += 1
        first = 0 if entry.rules in self.paid else 1
        heapq.heappush(self.heap, (first, rank, table.node.size + int(table.growth[k]), self.pushed, entry))
        if len(self.heap) > 2 * self.width:
            self.dropped = True
            self.heap = heapq.nsmallest(self.width, self.heap)
