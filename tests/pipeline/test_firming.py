"""Prices that were had in haste are made sure of before they decide, and the search goes once more by better ones."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlflow
from rlflow.frontends import load_model
from rlflow.pipeline import firming, racing
from rlflow.pipeline.parts import ModelTimes, Timing
from rlflow.price.allowance import Allowance
from rlflow.price.bench import Bench
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.runtime import Measurement
from rlflow.search import Problem, Result, StopReason, Visited
from rlflow.search.result import Counts


def chain(*widths: int) -> ModelProto:
    """Products behind one another, of these widths."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((a, b)).astype(np.float32), f"w{number}")
        for number, (a, b) in enumerate(itertools.pairwise(widths))
    ]
    nodes = [
        helper.make_node("MatMul", [f"v{number}", f"w{number}"], [f"v{number + 1}"]) for number in range(len(weights))
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [4, widths[0]])],
        [helper.make_tensor_value_info(f"v{len(nodes)}", TensorProto.FLOAT, [4, widths[-1]])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Clocked:
    """A cost model whose sessions take what a table says, in haste ``wrong`` times as long; ``timed``: what was."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
        self.timed: list[tuple[str, bool]] = []
        self.cost = OnnxRuntimeCost(database=folder / "prices.sqlite")
        self.cost.hurry()

        def timed(bench: Any, items: Any, *how: Any, hasty: bool = False, **more: Any) -> dict[str, Measurement]:
            self.timed.extend((str(key), hasty) for key, *_ in items)
            return {key: Measurement(wrong if hasty else 1.0, 0.01, 9) for key, *_ in items}

        self.cost.pricer, self.cost._machine.calibration  # noqa: B018 - the machine is learnt about by the real clock
        monkeypatch.setattr(Bench, "timed", timed)
        monkeypatch.setattr(OnnxRuntimeCost, "_meet", lambda self, graphs: False)


@pytest.fixture
def rushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cost model that has had two graphs priced in haste, three times too dear."""
    clocked = Clocked(tmp_path, monkeypatch, 3.0)
    monkeypatch.setattr(Allowance, "over", lambda self: False)
    graphs = [load_model(chain(*widths)).graph for widths in ((64, 80, 96, 112), (64, 80, 96, 128))]
    clocked.cost._batches.hasty = True
    clocked.cost.fill(graphs)
    with clocked.cost:
        yield clocked, graphs


def test_what_the_graphs_share_comes_after_what_they_do_not(rushed: Any) -> None:
    clocked, graphs = rushed
    before = [clocked.cost.pricer.summary(graph)["ms"] for graph in graphs]
    assert clocked.cost.in_haste
    assert {hasty for _, hasty in clocked.timed} == {True}
    del clocked.timed[:]
    assert clocked.cost.firm(graphs, 60.0) == 4
    assert [hasty for _, hasty in clocked.timed] == [False] * 4
    apart = set(clocked.cost._partition.differing(graphs))
    assert {key for key, _ in clocked.timed[:2]} == apart
    assert len(apart) == 2
    after = [clocked.cost.pricer.summary(graph)["ms"] for graph in graphs]
    assert all(now < 0.5 * then for now, then in zip(after, before, strict=True))
    assert clocked.cost.firm(graphs, 60.0) == 0


def test_what_would_take_longer_than_there_is_time_for_is_passed_over(rushed: Any) -> None:
    """By the price in haste, 3 ms, a region in full takes 81 ms at least."""
    clocked, graphs = rushed
    del clocked.timed[:]
    assert clocked.cost.firm(graphs, 0.08) == 0
    assert clocked.timed == []


def test_what_did_not_agree_in_time_is_as_if_timed_in_haste(rushed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clocked, graphs = rushed

    def timed(bench: Any, items: Any, *how: Any, over: Any, **more: Any) -> dict[str, Measurement]:
        assert over()
        return {key: Measurement(2.0, 0.01, 9) for key, *_ in items}

    times = iter([False])
    monkeypatch.setattr(Bench, "timed", timed)
    monkeypatch.setattr(Allowance, "over", lambda self: next(times, True))
    assert clocked.cost.firm(graphs, 60.0) == 1
    assert clocked.cost.in_haste
    assert clocked.cost.used() is None


def test_a_price_in_haste_is_the_price_of_every_context(rushed: Any) -> None:
    """A region that is met again is not timed again; in full it is, and then its price is kept."""
    clocked, graphs = rushed
    del clocked.timed[:]
    clocked.cost.fill([load_model(chain(64, 80, 96)).graph])
    assert clocked.timed == []
    clocked.cost.firm(graphs, 60.0)
    assert clocked.cost.used() is None or not clocked.cost._batches.rushed


def test_time_that_is_over_ends_it(rushed: Any) -> None:
    clocked, graphs = rushed
    assert clocked.cost.firm(graphs, 60.0, lambda: True) == 0
    assert clocked.cost.in_haste


def found(costs: dict[str, float], spent: int) -> Result:
    best, *others = [Visited(SimpleNamespace(name=name), name, ms, ()) for name, ms in costs.items()]
    counts = Counts(spent, spent, spent, 0)
    return Result(best, 10.0, StopReason.CONVERGED, counts, (), float(spent), "greedy", 0, tuple(others))


@pytest.mark.parametrize(
    ("first", "second", "now", "order"),
    [
        ({"a": 1.0}, {"b": 5.0}, {"a": 8.0}, ["b", "a"]),  # what won by a wrong price falls behind
        ({"a": 7.0}, {"b": 5.0}, {"a": 4.0}, ["a", "b"]),  # what the second search did not come to again stays
        ({"a": 7.0, "c": 7.5}, {"a": 5.0}, {"c": 6.0}, ["a", "c"]),  # a graph of both has the price of now
    ],
)
def test_both_searches_stand_beside_one_another(
    first: dict[str, float], second: dict[str, float], now: dict[str, float], order: list[str]
) -> None:
    pricer = SimpleNamespace(summary=lambda graph: {"ms": now[graph.name]})
    result = firming._together(found(first, 2), found(second, 3), SimpleNamespace(pricer=pricer))
    finalists = [result.best, *result.runners_up]
    assert [one.digest for one in finalists] == order[: len(finalists)]
    assert result.best.cost_ms == min(one.cost_ms for one in finalists)
    assert result.counts == Counts(5, 5, 5, 0)
    assert result.seconds == 5.0


def test_a_search_among_wrong_prices_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the first search ends early, its prices are made sure of, and the second one is the result's."""
    monkeypatch.setattr(firming, "LEAST_SECONDS", 0.1)
    problems: list[Problem] = []
    real = firming.firmed

    def watched(result: Result, problem: Problem, again: Any, context: Any) -> Result:
        anew = functools.partial(lambda: problems.append(again()) or problems[-1])
        problems.append(problem)
        return real(result, problem, anew, context)

    monkeypatch.setattr("rlflow.pipeline.searching.firmed", watched)
    monkeypatch.setattr(OnnxRuntimeCost, "in_haste", property(lambda self: True))
    monkeypatch.setattr(OnnxRuntimeCost, "firm", lambda self, graphs, seconds, stop: len(graphs))
    report = rlflow.optimize(chain(64, 64, 64), budget="6s").report
    assert len(problems) == 2
    assert report.candidates == sum(problem.meter.candidates for problem in problems)
    assert report.seconds_total < 1.2 * 6 + 10


@pytest.mark.parametrize(
    ("pace", "late", "three", "two_at_all"),
    [
        (ModelTimes(0.05, 0.01), 20.0, False, False),
        (ModelTimes(1.0, 0.2), 25.0, True, False),
        (ModelTimes(1.0, 4.0), 25.0, True, True),
        (ModelTimes(1.0, 4.0), None, False, False),  # no deadline
        (None, 25.0, False, False),
    ],
)
def test_what_takes_too_long_to_compare(
    pace: ModelTimes | None, late: float | None, three: bool, two_at_all: bool
) -> None:
    context: Any = SimpleNamespace(parts=SimpleNamespace(pace=pace))
    given = Timing(5.0, None if late is None else late - 8.0, late)
    assert racing._takes_too_long(3, given, context) is three
    assert racing._takes_too_long(2, given, context, racing.HOPELESS) is two_at_all


@pytest.mark.parametrize("run", [0.01, 9.0])
def test_the_clean_up_is_not_compared_where_that_is_hopeless(run: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, for half a minute after the budget, where one run of the model takes ten seconds."""
    undecided = SimpleNamespace(winner=None)
    monkeypatch.setattr(racing, "_compared", lambda *arguments, **options: undecided)
    export = SimpleNamespace(source=b"cleaned")
    loaded: Any = SimpleNamespace(
        graph=SimpleNamespace(digest=b""),
        source=b"as it came",
        exports=SimpleNamespace(as_imported=lambda: export, older=None),
    )
    parts = SimpleNamespace(pace=ModelTimes(0.1, run), timing=lambda: Timing(1.0, 1.0, 12.0))
    context: Any = SimpleNamespace(parts=parts, notes=[], stage=lambda *words: None)
    found: Any = SimpleNamespace(result=SimpleNamespace(cost_before_ms=1.0))
    raced = racing.Raced("no claim", None, SimpleNamespace(timings={}))
    after = racing._with_cleanup(raced, loaded, found, context)
    assert (after.cleanup is undecided) is (run < 1.0)
    assert context.notes == ([] if run < 1.0 else [racing.NO_TIME_FOR_CLEANUP])


@pytest.mark.parametrize(
    ("dear", "entrants", "baseline", "beside", "noted"),
    [
        (False, ["one"], b"cleaned", ["original"], False),
        (True, ["one"], b"as it came", [], True),
        (True, [], b"as it came", [], False),  # nothing gains
    ],
)
def test_the_report_says_where_the_clean_up_is_part_of_the_gain(
    dear: bool, entrants: list[str], baseline: bytes, beside: list[str], noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(racing, "_takes_too_long", lambda models, given, context: dear)
    monkeypatch.setattr(racing, "_compared", lambda *arguments: seen.append(arguments))
    exports = SimpleNamespace(as_imported=lambda: SimpleNamespace(source=b"cleaned"), older=None)
    loaded: Any = SimpleNamespace(weights=None, exports=exports, graph=None, source=b"as it came")
    options = SimpleNamespace(freeze=False, verify=True)
    context: Any = SimpleNamespace(options=options, parts=SimpleNamespace(timing=lambda: Timing(5.0)), notes=[])
    racing._decision(loaded, dict.fromkeys(entrants), {}, context)
    assert (seen[0][0], list(seen[0][2])) == (baseline, beside)
    assert (racing.TOGETHER in context.notes) is noted
