"""The parts that a problem is made of: limits, frontier, incumbent and progress events; none can be gone around."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rlflow.search import Budget, Patience, Problem, SearchStopped, StopReason, StopToken
from rlflow.search.budget import BudgetMeter
from rlflow.search.incumbent import Incumbent
from rlflow.search.limits import Limits
from rlflow.search.node import Link, MoveTable, SearchNode
from rlflow.search.prices import GraphPrices, MeasuredPrices, Prices
from rlflow.search.progress import ProgressEvents
from rlflow.search.result import TraceStep, Visited
from rlflow.testing import TOYS

NAMED = {toy.name: toy for toy in TOYS}


def meter(budget: str = "10x", ticks: float = 0.0) -> BudgetMeter:
    now = [0.0]

    def clock() -> float:
        now[0] += ticks
        return now[0]

    return BudgetMeter(Budget.parse(budget), clock)


def stopped_token() -> StopToken:
    token = StopToken()
    token.stop()
    return token


@pytest.mark.parametrize(
    ("limits", "opened", "reason"),
    [
        (Limits(meter()), 9, None),
        (Limits(meter()), 10, StopReason.BUDGET_EXPANSIONS),
        (Limits(meter(), stopped_token()), 0, StopReason.INTERRUPTED),
        (Limits(meter(), stopped_token()), 10, StopReason.INTERRUPTED),  # the user's word comes first
        (Limits(meter(), None, Patience(3)), 2, None),
        (Limits(meter(), None, Patience(3)), 3, StopReason.CONVERGED),
    ],
)
def test_what_ends_a_search(limits: Limits, opened: int, reason: StopReason | None) -> None:
    limits.meter.expansions = opened
    assert limits.reached() is reason
    if reason is None:
        limits.check()
    else:
        with pytest.raises(SearchStopped) as stopped:
            limits.check()
        assert stopped.value.reason is reason


def test_a_gain_renews_patience_and_idleness_is_counted_from_it() -> None:
    limits = Limits(meter("100x"), None, Patience(3))
    limits.gained(10.0)
    limits.meter.expansions = 2
    limits.gained(9.0)
    for opened, idle in ((3, None), (4, 2), (100, None)):  # at 100 it was the budget
        limits.meter.expansions = opened
        assert limits.idle() == idle


class Graphless(SearchNode):
    """A node without a graph."""

    @property
    def visited(self) -> Visited:
        return Visited(None, self.digest.hex(), self.cost, ())


def test_the_incumbent_is_the_cheapest_and_its_curve_falls() -> None:
    limits = Limits(meter("100x"))
    incumbent = Incumbent(limits, runners_up=3)
    assert incumbent.cost == float("inf")
    start = Graphless(None, 10.0, b"start", 1)
    for cost, depth in ((10.0, 0), (12.0, 1), (8.0, 1), (8.02, 1), (7.99, 6)):
        limits.meter.expansions += 1
        incumbent.visit(start if depth == 0 else Graphless(None, cost, f"{cost}".encode(), 1, None, depth))
    assert incumbent.cost == 7.99
    assert [(point.expansions, point.cost_ms) for point in incumbent.curve] == [(1, 10.0), (3, 8.0), (5, 7.99)]
    near = Visited(None, b"8.0".hex(), 8.0, ())
    for found in (near, Visited(None, b"start".hex(), 10.0, ()), Visited(None, "ff", 9.0, ()), near):
        incumbent.nominate(found, start)
    assert [one.digest for one in incumbent.nominees] == [b"8.0".hex(), "ff"]
    result = incumbent.result(10.0, StopReason.CONVERGED, "x", 3, 2, has_trace=False)
    assert (result.best.digest, result.best.trace) == (b"7.99".hex(), None)
    assert [one.digest for one in result.runners_up] == [b"8.0".hex()]
    assert [one.digest for one in result.nominees] == ["ff"]  # the other is a runner-up already
    assert (result.seed, result.counts.expansions, result.counts.overweight) == (3, 5, 2)


@pytest.mark.parametrize(("ticks", "told"), [(0.0, 1), (0.05, 5), (1.0, 20)])
def test_progress_is_told_five_times_a_second(ticks: float, told: int) -> None:
    heard: list[Any] = []
    events = ProgressEvents(meter("10x", ticks), heard.append)
    for _ in range(20):
        events.tell(lambda: 2.0, lambda: 1.0)
    assert abs(len(heard) - told) <= told // 2
    before = len(heard)
    events.tell(lambda: 2.0, lambda: 1.0, last=True)
    assert len(heard) == before + 1
    assert (heard[-1].cost_before_ms, heard[-1].best_ms) == (2.0, 1.0)


def test_nobody_listens_and_nothing_is_asked() -> None:
    ProgressEvents(meter(), None).tell(pytest.fail, pytest.fail, last=True)  # type: ignore[arg-type]


def test_links_are_a_trace_backwards() -> None:
    steps = [TraceStep("a", (1,)), TraceStep("b", (2, 3))]
    assert SearchNode(None, 1.0, b"", 0, Link.after(None, steps)).trace == tuple(steps)


def test_a_thinned_table_is_spread_evenly() -> None:
    problem = NAMED["mixture"].problem("9x")
    table = problem.moves(problem.root())
    assert len(table) > 3
    assert table.thinned(len(table)) is table
    fewer = table.thinned(2)
    assert fewer.index.tolist() == [table.index[0], table.index[len(table) // 2]]
    assert fewer.source == table.source
    assert len(table.thinned(0)) == 0


#: Every way to make a problem work; the table is of its starting graph.
WAYS: dict[str, Callable[[Problem, SearchNode, MoveTable], object]] = {
    "moves": lambda problem, root, table: problem.moves(root),
    "open": lambda problem, root, table: problem.open(root, table.index[0]),
    "reopen": lambda problem, root, table: problem.reopen(root, table.index[0], root),
    "admit": lambda problem, root, table: problem.admit(root.graph),
    "led": lambda problem, root, table: problem.led([]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("budget", ["1x", "1c"])
def test_no_call_goes_beyond_the_budget(way: str, budget: str) -> None:
    problem = NAMED["mixture"].problem(budget)
    root = problem.root()
    table = problem.moves(root)
    if problem.stopped() is None:
        problem.open(root, table.index[0])
    spent, curve = problem.meter.spending(), list(problem.incumbent.curve)
    with pytest.raises(SearchStopped):
        WAYS[way](problem, root, table)
    after = problem.meter.spending()
    assert all(after[name] == spent[name] for name in ("candidates", "expansions", "measurements"))
    assert problem.incumbent.curve == curve


def test_a_problem_over_a_part_spends_the_meter_of_the_whole() -> None:
    whole = NAMED["mixture"].problem("3x")
    root = whole.root()
    part = Problem.over(root.state, whole.rule_names, whole.meter, prices=whole.prices)
    part.open(part.root(), part.moves(part.root()).index[0])
    assert whole.meter.expansions == 1
    assert part.meter is whole.meter


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([], 0.5),  # nothing was measured: half the roofline
        ([8.0], 0.5),  # the model is one slow operator; what replaces it need not be as slow
        ([8.0, 0.5, 3.0], 0.25),
        ([8.0, 0.5, 3.0, 4.0, 2.0], 3.0),  # enough to know what such regions take
    ],
)
def test_a_region_that_nobody_measured_is_hoped_to_be_fast_where_little_is_known(
    ratios: list[float], expected: float
) -> None:
    region = SimpleNamespace(kind="pointwise", flops=60e6, bytes=0.0, signature="r", view=False)
    pricer = SimpleNamespace(regions=lambda graph, unpriced_only: [region])
    prices = MeasuredPrices(SimpleNamespace(pricer=pricer))  # type: ignore[arg-type]
    prices._ratios["pointwise"] = [(1.0, ratio) for ratio in ratios]
    ms, exact = prices.appraised(SimpleNamespace(graph=None, cost=0.0))
    assert (ms, exact) == (pytest.approx(expected, rel=0.01), False)


def test_small_regions_say_nothing_of_what_a_large_one_may_take() -> None:
    region = SimpleNamespace(kind="pointwise", flops=60e6, bytes=0.0, signature="r", view=False)
    pricer = SimpleNamespace(regions=lambda graph, unpriced_only: [region])
    prices = MeasuredPrices(SimpleNamespace(pricer=pricer))  # type: ignore[arg-type]
    prices._ratios["pointwise"] = [(0.002, 3.0)] * 9 + [(0.5, 0.4)]
    assert prices.appraised(SimpleNamespace(graph=None, cost=0.0))[0] == pytest.approx(0.2, rel=0.01)


@pytest.mark.parametrize(
    ("prices", "known"),
    [
        (Prices(), [True, True, True]),  # all are known
        (MeasuredPrices(SimpleNamespace(pricer=None)), [True, False, False]),  # type: ignore[arg-type]
        (GraphPrices(SimpleNamespace(pricer=None)), [False, False, False]),  # type: ignore[arg-type]
    ],
    ids=["analytic", "by region", "end to end"],
)
def test_what_a_move_tells_of_the_prices_it_brings(prices: Prices, known: list[bool]) -> None:
    moves = SimpleNamespace(singles=_Moves([0, 2]))  # a third one is a macro
    assert [prices.settles(moves, i) for i in range(3)] == known
    assert [prices.settles(moves.singles, i) for i in range(2)] == known[:2]


class _Moves(SimpleNamespace):
    def __init__(self, unknown: list[int]) -> None:
        super().__init__(unknown=unknown)

    def __len__(self) -> int:
        return len(self.unknown)


@pytest.mark.parametrize("told", [True, False])
def test_a_graph_is_built_and_measured_before_it_is_opened_unless_its_prices_are_known(told: bool) -> None:
    built: list[int] = []
    toy = NAMED["valley"]
    problem = toy.problem()
    problem.prices.settles = lambda raw, i: told  # type: ignore[method-assign]
    problem.frontier.settle = lambda graphs: built.append(len(graphs))  # type: ignore[method-assign]
    table = problem.moves(problem.root())
    problem.open(table.node, table.index[0])
    assert built == ([] if told else [1])
