"""Levin tree search over chains of rewrites (Orseau et al., Single-agent policy tree search with guarantees, NeurIPS
2018).

As in ``backtracking``, the search goes down from a graph as far as single rewrites gain, and then looks for a chain:
rewrites that touch each other, none of which gains by itself, and all of them together do. There are very many chains.
This search opens them in the order of ``log(steps) - log(probability)``, by a policy's probability of all of a chain's
steps. So a chain of probability p is found after at most steps / p graphs, whatever it costs on the way.

Where a chain pays, the search goes down from its end, and what paid once is tried at once wherever else it begins. What
a way down passed over begins chains, too. Such a chain has to gain more than what was taken in its place, and what
paid elsewhere then follows.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rlflow.search.descent import Descent, Round
from rlflow.search.levin.chain_policy import Candidates, ChainMixture, ChainPolicy
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Connected, Signature, touches

#: Two branches of one value are two edges apart.
_NEAR = 2
#: What counts extra in the order, beside the logarithms: to begin at what a way down passed over; times the logarithm
#: of how often this chain was opened from the same start, and of how often its rules led to a base that stayed behind;
#: to search from a base that is behind the best by its whole cost.
_PASSED_OVER, _TRIED, _VAIN, _BEHIND = 2.0, 1.0, 2.0, 500.0
#: Digits behind the point by which changes of cost, as parts of the start's, are the same.
_DIGITS = 9

Rules = tuple[int, ...]


class LevinOptions(NamedTuple):
    """``alpha``: how many times as dear as the best a graph may be. ``chain``: most steps. ``queue``: candidates kept.
    ``even``: part of the probability that all candidates share alike. ``taught``: the policy's part of a chain's
    probability; the rest is that of the weights by hand.
    """

    alpha: float
    chain: int
    queue: int
    even: float
    taught: float


class ChainStep(NamedTuple):
    """A step of a chain, and those before it: the candidates that there were, and which one was taken."""

    before: ChainStep | None
    seen: Candidates
    taken: int


class Paid(NamedTuple):
    """A chain that paid. ``gain``: part of the start's cost that the best became cheaper by, 0 where the chain's base
    was behind the best and stayed so. ``expansions``: opened until then.
    """

    rules: Rules
    last: ChainStep
    gain: float
    expansions: int

    def steps(self) -> Iterator[ChainStep]:
        """Its steps, the last one first."""
        step: ChainStep | None = self.last
        while step is not None:
            yield step
            step = step.before


@dataclass(eq=False)
class _Base:
    """A graph below which chains are searched. ``known``: rewrites that are open there. ``final``: cost of the graph
    that the descent from here arrived at. ``done``: starts and rules of chains that were opened where they paid before.
    ``over``: there is a better one of which this one was on the way.
    """

    node: SearchNode
    known: frozenset[Signature]
    final: float
    seen: set[bytes]
    done: set[tuple[Signature, Rules]] = field(default_factory=set)
    over: bool = False


class _Entry(NamedTuple):
    """A candidate that was not opened yet. ``chances`` [2]: logarithms of the chain's probability."""

    base: _Base
    table: MoveTable
    k: int
    rules: Rules  # of its chain, this one included
    start: Signature  # of the chain's first rewrite
    regret: float  # gain of what the descent took in the chain's place
    chances: np.ndarray
    step: ChainStep
    penalty: float  # part of its rank, for what was tried before


class _Chain(NamedTuple):
    """The chain that candidates go on from: nothing yet, at a base."""

    rules: Rules = ()
    start: Signature | None = None
    chances: np.ndarray | float = 0.0
    step: ChainStep | None = None
    fresh: Collection[int] = ()  # nodes that its last step made


