"""The default strategy: a way down by the formula first, several ways to search, all of their best graphs handed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from rlflow import price, search, zoo
from rlflow.errors import UsageError
from rlflow.frontends import load_model
from rlflow.pipeline.found import FINALISTS, Found
from rlflow.rulesets import load_library
from rlflow.search import Mixed, Problem, Result, Visited
from rlflow.search.lead import EXPANSIONS, FURTHER_SHARE, follow_the_formula, go_on_by_prices
from rlflow.search.result import Counts


@pytest.fixture(scope="module")
def model() -> Any:
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "feed_forward": 32, "vocab": 20}
    return load_model(zoo.build("bert6-classifier", seq=8, **sizes))


@pytest.fixture(scope="module")
def rules() -> Any:
    return load_library(None)


def test_the_formula_is_followed_only_where_prices_are_measured(model: Any, rules: Any) -> None:
    problem = Problem(model.graph, rules, price.make("analytic"), "50x")
    assert follow_the_formula(problem) is None
    assert problem.meter.expansions == 0


class Clocked(search.Prices):
    """Prices that count as measured; graphs off the start are ``wrong`` times as dear as the formula says."""

    measures = True

    def __init__(self, pricer: Any, wrong: float) -> None:
        super().__init__(pricer)
        self.wrong, self.start, self.asked = wrong, "", 0

    def settle_root(self, graph: Any, *limits: Any) -> int:
        self.start = graph.digest
        return 0

    def cost(self, state: Any) -> float:
        return float(state.cost) * (1.0 if state.graph.digest == self.start else self.wrong)

    def measure(self, graphs: Any, limit: int | None, stop: Callable[[], bool]) -> int:
        self.asked += len(graphs)
        return len(graphs)


def clocked(
    model: Any,
    rules: Any,
    wrong: float,
    budget: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: type[Clocked] = Clocked,
    **settings: Any,
) -> Problem:
    prices = kind(price.make("analytic").pricer, wrong)
    with monkeypatch.context() as patch:
        patch.setattr(search.Prices, "of", staticmethod(lambda cost_model: prices))
        return Problem(model.graph, rules, None, budget, **settings)


@pytest.mark.parametrize("wrong", [1.0, 1.5])
def test_a_wrong_price_does_not_keep_the_formulas_graph_out(
    model: Any, rules: Any, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = clocked(model, rules, wrong, "600x", monkeypatch)
    node = follow_the_formula(problem)
    assert node is not None
    assert (node.cost < problem.start_cost) is (wrong == 1.0)
    result = problem.result(search.StopReason.CONVERGED, "mixed")
    assert node.digest.hex() in [one.digest for one in (result.best, *result.nominees)]
    assert search.replay(model.graph, rules, node.trace).digest == node.digest.hex()
    assert problem.prices.asked == 1  # type: ignore[attr-defined]
    assert 0 < problem.meter.expansions <= EXPANSIONS


#: What gains on the model, and only a clock may price it.
ONLY_BY_CLOCK = frozenset({"slice-before-softmax"})


def test_from_the_formulas_graph_the_way_goes_on_by_the_prices(
    model: Any, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = clocked(model, rules, 1.0, "4000x", monkeypatch, clocked=ONLY_BY_CLOCK)
    led = follow_the_formula(problem)
    assert led is not None
    assert not ONLY_BY_CLOCK & {step.rule for step in led.trace}
    further = go_on_by_prices(problem, led)
    assert further.cost < led.cost
    assert further.trace[: len(led.trace)] == led.trace
    assert ONLY_BY_CLOCK & {step.rule for step in further.trace}
    result = problem.result(search.StopReason.CONVERGED, "mixed")
    assert further.digest.hex() in [one.digest for one in (result.best, *result.nominees)]


@pytest.mark.parametrize(("budget", "unit"), [("600x", "expansions"), ("6000c", "candidates")])
def test_the_way_on_takes_its_part_of_the_budget_and_no_more(
    budget: str, unit: str, model: Any, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = clocked(model, rules, 1.0, budget, monkeypatch, clocked=ONLY_BY_CLOCK)
    led = follow_the_formula(problem)
    assert led is not None
    before, whole = getattr(problem.meter, unit), int(budget[:-1])
    monkeypatch.setattr("rlflow.search.lead.descend", endless)
    assert go_on_by_prices(problem, led) is led
    part = FURTHER_SHARE * (whole - before)
    least = 1 if unit == "expansions" else len(problem.moves(led))  # what the last step began is finished
    assert part <= getattr(problem.meter, unit) - before <= part + 2 * least


class Slow(Clocked):
    """A price takes a second of ``now``. Until it is known, a candidate is hoped to gain three times what it does."""

    now = 0.0
    #: Whether each graph has a price of its own, instead of its regions.
    whole = False

    def __init__(self, pricer: Any, wrong: float) -> None:
        super().__init__(pricer, wrong)
        self.known: set[str] = set()

    def settle_root(self, graph: Any, *limits: Any) -> int:
        self.known |= self.parts(graph)
        return super().settle_root(graph, *limits)

    def parts(self, graph: Any) -> set[str]:
        return {graph.digest} if self.whole else {region.signature for region in self.pricer.regions(graph)}

    def deltas(self, state: Any, raw: Any) -> tuple[Any, Any]:
        delta, _ = super().deltas(state, raw)
        exact = np.array([self.is_settled(state.child(i)) for i in range(len(raw))], dtype=bool)
        return np.where(exact, delta, 3.0 * delta), exact

    def measure(self, graphs: Any, limit: int | None, stop: Callable[[], bool]) -> int:
        unknown = set().union(*map(self.parts, graphs)) - self.known
        self.known |= unknown
        Slow.now += len(unknown)
        return len(unknown)

    def is_settled(self, graph: Any) -> bool:
        return self.parts(graph) <= self.known


class SlowByGraph(Slow):
    whole = True


#: Of so many branches the formula leaves each as it is, and the clock finds a gain in each.
BRANCHES = 12


@pytest.fixture(scope="module")
def branches() -> Any:
    names = [f"x{i}" for i in range(BRANCHES)]
    lines = [f"s{i} = Softmax<axis=2>({name}) y{i} = Slice(s{i}, from, to{i}, over)" for i, name in enumerate(names)]
    inputs = ", ".join(f"float[2,{20 + i},32] {name}" for i, name in enumerate(names))
    outputs = ", ".join(f"float[2,{4 + i},32] y{i}" for i in range(BRANCHES))
    ends = ", ".join(f"int64[1] to{i} = {{{4 + i}}}" for i in range(BRANCHES))
    constants = f"int64[1] from = {{0}}, int64[1] over = {{1}}, {ends}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) <{constants}> {{ {" ".join(lines)} }}'
    return load_model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("kind", "budget", "taken", "spent"),
    [
        # Eight are priced at once, in more than the way's part of the time; these are taken, and no other.
        (Slow, "20s", 8, 8.0),
        # The same, but each graph on the way takes a second: until twice the part is over.
        (SlowByGraph, "40s", 5, 12.0),
        # Time for all of them.
        (Slow, "4000s", BRANCHES, 12.0),
    ],
)
def test_when_its_time_is_over_the_way_on_takes_what_is_priced(
    kind: type[Slow], budget: str, taken: int, spent: float, branches: Any, rules: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Slow, "now", 0.0)
    told: dict[str, Any] = {"clocked": ONLY_BY_CLOCK, "clock": lambda: Slow.now, "macros": False}
    problem = clocked(branches, rules, 1.0, budget, monkeypatch, kind=kind, **told)
    further = go_on_by_prices(problem, problem.root())
    assert [step.rule for step in further.trace] == [*ONLY_BY_CLOCK] * taken
    assert Slow.now == spent


def endless(problem: Problem, node: search.SearchNode) -> None:
    """A way that would never end."""
    while True:
        problem.open(node, problem.moves(node).index[0])


def test_where_the_budget_ends_the_way_on_does_not_hide_it(
    model: Any, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = clocked(model, rules, 1.0, "600x", monkeypatch)
    led = follow_the_formula(problem)
    assert led is not None
    problem.stop.stop()
    with pytest.raises(search.SearchStopped):
        go_on_by_prices(problem, led)


def test_a_budget_that_ends_before_the_prices_are_known_keeps_the_formulas_graph(
    model: Any, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = clocked(model, rules, 1.0, "600x", monkeypatch)
    monkeypatch.setattr(Clocked, "is_settled", lambda self, graph: False)
    result = search.solve(problem, "mixed")
    assert result.best.digest == model.graph.digest
    (nominee,) = result.nominees
    assert nominee.cost_ms < result.cost_before_ms
    assert search.replay(model.graph, rules, nominee.trace or ()).digest == nominee.digest


def test_members_hand_on_what_they_found(model: Any, rules: Any) -> None:
    problem = Problem(model.graph, rules, price.make("analytic"), "300x")
    result = search.solve(problem, "mixed")
    alone = search.solve(Problem(model.graph, rules, price.make("analytic"), "300x"), "backtracking")
    assert result.cost_after_ms <= alone.cost_after_ms * (1 + 1e-9)
    digests = [one.digest for one in (result.best, *result.runners_up, *result.nominees)]
    assert len(set(digests)) == len(digests)


def test_a_graph_that_no_move_led_to_has_no_trace_and_its_children_have_none(model: Any, rules: Any) -> None:
    problem = Problem(model.graph, rules, price.make("analytic"), "50x")
    lead = search.solve(Problem(model.graph, rules, price.make("analytic"), "50x"), "greedy")
    admitted = problem.admit(lead.graph)
    assert admitted is not None
    assert not admitted.traced
    assert problem.result(search.StopReason.CONVERGED, "x").best.trace is None
    table = problem.moves(admitted)
    if len(table):
        assert not problem.open(admitted, table.index[0]).traced
    assert problem.open(problem.root(), problem.moves(problem.root()).index[0]).traced


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, 1.05), (1.2, 1.2)])
def test_alpha_is_the_members(alpha: float, expected: float) -> None:
    members = {one.name: one for one in Mixed(alpha=alpha).strategies()}
    assert members["backtracking"].alpha == expected  # type: ignore[attr-defined]
    assert list(members) == ["backtracking", "levin", "eqsat"]
    assert members["eqsat"].extraction == "greedy-dag"  # type: ignore[attr-defined] - HiGHS is an extra


def test_workers_need_traces() -> None:
    with pytest.raises(UsageError, match="mixed"):
        search.solve_in_parallel(lambda budget, seed: None, Mixed(), search.Budget.parse("1x"), 0, 2)  # type: ignore


def seen(digest: str, ms: float) -> Visited:
    return Visited(None, digest, ms, ())


@pytest.mark.parametrize(
    ("best", "runners", "nominees", "expected"),
    [
        (8.0, [8.1, 8.2], [], [8.0, 8.1, 8.2]),
        (8.0, [8.1], [8.5], [8.0, 8.5, 8.1]),
        (8.0, [], [10.9], [8.0, 10.9]),  # a nominee may seem dearer than the model
        (8.0, [], [11.1], [8.0]),
        (10.0, [], [10.5], [10.5]),  # nothing seems cheaper, and still it is timed
        (10.0, [], [], []),
        (8.0, [8.1, 8.2, 8.3], [8.4, 8.5, 8.6], [8.0, 8.4, 8.5, 8.6, 8.1]),
    ],
)
def test_who_comes_to_the_final_comparison(
    best: float, runners: list[float], nominees: list[float], expected: Iterable[float]
) -> None:
    def all_of(prices: list[float]) -> tuple[Visited, ...]:
        return tuple(seen(str(ms), ms) for ms in prices)

    result = Result(seen("best", best), 10.0, search.StopReason.CONVERGED, Counts(0, 0, 0), (), 0.0, "mixed", 0,
                    all_of(runners), all_of(nominees))  # fmt: skip
    found = Found(result, None, 0).finalists
    assert [one.cost_ms for one in found] == expected
    assert len(found) <= FINALISTS
