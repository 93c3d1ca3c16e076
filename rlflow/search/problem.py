"""The problem that a strategy is given: where it starts, what may be rewritten, what that costs, and when to stop.

A strategy sees three calls: :meth:`Problem.root`, :meth:`Problem.moves` and :meth:`Problem.open`. What is behind them
belongs to the problem alone: when to end (``limits.py``), the candidates and their prices (``frontier.py``), the best
graph so far (``incumbent.py``), and who is told (``progress.py``). A call that would exceed the budget raises
:class:`SearchStopped`, which a strategy lets through (:class:`StrategyBase` turns it into the result).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlflow.search.budget import Budget, BudgetMeter, StopReason
from rlflow.search.frontier import WEIGHT_FACTOR, Frontier
from rlflow.search.incumbent import Incumbent
from rlflow.search.interrupt import StopToken
from rlflow.search.limits import Limits, SearchStopped
from rlflow.search.node import Link, MoveTable, SearchNode, growth
from rlflow.search.patience import Patience
from rlflow.search.prices import Prices
from rlflow.search.progress import Progress, ProgressEvents
from rlflow.search.result import Result, TraceStep, Visited
from rlflow.search.rounding import Rounding
from rlflow.search.selection import Selection
from rlflow.search.start import Given, Rewriting, Start
from rlflow.search.trace import replay_states

#: Costs that differ by less than this part are the same sum in another order.
ROUNDING = 1e-9


class Observer(Protocol):
    """Is told what a search does; see ``statistics.py``."""

    def enumerated(self, table: MoveTable) -> None:
        """The candidates of a node were handed to the strategy."""
        ...

    def opened(self, parent: SearchNode, child: SearchNode, rule: int, is_best: bool) -> None:
        """A child was opened by rule number ``rule``; ``is_best``: it is the cheapest so far."""
        ...


@dataclass(frozen=True)
class Settings:
    """What every problem can be told. ``weight_limit``: bytes that folded weights may take (default: ``growth``
    times the model's own). ``on_progress`` is called about five times a second. ``runners_up``: how many graphs besides
    the best are handed on. ``macros``: offer macro moves too (``macros.py``). ``tolerance``: what the steps of a trace
    may add to the rounding error (:class:`rlflow.rewrite.tolerance.Tolerance`; default: anything). ``clocked``: rules
    that only a clock can price.
    """

    seed: int = 0
    weight_limit: int | None = None
    growth: float = WEIGHT_FACTOR
    on_progress: Callable[[Progress], None] | None = None
    runners_up: int = 3
    macros: bool = True
    tolerance: Any = None
    clocked: frozenset[str] = frozenset()


class Problem:
    """A graph to improve, within a budget. ``rules`` is a rule library or a compiled rule set, ``cost_model`` one of
    :mod:`rlflow.price`. ``patience``: when to end before the budget does (default: never). ``profile_rules``,
    ``pricing_seconds``, ``on_pricing``: see :class:`Rewriting`. ``settings``: the fields of :class:`Settings`.
    """

    def __init__(
        self,
        graph: Any,
        rules: Any,
        cost_model: Any,
        budget: Budget | str,
        *,
        stop: StopToken | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: Patience | None = None,
        profile_rules: bool = False,
        pricing_seconds: float | None = None,
        on_pricing: Callable[[Any], None] | None = None,
        **settings: Any,
    ) -> None:
        limits, prices = Limits(BudgetMeter.of(budget, clock), stop, patience), Prices.of(cost_model)
        start = Rewriting(graph, rules, prices, limits, profile_rules, pricing_seconds, on_pricing)
        self._begin(start, limits, Settings(**settings))

    @classmethod
    def over(
        cls,
        state: Any,
        rule_names: Sequence[str],
        budget: Budget | str | BudgetMeter,
        *,
        prices: Prices | None = None,
        stop: StopToken | None = None,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> Problem:
        """A problem over any object that behaves like the core's ``State``. A ``budget`` that is a meter is shared."""
        problem = cls.__new__(cls)
        limits = Limits(BudgetMeter.of(budget, clock), stop)
        problem._begin(Given(state, rule_names, prices or Prices()), limits, Settings(**settings))
        return problem

    def _begin(self, start: Start, limits: Limits, settings: Settings) -> None:
        self.start, self.limits, self.seed, self.settings = start, limits, settings.seed, settings
        self.rule_names, self.prices, self.stop = start.names, start.prices, limits.stop
        rounding, heavy = Rounding(settings.tolerance, start.names), (settings.weight_limit, settings.growth)
        self.frontier = Frontier(start.prices, limits, *heavy, settings.macros, rounding)
        self.incumbent = Incumbent(limits, settings.runners_up, rounding.keeps)
        self.events = ProgressEvents(limits.meter, settings.on_progress)
        self.observer: Observer | None = None
        #: Writes a run down where somebody keeps checkpoints; a run that was read back waits in ``recalled``.
        self.keeper: Callable[[Any], None] | None = None
        self.recalled: Any = None
        #: Number of this worker and of all where several share out a search's first choices; see ``is_mine``.
        self.share = (0, 1)
        self._root: SearchNode | None = None

    # --- what a strategy calls ----------------------------------------------------------------------------------------

    def root(self) -> SearchNode:
        """The starting graph; always the same node. The first call prices it, then starts the clock."""
        if self._root is None:
            state = self.start.state()
            self.meter.measurements += self.start.measurements
            self._root = SearchNode.of(state, self.frontier.begin(state))
            self.meter.start()
            self._visit(self._root)
        return self._root

    def moves(self, node: SearchNode, connected: Selection | None = None) -> MoveTable:
        """The candidates of ``node``, priced and counted against the budget; ``connected``: only those that it selects.

        Open what is in the table from ``table.node``. Where the budget allows fewer candidates than there are, an
        evenly spread choice of them is returned. Macros are among those of the starting graph; see :meth:`widened`.
        """
        self.check()
        return self._counted(self.frontier.listed(node, connected, connected is None and node is self._root))

    def widened(self, table: MoveTable) -> MoveTable:
        """A table with the macros of its node too, which alone are counted; itself where that is not due."""
        self.check()
        due = self.frontier.widens(table)
        return self._counted(self.frontier.listed(table.node, None, True), len(table)) if due else table

    def open(self, node: SearchNode, i: int) -> SearchNode:
        """Open the child that move ``i`` (``MoveTable.index``) of ``node`` leads to; its cost is exact, measured if
        need be.
        """
        self.check()
        i = int(i)
        if node.raw is None or i >= len(node.raw):
            raise IndexError(f"Move {i} was opened before it was enumerated; call moves(node) first.")
        return self._open(node, i)

    def reopen(self, node: SearchNode, i: int, other: SearchNode) -> SearchNode | None:
        """Open move ``i`` of ``node`` in ``other``, a descendant of ``node``; ``None`` where it is gone."""
        self.check()
        found = self.frontier.standing(node, int(i), other)
        return None if found is None else self._open(*found)

    def admit(self, graph: Any) -> SearchNode | None:
        """Visit a graph that no move led to, such as an e-graph's; ``None`` where its folded weights are too heavy.

        It counts as a candidate that is opened. Without a trace: only for strategies that declare that they have none.
        """
        self.check()
        if self.meter.grant_candidates(1) < 1:
            raise SearchStopped(self.stopped() or StopReason.BUDGET_CANDIDATES)
        state = self.frontier.taken_in(graph, self.root().state)
        if state is None:
            return None
        node = SearchNode.of(state, self.frontier.cost(state), depth=self.meter.expansions, traced=False)
        self._visit(node)
        self.report()
        return node

    def refine(self, table: MoveTable, ks: Sequence[int]) -> None:
        """Measure the candidates ``ks`` (positions in the table) in one batch and bring the table up to date; nothing
        is counted twice.
        """
        unknown = [int(table.index[k]) for k in ks if not table.exact[k]]
        if unknown:
            self.check()
            self.frontier.refine(table, unknown)

    def led(self, trace: Iterable[TraceStep]) -> SearchNode:
        """The node that a trace leads to, opened in one go: what is not priced there is measured, and counted. Raises
        :class:`SearchStopped` where the budget does not reach.
        """
        self.check()
        *_, state = [self.root().state, *replay_states(self.root().state, steps := list(trace))]
        self.meter.expansions += len(steps)
        if self.prices.measures:
            self.frontier.settle([state.graph])
        return self._arrived(self.root(), steps, state)

    def replayed(self, trace: Iterable[TraceStep]) -> SearchNode:
        """The node that a trace leads to from the starting graph; it counts as visited, and nothing is spent. Raises
        :class:`rlflow.errors.UsageError` where a step does not apply.
        """
        root, steps = Problem.root(self), list(trace)
        if not steps:
            return root
        *_, state = replay_states(root.state, steps)
        self.prices.settle_root(state.graph, lambda: self.stop.stopped)
        return self._arrived(root, steps, state)

    def improves(self, child: SearchNode, parent: SearchNode) -> bool:
        """Whether ``child`` is really cheaper, or no dearer with fewer nodes."""
        gain = parent.cost - child.cost
        return gain > self.gain_floor(parent.cost) or (child.size < parent.size and gain >= -ROUNDING * parent.cost)

    def gain_floor(self, cost: float) -> float:
        """Differences up to this many milliseconds count as none: rounding, or the noise of measured prices."""
        return self.prices.noise_ms(cost)

    @property
    def meter(self) -> BudgetMeter:
        """What is spent, and what is left."""
        return self.limits.meter

    @property
    def best_cost(self) -> float:
        """Cost of the best graph visited so far, in milliseconds."""
        self.root()
        return self.incumbent.cost

    @property
    def start_cost(self) -> float:
        """Cost of the starting graph in milliseconds."""
        return self.root().cost

    def seconds_left(self) -> float | None:
        """Seconds that this search may still take, ``None`` where they are not limited."""
        return self.meter.seconds_left()

    def stopped(self) -> StopReason | None:
        """Why the search has to end now, or ``None``."""
        return self.limits.reached()

    def check(self) -> None:
        """Raises :class:`SearchStopped` where the search has to end now."""
        self.root()
        self.limits.check()

    def nominate(self, one: SearchNode | Visited) -> None:
        """Hand a graph on to the final comparison whatever it is priced at, unless it is there already."""
        self.incumbent.nominate(one.visited if isinstance(one, SearchNode) else one, self.root())

    def keep(self, run: Any) -> None:
        """Called by a strategy where it could go on from ``run`` alone; costs nothing unless checkpoints are kept."""
        if self.keeper is not None and self.stopped() is None:
            self.keeper(run)

    def recall(self) -> Any:
        """The run that a strategy has to go on from, once; ``None`` where it begins."""
        run, self.recalled = self.recalled, None
        return run

    def news(self) -> SearchNode | None:
        """A graph cheaper than all of this search that another one of the same budget found, once (``View``)."""
        return None

    def is_mine(self, number: int) -> bool:
        """Whether a choice, numbered alike by all workers that share the search out, is for this one to follow."""
        worker, workers = self.share
        return number % workers == worker

    def result(self, reason: StopReason, strategy: str, *, has_trace: bool = True) -> Result:
        """The outcome so far, for the strategy to return."""
        before = self.start_cost
        self.report(last=True)
        return self.incumbent.result(before, reason, strategy, self.seed, self.frontier.overweight, has_trace)

    def report(self, last: bool = False) -> None:
        """Tell how far the search is, where it is time for it."""
        self.events.tell(lambda: self.start_cost, lambda: self.best_cost, last)

    def _counted(self, listed: tuple[MoveTable, int], known: int = 0) -> MoveTable:
        """A table as far as the budget allows; ``known`` of its candidates were counted before."""
        self.frontier.overweight += 0 if known else listed[1]
        table = listed[0].thinned(known + self.meter.grant_candidates(max(len(listed[0]) - known, 0)))
        self.report()
        if self.observer is not None:
            self.observer.enumerated(table.beyond(known))
        return table

    def _open(self, node: SearchNode, i: int) -> SearchNode:
        self.meter.expansions += 1
        if not self.prices.settles(node.raw, i):
            self.frontier.settle([node.child(i)])
        rule, size = int(node.raw.rule[i]), node.size + growth(node.raw, i)
        steps, state, best_before = node.steps(i, self.rule_names), node.after(i), self.incumbent.cost
        cost, digest, link = self.frontier.cost(state), bytes.fromhex(state.graph.digest), Link.after(node.link, steps)
        child = SearchNode(state, cost, digest, size, link, node.depth + len(steps), traced=node.traced)
        self._visit(child)
        if self.observer is not None:
            self.observer.opened(node, child, rule, child.cost < best_before)
        self.report()
        return child

    def _arrived(self, start: SearchNode, steps: Sequence[TraceStep], state: Any) -> SearchNode:
        node = SearchNode.of(state, self.frontier.cost(state), Link.after(start.link, steps), start.depth + len(steps))
        self._visit(node)
        return node

    def _visit(self, node: SearchNode) -> None:
        self.incumbent.visit(node)
