"""The problem that a strategy is given: where it starts, what may be rewritten, what that costs, and when to stop.

A strategy sees three calls: :meth:`Problem.root`, :meth:`Problem.moves` and :meth:`Problem.open`. Budget, clock,
best-so-far, the stop token and progress reports are the problem's own: a call that would exceed the budget raises
:class:`SearchStopped`, which a strategy lets through (:class:`StrategyBase` turns it into the result).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from rlflow.errors import CostError
from rlflow.graph import Graph
from rlflow.search.archive import Archive
from rlflow.search.budget import Budget, BudgetMeter, StopReason
from rlflow.search.interrupt import StopToken
from rlflow.search.patience import Patience
from rlflow.search.prices import Prices
from rlflow.search.result import Counts, CurvePoint, Result, TraceStep, Visited
from rlflow.search.selection import Selection, Signature, signatures_of, touched_by, touches
from rlflow.search.trace import replay_states

PROGRESS_SECONDS = 0.2
#: Costs that differ by less than this part are the same sum in another order.
ROUNDING = 1e-9
WEIGHT_FACTOR = 1.25
#: Weights may always grow by this much, so that a model of a few bytes is not forbidden its first folded constant.
WEIGHT_SLACK_BYTES = 1 << 16


class SearchStopped(Exception):  # noqa: N818 - control flow, not an error
    """The budget is spent or the user asked for the end; carries the :class:`StopReason`."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
        super().__init__(str(reason))


class Progress(NamedTuple):
    """What a progress callback is told, about five times a second."""

    seconds: float
    seconds_left: float | None
    fraction: float
    candidates: int
    expansions: int
    measurements: int
    cost_before_ms: float
    best_ms: float


class _Link(NamedTuple):
    """The last step of a trace and what came before it; children share their parents' links."""

    step: TraceStep
    before: _Link | None


@dataclass(eq=False)
class SearchNode:
    """An opened graph: its state in the core, its cost in milliseconds, and the steps that led to it.

    ``size``: nodes that do work at run time. ``traced``: whether there are such steps; not below a graph that no move
    led to.
    """

    state: Any
    cost: float
    digest: bytes
    size: int
    link: _Link | None = None
    depth: int = 0
    raw: Any = field(default=None, repr=False)
    traced: bool = True
    _nodes: frozenset[int] | None = field(default=None, repr=False)

    @property
    def graph(self) -> Any:
        return self.state.graph

    @property
    def trace(self) -> tuple[TraceStep, ...]:
        """The steps from the root to this node."""
        steps: list[TraceStep] = []
        link = self.link
        while link is not None:
            steps.append(link.step)
            link = link.before
        return tuple(reversed(steps))

    @property
    def nodes(self) -> frozenset[int]:
        """Ids of the graph's nodes; they persist from parent to child."""
        if self._nodes is None:
            self._nodes = frozenset(self.graph.order())
        return self._nodes


class MoveTable:
    """The admitted candidates of a node as arrays, in the core's fixed order.

    ``index`` [n]: position among the core's moves, which :meth:`Problem.open` takes. ``cost`` [n]: the child's cost in
    ms, an estimate where ``exact`` [n] is False. ``rule`` [n]: rule number. ``growth`` [n]: nodes added less nodes
    removed. ``source``: the node that was asked about, and what was selected there.
    """

    def __init__(
        self,
        node: SearchNode,
        index: np.ndarray,
        cost: np.ndarray,
        exact: np.ndarray,
        source: tuple[SearchNode, Selection | None] | None = None,
    ) -> None:
        self.node, self.raw = node, node.raw
        self.source = source or (node, None)
        self.index, self.cost, self.exact = index, cost, exact
        self.rule: np.ndarray = np.asarray(self.raw.rule)[index]
        self.growth: np.ndarray = (np.asarray(self.raw.nodes_added) - np.asarray(self.raw.nodes_removed))[index]
        self._digests: list[bytes] | None = None
        self._signatures: list[Signature] | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def digests(self) -> list[bytes]:
        """The children's digests, 16 bytes each."""
        if self._digests is None:
            self._digests = [row.tobytes() for row in np.ascontiguousarray(self.raw.digest)[self.index]]
        return self._digests

    def touched(self, k: int) -> np.ndarray:
        """Ids of the nodes that candidate ``k`` matched."""
        return touched_by(self.raw, int(self.index[k]))

    def touching(self, nodes: Iterable[int]) -> list[int]:
        """The candidates that touch one of the nodes."""
        return np.flatnonzero(touches(self.raw, nodes)[self.index]).tolist()

    @property
    def signatures(self) -> list[Signature]:
        """``(rule, touched ids)`` of each candidate: the same in parent and child where the match persists."""
        if self._signatures is None:
            self._signatures = signatures_of(self.raw, self.index)
        return self._signatures


