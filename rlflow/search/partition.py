"""Large graphs in parts: each is optimised as a graph of its own, and what was found is applied to the whole.

Rewrites are local, and yet every step of a search on a large graph asks for all of them. So the graph is cut into
overlapping parts around what is expensive (``regions.py``); a strategy of the user's choice works on each part, and its
trace is replayed on the whole graph (``stitch.py``), which has the last word about every step. A part that differs from
one that was solved before in its weights only (the next layer of a transformer) is not searched again: the trace is
carried over by the mapping of the nodes. The first round goes downhill only, which costs little; later rounds use the
inner strategy. What lies on the seams is left to a way downhill on the whole after each round, and to the next round,
whose parts are cut elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import descend
from rlflow.search.greedy import Greedy
from rlflow.search.problem import Problem, SearchNode, SearchStopped, StrategyBase
from rlflow.search.regions import Region, cut_out, plan
from rlflow.search.registry import Strategy, make, register, specification
from rlflow.search.stitch import Step, Stitcher, steps_of
from rlflow.search.view import View


@register
@dataclass(frozen=True)
class Partition(StrategyBase):
    """Optimises overlapping parts of the graph one by one; for graphs of thousands of nodes.

    ``inner``: the strategy for the parts, options in brackets: beam(width=4;twins=1). ``size``: nodes that a part may
    have. ``effort``: graphs that a part may open for each of its nodes. ``rounds``: how often the graph is cut for the
    inner strategy. ``finish``: go downhill on the whole graph after each round.
    """

    inner: str = "backtracking"
    size: int = 60
    effort: float = 1.5
    rounds: int = 2
    finish: bool = True

    name: ClassVar[str] = "partition"

    def __post_init__(self) -> None:
        if self.size < 2 or self.rounds < 1 or not self.effort > 0.0:
            raise UsageError(
                f"The options of search strategy 'partition' are size={self.size}, effort={self.effort:g}, "
                f"rounds={self.rounds}; expected parts of at least 2 nodes, an effort above 0 and at least one round."
            )
        self.strategy()

    def strategy(self) -> Strategy:
        """The strategy for the parts. Raises :class:`UsageError` for one that does not exist."""
        spec = specification(self.inner)
        if spec.partition(":")[0] == self.name:
            raise UsageError("The parts of a partition cannot be partitioned again; name another inner strategy.")
        return make(spec)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Round after round of parts, until a round changes nothing."""
        node = problem.root()
        if not hasattr(node.state, "take"):  # another rewriting system: nothing is known about its graphs
            return self.strategy().run(View(problem), rng).stop_reason
        run = _Run(self, problem, rng)
        # First what is cheap, everywhere; but it may exclude what is better, so not where one part is the whole graph.
        first = [Greedy()] if node.size > self.size else []
        for strategy in (*first, *[self.strategy()] * self.rounds):
            after = run.round(node, strategy)
            if after is node and strategy != Greedy():
                break
            node = descend(problem, after)[0] if self.finish else after
        return StopReason.CONVERGED


@dataclass(eq=False)
class _Run:
    options: Partition
    problem: Problem
    rng: np.random.Generator
    solved: dict[tuple[object, ...], list[Step]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def round(self, node: SearchNode, strategy: Strategy) -> SearchNode:
        """``node`` after one pass of ``strategy`` over all parts."""
        stitcher = Stitcher(View(self.problem))
        for part in plan(node.graph, node.state.pricer, self.options.size):
            self.problem._check()
            region = cut_out(node.graph, part)
            key = (strategy, region.key)
            if key not in self.solved:
                self.solved[key] = self._solve(region, node, strategy)
                self.done["solved"] += 1
            steps = self.solved[key]
            if steps:
                after = stitcher.apply(node, region.members, steps)
                node = after if self.problem.improves(after, node) else node
        return node

    def _solve(self, region: Region, node: SearchNode, strategy: Strategy) -> list[Step]:
        """What ``strategy`` finds on a part."""
        from rlflow.rewrite import State

        outer, whole = self.problem, node.state
        outer.meter.measurements += outer.prices.settle_root(region.graph, lambda: outer.stopped() is not None)
        state = State(region.graph, whole.ruleset, whole.pricer, stop=whole.stop)
        inner = Problem.over(state, outer.rule_names, outer.meter.budget, prices=outer.prices, stop=outer.stop)
        inner.meter = outer.meter  # what is spent on parts is spent
        limit = outer.meter.expansions + max(int(self.options.effort * len(region.members)), 1)

        def turn() -> None:
            outer._report()  # the inner problem reports to nobody
            spent, total = outer.meter.expansions, outer.meter.budget.expansions
            if spent >= limit or (total is not None and total - spent <= view.best.depth):
                raise SearchStopped(StopReason.CONVERGED)  # the rest is for the replay

        view = View(inner, None, turn)
        result = strategy.run(view, self.rng)
        gain = inner.root().cost - result.cost_after_ms
        if not gain > inner.gain_floor(inner.root().cost) or result.trace is None:
            return []
        return steps_of(region, state, result.trace)