class LevinSearch:
    """One run, over any problem. ``policy``: for the problem's rules. ``paid``: the chains that did, in their order."""

    def __init__(self, settings: LevinOptions, policy: ChainPolicy, problem: Problem) -> None:
        self.settings, self.policy, self.problem = settings, ChainMixture(policy, settings.taught), problem
        self.paid: list[Paid] = []
        self.dropped = False
        self._goal = math.inf
        self._heap: list[tuple[int, float, int, _Entry]] = []
        self._pushed = 0
        self._ends: set[bytes] = set()
        self._begun: set[Rules] = set()  # beginnings of chains that paid
        self._tried: defaultdict[Rules, Counter[Signature]] = defaultdict(Counter)
        self._vain: Counter[Rules] = Counter()
        self._led_back: set[tuple[bytes, Rules, float]] = set()

    def step(self) -> bool:
        """Open the next candidate; whether there was one. What another search found is one more base."""
        news = self.problem.news()
        if news is not None:
            self.arrive(news, self._goal)
        while self._heap:
            later, rank, number, entry = heapq.heappop(self._heap)
            penalty = self._penalty(entry.rules, entry.start)
            if later and penalty > entry.penalty:  # since then the same was tried elsewhere
                rank += penalty - entry.penalty
                heapq.heappush(self._heap, (later, rank, number, entry._replace(penalty=penalty)))
                continue
            self._open(entry)
            return True
        return False

    # --- bases ------------------------------------------------------------------------------------------------------

    def arrive(
        self, node: SearchNode, better_than: float = math.inf, done: Collection[tuple[Signature, Rules]] = ()
    ) -> bool:
        """Go down from an opened graph; where that ends below ``better_than``, at a graph where it did not end before,
        search on from there. ``done``: chains that need not be tried again there at once.
        """
        end, table, rounds = Descent(node).finish(self.problem)
        if end.digest in self._ends or not end.cost < better_than:
            return False
        self._ends.add(end.digest)
        self._goal = min(self._goal, end.cost)
        base = _Base(end, frozenset(table.signatures), end.cost, {end.digest}, set(done))
        self._push(base, table, self._admitted(base, table), _Chain())
        for taken in rounds:
            self._push_passed_over(taken, end.cost)
        return True

    def _push_passed_over(self, taken: Round, final: float) -> None:
        """What a round of the descent could have done in the same places instead."""
        table = taken.table
        base = _Base(table.node, frozenset(table.signatures), final, {table.node.digest, *taken.visited})
        admitted = set(self._admitted(base, table).tolist())
        found = [(k, regret) for k, regret in taken.passed_over() if k in admitted]
        if found:
            index, regrets = np.array([k for k, _ in found]), np.array([regret for _, regret in found])
            self._push(base, table, index, _Chain(chances=-_PASSED_OVER), regrets)

    def _slack(self) -> float:
        """How much dearer than its base a graph may be, in milliseconds."""
        return (self.settings.alpha - 1.0 + 1e-12) * self._goal

    def _admitted(self, base: _Base, table: MoveTable) -> np.ndarray:
        cheap = np.flatnonzero(table.cost <= base.node.cost + self._slack()).tolist()
        return np.array([k for k in cheap if table.digests[k] not in base.seen], dtype=np.int64)

    # --- chains -----------------------------------------------------------------------------------------------------

    def _open(self, entry: _Entry) -> None:
        base, table, k = entry.base, entry.table, entry.k
        if base.over or table.digests[k] in base.seen:
            return
        child = self.problem.open(table.node, table.index[k])
        base.seen.add(child.digest)
        base.done.add((entry.start, entry.rules))
        self._tried[entry.rules][entry.start] += 1
        if self._pays(child, entry) and self._leads_on(child, entry):
            return
        if len(entry.rules) < self.settings.chain and child.cost <= max(
            base.node.cost + self._slack(), float(table.cost[k])
        ):
            chain = _Chain(entry.rules, entry.start, entry.chances, entry.step, child.nodes - table.node.nodes)
            near = child.neighbourhood(child.nodes - base.node.nodes, _NEAR)
            below = self.problem.moves(child, Connected(base.known, near, base.node))
            index = self._admitted(base, below)
            self._push(base, below, index, chain, np.full(len(index), entry.regret))

    def _pays(self, child: SearchNode, entry: _Entry) -> bool:
        """Whether a chain gained more than what was, or would have to be, given up for it."""
        target = entry.base.node.cost - entry.regret
        return child.cost < target - self.problem.gain_floor(target)

    def _leads_on(self, child: SearchNode, entry: _Entry) -> bool:
        """As :meth:`_settle`; not gone down from again is where the same rewrites, elsewhere or in another order, led
        to nothing new at the same change of cost.
        """
        if not entry.regret:
            return self._settle(child, entry)
        change = round((child.cost - entry.base.node.cost) / (self.problem.start_cost or 1.0), _DIGITS)
        alike = entry.base.node.digest, tuple(sorted(entry.rules)), change
        if alike in self._led_back:
            return False
        if self._settle(child, entry):
            return True
        self._led_back.add(alike)
        return False

    def _settle(self, child: SearchNode, entry: _Entry) -> bool:
        """Go down from the end of a chain that pays; whether that is a base of the search now."""
        base, goal = entry.base, self._goal
        beginnings = {entry.rules[:steps] for steps in range(1, len(entry.rules) + 1)}
        # From the start of another way nothing is done yet of what paid on this one.
        done = () if entry.regret else [one for one in base.done if one[1] not in beginnings]
        if not self.arrive(child, base.final - self.problem.gain_floor(base.final), done):
            return False
        base.over = base.over or entry.regret == 0.0
        gain = (goal - self._goal) / self.problem.start_cost
        if gain or not entry.regret:
            self.paid.append(Paid(entry.rules, entry.step, gain, self.problem.meter.expansions))
        if gain:
            self._begun |= beginnings
        elif entry.regret:
            self._vain.update(beginnings)
        return True

    def _push(
        self, base: _Base, table: MoveTable, index: np.ndarray, chain: _Chain, regrets: np.ndarray | None = None
    ) -> None:
        if not len(index):
            return
        regrets = np.zeros(len(index)) if regrets is None else regrets
        seen = self._candidates(base, table, index, chain, regrets)
        chances = chain.chances + self.policy.log_probabilities(seen, self.settings.even)
        likely = self.policy.of_chains(chances)
        behind = _BEHIND * max(0.0, base.final - self._goal) / (self._goal or 1.0)
        for n, k in enumerate(index.tolist()):
            rules, start = (*chain.rules, int(seen.rule[n])), chain.start or table.signatures[k]
            regret = float(regrets[n])
            penalty = self._penalty(rules, start)
            entry = _Entry(base, table, k, rules, start, regret, chances[n], ChainStep(chain.step, seen, n), penalty)
            rank = math.log(len(rules)) - float(likely[n]) + behind + penalty
            again = rules in self._begun and not regret and (start, rules) not in base.done
            self._pushed += 1
            heapq.heappush(self._heap, (0 if again else 1, rank, self._pushed, entry))
        if len(self._heap) > 2 * self.settings.queue:
            self.dropped = True
            self._heap = heapq.nsmallest(self.settings.queue, self._heap)

    def _penalty(self, rules: Rules, start: Signature) -> float:
        """What counts extra in the order because of what was tried so far."""
        tried = self._tried[rules][start] if rules in self._tried else 0
        return _VAIN * math.log1p(self._vain[rules]) + _TRIED * math.log1p(tried)

    def _candidates(
        self, base: _Base, table: MoveTable, index: np.ndarray, chain: _Chain, regrets: np.ndarray
    ) -> Candidates:
        """What the policy sees of the candidates at ``index``."""
        unit, signatures = self._goal or 1.0, table.signatures
        cost = np.asarray(table.cost)[index]
        known = np.array([bool(chain.rules) and signatures[k] in base.known for k in index.tolist()], dtype=bool)
        fresh = np.zeros(len(index), dtype=bool)
        if chain.fresh:
            fresh = touches(table.raw, chain.fresh)[table.index[index]]
        change, excess = (cost - table.node.cost) / unit, (cost + regrets - base.node.cost) / unit
        return Candidates.of(chain.rules, table.rule[index], change, excess, table.growth[index], known, fresh)
