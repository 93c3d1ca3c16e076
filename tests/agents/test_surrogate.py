"""The surrogate of the clock: what it guesses, what timings teach it, and how few of them it needs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import price, search
from rlflow.agents.bayes.belief import Belief, Predicted
from rlflow.agents.bayes.prior import UNKNOWN, Prior, roofline
from rlflow.agents.bayes.strategy import Surrogate, improvement
from rlflow.errors import ModelError, UsageError
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport, GraphTime
from rlflow.price.interpolate import TimedRegion
from rlflow.price.regions import Pricer, operators
from rlflow.search import Problem, StopReason
from rlflow.testing import TINY, optimum

BY_NAME = {tiny.name: tiny for tiny in TINY}


def graph_of(*lines: str, shape: str = "[64,64]") -> Graph:
    return Graph.parse("\n".join([f"v0: f32{shape} = input", *lines]))


def chain(*ops: str, shape: str = "[64,64]") -> Graph:
    lines = [f"v{i + 1} = {op}(v{i})" for i, op in enumerate(ops)]
    return graph_of(*lines, f"return v{len(ops)}", shape=shape)


def timed(operator: str, factor: float, sizes: Iterable[float]) -> list[TimedRegion]:
    return [TimedRegion("", operator, size, 8 * size, factor * roofline(size, 8 * size)) for size in sizes]


# --- the prior ----------------------------------------------------------------------------------------------------


def test_the_prior_asks_the_nearest_level_that_knows_something() -> None:
    known = [*timed("Tanh", 3.0, (1e5, 2e5, 3e5, 4e5, 5e5, 6e5)), *timed("Relu", 2.0, (1e5, 2e5))]
    prior, size = Prior(known), 3.5e5
    base = roofline(size, 8 * size)
    like, of_group, of_kind = (prior.guess("", name, size, 8 * size) for name in ("Tanh", "Relu", "Sqrt"))
    assert like.ms == pytest.approx(3.0 * base, rel=0.02)
    assert of_group.ms == pytest.approx(2.0 * base)
    assert of_kind.ms == pytest.approx(math.sqrt(6.0) * base)  # the median of two logarithms is their mean
    assert like.shared < of_group.shared < of_kind.shared
    assert prior.guess("Conv", "Conv", size, 8 * size) == (base, UNKNOWN, UNKNOWN)


def test_how_wrong_the_prior_is_is_learnt_by_leaving_out() -> None:
    exact, scattered = [], []
    for i, operator in enumerate(("A", "B", "C")):
        for k, size in enumerate((1e4, 1e6, 1e8, 1e10)):
            exact += timed(operator, 2.0 + i, [size])
            scattered += timed(operator, (2.0 + i) * math.exp(0.4 * (-1) ** k), [size])
    own = [Prior(rows).guess("", "A", 1e5, 1e5).own for rows in (exact, scattered)]
    assert own[0] == 0.05
    assert own[1] == 0.7  # four values, ±0.4: the median of the others is 0.4 to the other side


def test_the_untrained_prior_is_the_roofline() -> None:
    assert Prior().guess("", "Tanh", 6e7, 0.0) == (1.002, UNKNOWN, UNKNOWN)
    assert Prior().guess("", "Tanh", 0.0, 2.4e7).ms == pytest.approx(2.002)


def test_the_prior_reads_rows_of_json(tmp_path: Path) -> None:
    path = tmp_path / "timed.jsonl"
    row = {"region": "", "operators": "Tanh", "flops": 1e5, "bytes": 1e5}
    rows = [{"kind": "machine"}, {**row, "ms": 0.5}, {**row, "ms": None}]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    assert len(Prior.read(path)) == 1
    assert Prior.read(path).guess("", "Tanh", 1e5, 1e5).ms == pytest.approx(0.5)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"operators": "Tanh", "ms": 1}', '{"kind": "machine"}'])
def test_a_file_without_timed_regions_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "timed.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"timed region"):
        Prior.read(path)
    with pytest.raises(ModelError, match="cannot be read"):
        Prior.read(tmp_path / "none.jsonl")


# --- the belief ---------------------------------------------------------------------------------------------------


def belief() -> Belief:
    pricer = Pricer.table("none")
    pricer.set_view_price(0.0)
    return Belief(pricer, Prior())


def by_hand(seen: list[tuple[Graph, float, float]], asked: Graph) -> Predicted:
    """The same posterior from its definition: regions of one shape, so kind, operator and region are effects of size
    0.2, UNKNOWN and UNKNOWN times one guess.
    """
    pricer = Pricer.table("none")
    graphs = [graph for graph, _, _ in seen] + [asked]
    rows = [[(one, operators(graph, one)[0]) for one in pricer.regions(graph)] for graph in graphs]
    guess = roofline(rows[0][0][0].flops, rows[0][0][0].bytes)
    names = sorted({name for row in rows for _, name in row})
    counts = np.array([[sum(name == other for _, other in row) for name in names] for row in rows])
    covariance = guess**2 * (0.2**2 * np.outer(counts.sum(1), counts.sum(1)) + 2 * UNKNOWN**2 * counts @ counts.T)
    means, known = guess * counts.sum(1), len(seen)
    kernel = covariance[:known, :known] + np.diag([noise**2 for _, _, noise in seen])
    off = np.array([ms for _, ms, _ in seen]) - means[:known]
    mean = means[known] + covariance[known, :known] @ np.linalg.solve(kernel, off)
    lower = covariance[known, :known] @ np.linalg.solve(kernel, covariance[:known, known])
    return Predicted(float(mean), math.sqrt(covariance[known, known] - lower))


def test_a_graph_that_was_timed_is_known_and_others_are_known_a_little() -> None:
    mind, graph = belief(), chain("Tanh", "Exp")
    before = mind.predict(graph)
    mind.observe(graph, 2 * before.ms, 1e-9)
    after = mind.predict(graph)
    assert after.ms == pytest.approx(2 * before.ms)
    assert after.spread == pytest.approx(0.0, abs=1e-6 * before.ms)
    other = chain("Tanh", "Sqrt")
    assert mind.predict(other).ms > belief().predict(other).ms
    assert mind.predict(other).spread < belief().predict(other).spread


@pytest.mark.parametrize("noise", [1e-6, 1e-3])
def test_what_is_predicted_is_the_posterior(noise: float) -> None:
    seen = [(chain("Tanh", "Exp", "Tanh"), 0.02, noise), (chain("Exp", "Sqrt"), 0.005, noise)]
    asked, mind = chain("Sqrt", "Tanh", "Neg"), belief()
    for graph, ms, wide in seen:
        mind.observe(graph, ms, wide)
    found, expected = mind.predict(asked), by_hand(seen, asked)
    assert found.ms == pytest.approx(expected.ms, rel=1e-6)
    assert found.spread == pytest.approx(expected.spread, rel=1e-5)


def test_drawn_prices_have_the_mean_and_the_spread_that_are_predicted() -> None:
    mind, asked = belief(), chain("Tanh", "Exp")
    guess = mind.predict(chain("Tanh")).ms
    mind.observe(asked, 3 * guess, 0.1 * guess)
    mind.observe(chain("Tanh", "Tanh"), 2.4 * guess, 0.1 * guess)
    signatures = [str(one.signature) for one in Pricer.table("none").regions(asked)]
    expected, rng = mind.predict(asked), np.random.default_rng(0)
    drawn = np.array([sum(map(mind.sample(rng), signatures)) for _ in range(4000)])
    assert sum(map(mind.mean(), signatures)) == pytest.approx(expected.ms)
    assert drawn.mean() == pytest.approx(expected.ms, rel=0.01)
    assert drawn.std() == pytest.approx(expected.spread, rel=0.06)


def test_one_draw_gives_one_region_one_price() -> None:
    mind, graph = belief(), chain("Tanh", "Exp")
    prices = mind.sample(np.random.default_rng(1))
    new = [mind.meet(graph, one) for one in Pricer.table("none").regions(graph)]  # met after the draw
    assert [prices(one) for one in new] == [prices(one) for one in new]
    assert prices(new[0]) != prices(new[1])


def test_a_price_stays_above_zero() -> None:
    mind, graph = belief(), chain("Tanh")
    guess = mind.predict(graph).ms
    mind.observe(graph, -guess, 1e-9)
    assert mind.mean()(mind.signatures[0]) == pytest.approx(0.05 * guess)


@pytest.mark.parametrize(
    ("ms", "spread", "expected"),
    [(8.0, 0.0, 2.0), (12.0, 0.0, 0.0), (10.0, 1.0, 0.39894), (9.0, 1.0, 1.08332), (11.0, 2.0, 0.39559)],
)
def test_expected_improvement(ms: float, spread: float, expected: float) -> None:
    assert improvement(Predicted(ms, spread), 10.0) == pytest.approx(expected, abs=1e-5)


# --- the search ---------------------------------------------------------------------------------------------------


class Truth(CostModel):
    """Whole graphs take what a formula says that the search does not know; ``asked`` counts the timings."""

    name = "truth"
    measures = True
    whole = True

    def __init__(self, refuse: str = "", **options: Any) -> None:
        self._real, self._ranker = price.make("analytic", **options), price.make("analytic", fusion="none")
        self._refuse, self._times, self.asked = refuse, dict[str, GraphTime](), 0

    @property
    def pricer(self) -> Any:
        return self._ranker.pricer

    @property
    def relative_noise(self) -> float:
        return 1e-4

    def graph_time(self, digest: str) -> GraphTime | None:
        return self._times.get(digest)

    def cost(self, graph: Graph) -> CostReport:
        return self._real.cost(graph)

    def fill(self, graphs: Iterable[Graph], *, limit: int | None = None, **_: Any) -> FillReport:
        new = {graph.digest: graph for graph in graphs if graph.digest not in self._times}
        for graph in itertools.islice(new.values(), limit):
            refused = self._times and self._refuse and self._refuse in graph.text()
            self._times[graph.digest] = GraphTime(None if refused else self._real.pricer.price(graph)[0])
            self.asked += 1
        return FillReport(measured=len(new))


def problem_of(name: str, truth: Truth, budget: str = "60meas") -> Problem:
    return Problem(BY_NAME[name].graph(), BY_NAME[name].ruleset(), truth, budget)


def until_best(name: str, spec: str) -> int:
    """Timings until the cheapest graph that a search finds, the original's included."""
    truth = Truth(**BY_NAME[name].cost)
    found = search.solve(problem_of(name, truth), spec)
    assert found.cost_after_ms == pytest.approx(optimum(BY_NAME[name]).cost_ms)
    return found.curve[-1].measurements


