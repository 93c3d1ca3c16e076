"""Large graphs in parts: each is optimised as a graph of its own, and what was found is applied to the whole.

Rewrites are local, and yet every step of a search on a large graph asks for all of them. So the graph is cut into
overlapping parts around what is expensive (``subgraphs.py``); a strategy of the user's choice works on each part, and
its trace is replayed on the whole graph (``stitch.py``), which has the last word about every step. A part that differs
from one that was solved before in its weights only (the next layer of a transformer) is not searched again: the trace
is carried over by the mapping of the nodes. The first round goes downhill only, which costs little; later rounds use
the inner strategy. What lies on the seams is left to a way downhill on the whole after each round, and to the next
round, whose parts are cut elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow import specs
from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import Descent
from rlflow.search.greedy import Greedy
from rlflow.search.limits import SearchStopped
from rlflow.search.memory import resumable
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.stitch import Step, Stitcher, steps_of
from rlflow.search.strategies import Strategy, make, register, require_ready
from rlflow.search.strategy_base import StrategyBase
from rlflow.search.subgraphs import Subgraph, cut_out, plan
from rlflow.search.view import View


@register
@dataclass(frozen=True)
class PartitionedSearch(StrategyBase):
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
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 2 or self.rounds < 1 or not self.effort > 0.0:
            raise UsageError(
                f"The options of search strategy 'partition' are size={self.size}, effort={self.effort:g}, "
                f"rounds={self.rounds}; expected parts of at least 2 nodes, an effort above 0 and at least one round."
            )
        self.strategy()

    def strategy(self) -> Strategy:
        """The strategy for the parts. Raises :class:`UsageError` for one that does not exist."""
        spec = specs.nested(self.inner)
        if specs.name_of(spec) == self.name:
            raise UsageError("The parts of a partition cannot be partitioned again; name another inner strategy.")
        return make(spec)

    def ready(self) -> None:
        """Raises the sentence of what a strategy inside lacks here."""
        require_ready(self.strategy())

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Round after round of parts, until a round changes nothing."""
        node = problem.root()
        if not hasattr(node.state, "take"):  # another rewriting system: nothing is known about its graphs
            return self.strategy().run(View(problem), rng).stop_reason
        run: _Run = problem.recall() or _Run(self, problem, rng, node, node)
        return run.finish()

    def passes(self, size: int) -> list[Strategy]:
        """The strategy of each round, on a graph of ``size`` nodes.

        First what is cheap, everywhere; but it may exclude what is better, so not where one part is the whole graph.
        """
        return [*([Greedy()] if size > self.size else []), *[self.strategy()] * self.rounds]


@resumable
@dataclass(eq=False)
class _Run:
    """One run. ``start``: the graph that this round cuts into ``parts``; ``done``: how many of them are; ``node``: what
    became of the graph so far; ``way``: down from a round's end.

    ``solved``: the steps for each kind of part. ``cut_short``: whether a part's search ended because the budget was
    nearly spent; a longer budget would have gone on there, so nothing after it is kept.
    """

    options: PartitionedSearch
    problem: Problem
    rng: np.random.Generator
    node: SearchNode
    start: SearchNode
    round: int = 0
    parts: list[list[int]] | None = None
    done: int = 0
    way: Descent | None = None
    solved: dict[tuple[object, ...], list[Step]] = field(default_factory=dict)
    searches: int = 0
    cut_short: bool = False

    def finish(self) -> StopReason:
        """Go on to the end."""
        passes = self.options.passes(self.problem.root().size)
        while self.round < len(passes):
            strategy = passes[self.round]
            if self.way is None:
                self._work_on_parts(strategy)
                if self.node is self.start and self.round > 0:  # the first way down is taken at any rate: for macros
                    break
                self.way = Descent(self.node)
            if self.options.finish:
                self.node = self.way.finish(self.problem, self._keep)[0]
            self.start, self.parts, self.done, self.way = self.node, None, 0, None
            self.round += 1
        return StopReason.BUDGET_EXPANSIONS if self.cut_short else StopReason.CONVERGED

    def _keep(self) -> None:
        if not self.cut_short:
            self.problem.keep(self)

    def _work_on_parts(self, strategy: Strategy) -> None:
        """One pass of ``strategy`` over all parts of the graph."""
        stitcher = Stitcher(View(self.problem))
        if self.parts is None:
            self.parts = plan(self.start.graph, self.start.state.pricer, self.options.size)
        while self.done < len(self.parts):
            self._keep()
            self.problem.check()
            part = cut_out(self.node.graph, self.parts[self.done])
            key = (strategy, part.key)
            if key not in self.solved:
                self.solved[key] = self._solve(part, self.node, strategy)
                self.searches += 1
            steps = self.solved[key]
            if steps:
                after = stitcher.apply(self.node, part.members, steps)
                self.node = after if self.problem.improves(after, self.node) else self.node
            self.done += 1

    def _solve(self, part: Subgraph, node: SearchNode, strategy: Strategy) -> list[Step]:
        """What ``strategy`` finds on a part."""
        from rlflow.rewrite import State

        outer, whole = self.problem, node.state
        outer.meter.measurements += outer.prices.settle_root(part.graph, lambda: outer.stopped() is not None)
        state = State(part.graph, whole.ruleset, whole.pricer, stop=whole.stop)
        shared = {"prices": outer.prices, "stop": outer.stop, "tolerance": outer.settings.tolerance}
        inner = Problem.over(state, outer.rule_names, outer.meter, **shared)
        limit = outer.meter.expansions + max(int(self.options.effort * len(part.members)), 1)

        def turn() -> None:
            outer.report()  # the inner problem reports to nobody
            spent, total = outer.meter.expansions, outer.meter.budget.expansions
            if total is not None and total - spent <= view.best.depth:
                self.cut_short = True  # the rest is for the replay
            if spent >= limit or self.cut_short:
                raise SearchStopped(StopReason.CONVERGED)

        view = View(inner, None, turn)
        result = strategy.run(view, self.rng)
        gain = inner.root().cost - result.cost_after_ms
        if not gain > inner.gain_floor(inner.root().cost) or result.trace is None:
            return []
        return steps_of(part, state, result.trace)
