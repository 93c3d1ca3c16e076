"""The time that is given is the time that it takes, whatever a price or a comparison costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlflow
from rlflow.errors import CostError
from rlflow.frontends import load_model
from rlflow.price import calibration, machine
from rlflow.price.allowance import Allowance
from rlflow.price.bench import Bench
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.runtime import Measurement


def towers(count: int) -> ModelProto:
    """``count`` different matrix products one behind the other: as many regions to price."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for number in range(count):
        shape = (64 + number, 65 + number)
        weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Tanh", [f"m{number}"], [f"t{number}"]))
        value = f"t{number}"
    graph = helper.make_graph(
        nodes,
        "towers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [8, 64 + count])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_whose_pricing_takes_too_long_is_still_searched_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no price is known
    real = Bench.timed

    def slow(self: Bench, items: list, *args: object, **options: object) -> object:
        time.sleep(0.05 * len(items) * (1 if options.get("hasty") else 10))
        return real(self, items, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "timed", slow)
    told = []
    report = rlflow.optimize(towers(40), budget="8s", on_pricing=told.append).report
    assert report.seconds_total < 1.2 * 8 + 10
    assert report.parts.keys() >= {"pricing", "searching", "timing"}
    assert any("a few short sessions each" in note for note in report.notes)
    assert any("estimated prices" in note for note in report.notes)
    assert told
    assert 0 < told[-1].done < told[-1].total


def test_what_was_timed_in_haste_is_timed_in_full_where_time_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rate of the first regions says that it will not reach; whether it does shows at the end."""
    hasty: list[bool] = []
    real = Bench.timed

    def timed(self: Bench, items: list, *args: object, **options: object) -> object:
        hasty.append(bool(options.get("hasty")))
        return real(self, items, *args, **options)  # type: ignore[arg-type]

    def pessimistic(self: Allowance, count: int, seconds: float) -> None:
        self.done, self.hasty = self.done + count, True

    monkeypatch.setattr(Bench, "timed", timed)
    monkeypatch.setattr(Allowance, "took", pessimistic)
    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        cost.pricer  # noqa: B018 - the machine is learnt about
        del hasty[:]
        cost.fill([load_model(towers(8)).graph], seconds=60.0)
        assert True in hasty
        assert hasty[-1] is False
        assert cost.used() is not None
        assert cost.notes() == []


def test_a_budget_of_counts_prices_everything_in_full() -> None:
    report = rlflow.optimize(towers(3), budget="5x", gate_seconds=0.5).report
    assert report.parts == {"timing": 0.5}
    assert not any("short sessions" in note or "estimated prices" in note for note in report.notes)


@pytest.mark.parametrize(
    ("seconds", "hasty"), [(100.0, [False, False, False]), (4.0, [False, True, True]), (0.0, [True, True, True])]
)
def test_learning_about_a_machine_is_in_haste_when_its_time_is_over(
    seconds: float, hasty: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, found = [0.0], []

    def timed(items: object, *, hasty: bool, **how: object) -> dict[str, object]:
        found.append(hasty)
        now[0] += 5.0
        return {}

    with OnnxRuntimeCost() as cost:
        monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(cost._bench, "timed", timed)
        cost.hurry(seconds)
        calibration.measured(calibration.probes(0), cost._machine.timed_by_haste)
    assert found == hasty


@pytest.mark.parametrize("broken", [False, True])
def test_a_probe_that_does_not_end_in_its_time_makes_learning_hasty(
    broken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside other programs the largest probe may take longer than a worker waits; a broken runtime still says so."""
    found: list[tuple[str, bool]] = []

    def timed(items: Any, *, hasty: bool, **how: object) -> dict[str, object]:
        found.extend((name, hasty) for name, *_ in items)
        late = [name for name, *_ in items if broken or (name == "weights-48" and not hasty)]
        times = {name: Measurement(1.0, 0.1, 3) for name, *_ in items}
        return {**times, **dict.fromkeys(late, "it did not answer within 30 s")}

    with OnnxRuntimeCost(database=tmp_path / "prices.sqlite") as cost:
        monkeypatch.setattr(cost._bench, "timed", timed)
        if broken:
            with pytest.raises(CostError, match="did not answer"):
                cost._machine.calibration  # noqa: B018
        else:
            assert cost._machine.calibration.overhead > 0.0
            assert {hasty for name, hasty in found if name == "weights-48"} == {False}
            assert cost.in_haste is False  # regions are not in haste; only this run's calibration is
