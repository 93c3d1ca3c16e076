"""Figures about predictions, against closed forms; and a calibration of a small model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow import fidelity
from rlflow import price as _price
from rlflow.errors import CostError, UsageError
from rlflow.frontends import load_model
from rlflow.price.agreement import agreement, spearman
from rlflow.rulesets import load_library


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        ([1, 1, 2], [1, 2, 3], math.sqrt(3) / 2),
        ([1, 1, 1], [1, 2, 3], None),
    ],
)
def test_rank_correlation(one: list[float], other: list[float], expected: float | None) -> None:
    found = spearman(one, other)
    assert found == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.integers(100, 10_000), min_size=3, max_size=20, unique=True), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_rank_correlation_knows_only_ranks(thousandths: list[int], seed: int) -> None:
    values = [number / 1000 for number in thousandths]  # far enough apart to stay so under exp
    other = np.random.default_rng(seed).permutation(values)
    found = spearman(values, other)
    assert found is not None
    assert -1.0001 <= found <= 1.0001
    assert spearman(np.exp(values), np.asarray(other) ** 3) == pytest.approx(found)


def test_figures() -> None:
    found = agreement([11.0, 22.0, 33.0], [10.0, 20.0, 30.0], [0.01, 0.02, 0.03])
    assert found.error == pytest.approx(0.1)
    assert found.scaled_error == pytest.approx(0.0, abs=1e-12)
    assert agreement([2.0, 5.0], [1.0, 2.0], [0.1, 0.1]).scaled_error == pytest.approx(0.25)
    assert agreement([2.0], [1.0], [0.1]).scaled_error == 0.0
    assert (found.spearman, found.graphs, found.noise) == (pytest.approx(1.0), 3, 0.02)
    assert found.telling
    assert not agreement([1.0, 1.0], [1.0, 1.01], [0.05, 0.05]).telling


def test_ranks_that_the_clock_cannot_keep_tell_nothing() -> None:
    measured = [1.0 + 0.001 * k for k in range(20)] + [1.2]
    alike, apart = agreement(measured, measured, [0.01] * 21), agreement(measured, measured, [0.0005] * 21)
    assert alike.spread > 2 * alike.noise
    assert alike.attainable is not None
    assert alike.attainable < 0.9
    assert not alike.telling
    assert apart.telling


@pytest.mark.parametrize(
    ("predicted", "measured", "errors", "words"),
    [([], [], [], "got 0 and 0"), ([1.0], [1.0, 2.0], [0.1], "got 1 and 2"), ([0.0], [1.0], [0.1], "zero or less")],
)
def test_mistakes(predicted: list[float], measured: list[float], errors: list[float], words: str) -> None:
    with pytest.raises(CostError, match=words):
        agreement(predicted, measured, errors)


def model() -> bytes:
    """Products of one input that can be merged, sums and transposes that can be moved."""
    rng = np.random.default_rng(1)
    nodes, weights = [], []
    for k in range(4):
        weights.append(numpy_helper.from_array(rng.standard_normal((48, 48)).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w{k}"], [f"p{k}"]))
        nodes.append(helper.make_node("Transpose", [f"p{k}"], [f"t{k}"], perm=[1, 0]))
        nodes.append(helper.make_node("Relu", [f"t{k}"], [f"r{k}"]))
    for k, (one, other) in enumerate(itertools.pairwise(["r0", "r1", "r2", "r3"])):
        nodes.append(helper.make_node("Add", [one if k == 0 else f"s{k - 1}", other], [f"s{k}"]))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 48]),
            helper.make_tensor_value_info("s2", TensorProto.FLOAT, [48, 32])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_variants_are_different_graphs_that_compute_the_same() -> None:
    imported = load_model(onnx.load_from_string(model()))
    rules = load_library(None)
    found = fidelity.variants(imported.graph, rules, 12, seed=3)
    assert len(found) == 12
    assert len({one.graph.digest for one in found} | {imported.graph.digest}) == 13
    assert {one.origin for one in found} <= {"walk", "search"}
    assert [one.graph.digest for one in fidelity.variants(imported.graph, rules, 12, seed=3)] == [
        one.graph.digest for one in found
    ]
    assert all(one.steps >= 1 for one in found)


def test_variants_are_spread_over_the_roofline() -> None:
    imported = load_model(onnx.load_from_string(model()))
    found = fidelity.variants(imported.graph, load_library(None), 12, seed=3)
    pricer = _price.make("analytic", **fidelity.AS_EXECUTED).pricer
    costs = sorted(pricer.price(one.graph)[0] for one in found)
    assert costs[-1] > 1.02 * costs[0]
    assert len({round(cost, 12) for cost in costs}) >= len(costs) // 2


@pytest.mark.parametrize(
    ("values", "count", "chosen"),
    [
        ([], 3, []),
        ([5.0, 1.0], 3, [0, 1]),
        ([0.0, 0.1, 0.2, 10.0], 2, [0, 3]),
        ([0.0, 0.1, 5.2, 10.0], 3, [0, 2, 3]),
        ([10.0, 4.0, 6.0, 0.0], 3, [0, 1, 3]),  # of two as near the first
        ([1.0, 1.0, 1.0, 1.0], 2, [0, 1]),
    ],
)
def test_what_is_evenly_spread(values: list[float], count: int, chosen: list[int]) -> None:
    assert fidelity.evenly_spread(values, count) == chosen


def test_variants_where_no_rule_fires() -> None:
    node = helper.make_node("Tanh", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    plain = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    assert fidelity.variants(load_model(plain).graph, load_library(None), 5) == []


@pytest.mark.slow  # tests/cli/test_cost.py makes a shorter one
def test_calibration_of_a_small_model() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    seen: list[tuple[int, int]] = []

    how = {"count": 3, "seconds": 0.2, "tolerance": 0.2, "max_noise": 99.0}
    found = fidelity.calibrate(model(), **how, on_row=lambda row, number, count: seen.append((number, count)))
    assert found.rows[0].origin == "original"
    assert seen == [(number, len(found.rows)) for number in range(1, len(found.rows) + 1)]
    figures = found.agreements()
    assert list(figures) == ["onnxruntime", fidelity.OPERATORS]
    assert all(0 <= one.error < 20 for one in figures.values())
    again = fidelity.calibrate(model(), count=3, known=found.rows, on_row=lambda *_: seen.append((0, 0)))
    assert again.rows == found.rows
    plain = found.to_dict()
    assert plain["agreement"]["onnxruntime"]["graphs"] == len(found.rows)
    stopped = fidelity.calibrate(model(), count=3, known=found.rows[:1], stop=lambda: True)
    assert (stopped.interrupted, len(stopped.rows)) == (True, 1)


def test_a_count_of_none_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        fidelity.calibrate(model(), count=0)
