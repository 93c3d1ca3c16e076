"""The tolerance from the command line to the report: what was spent, and the error against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlflow
from rlflow.errors import UsageError
from rlflow.pipeline import checking, precision
from rlflow.pipeline.precision import Accuracy, worst
from rlflow.report.page import page
from rlflow.rewrite import load_rules
from rlflow.rewrite.tolerance import LARGE

CHANNELS, WIDE = 64, 16
F4 = "winograd-4-of-conv-bias"
HOW: dict[str, Any] = {
    "cost": "analytic", "budget": "30x", "search": "greedy", "rules": ["winograd"], "only_rules": [F4],
    "max_growth": 9.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> ModelProto:
    """Three wide convolutions and what follows them: six operators that compute."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for number in range(3):
        weight = rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / np.sqrt(9 * CHANNELS)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{number}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(CHANNELS).astype(np.float32), f"b{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}", f"b{number}"], [f"c{number}"], pads=[1] * 4))
        nodes.append(helper.make_node("Tanh", [f"c{number}"], [f"t{number}"]))
        value = f"t{number}"
    shape = [1, CHANNELS, WIDE, WIDE]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def growth() -> float:
    """That of F(4x4), as it was measured when it was proved."""
    proof = load_rules(families=["winograd"])[F4].proof
    assert proof is not None
    return proof.growth


def within(steps: int) -> float:
    """The tolerance that so many convolutions by F(4x4) spend."""
    return 1.0 + steps * (growth() - 1.0) / 6


def test_what_was_spent_and_the_error_against_float64_are_told(model: ModelProto) -> None:
    result = rlflow.optimize(model, tolerance=20, **HOW)
    rounding = result.report.rounding
    assert rounding is not None
    (row,) = rounding["rules"]
    assert row["growth"] == growth() >= LARGE and row["times"] == 3 and rounding["operators"] == 6
    assert rounding["spent"] == pytest.approx(within(3)) and rounding["limit"] == 20.0
    assert result.report.verified is not None
    exact = result.report.verified.detail["float64"]
    assert 1.0 < exact["times"] < 20.0 and exact["result"] < 1e-4
    assert any("Against float64" in note for note in result.report.notes)
    assert "of 20 tolerated (winograd-4" in result.summary()
    assert "of 20 tolerated (winograd-4" in page(result.report, model, result.model)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_the_tolerance_bounds_what_is_applied(model: ModelProto, steps: int) -> None:
    report = rlflow.optimize(model, tolerance=within(steps), verify=False, **HOW).report
    assert len(report.trace or ()) == steps
    assert any("held these rules back" in note and "winograd-4" in note for note in report.notes)


def test_a_result_beyond_the_tolerance_is_not_written(model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "accuracy", lambda *_: Accuracy(1e-7, 3e-6, 30.0))
    report = rlflow.optimize(model, tolerance=20, **HOW).report
    assert not report.improved and report.rounding is None
    assert "30.0 times the original's, where 20 times is tolerated, because of winograd-4" in report.reason


def test_a_model_that_is_too_large_for_float64_says_so(model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "WIDE_FLOPS", 1.0)
    report = rlflow.optimize(model, tolerance=20, **HOW).report
    assert report.improved
    assert any("not compared with float64" in note for note in report.notes)


def test_the_worst_output_decides() -> None:
    found = worst({"y": 1e-7, "z": 0.0}, {"y": 3e-7, "z": 2.0**-22})
    assert (found.original, found.result, found.times) == (0.0, 2.0**-22, 4.0)


def test_what_is_no_tolerance_is_refused_before_any_work(model: ModelProto) -> None:
    with pytest.raises(UsageError, match="tolerance is 'loose'"):
        rlflow.optimize(model, tolerance="loose", **HOW)
