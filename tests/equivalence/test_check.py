"""Whole models compared in the runtime: right rewrites pass, wrong ones do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.equivalence import WorkerRunner, calibrate, make_inputs, verify
from rlflow.errors import RuntimeRefused
from rlflow.runtime import Worker

WIDTH = 64
FLOAT = TensorProto.FLOAT


def model(
    nodes: list[Any], weights: dict[str, np.ndarray], outputs: dict[str, int] | None = None, x: int = FLOAT
) -> bytes:
    ends = [helper.make_tensor_value_info(name, kind, None) for name, kind in (outputs or {"y": FLOAT}).items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", x, ["N", WIDTH])], ends, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def network(layers: int = 6, *, bias: float = 1.0, fold: bool = False, scale: float = 1.0, name: str = "y") -> bytes:
    """Tanh layers ``(h w) s + b``; ``fold`` multiplies scales into weights in float64; ``bias`` scales the last."""
    rng = np.random.default_rng(7)
    nodes, weights, last = [], {}, "x"
    for k in range(layers):
        w = rng.standard_normal((WIDTH, WIDTH)) * scale / np.sqrt(WIDTH)
        s, b = rng.uniform(0.5, 1.5, WIDTH), rng.standard_normal(WIDTH) * 0.1 * (bias if k == layers - 1 else 1.0)
        weights |= {f"w{k}": (w.astype(np.float32).astype(np.float64) * s if fold else w).astype(np.float32)}
        weights |= {f"s{k}": s.astype(np.float32), f"b{k}": b.astype(np.float32)}
        if fold:
            weights[f"w{k}"] = (w.astype(np.float32).astype(np.float64) * weights.pop(f"s{k}")).astype(np.float32)
            nodes += [helper.make_node("MatMul", [last, f"w{k}"], [f"n{k}"])]
        else:
            nodes += [
                helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"]),
                helper.make_node("Mul", [f"m{k}", f"s{k}"], [f"n{k}"]),
            ]
        nodes += [helper.make_node("Add", [f"n{k}", f"b{k}"], [f"a{k}"])]
        last = f"t{k}" if k < layers - 1 else name
        nodes += [helper.make_node("Tanh", [f"a{k}"], [last])]
    return model(nodes, weights, {name: FLOAT})


@pytest.fixture(scope="module")
def runner() -> Iterator[WorkerRunner]:
    with Worker() as worker:
        yield WorkerRunner(worker)


@pytest.fixture(scope="module")
def feeds(runner: WorkerRunner) -> list[dict[str, np.ndarray]]:
    handle = runner.worker.load(network())
    return [make_inputs(handle.io.inputs, seed, dims={"N": 3}) for seed in range(2)]


class TestRewrites:
    def test_folding_a_scale_is_accepted_although_it_rounds_elsewhere(self, runner: WorkerRunner, feeds: Any) -> None:
        found = verify(runner, network(), network(fold=True), feeds)
        assert found.passed
        assert not found.vacuous
        assert [check.name for check in found.outputs] == ["y"]
        assert 0 < found.outputs[0].max_rel < 1e-5
        assert found.notes == []
        assert found.failure() is None

    def test_a_bias_that_is_one_per_cent_off_is_caught(self, runner: WorkerRunner, feeds: Any) -> None:
        found = verify(runner, network(), network(bias=1.01), feeds)
        assert not found.passed
        assert "output 'y' differs by" in (found.failure() or "")

    def test_a_dropped_bias_of_a_hundredth_is_caught_in_a_noisy_network(self, runner: WorkerRunner, feeds: Any) -> None:
        """Weights three times too large amplify rounding; the tolerance grows with it, but not that far."""
        original = network(5, scale=3.0)
        noise = calibrate(runner, original, feeds)
        assert noise.floor["y"] > 3e-7
        assert verify(runner, original, network(5, scale=3.0, fold=True), feeds, noise=noise).passed
        assert not verify(runner, original, network(5, scale=3.0, bias=0.9), feeds, noise=noise).passed

    def test_a_reassociated_sum_passes_and_another_epsilon_does_not(self, runner: WorkerRunner) -> None:
        def summed(order: list[str], epsilon: float) -> bytes:
            nodes = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[1]), helper.make_node("Sub", ["x", "m"], ["c"])]
            nodes += [
                helper.make_node("Mul", ["c", "c"], ["q"]),
                helper.make_node("ReduceMean", ["q"], ["v"], axes=[1]),
            ]
            nodes += [helper.make_node("Add", ["v", "e"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["d"])]
            nodes += [helper.make_node("Div", ["c", "d"], ["z"])]
            nodes += [
                helper.make_node("Add", ["z", order[0]], ["z1"]),
                helper.make_node("Add", ["z1", order[1]], ["y"]),
            ]
            rng = np.random.default_rng(0)
            weights = {name: rng.standard_normal(WIDTH).astype(np.float32) * 30 for name in ("b", "c0")}
            return model(nodes, weights | {"e": np.float32(epsilon)})

        x = [{"x": np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)}]
        assert verify(runner, summed(["b", "c0"], 1e-5), summed(["c0", "b"], 1e-5), x).passed
        assert not verify(runner, summed(["b", "c0"], 1e-5), summed(["b", "c0"], 1e-1), x).passed

    def test_integer_outputs_must_be_equal(self, runner: WorkerRunner, feeds: Any) -> None:
        def best(shift: float) -> bytes:
            nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("ArgMax", ["a"], ["y"], axis=1)]
            bias = np.zeros(WIDTH, np.float32)
            bias[5] = shift
            return model(nodes, {"b": bias}, {"y": TensorProto.INT64})

        assert verify(runner, best(0.0), best(0.0), feeds).passed
        assert not verify(runner, best(0.0), best(10.0), feeds).passed


class TestRuntimes:
    @pytest.mark.parametrize(("off", "passes"), [(0.0, True), (0.2, False)])
    def test_one_that_spoils_the_original_alone_is_not_held_against_the_result(self, off: float, passes: bool) -> None:
        """Products of 8-bit integers saturate in a kernel that the runtime makes of the original, not of the result."""
        value = np.linspace(-1, 1, 50, dtype=np.float32)

        def run(model: Any, feeds: Any, level: str) -> list[dict[str, np.ndarray]]:
            spoilt = {b"original": 0.4, b"optimised": off}.get(model, 0.0) if level == "all" else 0.0
            return [{"y": value + np.float32(spoilt)} for _ in feeds]

        assert verify(run, b"original", b"optimised", [{"x": value}]).passed is passes

    def test_a_scalar_stays_an_array_where_it_is_moved_by_a_rounding(self, runner: WorkerRunner) -> None:
        scalar = helper.make_graph(
            [helper.make_node("Exp", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", FLOAT, [])],
            [helper.make_tensor_value_info("y", FLOAT, [])],
        )
        source = helper.make_model(
            scalar, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
        assert verify(runner, source, source, [{"x": np.float32([0.5]).reshape(())}]).passed


class TestReports:
    def test_a_constant_output_is_vacuous(self, runner: WorkerRunner, feeds: Any) -> None:
        nodes = [helper.make_node("Mul", ["x", "zero"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
        constant = model(nodes, {"zero": np.float32(0)})
        found = verify(runner, constant, constant, feeds)
        assert found.passed
        assert found.vacuous
        assert "cannot show a mistake: all its values are the same" in found.notes[0]

    def test_non_finite_outputs_are_vacuous(self, runner: WorkerRunner, feeds: Any) -> None:
        broken = model([helper.make_node("Log", ["x"], ["y"])], {})
        found = verify(runner, broken, broken, feeds)
        assert found.passed
        assert "not finite" in (found.outputs[0].vacuous or "")

    def test_random_outputs_are_vacuous_and_the_others_are_compared(self, runner: WorkerRunner, feeds: Any) -> None:
        def noisy(factor: float) -> bytes:
            nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Mul", ["x", "f"], ["y"])]
            return model(nodes, {"f": np.float32(factor)}, {"r": FLOAT, "y": FLOAT})

        found = verify(runner, noisy(2.0), noisy(2.0), feeds)
        assert found.passed
        assert {check.name: bool(check.vacuous) for check in found.outputs} == {"r": True, "y": False}
        assert not verify(runner, noisy(2.0), noisy(2.5), feeds).passed
        json.dumps(found.to_dict(), allow_nan=False)

    def test_a_model_that_does_not_run_fails_but_the_original_must(self, runner: WorkerRunner, feeds: Any) -> None:
        found = verify(runner, network(), b"garbage", feeds)
        assert not found.passed
        assert "not the other model" in (found.failure() or "")
        with pytest.raises(RuntimeRefused):
            verify(runner, b"garbage", network(), feeds)

    def test_other_outputs_fail(self, runner: WorkerRunner, feeds: Any) -> None:
        found = verify(runner, network(), network(name="z"), feeds)
        assert not found.passed
        assert "'y' is missing" in (found.failure() or "")
        assert any("has the output 'z'" in note for note in found.notes)

    def test_a_chaotic_model_is_said_to_be_checked_weakly(self, runner: WorkerRunner, feeds: Any) -> None:
        chaotic = network(12, scale=40.0)
        found = verify(runner, chaotic, chaotic, feeds)
        assert found.passed
        assert "is weak" in " ".join(found.notes)

    def test_figures_are_plain_json(self, runner: WorkerRunner, feeds: Any) -> None:
        plain = json.loads(json.dumps(verify(runner, network(), network(fold=True), feeds).to_dict(), allow_nan=False))
        assert plain["passed"] is True
        assert set(plain["outputs"][0]) >= {"name", "max_abs", "max_rel", "tolerance", "passed", "vacuous"}

    def test_half_precision_inside_shows_in_moved_weights(self, runner: WorkerRunner, feeds: Any) -> None:
        def halves(fold: bool, factor: float = 1.0) -> bytes:
            rng = np.random.default_rng(0)
            w, s = rng.standard_normal((WIDTH, WIDTH)) / 8 * factor, rng.uniform(0.5, 1.5, WIDTH)
            nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)]
            if fold:
                nodes += [helper.make_node("MatMul", ["h", "w"], ["a"])]
                weights = {"w": (w.astype(np.float16) * s.astype(np.float16).astype(np.float64)).astype(np.float16)}
            else:
                nodes += [helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("Mul", ["m", "s"], ["a"])]
                weights = {"w": w.astype(np.float16), "s": s.astype(np.float16)}
            return model([*nodes, helper.make_node("Cast", ["a"], ["y"], to=FLOAT)], weights)

        assert verify(runner, halves(False), halves(True), feeds).passed
        assert verify(runner, halves(False), halves(True), feeds, precision="float16").passed
        assert not verify(runner, halves(False), halves(True, 1.02), feeds).passed
