"""Measured prices, with a clock that is simulated where a figure is checked and real where only sense is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from rlflow import price
from rlflow.frontends import graph_to_model
from rlflow.graph import Graph, GraphBuilder
from rlflow.price import calibration
from rlflow.price.bench import FLUSH_MB, STREAMING_FLUSH_MB
from rlflow.price.calibration import Calibration
from rlflow.price.database import Price, PriceContext, PriceDatabase
from rlflow.price.in_model import ONNXRUNTIME, STREAMING
from rlflow.price.machine import Machine
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.price.partition import streams
from rlflow.price.regions import Pricer
from rlflow.price.traits import Traits
from rlflow.runtime import Measurement, RuntimeOptions
from tests.learnt import learnt

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

TEXT = """
x: f32[4,64] = input
w: f32[64,64] = const
b: f32[64] = const
v: f32[64,64] = const
m = MatMul(x, w)
a = Add(m, b)
r = Relu(a)
n = MatMul(r, v)
y = Softmax{axis=1}(n)
return y
"""
CONVOLUTIONS = """
x: f32[1,32,16,16] = input
w: f32[32,32,1,1] = const
u: f32[32,32,1,1] = const
a = Conv{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}(x, w)
b = Conv{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}(a, u)
s = Add(b, a)
y = Relu(s)
z = Elu(y)
return z
"""
MACHINE = Calibration(
    overhead=0.002, dispatch=0.0005, view=0.0003, working_sets=(1e6, 1e8), bytes_per_ms=(1e8, 1e7),
    sizes=(0.0, 1e6), reorder=(0.0, 0.1), pool=(0.0, 0.05),
)  # fmt: skip


inside = ONNXRUNTIME.ms


class FakeWorker:
    """Answers as a worker does; a model takes as many milliseconds as its name asks for."""

    def __init__(self, ms: float = 1.0) -> None:
        self.options, self.ms, self.asked = RuntimeOptions(), ms, 0

    def describe(self) -> dict[str, object]:
        fixed = {"runtime": "onnxruntime", "version": "0", "provider": "CPUExecutionProvider", "device": "fake"}
        return {**fixed, "threads": 1}

    def measure_many(self, items, **_: object) -> dict[object, Measurement | str]:
        answers = {}
        for key, model, _specs in items:
            self.asked += 1
            answers[key] = "the runtime says no" if b"Softmax" in model else Measurement(self.ms, 0.1, 9)
        return answers

    def optimized(self, model: bytes, **_: object) -> bytes:
        return b"ReorderInput"

    def profile(self, *_: object, **__: object) -> list[object]:
        return []


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OnnxRuntimeCost]:
    monkeypatch.setattr(Machine, "calibrated", lambda self: MACHINE)
    monkeypatch.setattr(Machine, "view_ms", lambda self: MACHINE.view)
    with PriceDatabase(tmp_path / "prices.sqlite") as database:
        yield OnnxRuntimeCost(worker=FakeWorker(), database=database)


def test_price_is_time_less_overhead_plus_a_dispatch(fake: OnnxRuntimeCost) -> None:
    report = fake.cost(Graph.parse(TEXT))
    assert [row.operators for row in report.per_region] == [("MatMul", "Add", "Relu"), ("MatMul",), ("Softmax",)]
    assert [row.ms for row in report.per_region] == pytest.approx([inside(0.9985), inside(0.9985), 0.0])
    assert report.total_ms == pytest.approx(2 * inside(0.9985))
    assert report.spread_ms == pytest.approx(np.sqrt(2 * 0.1**2))
    assert (report.source, report.device, report.runtime) == ("measured", "fake", "onnxruntime 0")


def test_what_the_runtime_refuses_is_said(fake: OnnxRuntimeCost) -> None:
    report = fake.cost(Graph.parse(TEXT))
    assert report.unpriced == ("Softmax",)
    assert list(report.refusals.values()) == ["the runtime says no"]
    assert report.per_region[2].note == "the runtime says no"
    assert fake.totals.refused == 1


UNKNOWN_EXTENT = """
x: f32[?,8,?,?] = input
s: i64[4] = input
a = Relu(x)
z: f32[2,3] = input
b = Softmax{axis=1}(z)
c = Tanh(z)
return a, b, c
"""


def test_a_region_of_unknown_extent_is_refused_and_the_others_are_priced(fake: OnnxRuntimeCost) -> None:
    fake.worker.ms = 2.0  # type: ignore[misc]
    report = fake.cost(Graph.parse(UNKNOWN_EXTENT))
    by_operator = {row.operators: row for row in report.per_region}
    assert "f32[?,8,?,?]" in str(by_operator[("Relu",)].note)
    assert by_operator[("Tanh",)].ms == pytest.approx(inside(1.9985))
    assert report.complete


def test_what_a_region_is_is_kept_with_its_price(fake: OnnxRuntimeCost) -> None:
    fake.cost(Graph.parse(TEXT))
    found = {price.operators: price for price in fake.database.all_here(fake.place).values()}
    assert Traits.parse(found["MatMul Add Relu"].traits)[:2] == ("MatMul", "c f01 ")
    refused = Traits("Softmax", "l", (math.log(256), math.log(64), 0.0, 0.0, 0.0))
    assert found["Softmax"].traits == refused.text


def test_a_price_without_traits_gets_them_when_its_region_is_met_again(
    fake: OnnxRuntimeCost, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.cost(Graph.parse(TEXT))
    full = fake.database.all_here(fake.place)
    early = "2026-01-01T00:00:00+00:00"
    old = {name: replace(price, traits="", measured_at=early) for name, price in full.items()}
    stranger = Price(1.0, 0.1, 9, measured_at=early, operators="Tanh")
    fake.database.put_many({**old, "stranger": stranger}, fake.place)
    writes: list[int] = []
    put = PriceDatabase.put_many

    def counted(base: PriceDatabase, prices: Mapping[str, Price], context: PriceContext) -> None:
        writes.append(len(prices))
        put(base, prices, context)

    monkeypatch.setattr(PriceDatabase, "put_many", counted)
    for expected in ([3], [3]):  # of a second model none is without
        again = OnnxRuntimeCost(worker=fake.worker, database=fake.database)
        again.fill([Graph.parse(TEXT)])
        assert again.totals.measured == 0
        assert writes == expected
    dated = {name: replace(price, measured_at=early) for name, price in full.items()}
    assert fake.database.all_here(fake.place) == {**dated, "stranger": stranger}


def test_every_region_is_measured_once(fake: OnnxRuntimeCost) -> None:
    first = fake.fill([Graph.parse(TEXT)])
    assert (first.measured, first.cached, first.remaining) == (3, 0, 0)
    assert fake.fill([Graph.parse(TEXT)]).measured == 0
    again = OnnxRuntimeCost(worker=fake.worker, database=fake.database)
    report = again.fill([Graph.parse(TEXT)])
    assert (report.measured, report.cached) == (0, 3)
    assert again.cost(Graph.parse(TEXT)).total_ms == fake.cost(Graph.parse(TEXT)).total_ms
    assert again.refusals == fake.refusals


def test_regions_of_one_program_have_one_price(fake: OnnxRuntimeCost, monkeypatch: pytest.MonkeyPatch) -> None:
    program = onnx.load_from_string(graph_to_model(Graph.parse(TEXT)).SerializeToString())
    monkeypatch.setattr(fake.worker, "optimized", lambda model, **_: program.SerializeToString())
    first = fake.fill([Graph.parse("x: f32[4,8] = input\ny = Tanh(x)\nreturn y")])
    fake.worker.ms = 3.0
    other = Graph.parse("x: f32[4,8] = input\ny = Erf(x)\nreturn y")
    second = fake.fill([other])
    assert (first.measured, first.cached, fake.worker.asked) == (1, 0, 4)  # three sessions after a first look
    assert (second.measured, second.cached, fake.worker.asked) == (0, 1, 4)
    assert fake.cost(other).total_ms == pytest.approx(inside(0.9985))
    kept = OnnxRuntimeCost(worker=FakeWorker(), database=fake.database)  # a later run asks for no program at all
    assert kept.fill([other]).cached == 1
    assert kept.cost(other).total_ms == fake.cost(other).total_ms


def test_prices_of_a_slow_hour_stand_on_the_footing_of_the_first(fake: OnnxRuntimeCost) -> None:
    measure, slow = fake.worker.measure_many, 1.0

    def busy(items, reference=None, **how: object) -> dict[object, Measurement | str]:
        found = measure(items, **how)
        if reference is not None:
            row = (slow * fake.worker.ms, slow * 1.0, slow * 0.3)
            found = {k: m._replace(ms=row[0], beside=(row,) * 9) for k, m in found.items() if not isinstance(m, str)}
        return found

    fake.worker.measure_many = busy
    text = "x: f32[{n},8] = input\ny = Tanh(x)\nreturn y"
    first = fake.cost(Graph.parse(text.format(n=4))).total_ms
    slow = 1.4
    later = OnnxRuntimeCost(worker=fake.worker, database=fake.database)
    assert later.cost(Graph.parse(text.format(n=5))).total_ms == pytest.approx(first) == pytest.approx(inside(0.9985))


def test_limit_and_stop_leave_regions_without_a_price(fake: OnnxRuntimeCost) -> None:
    graph = Graph.parse(TEXT)
    assert fake.fill([graph], stop=lambda: True).remaining == 3
    report = fake.fill([graph], limit=1)
    assert (report.measured, report.remaining) == (1, 2)
    assert fake.pricer.price(graph)[1] == 2
    assert fake.fill([graph], limit=0).measured == 0


@pytest.mark.parametrize(("rows", "trips"), [(100, 1), (300_000, 3), (5_000_000, 6)])
def test_a_search_waits_for_few_long_regions(rows: int, trips: int, fake: OnnxRuntimeCost) -> None:
    lines = ["w: f32[64,64] = const"]
    lines += [f"x{k}: f32[{rows - k},64] = input\ny{k} = MatMul(x{k}, w)" for k in range(6)]
    graph = Graph.parse("\n".join([*lines, "return " + ", ".join(f"y{k}" for k in range(6))]))
    asked: list[int] = []
    assert fake.fill([graph], stop=lambda: bool(asked.append(0))).measured == 6
    assert len(asked) == trips


def test_weights_are_not_read_faster_than_measured(fake: OnnxRuntimeCost) -> None:
    fake.worker.ms = 0.01
    small = Graph.parse("x: f32[1,64] = input\nw: f32[64,64] = const\ny = MatMul(x, w)\nreturn y")
    large = Graph.parse("x: f32[1,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y")
    streaming = OnnxRuntimeCost(worker=fake.worker, database=fake.database)
    least = MACHINE.weights_ms(4 * 4096**2, 4 * 4096**2)
    assert streaming.cost(large).total_ms == pytest.approx(STREAMING.ms(least))
    assert fake.cost(small).total_ms == pytest.approx(inside(0.0085))


@pytest.mark.parametrize(("times", "counts"), [(0.1, 1.0), (1.4, 1.0), (2.0, 2.0)])
def test_a_product_read_from_memory_costs_what_its_weights_do(
    fake: OnnxRuntimeCost, times: float, counts: float
) -> None:
    least = MACHINE.weights_ms(4 * 4096**2, 4 * 4096**2)
    fake.worker.ms = times * least + MACHINE.overhead - MACHINE.dispatch
    graph = Graph.parse("x: f32[1,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y")
    assert fake.cost(graph).total_ms == pytest.approx(STREAMING.ms(counts * least))


@pytest.mark.parametrize(
    ("text", "dims", "expected"),
    [
        ("x: f32[1,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y", {}, True),
        ("x: f32[64,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y", {}, False),
        ("x: f32[N,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y", {}, True),
        ("x: f32[N,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y", {"N": 64}, False),
        (
            "x: f32[1,512] = input\nw: f32[512,512] = const\ny = MatMul(x, w)\nreturn y",
            {},
            False,
        ),  # stays in the cache
        ("i: i64[1,4] = input\nw: f32[30000,768] = const\ny = Gather{axis=0}(w, i)\nreturn y", {}, False),
    ],
)
def test_models_that_stream_their_weights_are_told(text: str, dims: dict[str, int], expected: bool) -> None:
    assert streams(Graph.parse(text), Pricer.table("onnxruntime"), dims) == expected


def test_a_streaming_model_is_priced_with_empty_caches(fake: OnnxRuntimeCost) -> None:
    flushed = []
    measure = fake.worker.measure_many
    fake.worker.measure_many = lambda items, **how: flushed.append(how["flush_bytes"]) or measure(items, **how)
    fake.fill([Graph.parse(TEXT)])
    text = "x: f32[1,4096] = input\nw: f32[4096,4096] = const\ny = MatMul(x, w)\nreturn y"
    streaming = OnnxRuntimeCost(worker=fake.worker, database=fake.database)
    assert streaming.fill([Graph.parse(text)]).measured == 1
    assert set(flushed) == {int(FLUSH_MB * 2**20), int(STREAMING_FLUSH_MB * 2**20)}
    assert streaming.fill([Graph.parse(TEXT)]).cached == 0  # the prices of the two kinds are kept apart
    shared = OnnxRuntimeCost(worker=fake.worker, database=fake.database)  # 16 MB stay in a shared cache
    shared.fill([Graph.parse(text.replace("4096", "2048"))])
    assert (flushed[-1], shared.in_model, shared.streams_weights) == (int(FLUSH_MB * 2**20), STREAMING, True)
    other = OnnxRuntimeCost(worker=fake.worker, database=fake.database, fusion="generic", flush_mb=STREAMING_FLUSH_MB)
    other.fill([Graph.parse(text)])
    assert not other.streams_weights  # NONE and STREAMING are equal figures
    given = OnnxRuntimeCost(worker=fake.worker, database=fake.database, flush_mb=FLUSH_MB)
    given.fill([Graph.parse(text)])
    assert flushed[-1] == int(FLUSH_MB * 2**20)


def test_looked_up_tables_are_not_read_whole(fake: OnnxRuntimeCost) -> None:
    fake.worker.ms = 0.01
    graph = Graph.parse("i: i64[1,4] = input\nw: f32[30000,768] = const\ny = Gather{axis=0}(w, i)\nreturn y")
    assert fake.cost(graph).total_ms == pytest.approx(inside(0.0085))


def test_layout_changes_are_paid_where_they_happen(fake: OnnxRuntimeCost) -> None:
    report = fake.cost(Graph.parse(CONVOLUTIONS))
    change = MACHINE.reorder_ms(4 * 32 * 16 * 16)
    first, second, _ = (row.ms for row in report.per_region)
    # Alone, both pay for an input's and an output's change, and the second one's residual has a pooling in front.
    # In the graph the first pays for its input, the second for its output, because Elu does not run in that layout.
    alone = 1.0 - 0.002 + 0.0005
    assert first == pytest.approx(inside(alone - change))
    assert second == pytest.approx(inside(alone - change - MACHINE.pool_ms(4 * 32 * 16 * 16)))


def test_a_region_is_looked_at_in_the_graph_that_it_stands_in(fake: OnnxRuntimeCost) -> None:
    """One region in two graphs and two contexts has one time, and each pays for its own changes of layout."""
    short = Graph.parse(CONVOLUTIONS.split("s = ")[0] + "return b")
    before = "".join(f"x{n} = Tanh(x{n - 1})\n" for n in range(1, 30))
    text = (
        CONVOLUTIONS.replace("x: f32", "x0: f32").replace("a = Conv", before + "a = Conv").replace("(x, w)", "(x29, w)")
    )
    long = Graph.parse(text.replace("s = Add(b, a)\ny = Relu(s)\nz = Elu(y)\nreturn z", "z = Elu(a)\nreturn z, b"))
    fake.fill([short, long])
    alone = {graph: OnnxRuntimeCost(worker=FakeWorker(), database=fake.database) for graph in (short, long)}
    for graph, model in alone.items():
        assert fake.cost(graph).total_ms == pytest.approx(model.cost(graph).total_ms)
    assert fake.worker.asked < sum(len(fake.pricer.regions(graph)) for graph in (short, long))


def test_symbols_are_measured_at_the_sizes_given(fake: OnnxRuntimeCost) -> None:
    text = TEXT.replace("[4,64]", "[N,64]")
    asked = []
    measure = fake.worker.measure_many
    fake.worker.measure_many = lambda items, **how: asked.extend(s for _, _, s in items) or measure(items, **how)
    fake.dims["N"] = 7
    fake.fill([Graph.parse(text)])
    assert {spec.shape for specs in asked for spec in specs.values()} == {(7, 64)}
    other = OnnxRuntimeCost(worker=fake.worker, database=fake.database, dims={"N": 9})
    assert other.fill([Graph.parse(text)]).cached == 0


def test_known_shapes_are_not_timed(fake: OnnxRuntimeCost) -> None:
    graph = Graph.parse("x: f32[4,64] = input\ns = Shape(x)\ny = Reshape{shape=[64,4]}(x)\nreturn y, s")
    asked = fake.worker.asked
    assert fake.cost(graph).complete
    assert fake.worker.asked == asked


def test_opaque_nodes_are_named(fake: OnnxRuntimeCost) -> None:
    builder = GraphBuilder()
    x = builder.input("x", 1, [4, 4])
    graph = builder.finish([builder.opaque("MyOp", "p", True, [builder.add("Relu", {}, [x])], [(1, [4, 4])])])
    report = fake.cost(graph)
    assert report.unpriced == ("MyOp",)
    assert report.complete


def test_calibration_from_times() -> None:
    pairs = {calibration.OVERHEAD: 0.5, "dispatch-1": 1.0, "dispatch-n": 4.1, "view-n": 7.3}
    times = {**pairs, **{f"weights-{n}": 1.0 + 0.1 * (n - 1) + n * 2.0 for n in (1, 4, 8, 16, 24, 48)}}
    machine = calibration.calibrate(times, 0)
    assert machine.dispatch == pytest.approx(0.1)
    assert machine.view == pytest.approx(0.1)
    assert machine.bytes_per_ms == pytest.approx([2**20 / 2.0] * 6)
    assert machine.weights_ms(2**20, 1e7) == pytest.approx(2.0)
    assert machine.reorder_ms(1e6) == 0.0
    blocked = {f"pool-{n}-{e}": 0.5 + (n - 1) * 0.1 + n * 0.3 + 2 * 0.7 for n in (1, 3) for e in (8, 32, 90, 256)}
    machine = calibration.calibrate({**times, **blocked}, 16)
    assert machine.pool == pytest.approx([0.4] * 4)  # a dispatch is part of it
    assert machine.reorder_ms(1e5) == pytest.approx(0.7, abs=1e-6)
    assert machine.reorder_ms(2 * machine.sizes[-1]) == pytest.approx(1.4)


def test_interpolation_stays_between_what_was_measured() -> None:
    assert MACHINE.reorder_ms(5e5) == pytest.approx(0.05)
    assert MACHINE.weights_ms(1e6, 1e7) == pytest.approx(1e6 / ((1e8 + 1e7) / 2))
    assert MACHINE.weights_ms(1e6, 1.0) == pytest.approx(1e6 / 1e8)


@pytest.mark.clock
def test_real_prices_make_sense(tmp_path: Path) -> None:
    small, large = (
        f"x: f32[{n},256] = input\nw: f32[256,256] = const\nm = MatMul(x, w)\ny = Relu(m)\nreturn y" for n in (8, 512)
    )
    with price.make("onnxruntime", database=learnt(tmp_path / "prices.sqlite")) as model:
        assert model.available() is None
        cheap, dear = model.cost(Graph.parse(small)), model.cost(Graph.parse(large))
        assert 0 < cheap.total_ms < dear.total_ms
        assert cheap.complete
        assert not cheap.refusals
        assert model.totals.measured == 4
        convolutions = model.cost(Graph.parse(CONVOLUTIONS))
        assert convolutions.complete
        assert all(row.ms > 0 for row in convolutions.per_region)
        assert 0 <= model.relative_noise < 5
    with price.make("onnxruntime", database=tmp_path / "prices.sqlite") as model:
        assert model.cost(Graph.parse(small)).total_ms == pytest.approx(cheap.total_ms, rel=0.5)
        assert model.totals.measured == 0
