"""The analytic model: a closed formula, deterministic, without a clock."""

from __future__ import annotations

import pytest

from rlflow import price
from rlflow.errors import UsageError
from rlflow.graph import Graph, GraphBuilder
from rlflow.price import CostModel
from rlflow.price.analytic import AnalyticCost

PRODUCT = "x: f32[256,512] = input\nw: f32[512,1024] = const\nm = MatMul(x, w)\ny = Relu(m)\nreturn y"


def test_a_product_takes_the_larger_of_compute_and_memory() -> None:
    operations = 2 * 256 * 512 * 1024
    relu = 256 * 1024
    moved = 4 * (256 * 512 + 512 * 1024 + 256 * 1024)
    fast = AnalyticCost(gflops=1e9, vector_gflops=1e9, gbps=10.0, overhead_us=3.0)
    assert fast.cost(Graph.parse(PRODUCT)).total_ms == pytest.approx(moved / 10.0 * 1e-6 + 3e-3)
    slow = AnalyticCost(gflops=50.0, vector_gflops=1e9, gbps=1e9, overhead_us=0.0)
    assert slow.cost(Graph.parse(PRODUCT)).total_ms == pytest.approx(operations / 50.0 * 1e-6, rel=1e-6)
    vector = AnalyticCost(gflops=1e9, vector_gflops=5.0, gbps=1e9, overhead_us=0.0)
    assert vector.cost(Graph.parse(PRODUCT)).total_ms == pytest.approx(relu / 5.0 * 1e-6, rel=0.01)


def test_report_adds_up_and_says_where_it_comes_from() -> None:
    report = price.make("analytic").cost(Graph.parse(PRODUCT))
    assert report.total_ms == pytest.approx(sum(row.ms for row in report.per_region))
    assert [row.operators for row in report.per_region] == [("MatMul", "Relu")]
    assert (report.source, report.complete, report.spread_ms) == ("analytic", True, None)
    assert report.weight_bytes == 4 * 512 * 1024
    assert "GFLOP/s" in report.device
    assert report.to_dict()["per_region"][0]["operators"] == ("MatMul", "Relu")


def test_fusion_is_cheaper_than_its_parts() -> None:
    alone = "x: f32[256,1024] = input\ny = Relu(x)\nreturn y"
    product = PRODUCT.replace("y = Relu(m)\nreturn y", "return m")
    model = AnalyticCost()
    parts = model.cost(Graph.parse(alone)).total_ms + model.cost(Graph.parse(product)).total_ms
    assert model.cost(Graph.parse(PRODUCT)).total_ms < parts


def test_data_movement_costs_and_renaming_nearly_nothing() -> None:
    model = AnalyticCost()

    def price(tail: str) -> float:
        return model.cost(Graph.parse(f"x: f32[64,128,256] = input\n{tail}\nreturn y")).total_ms

    moved = 2 * 4 * 64 * 128 * 256 / 12.0 * 1e-6
    assert price("y = Transpose{perm=[1,0,2]}(x)") == pytest.approx(moved + 2e-3)
    assert price("y = Reshape{shape=[64,32768]}(x)") == pytest.approx(0.5e-3)
    assert price("y = Concat{axis=0}(x, x)") > moved
    # A slice reads what it returns, not the whole tensor.
    assert price("y = Slice{starts=[0], ends=[1], axes=[0], steps=[1]}(x)") < 0.05 * moved + 2e-3


def test_symbols_count_as_told() -> None:
    text = PRODUCT.replace("256", "N")

    def price(text: str, **dims: int) -> float:
        return AnalyticCost(dims=dims).cost(Graph.parse(text)).total_ms

    assert price(text, N=256) == price(PRODUCT)
    assert price(text) == price(text.replace("N", "1")) < price(PRODUCT)


def test_opaque_nodes_are_named_not_priced() -> None:
    builder = GraphBuilder()
    x = builder.input("x", 1, [4, 4])
    graph = builder.finish([builder.opaque("MyOp", "p", True, [builder.add("Relu", {}, [x])], [(1, [4, 4])])])
    report = price.make("analytic").cost(graph)
    assert report.unpriced == ("MyOp",)
    assert [row.ms for row in report.per_region if row.note] == [0.0]


def test_same_price_every_time() -> None:
    graph = Graph.parse(PRODUCT)
    assert len({AnalyticCost().cost(graph).total_ms for _ in range(5)}) == 1
    assert price.make("analytic").fill([graph]).measured == 0


def test_registry() -> None:
    assert {"analytic", "onnxruntime"} <= set(price.names())
    model = price.make("analytic", threads=2, dims={"N": 3})
    assert isinstance(model, CostModel)
    assert model.available() is None
    assert not model.measures
    with pytest.raises(UsageError, match=r"Did you mean analytic\?"):
        price.make("analytical")
    with pytest.raises(UsageError, match="has no option 'colour'"):
        price.make("analytic", colour="red")
    with pytest.raises(UsageError, match="already"):
        price.register("analytic", lambda **options: AnalyticCost(**options))


def test_a_registered_model_is_made_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price.COSTS, "opened", dict(price.COSTS.opened))
    price.register("slow", lambda **options: AnalyticCost(gflops=1.0, **options))
    assert "slow" in price.names()
    slow, usual = (price.make(name).cost(Graph.parse(PRODUCT)).total_ms for name in ("slow", "analytic"))
    assert slow > usual
