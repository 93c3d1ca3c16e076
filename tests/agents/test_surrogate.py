"""The surrogate of the clock: what timings teach it, and how few of them it needs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import price, search
from rlflow.agents.bayes import strategy
from rlflow.agents.bayes.belief import Belief, Predicted, PriceOf
from rlflow.agents.bayes.prior import UNKNOWN, Prior, roofline
from rlflow.agents.bayes.strategy import Surrogate, improvement
from rlflow.errors import ModelError, UsageError
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport, GraphTime, Price
from rlflow.price.database import PriceContext, PriceDatabase
from rlflow.price.regions import Pricer, operators
from rlflow.price.traits import traits_of
from rlflow.rewrite import compiled
from rlflow.search import Problem, StopReason, Visited
from rlflow.testing import TINY, optimum, tiny

BY_NAME = {tiny.name: tiny for tiny in TINY}


def graph_of(*lines: str, shape: str = "[64,64]") -> Graph:
    return Graph.parse("\n".join([f"v0: f32{shape} = input", *lines]))


def chain(*ops: str, shape: str = "[64,64]") -> Graph:
    lines = [f"v{i + 1} = {op}(v{i})" for i, op in enumerate(ops)]
    return graph_of(*lines, f"return v{len(ops)}", shape=shape)


# --- the belief ---------------------------------------------------------------------------------------------------


def belief() -> Belief:
    pricer = Pricer.table("none")
    pricer.set_view_price(0.0)
    return Belief(pricer, Prior())


def by_hand(seen: list[tuple[Graph, float, float]], asked: Graph) -> Predicted:
    """The same posterior from its definition: regions of one shape, so kind, operator and region are effects of size
    0.1, UNKNOWN and UNKNOWN times one guess.
    """
    pricer = Pricer.table("none")
    graphs = [graph for graph, _, _ in seen] + [asked]
    rows = [[(one, operators(graph, one)[0]) for one in pricer.regions(graph)] for graph in graphs]
    guess = roofline(rows[0][0][0].flops, rows[0][0][0].bytes)
    names = sorted({name for row in rows for _, name in row})
    counts = np.array([[sum(name == other for _, other in row) for name in names] for row in rows])
    covariance = guess**2 * (0.1**2 * np.outer(counts.sum(1), counts.sum(1)) + 2 * UNKNOWN**2 * counts @ counts.T)
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


@pytest.mark.parametrize("caution", [0.5, 2.0])
def test_caution_prices_what_is_uncertain_above_what_is_expected(caution: float) -> None:
    mind, graph, other = belief(), chain("Tanh", "Exp"), chain("Sqrt")
    before = mind.cautious(caution, ())
    new = [mind.meet(other, one) for one in Pricer.table("none").regions(other)]
    expected = mind.predict(other)
    assert before(new[0]) == pytest.approx(expected.ms + caution * expected.spread)
    mind.observe(graph, 1.5 * mind.predict(graph).ms, 0.1 * expected.ms)
    mind.observe(chain("Sqrt", "Sqrt"), 3.0 * expected.ms, 0.2 * expected.ms)
    after = mind.cautious(caution, mind.signatures[1:2])
    for one, asked in ((other, new[0]), (chain("Exp"), mind.signatures[2])):
        expected = mind.predict(one)
        assert after(asked) == pytest.approx(expected.ms + caution * expected.spread)
    late = chain("Neg")
    fresh = [mind.meet(late, one) for one in Pricer.table("none").regions(late)]  # met after the prices were made
    assert after(fresh[0]) == pytest.approx(mind.predict(late).ms + caution * mind.predict(late).spread)


def test_what_is_trusted_costs_what_is_expected() -> None:
    mind, graph = belief(), chain("Tanh", "Exp")
    mind.observe(graph, 2 * mind.predict(graph).ms, 1e-3)
    prices, expected = mind.cautious(3.0, frozenset(mind.signatures)), mind.mean()
    assert [prices(one) for one in mind.signatures] == [expected(one) for one in mind.signatures]


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
    """Whole graphs take what a formula says that the search does not know; ``asked`` counts the timings. ``regions``
    were timed before, and the runtime has blocks of ``block`` channels.
    """

    name = "truth"
    measures = True
    whole = True

    def __init__(
        self, refuse: str = "", regions: Sequence[Price] = (), block: int | None = None, **options: Any
    ) -> None:
        self._real, self._ranker = price.make("analytic", **options), price.make("analytic", fusion="none")
        self._refuse, self._times, self.asked = refuse, dict[str, GraphTime](), 0
        self._regions, self._block = regions, block

    @property
    def pricer(self) -> Any:
        return self._ranker.pricer

    @property
    def relative_noise(self) -> float:
        return 1e-4

    def graph_time(self, digest: str) -> GraphTime | None:
        return self._times.get(digest)

    def timed_regions(self) -> Sequence[Price]:
        return self._regions

    def channel_block(self) -> int | None:
        return self._block

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


@pytest.mark.parametrize(
    "spec", ["surrogate:draws=0", "surrogate:expansions=0", "surrogate:block=-1", "surrogate:beliefs=3"]
)
def test_bad_options_are_a_sentence(spec: str) -> None:
    with pytest.raises(UsageError, match="at least 1 of each of the first two"):
        search.make(spec)


@pytest.mark.parametrize(
    ("prices", "beliefs", "known"),
    [("{file}", 1, [2]), ("{file}", 2, [2, 0]), ("own", 1, [2]), ("own", 2, [2, 0]), ("none", 2, [0])],
)
def test_where_prices_are_known_a_belief_without_them_takes_turns(
    prices: str, beliefs: int, known: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, minds = tmp_path / "timed.jsonl", []
    rows = [{"region": "", "operators": name, "flops": 1e5, "bytes": 1e5, "ms": 0.5} for name in ("Tanh", "Exp")]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")

    class Told(Belief):
        def __init__(self, pricer: Pricer, prior: Prior) -> None:
            super().__init__(pricer, prior)
            self.known, self.seen, self.drawn = len(prior), list[str](), 0
            minds.append(self)

        def observe(self, graph: Graph, ms: float, noise: float) -> None:
            super().observe(graph, ms, noise)
            self.seen.append(graph.digest)

        def sample(self, rng: np.random.Generator) -> PriceOf:
            self.drawn += 1
            return super().sample(rng)

    monkeypatch.setattr(strategy, "Belief", Told)
    truth = Truth(fusion="none", regions=[Price(0.5, 0.1, 9, operators=name) for name in ("Tanh", "Exp")])
    spec = f"surrogate:fusion=none,prices={prices.format(file=path)},beliefs={beliefs}"
    found = search.solve(problem_of("plateau", truth), spec)
    assert found.stop_reason is StopReason.CONVERGED
    assert [mind.known for mind in minds] == known
    assert [mind.seen for mind in minds] == [list(truth._times)] * len(known)  # each learns from all
    assert max(mind.drawn for mind in minds) - min(mind.drawn for mind in minds) <= 1  # a search by drawn prices a turn


def test_what_promises_most_is_timed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [chain("Tanh", *["Neg"] * more) for more in range(3)]
    step: Any = "the step to graph {}"
    ends = [Visited(one, one.digest, 1.0 - k, (step.format(k),)) for k, one in enumerate(graphs)]
    order: list[str] = []

    class Mind:
        def improvement(self, one: Visited, best: float) -> float:
            return dict(zip((end.digest for end in ends), (0.1, 0.3, 0.2), strict=True))[one.digest] * best

    class FakeProblem:
        best_cost = 1.0

        def led(self, trace: tuple[Any, ...]) -> Visited:
            return next(end for end in ends if end.trace == trace)

    def learn(run: Any, node: Visited) -> None:
        run.timed.add(node.digest)
        order.append(node.digest)

    monkeypatch.setattr(strategy._Run, "_proposals", lambda run, mind: iter(ends))
    monkeypatch.setattr(strategy._Run, "learn", learn)
    problem: Any = FakeProblem()
    mind: Any = Mind()
    run = strategy._Run(Surrogate(), problem, np.random.default_rng(0), [mind], Pricer)
    assert [run.step(mind) for _ in range(4)] == [True, True, True, False]
    assert order == [graphs[k].digest for k in (1, 2, 0)]


# --- what this machine has learnt -----------------------------------------------------------------------------------

HERE = PriceContext("a processor", "onnxruntime", "1.0")
OTHERS = ("Exp", "Neg")
#: Other operators in the place of the original's.
EXCHANGE = [tiny.rule(f"to-{op}", ["(Tanh ?x)"], [f"({op} ?x)"]) for op in OTHERS]


def learnt(path: Path, **factors: float) -> Sequence[Price]:
    """Prices of a database in which regions of these operators took so many times what they should."""
    with PriceDatabase(path) as base:
        for op, factor in factors.items():
            graph = chain(op, shape="[32,64]")
            (region,) = Pricer.table("none").regions(graph)
            took, told = factor * roofline(region.flops, region.bytes), traits_of(graph, region.nodes).text
            about = {"kind": str(region.kind), "operators": op, "flops": region.flops, "bytes": region.bytes}
            base.put_many({op: Price(took, 0.1, 9, **about, traits=told)}, HERE)
        return list(base.all_here(HERE).values())


def first_timed(truth: Truth, spec: str, budget: str = "2meas") -> list[str]:
    """The operators of the graphs that are timed, in their order."""
    found: list[str] = []
    fill = truth.fill

    def heard(graphs: Iterable[Graph], **options: Any) -> FillReport:
        graphs = list(graphs)
        found.extend(graph.op(graph.producer(graph.outputs()[0])) for graph in graphs)
        return fill(graphs, **options)

    truth.fill = heard  # type: ignore[method-assign]
    search.solve(Problem(chain("Tanh"), compiled(EXCHANGE), truth, budget), spec)
    return found


@pytest.mark.parametrize(("quick", "slow"), [OTHERS, OTHERS[::-1]])
def test_what_this_machine_has_learnt_decides_what_is_timed_first(quick: str, slow: str, tmp_path: Path) -> None:
    prices = learnt(tmp_path / "prices.sqlite", **{quick: 0.4, slow: 4.0, "Tanh": 2.0})
    truth = Truth(fusion="none", regions=prices)
    assert first_timed(truth, "surrogate:fusion=none") == ["Tanh", quick]


def test_a_machine_that_has_learnt_nothing_is_as_one_without_prices(tmp_path: Path) -> None:
    runs = {
        spec: first_timed(Truth(fusion="none", regions=learnt(tmp_path / f"{k}.sqlite", **factors)), spec, "20meas")
        for k, (spec, factors) in enumerate(
            [("surrogate:fusion=none", {}), ("surrogate:fusion=none,prices=none", {"Neg": 0.1, "Exp": 9.0})]
        )
    }
    assert len(set(map(tuple, runs.values()))) == 1
    known = learnt(tmp_path / "known.sqlite", Neg=9.0, Exp=0.1, Tanh=2.0)
    other = learnt(tmp_path / "other.sqlite", Neg=0.1, Exp=9.0, Tanh=2.0)
    ways = [first_timed(Truth(fusion="none", regions=one), "surrogate:fusion=none", "20meas") for one in (known, other)]
    assert ways[0] != ways[1]


@pytest.mark.parametrize(
    ("asked", "shown", "expected"), [(0, None, 8), (0, 16, 16), (0, 0, 0), (4, 16, 4), (4, None, 4)]
)
def test_blocks_are_those_that_the_runtime_shows(
    asked: int, shown: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[int] = []
    table = Pricer.table

    class Heard:
        @staticmethod
        def table(name: str, block: int) -> Pricer:
            blocks.append(block)
            return table(name, block=block)

    strategy_of = Surrogate(block=asked)
    monkeypatch.setattr(strategy, "Pricer", Heard)
    search.solve(problem_of("plateau", Truth(fusion="none", block=shown), "2meas"), strategy_of)
    assert set(blocks) == {expected}


def test_a_missing_file_is_said_before_the_search() -> None:
    for known in ("own", "none"):
        Surrogate(prices=known).ready()
    with pytest.raises(ModelError, match="cannot be read"):
        Surrogate(prices="/nowhere/timed.jsonl").ready()
