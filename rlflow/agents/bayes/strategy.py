"""Search where a whole graph's time is the price and timing it is dear: ``--cost end-to-end --search surrogate``.

Step by step a search by the clock times every graph on its way. Here a search goes all the way in what is *believed*
about regions, which costs milliseconds, and only its end is timed. What that says about the regions is learnt, and the
next search goes by it. Of several such ends the one with the largest expected improvement is timed: some are of
searches by the expected prices, or by these and more for what is uncertain, others by drawn prices.

A belief begins with what this machine has learnt: the regions that were timed alone for other models. These can
mislead. So two beliefs take turns where such prices are known, and the other begins with a roofline. Both learn from
every graph that is timed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
#: Values of ``prices`` that are no file.
OWN, NONE = "own", "none"
#: Channels per block where the runtime cannot be asked.
_BLOCK = 8
#: Milliseconds of an operator that moves nothing.
_VIEW_MS = 0.0006


@register
@dataclass(frozen=True)
class Surrogate(StrategyBase):
    """Searches in what is believed about regions, times what promises most, and learns from it.

    It is for prices of whole graphs (``--cost end-to-end``); where others are asked for, it is ``backtracking``.
    ``prices``: timed regions to begin with; own for those in this machine's price database, none, or a file of JSON
    lines. ``expansions``: graphs that one search in the belief opens. ``draws``: such searches a round by drawn prices,
    beside those by the expected ones. ``beliefs``: 2 for one that begins with ``prices`` and one that does not, 1 for
    the first alone. ``fusion``: the table that says what the runtime fuses; ``block``: channels per block of its
    layout, 0 for what the runtime shows, or 8 where it cannot be asked.
    """

    prices: str = OWN
    expansions: int = 80
    draws: int = 1
    beliefs: int = 2
    fusion: str = "onnxruntime"
    block: int = 0

    name: ClassVar[str] = "surrogate"
    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.expansions, self.draws) < 1 or self.beliefs not in (1, 2) or self.block < 0:
            raise UsageError(
                f"The options of search strategy 'surrogate' are expansions={self.expansions}, draws={self.draws}, "
                f"beliefs={self.beliefs}, block={self.block}; expected at least 1 of each of the first two, 1 or 2 "
                "beliefs, and a block of 0 or more."
            )

    def ready(self) -> None:
        """Raises ModelError for timed regions that cannot be read, UsageError for an unknown fusion table."""
        if self.prices not in (OWN, NONE):
            Prior.read(self.prices)
        Pricer.table(self.fusion, block=self.block)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Believe, time, learn, until the budget ends or nothing new is proposed."""
        if not isinstance(problem.prices, GraphPrices):
            return Backtracking().search(problem, rng)
        root, known, block = problem.root(), self._prior(problem.prices), self._block(problem.prices)
        priors = [known, Prior()][: self.beliefs if len(known) else 1]
        minds = [_Mind(Belief(self._pricer(block), prior), root) for prior in priors]
        run = _Run(self, problem, rng, minds, lambda: self._pricer(block))
        run.learn(root)
        turns = itertools.cycle(run.minds)
        quiet = 0
        while quiet < _QUIET * len(run.minds):
            quiet = 0 if run.step(next(turns)) else quiet + 1
        return StopReason.CONVERGED

    def _prior(self, prices: GraphPrices) -> Prior:
        if self.prices == NONE:
            return Prior()
        return Prior.of_prices(prices.timed_regions()) if self.prices == OWN else Prior.read(self.prices)

    def _block(self, prices: GraphPrices) -> int:
        shown = None if self.block else prices.channel_block()
        return self.block or (_BLOCK if shown is None else shown)

    def _pricer(self, block: int) -> Pricer:
        """A native pricer that has only the price of what moves nothing."""
        found = Pricer.table(self.fusion, block=block)
        found.set_view_price(_VIEW_MS)
        return found


class _Mind:
    """A belief, in which only ratios to the original count, so a machine that is faster throughout teaches nothing.
    ``usual``: regions of the original. ``scale``: from milliseconds to those of the guesses.
    """

    def __init__(self, belief: Belief, root: SearchNode) -> None:
        self.belief = belief
        ms = belief.predict(root.graph).ms
        self.usual = frozenset(belief.signatures)
        self.scale = ms / root.cost if root.cost > 0 else 0.0

    def learn(self, node: SearchNode, noise: float) -> None:
        """A graph took what it costs, give or take ``noise`` milliseconds."""
        self.belief.observe(node.graph, self.scale * node.cost, self.scale * noise)

    def improvement(self, one: Visited, best: float) -> float:
        """What to expect of a graph, beside ``best`` milliseconds."""
        return improvement(self.belief.predict(one.graph), self.scale * best)


@dataclass
class _Run:
    """``pricer`` makes one for a search. ``timed``: digests of the graphs that were timed, or refused."""

    options: Surrogate
    problem: Problem
    rng: np.random.Generator
    minds: Sequence[_Mind]
    pricer: Callable[[], Pricer]
    timed: set[str] = field(default_factory=set)

    def step(self, mind: _Mind) -> bool:
        """Propose and time one graph; whether there was one."""
        found = {one.digest: one for one in self._proposals(mind) if one.digest not in self.timed}
        if not found:
            return False
        best = self.problem.best_cost
        chosen = max(found.values(), key=lambda one: mind.improvement(one, best))
        self.learn(self.problem.led(chosen.trace or ()))
        return True

    def learn(self, node: SearchNode) -> None:
        """From a graph that was timed; one that the runtime refuses says nothing about the others."""
        self.timed.add(node.digest.hex())
        if node.cost < REFUSED_MS:
            for mind in self.minds:
                mind.learn(node, self.problem.gain_floor(node.cost))

    def _proposals(self, mind: _Mind) -> Iterator[Visited]:
        """The ends of searches in what is believed."""
        few = self.options.expansions
        for caution, name, times in _WAYS:
            yield from self._ends(mind, mind.belief.cautious(caution, mind.usual), name, int(times * few))
        for _ in range(self.options.draws):
            yield from self._ends(mind, mind.belief.sample(self.rng), _WAYS[0][1], few)

    def _ends(self, mind: _Mind, prices: PriceOf, name: str, expansions: int) -> Iterator[Visited]:
        self.problem.check()
        result = make(name).run(self._shadow(mind, prices, expansions), self.rng)
        yield from (one for one in (result.best, *result.runners_up) if one.trace)

    def _shadow(self, mind: _Mind, prices: PriceOf, expansions: int) -> Problem:
        problem, state = self.problem, self.problem.root().state
        model = BelievedCost(mind.belief, prices, self.pricer())
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