def test_six_gains_need_one_timing_where_step_by_step_they_need_six() -> None:
    assert until_best("twins", "surrogate:fusion=none") == 2
    assert until_best("twins", "greedy") >= 7


@pytest.mark.parametrize("name", [tiny.name for tiny in TINY])
def test_the_surrogate_gets_there_by_few_timings(name: str) -> None:
    assert until_best(name, "surrogate:fusion=none") <= 6


def test_it_ends_by_itself_and_within_the_budget() -> None:
    truth = Truth(fusion="none")
    found = search.solve(problem_of("plateau", truth), "surrogate:fusion=none")
    assert found.stop_reason is StopReason.CONVERGED
    assert found.counts.measurements == truth.asked
    few = Truth(fusion="none")
    found = search.solve(problem_of("plateau", few, "2meas"), "surrogate:fusion=none")
    assert (few.asked, found.stop_reason) == (2, StopReason.BUDGET_MEASUREMENTS)


def test_what_the_runtime_refuses_is_not_asked_for_again() -> None:
    start = BY_NAME["plateau"].graph().text()
    assert start.count("Transpose") == 4
    truth = Truth(refuse="Tanh", fusion="none")  # all but the original
    found = search.solve(problem_of("plateau", truth), "surrogate:fusion=none")
    assert found.best.digest == BY_NAME["plateau"].graph().digest
    assert truth.asked == len({*truth._times}) > 1


def test_the_same_seed_times_the_same_graphs() -> None:
    runs = [Truth(fusion="none") for _ in range(2)]
    for truth in runs:
        search.solve(problem_of("valley", truth), "surrogate:fusion=none")
    assert list(runs[0]._times) == list(runs[1]._times)


def test_where_a_step_costs_nothing_it_is_backtracking() -> None:
    tiny = BY_NAME["valley"]
    found, plain = (search.solve(tiny.problem(), spec) for spec in ("surrogate", "backtracking"))
    assert (found.best.digest, found.counts) == (plain.best.digest, plain.counts)


@pytest.mark.parametrize("spec", ["surrogate:draws=0", "surrogate:expansions=0", "surrogate:block=-1"])
def test_bad_options_are_a_sentence(spec: str) -> None:
    with pytest.raises(UsageError, match="at least 1 of each of the first two"):
        search.make(spec)


def test_a_missing_file_is_said_before_the_search() -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        Surrogate(prices="/nowhere/timed.jsonl").ready()