class Observer(Protocol):
    """Is told what a search does; see ``statistics.py``."""

    def enumerated(self, table: MoveTable) -> None:
        """The candidates of a node were handed to the strategy."""
        ...

    def opened(self, parent: SearchNode, child: SearchNode, rule: int, is_best: bool) -> None:
        """A child was opened by rule number ``rule``; ``is_best``: it is the cheapest so far."""
        ...


def _visited(node: SearchNode) -> Visited:
    return Visited(node.graph, node.digest.hex(), node.cost, node.trace if node.traced else None)


def _work(graph: Any) -> int:
    """Nodes that do work at run time: what only depends on constants is free."""
    if isinstance(graph, Graph):
        return graph.num_working_nodes
    return sum(not graph.is_const(node) and graph.op(node) != "Input" for node in graph.order())


def _growth(raw: Any, i: int) -> int:
    return int(raw.nodes_added[int(i)]) - int(raw.nodes_removed[int(i)])


def _adjacent(graph: Any, identifier: int) -> Iterator[int]:
    for value in graph.node_inputs(identifier):
        if value >= 0:
            yield graph.producer(value)
    for value in graph.node_outputs(identifier):
        for user, _ in graph.users(value):
            yield user


class Problem:
    """A graph to improve, within a budget.

    ``rules`` is a rule library or a compiled rule set; ``cost_model`` one of :mod:`rlflow.price`. ``weight_limit``:
    bytes that folded weights may take (default: 1.25 times the model's own). ``on_progress`` is called about five times
    a second. ``runners_up``: how many graphs besides the best are handed on. ``profile_rules``: count and time what
    each rule takes (:meth:`rule_profile`). ``patience``: when to end before the budget does (default: never).
    ``pricing_seconds``: what pricing the starting graph may take; ``on_pricing`` hears how far it is.
    """

    _patience: Patience | None = None

    def __init__(
        self,
        graph: Any,
        rules: Any,
        cost_model: Any,
        budget: Budget | str,
        *,
        seed: int = 0,
        weight_limit: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        runners_up: int = 3,
        stop: StopToken | None = None,
        clock: Callable[[], float] = time.monotonic,
        profile_rules: bool = False,
        patience: Patience | None = None,
        pricing_seconds: float | None = None,
        on_pricing: Callable[[Any], None] | None = None,
    ) -> None:
        from rlflow.rewrite import State, compiled  # the matcher is opened when it is needed
        from rlflow.rewrite import StopToken as NativeStop

        ruleset = compiled(rules)
        prices = Prices.of(cost_model)
        stop, native = stop or StopToken(), NativeStop()
        stop.when_stopped(native.set)

        def make_root() -> Any:
            left = self.meter.measurements_left()
            self.setup_measurements = prices.settle_root(
                graph, lambda: self.stop.stopped, left, pricing_seconds, on_pricing
            )
            return State(graph, ruleset, prices.pricer, stop=native, profile=profile_rules)

        self._setup(make_root, ruleset.names, prices, budget, seed, weight_limit, on_progress, runners_up, stop, clock)
        self._patience = patience

    @classmethod
    def over(
        cls,
        state: Any,
        rule_names: Sequence[str],
        budget: Budget | str,
        *,
        prices: Prices | None = None,
        seed: int = 0,
        weight_limit: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        runners_up: int = 3,
        stop: StopToken | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Problem:
        """A problem over any object that behaves like the core's ``State``: other rewriting systems, and tests."""
        problem = cls.__new__(cls)
        priced = prices or Prices()
        problem._setup(
            lambda: state, rule_names, priced, budget, seed, weight_limit, on_progress, runners_up, stop, clock
        )
        return problem

    def _setup(
        self,
        make_root: Callable[[], Any],
        rule_names: Sequence[str],
        prices: Prices,
        budget: Budget | str,
        seed: int,
        weight_limit: int | None,
        on_progress: Callable[[Progress], None] | None,
        runners_up: int,
        stop: StopToken | None,
        clock: Callable[[], float],
    ) -> None:
        self.seed = seed
        self.rule_names = list(rule_names)
        self.meter = BudgetMeter(Budget.parse(budget), clock)
        self.stop = stop or StopToken()
        self.prices = prices
        self.overweight = 0
        #: Measurements that pricing the starting graph took, the first that the budget counts.
        self.setup_measurements = 0
        self.observer: Observer | None = None
        #: Writes a run down where somebody keeps checkpoints; a run that was read back waits in ``recalled``.
        self.keeper: Callable[[Any], None] | None = None
        self.recalled: Any = None
        #: Number of this worker and of all where several share out a search's first choices; see ``is_mine``.
        self.share = (0, 1)
        self._make_root, self._weight_limit, self.on_progress = make_root, weight_limit, on_progress
        self._root: SearchNode | None = None
        self._archive = Archive(runners_up)
        self._nominees: list[Visited] = []
        self._curve: list[CurvePoint] = []
        self._last_report = float("-inf")

    # --- what a strategy calls ----------------------------------------------------------------------------------------

    def root(self) -> SearchNode:
        """The starting graph; always the same node. The first call prices it, then starts the clock."""
        if self._root is None:
            state = self._make_root()
            self.meter.measurements += self.setup_measurements
            cost = self._cost(state)
            if not cost >= 0.0:
                raise CostError(
                    f"The search cannot start: the cost model says that the model as it came costs {cost} ms; expected "
                    "a number that is not negative. Look at the cost model, or choose another one."
                )
            self._root = SearchNode(state, cost, bytes.fromhex(state.graph.digest), _work(state.graph))
            if self._weight_limit is None:
                self._weight_limit = int(WEIGHT_FACTOR * state.weight_bytes) + WEIGHT_SLACK_BYTES
            self.meter.start()
            self._visit(self._root)
        return self._root

    def moves(self, node: SearchNode, connected: Selection | None = None) -> MoveTable:
        """The candidates of ``node``, priced and counted against the budget; ``connected``: only those that it selects.

        Open what is in the table from ``table.node``. Where the budget allows fewer candidates than there are, an
        evenly spread choice of them is returned.
        """
        self._check()
        table, heavy = self.listed(node, connected)
        self.overweight += heavy
        granted = self.meter.grant_candidates(len(table))
        if granted < len(table):
            some = np.arange(granted) * len(table) // max(granted, 1)
            table = MoveTable(table.node, table.index[some], table.cost[some], table.exact[some], table.source)
        self._report()
        if self.observer is not None:
            self.observer.enumerated(table)
        return table

    def listed(self, node: SearchNode, selection: Selection | None) -> tuple[MoveTable, int]:
        """The candidates of :meth:`moves` without counting them, and how many were left out because of their folded
        weights; taking weights away is always welcome.
        """
        source = (node, selection)
        part = selection.part_of(node) if selection is not None else None
        if part is not None:
            node, selection = part, None
        raw = node.raw = node.state.moves()
        delta, exact = self.prices.deltas(node.state, raw)
        index = np.arange(len(raw))
        if selection is not None:
            index = selection.select(raw, index)
        weights = np.asarray(raw.weight_bytes)[index]
        light = self.admits(weights) | (weights <= node.state.weight_bytes)
        index, heavy = index[light], int((~light).sum())
        return MoveTable(node, index, node.cost + delta[index], exact[index], source), heavy

    def admits(self, weight_bytes: Any) -> Any:
        """Whether folded weights of so many bytes, a number or an array, keep within the limit."""
        return weight_bytes <= self._weight_limit

    def open(self, node: SearchNode, i: int) -> SearchNode:
        """Open the child that move ``i`` (``MoveTable.index``) of ``node`` leads to; its cost is exact, measured if
        need be.
        """
        self._check()
        i = int(i)
        if node.raw is None or i >= len(node.raw):
            raise IndexError(f"Move {i} was opened before it was enumerated; call moves(node) first.")
        return self._open(node, i, self.rule_names[int(node.raw.rule[i])], node.size + _growth(node.raw, i))

    def _open(self, node: SearchNode, i: int, rule: str, size: int) -> SearchNode:
        self.meter.expansions += 1
        if self.prices.measures:
            self._measure(node, [i])
        step = TraceStep(rule, tuple(int(ordinal) for ordinal in node.state.key(i)))
        state = node.state.open(i)
        child = SearchNode(
            state, self._cost(state), bytes.fromhex(state.graph.digest), size, _Link(step, node.link), node.depth + 1,
            traced=node.traced,
        )  # fmt: skip
        best_before = self._archive.best_cost
        self._visit(child)
        if self.observer is not None:
            self.observer.opened(node, child, int(node.raw.rule[i]), child.cost < best_before)
        self._report()
        return child

    def admit(self, graph: Any) -> SearchNode | None:
        """Visit a graph that no move led to, such as an e-graph's; ``None`` where its folded weights are too heavy.

        It counts as a candidate that is opened. Without a trace: only for strategies that declare that they have none.
        """
        self._check()
        if self.meter.grant_candidates(1) < 1:
            raise SearchStopped(self.stopped() or StopReason.BUDGET_CANDIDATES)
        root = self.root().state
        state = type(root)(graph, root.ruleset, root.pricer, stop=root.stop)
        if state.weight_bytes > self._weight_limit and state.weight_bytes > root.weight_bytes:
            self.overweight += 1
            return None
        self.meter.expansions += 1
        if self.prices.measures:
            self._measure_graphs([graph])
            state = type(root)(graph, root.ruleset, root.pricer, stop=root.stop)
        node = SearchNode(
            state, self._cost(state), bytes.fromhex(graph.digest), _work(graph), depth=self.meter.expansions,
            traced=False,
        )  # fmt: skip
        self._visit(node)
        self._report()
        return node

    def reopen(self, node: SearchNode, i: int, other: SearchNode) -> SearchNode | None:
        """Open, in ``other``, a descendant of ``node``, the move that is number ``i`` of ``node``; ``None`` where it is
        gone.
        """
        self._check()
        if hasattr(other.state, "same"):
            part = replace(other, state=other.state.same(node.state, int(i)))
            part.raw = part.state.moves()
            rule = self.rule_names[int(node.raw.rule[i])]
            return self._open(part, 0, rule, other.size + _growth(part.raw, 0)) if len(part.raw) else None
        wanted = signatures_of(node.raw, np.array([i]))[0]
        other.raw = other.state.moves()
        index = np.flatnonzero(np.asarray(other.raw.rule) == wanted[0])
        for j, signature in zip(index.tolist(), signatures_of(other.raw, index), strict=True):
            if signature == wanted:
                return self._open(other, j, self.rule_names[wanted[0]], other.size + _growth(other.raw, j))
        return None

    def refine(self, table: MoveTable, ks: Sequence[int]) -> None:
        """Measure the candidates ``ks`` (positions in the table) in one batch and bring the table up to date; nothing
        is counted twice.

        A look ahead like this spends at most half of the measurements that are left, so that what it finds can still be
        opened.
        """
        unknown = [int(table.index[k]) for k in ks if not table.exact[k]]
        if not unknown:
            return
        self._check()
        node = table.node
        left = self.meter.measurements_left()
        self._measure_some([node.state.child(i) for i in unknown], None if left is None else left // 2)
        node.raw = node.state.moves()  # the same moves in the same order, with the new prices
        delta, exact = self.prices.deltas(node.state, node.raw)
        table.cost, table.exact = node.cost + delta[table.index], exact[table.index]

    def improves(self, child: SearchNode, parent: SearchNode) -> bool:
        """Whether ``child`` is really cheaper, or no dearer with fewer nodes."""
        gain = parent.cost - child.cost
        return gain > self.gain_floor(parent.cost) or (child.size < parent.size and gain >= -ROUNDING * parent.cost)

    def neighbourhood(self, node: SearchNode, identifiers: Iterable[int], hops: int) -> set[int]:
        """Ids of the nodes at most ``hops`` edges away from the given ones, either way along the data."""
        graph, reached = node.graph, set(identifiers)
        edge = list(reached)
        for _ in range(hops):
            near = {n for identifier in edge for n in _adjacent(graph, identifier)} - reached
            reached |= near
            edge = list(near)
        return reached

    def gain_floor(self, cost: float) -> float:
        """Differences up to this many milliseconds count as none: rounding, or the noise of measured prices."""
        return self.prices.noise_ms(cost)

    def rule_profile(self) -> dict[str, dict[str, Any]]:
        """What each rule took so far, by name, as ``State.profile`` of the core gives it; empty where nobody asked."""
        profile = getattr(self.root().state, "profile", None)
        return {} if profile is None else profile()

    def end_after(self, seconds: float) -> None:
        """Let the search take so many seconds instead of those of the budget."""
        self.meter.budget = replace(self.meter.budget, seconds=seconds)

    @property
    def best_cost(self) -> float:
        """Cost of the best graph visited so far, in milliseconds."""
        self.root()
        return self._archive.best_cost

    @property
    def start_cost(self) -> float:
        """Cost of the starting graph in milliseconds."""
        return self.root().cost

    def stopped(self) -> StopReason | None:
        """Why the search has to end now, or ``None``."""
        if self.stop.stopped:
            return StopReason.INTERRUPTED
        over = self._patience is not None and self._patience.is_over(self.meter.expansions)
        return StopReason.CONVERGED if over else self.meter.spent()

    def idle(self) -> int | None:
        """Where patience ended the search: the expansions since the last worthwhile gain. Else ``None``."""
        if self._patience is None or self.meter.spent() is not None or self.stop.stopped:
            return None
        over = self._patience.is_over(self.meter.expansions)
        return self.meter.expansions - self._patience.last_gain if over else None

    def result(self, reason: StopReason, strategy: str, *, has_trace: bool = True) -> Result:
        """The outcome so far, for the strategy to return."""
        before = self.root().cost
        self._report(last=True)
        visited = [one if has_trace else one._replace(trace=None) for one in self.finalists()]
        nominees = [one if has_trace else one._replace(trace=None) for one in self._nominees]
        meter = self.meter
        counts = Counts(meter.candidates, meter.expansions, meter.measurements, self.overweight)
        return Result(
            visited[0],
            before,
            reason,
            counts,
            tuple(self._curve),
            meter.seconds,
            strategy,
            self.seed,
            tuple(visited[1:]),
            tuple(one for one in nominees if all(one.digest != other.digest for other in visited)),
        )

    def finalists(self) -> list[Visited]:
        """The best graph so far, and the runners-up."""
        self.root()
        return self._archive.finalists()

    def nominate(self, one: SearchNode | Visited) -> None:
        """Hand a graph on to the final comparison whatever it is priced at, unless it is there already."""
        found = _visited(one) if isinstance(one, SearchNode) else one
        known = [self.root().digest.hex(), *(other.digest for other in self._nominees)]
        if found.digest not in known:
            self._nominees.append(found)

    def led(self, trace: Iterable[TraceStep]) -> SearchNode:
        """The node that a trace leads to, opened in one go: what is not priced there is measured, and counted.

        Raises :class:`SearchStopped` where the budget does not reach.
        """
        self._check()
        *_, state = [self.root().state, *replay_states(self.root().state, steps := list(trace))]
        self.meter.expansions += len(steps)
        if self.prices.measures:
            self._measure_graphs([state.graph])
        link, depth = self.root().link, self.root().depth
        for step in steps:
            link, depth = _Link(step, link), depth + 1
        digest = bytes.fromhex(state.graph.digest)
        node = SearchNode(state, self._cost(state), digest, _work(state.graph), link, depth)
        self._visit(node)
        return node

    def seconds_left(self) -> float | None:
        """Seconds that this search may still take, ``None`` where they are not limited."""
        return self.meter.seconds_left()

    def replayed(self, trace: Iterable[TraceStep]) -> SearchNode:
        """The node that a trace leads to from the starting graph; it counts as visited, and nothing is spent.

        Raises :class:`rlflow.errors.UsageError` where a step does not apply.
        """
        node = Problem.root(self)
        state, link, depth = node.state, node.link, node.depth
        steps = list(trace)
        for step, after in zip(steps, replay_states(node.state, steps), strict=True):
            state, link, depth = after, _Link(step, link), depth + 1
        if depth == node.depth:
            return node
        self.prices.settle_root(state.graph, lambda: self.stop.stopped)
        digest = bytes.fromhex(state.graph.digest)
        node = SearchNode(state, self._cost(state), digest, _work(state.graph), link, depth)
        self._visit(node)
        return node

    def keep(self, run: Any) -> None:
        """Called by a strategy where it could go on from ``run`` alone; costs nothing unless checkpoints are kept."""
        if self.keeper is not None and self.stopped() is None:
            self.keeper(run)

    def is_mine(self, number: int) -> bool:
        """Whether a choice, numbered alike by all workers that share the search out, is for this one to follow."""
        worker, workers = self.share
        return number % workers == worker

    def recall(self) -> Any:
        """The run that a strategy has to go on from, once; ``None`` where it begins."""
        run, self.recalled = self.recalled, None
        return run

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self.root()
        reason = self.stopped()
        if reason is not None:
            raise SearchStopped(reason)

    def _cost(self, state: Any) -> float:
        cost = self.prices.cost(state)
        if not np.isfinite(cost):
            raise CostError(
                f"The price of a graph of {state.graph.num_nodes} nodes is {cost}; "
                "expected a finite number of milliseconds."
            )
        return cost

    def _measure(self, node: SearchNode, indices: Sequence[int]) -> None:
        """Measure what the children of ``node`` need; ends the search where the budget does not reach."""
        self._measure_graphs([node.state.child(i) for i in indices])

    def _measure_graphs(self, graphs: Sequence[Any]) -> None:
        self._measure_some(graphs, self.meter.measurements_left())
        if not all(map(self.prices.is_settled, graphs)):
            raise SearchStopped(self.stopped() or StopReason.BUDGET_MEASUREMENTS)

    def _measure_some(self, graphs: Sequence[Any], limit: int | None) -> None:
        self.meter.measurements += self.prices.measure(graphs, limit, lambda: self.stopped() is not None)

    def _visit(self, node: SearchNode) -> None:
        """Remember what is worth it."""

        if self._archive.add(node.depth, node.cost, node.size, lambda: _visited(node)):
            meter = self.meter
            spent = (meter.candidates, meter.expansions, meter.measurements)
            self._curve.append(CurvePoint(meter.seconds, *spent, node.cost))
            if self._patience is not None:
                self._patience.told(node.cost, meter.expansions)

    def _report(self, last: bool = False) -> None:
        if self.on_progress is None:
            return
        seconds = self.meter.seconds
        if not last and seconds - self._last_report < PROGRESS_SECONDS:
            return
        self._last_report = seconds
        meter = self.meter
        self.on_progress(
            Progress(
                seconds,
                meter.seconds_left(),
                meter.fraction(),
                meter.candidates,
                meter.expansions,
                meter.measurements,
                self.start_cost,
                self.best_cost,
            )
        )


class StrategyBase:
    """Base of strategies that walk nodes: turns the end of the budget into the result."""

    name: ClassVar[str]
    has_trace: ClassVar[bool] = True
    #: Whether another seed can give another result, so that several workers are worth having.
    randomised: ClassVar[bool] = False
    #: Expansions without a worthwhile gain after which going on is pointless (``patience.py``); ``None``: the strategy
    #: ends by itself, or spends its budget by a plan.
    patience_by_default: ClassVar[int | None] = None
    #: Whether several workers can share out its first choices (:meth:`Problem.is_mine`).
    shares: ClassVar[bool] = False
    #: Whether it keeps its run (:meth:`Problem.keep`), so that it can be resumed as if it had not been interrupted.
    goes_on: ClassVar[bool] = False

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        """Search until nothing is left or the problem says stop."""
        try:
            reason = self.search(problem, rng)
        except SearchStopped as stop:
            reason = stop.reason
        return problem.result(reason, self.name, has_trace=self.has_trace)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Visit nodes; return why nothing is left."""
        raise NotImplementedError
