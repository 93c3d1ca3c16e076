"""Prices of earlier runs are timed again where a model mostly rests on them: two of three times decide."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlflow
from rlflow.frontends import load_model
from rlflow.graph import Graph, GraphBuilder
from rlflow.price.bench import Bench
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.runtime import Measurement

KEPT = 5.0


def products(*widths: int) -> Graph:
    """Products behind one another, of these widths."""
    builder = GraphBuilder()
    value = builder.input("x", 1, [4, widths[0]])
    for rows, columns in itertools.pairwise(widths):
        weight = builder.constant(1, [rows, columns], f"{rows:016x}{columns:016x}", None, None)
        value = builder.add("MatMul", {}, [value, weight])
    return builder.finish([value])


class Clock:
    """What sessions take, one after the other (the last one again and again); ``timed``: how many regions were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.takes = [KEPT]
        self.timed = 0
        monkeypatch.setattr(Bench, "timed", self._timed)
        monkeypatch.setattr(OnnxRuntimeCost, "_meet", lambda cost, graphs: False)

    def _timed(self, items: Any, *how: Any, **more: Any) -> dict[str, Measurement]:
        found = {}
        for key, *_ in items:
            self.timed += 1
            found[key] = Measurement(self.takes[0], 0.01, 9)
            self.takes = self.takes[1:] or self.takes
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("now", "right", "timed", "price"),
    [
        ([KEPT * 1.02], 0, 1, KEPT),  # both agree: the kept one stays as it is
        ([KEPT * 1.3, KEPT * 1.31], 1, 2, KEPT * 1.3),  # two against the kept one
        ([KEPT * 0.7, KEPT * 0.75], 1, 2, KEPT * 0.75),  # the middle one of three
        ([KEPT * 1.3, KEPT], 0, 2, KEPT),  # it was the second time that was wrong
        ([KEPT * 1.3, KEPT * 0.8], 0, 2, KEPT),  # the kept one is the middle one
    ],
)
def test_two_of_three_times_decide(
    now: list[float], right: int, timed: int, price: float, clock: Clock, tmp_path: Path
) -> None:
    graph = products(64, 96)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as first:
        before = first.cost(graph).total_ms
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        assert cost.cost(graph).total_ms == pytest.approx(before)
        used = cost.used()
        clock.takes, clock.timed = now, 0
        assert cost.renew(graph, 60.0) == right
        assert clock.timed == timed
        assert cost.cost(graph).total_ms / before == pytest.approx(price / KEPT, rel=0.02)
        assert cost.still_holds(used or {}) == (right == 0)
        clock.timed = 0
        assert cost.renew(graph, 60.0) == 0  # once is enough
        assert clock.timed == 0
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as later:  # and it is kept
        assert later.cost(graph).total_ms / before == pytest.approx(price / KEPT, rel=0.02)


def test_what_was_timed_in_this_run_is_not_timed_again(clock: Clock, tmp_path: Path) -> None:
    graph = products(64, 96)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        cost.cost(graph)
        clock.timed = 0
        assert cost.renew(graph, 60.0) == 0
        assert clock.timed == 0


@pytest.mark.parametrize(("seconds", "stopped"), [(1e-9, False), (60.0, True)])
def test_neither_where_the_time_is_over(seconds: float, stopped: bool, clock: Clock, tmp_path: Path) -> None:
    graph = products(64, 96)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as first:
        first.cost(graph)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        cost.cost(graph)
        clock.takes, clock.timed = [2.0 * KEPT], 0
        assert cost.renew(graph, seconds, lambda: stopped) == 0
        assert clock.timed == 0


def test_light_regions_are_left_alone(clock: Clock, tmp_path: Path) -> None:
    graph = products(64, 80, 96)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as first:
        first.pricer, first._machine.calibration  # noqa: B018 - these are timed too
        clock.takes = [100.0, 0.1]
        first.cost(graph)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        assert cost.cost(graph).total_ms > 90.0
        clock.takes, clock.timed = [100.0], 0
        assert cost.renew(graph, 60.0) == 0
        assert clock.timed == 1


def convolutions(number: int) -> ModelProto:
    """So many behind one another: the first one's result stays in the runtime's layout where another one reads it."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((32, 32, 3, 3)).astype(np.float32) for _ in range(number)]
    shape = [1, 32, 12, 12]
    graph = helper.make_graph(
        [helper.make_node("Conv", [f"v{k}", f"w{k}"], [f"v{k + 1}"], pads=[1] * 4) for k in range(number)],
        "convolutions",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"v{number}", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, f"w{k}") for k, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_new_price_is_that_of_every_context_that_the_region_was_met_in(clock: Clock, tmp_path: Path) -> None:
    graph, other = (load_model(convolutions(number)).graph for number in (1, 2))
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as first:
        first.fill([graph, other])
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        cost.fill([graph, other])
        signatures = [{one.signature for one in cost.pricer.regions(each)} for each in (graph, other)]
        assert not set.intersection(*signatures)
        before = cost.cost(other).total_ms
        clock.takes = [3.0 * KEPT]
        assert cost.renew(graph, 60.0) == 1
        assert cost.cost(other).total_ms > 1.5 * before


@pytest.mark.parametrize(
    ("right", "told"),
    [
        (0, None),
        (1, "1 price of an earlier run was wrong, and put right before the search."),
        (3, "3 prices of earlier runs were wrong, and put right before the search."),
    ],
)
def test_the_search_goes_by_what_was_put_right(
    right: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts from the model at its new price."""
    asked: list[float] = []
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(OnnxRuntimeCost, "in_haste", property(lambda cost: False))

    def renew(cost: OnnxRuntimeCost, graph: Graph, seconds: float, stop: Any) -> int:
        asked.append(seconds)
        signatures = [one.signature for one in cost.pricer.regions(graph)]
        cost.pricer.set_prices(signatures, [7.0 if right else cost.pricer.find(one) for one in signatures])
        return right

    monkeypatch.setattr(OnnxRuntimeCost, "renew", renew)
    report = rlflow.optimize(convolutions(2), budget="6s", search="greedy").report
    assert len(asked) == 1
    assert 0.0 < asked[0] < 6.0 / 4.0
    assert [note for note in report.notes if "put right" in note] == ([told] if told else [])
    assert (report.cost_before_ms == pytest.approx(14.0)) is (right > 0)
