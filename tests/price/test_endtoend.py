"""Whole graphs by the clock, with a clock that is simulated where a figure is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from rlflow import price, search
from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.graph import Graph
from rlflow.price.bench import FLUSH_MB, LEVEL, Bench, Caches, mega
from rlflow.price.command import DeviceCommand
from rlflow.price.database import Price, PriceContext, PriceDatabase, PriceDatabaseWarning
from rlflow.price.endtoend import TOGETHER, EndToEndCost
from rlflow.price.whole import MIN_BLOCKS, centre, half_width
from rlflow.runtime import RuntimeOptions, Samples
from rlflow.search import Problem, StopReason
from rlflow.testing import tiny


def chain(length: int) -> Graph:
    lines = ["x: f32[4,64] = input"]
    lines += [f"v{k} = Neg({'x' if k == 0 else f'v{k - 1}'})" for k in range(length)]
    return Graph.parse("\n".join([*lines, f"return v{length - 1}"]))


class Simulated:
    """A sampler whose models take as long as ``ms`` says of their source, with noise of two kinds, and drift."""

    clock = "wall"

    def __init__(
        self, ms: Callable[[Any], float], *, noise: float = 0.01, bias: float = 0.002, drift: float = 0.0, seed: int = 0
    ) -> None:
        self.ms, self.noise, self.bias, self.drift = ms, noise, bias, drift
        self.rng = np.random.default_rng(seed)
        self.known: dict[str, Any] = {}
        self.blocks: list[list[str]] = []

    def add(self, name: str, source: Any) -> None:
        self.ms(source)
        self.known[name] = source

    def drop(self, name: str) -> None:
        del self.known[name]

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.blocks.append(list(names))
        base = np.array([self.ms(self.known[name]) for name in names])
        speed = math.exp(self.drift * len(self.blocks))
        session = self.rng.lognormal(0, self.bias, len(names))
        matrix = base * speed * session * self.rng.lognormal(0, self.noise, (7, len(names)))
        return Samples(matrix, matrix, (1,) * len(names))


def by_length(source: Graph) -> float:
    return float(source.num_nodes)


def made(sampler: Simulated, **options: Any) -> EndToEndCost:
    model = EndToEndCost(sampler=sampler, **options)
    model.attach(lambda graph: graph, dict)  # type: ignore[arg-type, return-value]
    return model


def test_half_width_is_students() -> None:
    assert half_width([0.0, 1.0]) == math.inf
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert half_width([0.5] * 40) == 0.0
    assert half_width([0.0, 0.01] * 5 + [9.0]) < 0.01  # one block in which something else ran
    assert centre([0.0, 1.0, 2.0]) == 1.0
    assert centre([0.0] * 9 + [9.0]) == 0.0


def test_costs_are_times_of_whole_graphs() -> None:
    model = made(Simulated(by_length))
    first, second = model.cost(chain(20)), model.cost(chain(10))
    assert first.total_ms == pytest.approx(21, rel=0.02)
    assert second.total_ms / first.total_ms == pytest.approx(11 / 21, rel=0.02)
    assert first.source == "end-to-end"
    assert first.complete
    assert (first.spread_ms or 0) > 0
    assert model.fill([chain(20), chain(10)]).measured == 0
    assert model.totals.measured == 2


def test_repetitions_follow_the_noise() -> None:
    counts = {}
    for noise in (0.001, 0.012):
        sampler = Simulated(by_length, bias=noise, noise=noise)
        model = made(sampler, max_noise=1.0, seconds=1e9)
        model.fill([chain(20)])
        before = len(sampler.blocks)
        model.fill([chain(19)])  # close to the baseline, so that only a tight interval will do
        counts[noise] = len(sampler.blocks) - before
    assert counts[0.001] <= MIN_BLOCKS + 1
    assert counts[0.012] > counts[0.001]


def test_graphs_that_are_compared_with_each_other_are_all_timed_as_well_as_the_tolerance_asks() -> None:
    counts = {}
    for share in (0.25, 0.0):
        sampler = Simulated(by_length, bias=0.012, noise=0.012)
        model = made(sampler, max_noise=1.0, seconds=1e9, share=share)
        model.fill([chain(20)])
        before = len(sampler.blocks)
        model.fill([chain(10)])
        counts[share] = len(sampler.blocks) - before
        assert share or model.times[chain(10).digest].half_width <= model.tolerance
    assert counts[0.25] == MIN_BLOCKS < counts[0.0]


def test_a_spent_time_ends_the_repetitions() -> None:
    ticks = iter(range(10**6))
    sampler = Simulated(by_length, bias=0.05)
    model = made(sampler, max_noise=1.0, seconds=0.5, clock=lambda: float(next(ticks)))
    model.fill([chain(20), chain(19)])
    assert len(sampler.blocks) <= 2 * MIN_BLOCKS + 1


def test_a_noisy_machine_is_refused() -> None:
    with pytest.raises(CostError, match=r"too noisy to tell graphs apart .* differed by ±\d+\.\d % over \d+ blocks"):
        made(Simulated(by_length, bias=0.2), seconds=0.01).fill([chain(5)])


def test_drift_moves_no_ratio_and_is_told() -> None:
    model = made(Simulated(by_length, drift=0.02, bias=0.0005, noise=0.001))
    first, second = model.cost(chain(20)), model.cost(chain(10))
    assert second.total_ms / first.total_ms == pytest.approx(11 / 21, rel=0.01)
    assert model.drift > 0.05
    while model.drift <= 0.1:
        model.cost(chain(len(model.times) + 30))
    assert "speed changed by up to +" in model.notes()[0]
    assert made(Simulated(by_length)).notes() == []


def test_graphs_that_fail_are_refused_with_their_sentence() -> None:
    def moody(source: Graph) -> float:
        if source.num_nodes == 6:
            raise RuntimeCrashed("The runtime's process died while running a model (killed by SIGSEGV).")
        return float(source.num_nodes)

    model = made(Simulated(moody))
    report = model.fill([chain(20), chain(5), chain(10)])
    assert (report.measured, report.refused, report.remaining) == (3, 1, 0)
    assert "SIGSEGV" in model.refusals[chain(5).digest]
    assert model.cost(chain(5)).unmeasured == 1
    assert model.graph_time(chain(10).digest).ms == pytest.approx(11, rel=0.05)


def test_a_graph_that_fails_while_it_is_timed_is_found_among_others() -> None:
    class Late(Simulated):
        def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
            if any(self.known[name].num_nodes == 6 for name in names):
                raise RuntimeRefused("ONNX Runtime failed to run the model: no.")
            return super().block(names, seed, seconds)

    model = made(Late(by_length))
    model.fill([chain(20), chain(4), chain(5), chain(6)])
    assert list(model.refusals) == [chain(5).digest]
    assert model.graph_time(chain(6).digest).ms == pytest.approx(7, rel=0.05)


def test_a_baseline_that_fails_is_an_error() -> None:
    def broken(source: Graph) -> float:
        raise RuntimeRefused("ONNX Runtime refused to load the model: no.")

    with pytest.raises(CostError, match="cannot be timed end to end: ONNX Runtime refused"):
        made(Simulated(broken)).fill([chain(5)])


def test_limit_and_stop() -> None:
    sampler = Simulated(by_length)
    model = made(sampler)
    graphs = [chain(20 + k) for k in range(2 * TOGETHER)]
    assert model.fill(graphs, limit=3).measured == 3
    report = model.fill(graphs, stop=lambda: True)
    assert (report.measured, report.remaining) == (0, 2 * TOGETHER - 3)
    assert model.fill(graphs).remaining == 0
    assert max(map(len, sampler.blocks)) == TOGETHER + 1
    assert set(sampler.known) == {"baseline"}


def test_a_stop_half_way_leaves_nothing_behind() -> None:
    sampler = Simulated(by_length)
    model = made(sampler)
    model.fill([chain(20)])
    before = len(sampler.blocks)
    report = model.fill([chain(19), chain(18)], stop=lambda: len(sampler.blocks) > before)
    assert (report.measured, report.remaining) == (0, 2)
    assert set(sampler.known) == {"baseline"}
    assert model.fill([chain(19), chain(18)]).measured == 2


def test_large_graphs_are_timed_one_by_one() -> None:
    def large(rows: int) -> Graph:
        lines = [f"x: f32[{rows},16384] = input", "w: f32[16384,16384] = const", "y = MatMul(x, w)", "return y"]
        return Graph.parse("\n".join(lines))

    sampler = Simulated(lambda graph: 10.0)
    made(sampler).fill([large(rows) for rows in range(1, 5)])
    assert max(map(len, sampler.blocks)) == 2


@pytest.mark.parametrize("option", ["tolerance", "seconds", "max_noise"])
def test_mistakes(option: str) -> None:
    with pytest.raises(UsageError, match=f"option {option} .* above zero"):
        price.make(f"end-to-end:{option}=0")


def test_a_share_of_all_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"option share .* below 1"):
        price.make("end-to-end:share=1")


class Described:
    """A worker that says where it is, and turns graphs to blocks of so many channels or more."""

    def __init__(self, block: int = 8, **about: Any) -> None:
        self.options, self._block = RuntimeOptions(), block
        self._about = {"runtime": "onnxruntime", "version": "1.0", "device": "here", "threads": 1, **about}

    def describe(self) -> dict[str, Any]:
        return {"provider": "CPUExecutionProvider", **self._about}

    def optimized(self, model: bytes, **_: Any) -> bytes:
        channels = onnx.load_from_string(model).graph.input[0].type.tensor_type.shape.dim[1].dim_value
        return b"ReorderInput" if 0 < self._block <= channels else b""


HERE = PriceContext("here", "onnxruntime", "1.0", 1, LEVEL)


class TestTimedRegions:
    def timed(self, path: Path, **about: Any) -> list[float | None]:
        worker: Any = Described(**about)
        with EndToEndCost(worker=worker, database=path) as model:
            return [one.ms for one in model.timed_regions()]

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        worker: Any = Described()
        name = Bench(RuntimeOptions(), worker, caches=Caches(mega(FLUSH_MB))).kept_as
        tanh = Price(1.0, 0.1, 9, operators="Tanh")
        with PriceDatabase(tmp_path / "prices.sqlite") as base:
            base.put_many({name("a"): tanh, name("b"): replace(tanh, ms=2.0)}, HERE)
            for k, (field, value) in enumerate(
                {
                    "device": "there",
                    "runtime": "onnxruntime/GPU",
                    "version": "2.0",
                    "threads": 2,
                    "level": "none",
                }.items()
            ):
                base.put_many({name("a"): replace(tanh, ms=k + 3.0)}, replace(HERE, **{field: value}))
            others = {"folded": replace(tanh, samples=0), "refused": Price(None, refusal="no", operators="Tanh")}
            base.put_many({name(key): one for key, one in others.items()}, HERE)
            base.put_many({name("probe:overhead"): replace(tanh, operators=""), "1:a": replace(tanh, ms=9.0)}, HERE)
        return tmp_path / "prices.sqlite"

    @pytest.mark.parametrize(
        ("about", "expected"),
        [
            ({}, [1.0, 2.0]), ({"device": "there"}, [3.0]), ({"provider": "GPU"}, [4.0]), ({"version": "2.0"}, [5.0]),
            ({"version": "3.0"}, []),
        ],
    )  # fmt: skip
    def test_are_those_of_the_place_at_hand(self, path: Path, about: dict[str, Any], expected: list[float]) -> None:
        assert self.timed(path, **about) == expected

    def test_a_given_database_stays_open(self, path: Path) -> None:
        worker: Any = Described()
        with PriceDatabase(path) as base:
            assert len(EndToEndCost(worker=worker, database=base).timed_regions()) == 2
            assert base.count() == 11

    def test_a_database_that_cannot_be_read_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "prices.sqlite").write_bytes(b"text" * 1000)
        with pytest.warns(PriceDatabaseWarning, match="set aside"):
            assert self.timed(tmp_path / "prices.sqlite") == []
        with pytest.warns(PriceDatabaseWarning, match="kept in memory"):
            assert self.timed(tmp_path) == []

    def test_a_command_stands_for_another_device(self, path: Path) -> None:
        with EndToEndCost(measure_cmd="true {model}", database=path) as model:
            assert model.timed_regions() == ()
            assert model.channel_block() is None

    @pytest.mark.parametrize("block", [0, 8, 16])
    def test_the_runtime_shows_its_blocks(self, block: int) -> None:
        worker: Any = Described(block)
        assert EndToEndCost(worker=worker).channel_block() == block
        assert EndToEndCost(worker=worker, runtime="openvino").channel_block() is None


class TestSearch:
    @pytest.fixture
    def problem(self) -> Callable[..., tuple[Problem, EndToEndCost]]:
        case = tiny.by_name("twins")  # every improvement takes a node away, so that fewer nodes take less time

        def make(budget: str, ms: Callable[[Graph], float] = by_length) -> tuple[Problem, EndToEndCost]:
            model = made(Simulated(ms, noise=0.001, bias=0.0005), tolerance=0.002)
            return Problem(case.graph(), case.ruleset(), model, budget), model

        return make

    def test_a_search_follows_the_clock(self, problem: Callable[..., tuple[Problem, EndToEndCost]]) -> None:
        made_problem, model = problem("500c")
        found = search.solve(made_problem, "backtracking")
        assert found.cost_before_ms == model.graph_time(made_problem.root().graph.digest).ms
        assert found.cost_after_ms == model.graph_time(found.best.digest).ms
        assert found.cost_after_ms < found.cost_before_ms
        assert found.counts.measurements == model.totals.measured >= found.counts.expansions

    def test_measurements_are_budgeted(self, problem: Callable[..., tuple[Problem, EndToEndCost]]) -> None:
        made_problem, model = problem("3meas")
        found = search.solve(made_problem, "backtracking")
        assert len(model.times) == found.counts.measurements == 3  # the starting graph is one of them
        assert found.stop_reason is StopReason.BUDGET_MEASUREMENTS

    def test_refused_graphs_never_win(self, problem: Callable[..., tuple[Problem, EndToEndCost]]) -> None:
        root = problem("1c")[0].root().graph.digest

        def only_the_root(graph: Graph) -> float:
            if graph.digest != root:
                raise RuntimeRefused("ONNX Runtime refused to load the model: no.")
            return 10.0

        made_problem, _ = problem("100c", only_the_root)
        found = search.solve(made_problem, "greedy")
        assert found.best.digest == root


def test_a_command_is_the_clock(tmp_path: Path) -> None:
    device = DeviceCommand("wc -c < {model}")
    with price.make("end-to-end", measure_cmd=device, seconds=0.2, tolerance=0.01) as model:  # type: ignore[attr-defined]
        assert model.available() is None
        large, small = model.cost(chain(40)), model.cost(chain(10))
    assert large.runtime == "command"
    assert large.device == "wc -c < {model}"
    assert small.total_ms < large.total_ms
    assert small.spread_ms == 0.0


@pytest.mark.clock
def test_the_real_runtime_tells_more_work_from_less() -> None:
    def products(count: int) -> Graph:
        lines = ["x: f32[64,192] = input", "w: f32[192,192] = const"]
        lines += [f"v{k} = MatMul({'x' if k == 0 else f'v{k - 1}'}, w)" for k in range(count)]
        return Graph.parse("\n".join([*lines, f"return v{count - 1}"]))

    with price.make("end-to-end", seconds=0.5, max_noise=10.0) as model:  # type: ignore[attr-defined]
        assert model.available() is None
        large, small = model.cost(products(6)), model.cost(products(3))
    assert large.total_ms > small.total_ms > 0
    assert large.runtime is not None
    assert large.runtime.startswith("onnxruntime ")
