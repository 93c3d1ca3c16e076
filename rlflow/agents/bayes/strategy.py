"""Search where a whole graph's time is the price and timing it is dear: ``--cost end-to-end --search surrogate``.

Step by step a search by the clock times every graph on its way. Here a search goes all the way in what is *believed*
about regions, which costs milliseconds, and only its end is timed. What that says about the regions is learnt, and the
next search goes by it. Of several such ends the one with the largest expected improvement is timed: some are of
searches by the expected prices, or by these and more for what is uncertain, others by drawn prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rlflow.agents.bayes.belief import Belief, Predicted, PriceOf
from rlflow.agents.bayes.prior import Prior
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport
from rlflow.price.regions import Pricer
from rlflow.search import Budget, Problem, SearchNode, StopReason, Visited
from rlflow.search.backtracking import Backtracking
from rlflow.search.prices import REFUSED_MS, GraphPrices
from rlflow.search.strategies import make, register
from rlflow.search.strategy_base import StrategyBase

#: The searches of a round by what is expected: standard deviations that a region costs more where the original has none
#: like it, strategy, and how many times ``expansions`` it may open.
_WAYS = ((0.0, "backtracking", 1.0), (0.5, "levin", 2.5), (1.0, "backtracking", 1.0))
#: Rounds in a row that propose only graphs which were timed before, after which the belief has said what it knows.
_QUIET = 4
#: Milliseconds of an operator that moves nothing.
_VIEW_MS = 0.0006


@register
@dataclass(frozen=True)
class Surrogate(StrategyBase):
    """Searches in what is believed about regions, times what promises most, and learns from it.

    It is for prices of whole graphs (``--cost end-to-end``); where others are asked for, it is ``backtracking``.
    ``prices``: file of timed regions of other models, JSON lines (default: none are known). ``expansions``: graphs that
    one search in the belief opens. ``draws``: such searches a round by drawn prices, beside those by the expected
    ones. ``fusion``: the table that says what the runtime fuses; ``block``: channels per block of its layout.
    """

    prices: str = ""
    expansions: int = 80
    draws: int = 1
    fusion: str = "onnxruntime"
    block: int = 8

    name: ClassVar[str] = "surrogate"
    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.expansions, self.draws) < 1 or self.block < 0:
            raise UsageError(
                f"The options of search strategy 'surrogate' are expansions={self.expansions}, draws={self.draws}, "
                f"block={self.block}; expected at least 1 of each of the first two, and a block of 0 or more."
            )

    def ready(self) -> None:
        """Raises ModelError for timed regions that cannot be read, UsageError for an unknown fusion table."""
        self._prior()
        Pricer.table(self.fusion, block=self.block)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Believe, time, learn, until the budget ends or nothing new is proposed."""
        if not isinstance(problem.prices, GraphPrices):
            return Backtracking().search(problem, rng)
        run = _Run(self, problem, rng, Belief(self.pricer(), self._prior()))
        run.learn(problem.root())
        run.usual = frozenset(run.belief.signatures)
        quiet = 0
        while quiet < _QUIET:
            quiet = 0 if run.step() else quiet + 1
        return StopReason.CONVERGED

    def _prior(self) -> Prior:
        return Prior.read(self.prices) if self.prices else Prior()

    def pricer(self) -> Pricer:
        """A native pricer that has only the price of what moves nothing."""
        found = Pricer.table(self.fusion, block=self.block)
        found.set_view_price(_VIEW_MS)
        return found


@dataclass
class _Run:
    """``timed``: digests of the graphs that were timed, or refused. ``usual``: regions of the original. ``scale``: from
    milliseconds to those of the guesses; only ratios to the original count, so a machine that is faster throughout
    teaches nothing.
    """

    options: Surrogate
    problem: Problem
    rng: np.random.Generator
    belief: Belief
    timed: set[str] = field(default_factory=set)
    usual: frozenset[str] = frozenset()
    scale: float = 0.0

    def step(self) -> bool:
        """Propose and time one graph; whether there was one."""
        found = {one.digest: one for one in self._proposals() if one.digest not in self.timed}
        if not found:
            return False
        best = self.scale * self.problem.best_cost
        chosen = max(found.values(), key=lambda one: improvement(self.belief.predict(one.graph), best))
        self.learn(self.problem.led(chosen.trace or ()))
        return True

    def learn(self, node: SearchNode) -> None:
        """From a graph that was timed; one that the runtime refuses says nothing about the others."""
        self.timed.add(node.digest.hex())
        if not self.scale and node.cost > 0:
            self.scale = self.belief.predict(node.graph).ms / node.cost
        if node.cost < REFUSED_MS:
            noise = self.problem.gain_floor(node.cost)
            self.belief.observe(node.graph, self.scale * node.cost, self.scale * noise)

    def _proposals(self) -> Iterator[Visited]:
        """The ends of searches in what is believed."""
        few = self.options.expansions
        for caution, name, times in _WAYS:
            yield from self._ends(self.belief.cautious(caution, self.usual), name, int(times * few))
        for _ in range(self.options.draws):
            yield from self._ends(self.belief.sample(self.rng), _WAYS[0][1], few)

    def _ends(self, prices: PriceOf, name: str, expansions: int) -> Iterator[Visited]:
        self.problem.check()
        result = make(name).run(self._shadow(prices, expansions), self.rng)
        yield from (one for one in (result.best, *result.runners_up) if one.trace)

    def _shadow(self, prices: PriceOf, expansions: int) -> Problem:
        problem, state = self.problem, self.problem.root().state
        model = BelievedCost(self.belief, prices, self.options.pricer())
        return Problem(
            state.graph, state.ruleset, model, Budget(expansions=expansions), stop=problem.stop,
            seed=problem.seed, tolerance=problem.settings.tolerance, clocked=problem.settings.clocked,
        )  # fmt: skip


class BelievedCost(CostModel):
    """Prices of regions that are believed, not timed. ``prices``: of a region that the belief has met."""

    name = "believed"
    measures = True  # a candidate's regions are priced when it is opened, as where the clock is asked

    def __init__(self, belief: Belief, prices: PriceOf, pricer: Pricer) -> None:
        self._belief, self._prices, self._pricer = belief, prices, pricer
        known = belief.signatures
        pricer.set_prices(known, np.array([prices(one) for one in known]))

    @property
    def pricer(self) -> Pricer:
        """The native pricer; what the belief has met is known from the start."""
        return self._pricer

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> FillReport:
        """Price what was not met before; nothing is timed."""
        estimated = 0
        for graph in graphs:
            for region in self._pricer.regions(graph, unpriced_only=True):
                signature = self._belief.meet(graph, region)
                self._pricer.set_prices([signature], np.array([self._prices(signature)]))
                estimated += 1
        return FillReport(estimated=estimated)

    def cost(self, graph: Graph) -> CostReport:
        """The believed price of ``graph`` in milliseconds."""
        self.fill([graph])
        return CostReport(self._pricer.summary(graph)["ms"], (), "measured", "a belief")


def improvement(predicted: Predicted, best: float) -> float:
    """By how many milliseconds a graph is expected to be faster than ``best`` (Jones, Schonlau, Welch 1998)."""
    gain = best - predicted.ms
    if predicted.spread <= 0:
        return max(gain, 0.0)
    z = gain / predicted.spread
    return gain * 0.5 * math.erfc(-z / math.sqrt(2)) + predicted.spread * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
