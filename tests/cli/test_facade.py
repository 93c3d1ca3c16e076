"""The Python façade: what it takes, what it returns, what it never does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import errors, search
from rlflow.rulesets import load_library
from tests.learnt import learnt

ANALYTIC: dict[str, Any] = {"cost": "analytic", "budget": "100x"}


def product_model(width: int = 64, detour: bool = True) -> onnx.ModelProto:
    """Two products of one input, summed; with ``detour`` the second goes through a pair of transposes that cancel.

    The first rewrite of the detour (two permutations into one that moves nothing) gains less than a microsecond, which
    no clock can tell: a greedy search over measured prices needs the model without.
    """
    rng = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(rng.standard_normal((width, width)).astype(np.float32), f"w{k}") for k in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("MatMul", ["x", "w1"], ["b"], name="second"),
    ]
    if detour:
        nodes += [
            helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
            helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0]),
        ]
    nodes.append(helper.make_node("Add", ["a", "d" if detour else "b"], ["y"], name="sum"))
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", ["proto", "bytes", "str", "path"])
def test_any_form_of_a_model_is_taken_and_none_is_changed(kind: str, tmp_path: Path) -> None:
    model = product_model()
    before = model.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(before)
    given = {"proto": model, "bytes": before, "str": str(path), "path": path}[kind]
    result = rlflow.optimize(given, **ANALYTIC)
    assert isinstance(result.model, onnx.ModelProto)
    assert result.improved
    assert result.report.improved
    assert model.SerializeToString() == before == path.read_bytes()
    assert [info.name for info in result.model.graph.input] == ["x"]
    assert [info.name for info in result.model.graph.output] == ["y"]
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert any("N=1" in note for note in result.report.notes)


def test_dims_are_for_measuring_only() -> None:
    small, large = (rlflow.optimize(product_model(), dims={"N": size}, **ANALYTIC) for size in (1, 512))
    assert large.report.cost_before_ms > small.report.cost_before_ms  # type: ignore[operator]
    assert large.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not any("N=1" in note for note in large.report.notes)


def test_freezing_specialises() -> None:
    result = rlflow.optimize(product_model(), freeze={"N": 3}, **ANALYTIC)
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


def test_nothing_gained_returns_the_model_as_it_came() -> None:
    model = product_model()
    result = rlflow.optimize(model, rules=load_library(None).select([]), **ANALYTIC)
    assert not result.improved
    assert result.model == model
    assert result.report.trace == ()
    assert result.report.stop_reason == "exhausted"


def test_strategies_and_budgets_may_be_objects() -> None:
    strategy = search.Backtracking(alpha=1.2, queue=100)
    result = rlflow.optimize(product_model(), search=strategy, cost="analytic", budget=rlflow.Budget(expansions=30))
    assert result.report.strategy == "backtracking:alpha=1.2,queue=100"
    assert result.report.budget == "30x"


def test_a_stop_token_ends_the_search() -> None:
    token = search.StopToken()
    token.stop()
    result = rlflow.optimize(product_model(), stop=token, **ANALYTIC)
    assert result.report.stop_reason == "interrupted"
    assert not result.improved


def test_stages_and_progress_are_told() -> None:
    stages: list[str] = []
    progress: list[search.Progress] = []
    rlflow.optimize(product_model(), on_stage=stages.append, on_progress=progress.append, **ANALYTIC)
    assert [stage.split()[0] for stage in stages] == ["loading", "pricing", "searching", "comparing"]
    assert progress[-1].best_ms < progress[-1].cost_before_ms


def test_a_trace_replays_on_the_model() -> None:
    model = product_model()
    result = rlflow.optimize(model, **ANALYTIC)
    again = rlflow.replay(model, result.report.trace)
    assert [node.op_type for node in again.graph.node] == [node.op_type for node in result.model.graph.node]
    assert rlflow.verify(model, again).passed


def test_models_are_compared() -> None:
    model = product_model()
    other = product_model()
    other.graph.node[-1].op_type = "Sub"
    assert rlflow.verify(model, model).passed
    assert not rlflow.verify(model, other).passed


def test_new_nodes_carry_their_rule() -> None:
    model = product_model()
    model.ir_version = 10
    result = rlflow.optimize(model, **ANALYTIC)
    made = {
        entry.value for node in result.model.graph.node for entry in node.metadata_props if entry.key == "rlflow.rule"
    }
    assert made
    assert made <= {step["rule"] for step in result.report.trace or ()}


def test_rules_that_the_opset_cannot_express_are_left_out() -> None:
    model = product_model()
    model.opset_import[0].version = 9
    model.ir_version = 4
    result = rlflow.optimize(model, **ANALYTIC)
    assert any("opset 9 lacks" in note for note in result.report.notes)
    onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"budget": 60}, errors.BudgetError),
        ({"budget": "0s"}, errors.BudgetError),
        ({"search": "nothing"}, errors.UsageError),
        ({"cost": "nothing"}, errors.UsageError),
        ({"threads": 0}, errors.UsageError),
        ({"rules": ["nothing"]}, errors.UsageError),
        ({"rules": "nowhere/rules.json"}, errors.UsageError),
        ({"freeze": {"M": 1}}, errors.UsageError),
        ({"output": "nowhere/at/all.onnx"}, errors.OutputError),
    ],
)
def test_mistakes_raise_typed_errors(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        rlflow.optimize(product_model(), **{**ANALYTIC, **options})


@pytest.mark.clock
def test_the_whole_river_with_a_clock(tmp_path: Path) -> None:
    """Measured prices, the final gate, verification; the gain is so large that no noise hides it."""
    rng = np.random.default_rng(5)
    weight = numpy_helper.from_array(rng.standard_normal((512, 512)).astype(np.float32) / 20, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Slice", ["c", "start", "end", "axis"], ["y"]),
    ]
    ints = [
        numpy_helper.from_array(np.array([value], np.int64), name)
        for name, value in (("start", 0), ("end", 1), ("axis", 0))
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512])],
        [weight, *ints],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    out = tmp_path / "out.onnx"
    result = rlflow.optimize(model, output=out, budget="5s", gate_seconds=1.0)
    report = result.report
    assert report.improved, report.reason
    assert report.speedup is not None
    assert report.speedup > 1
    assert report.speedup_ci95 is not None
    assert report.speedup_ci95[0] > 1
    assert report.optimized_ms is not None
    assert report.baseline_ms is not None
    assert report.original_ms is not None
    assert report.optimized_ms < report.baseline_ms
    assert report.verified is not None
    assert report.verified.passed
    assert report.runtime is not None
    assert report.runtime.version
    assert out.read_bytes() == result.model.SerializeToString(deterministic=True)


def test_a_dimension_that_the_model_lacks_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="no open dimension 'M'"):
        rlflow.optimize(product_model(), dims={"M": 2}, **ANALYTIC)


def test_weights_in_another_file_stay_there(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path, out = folder / "m.onnx", tmp_path / "out.onnx"
    onnx.save(product_model(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    result = rlflow.optimize(path, output=out, **ANALYTIC)
    assert result.improved
    assert rlflow.verify(path, out).passed
    untouched = rlflow.optimize(path, output=tmp_path / "same.onnx", rules=load_library(None).select([]), **ANALYTIC)
    assert not untouched.improved
    assert rlflow.verify(path, tmp_path / "same.onnx").passed


def test_a_model_that_cannot_be_read_as_a_graph_passes_through(tmp_path: Path) -> None:
    model = product_model()
    model.opset_import[0].version = 6
    model.ir_version = 3
    path, out = tmp_path / "old.onnx", tmp_path / "out.onnx"
    path.write_bytes(model.SerializeToString())
    result = rlflow.optimize(path, output=out, **ANALYTIC)
    assert not result.improved
    assert result.report.stop_reason == "nothing-to-do"
    assert "opset is 6" in result.report.reason
    assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["inside", "outside", "frozen"])
def test_weights_that_are_shared_make_no_difference(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What large models do: the runtime maps one file of weights; what is returned and written is the same."""
    source, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save_model(product_model(), source, save_as_external_data=kind == "outside", location="m.data")
    options = {**ANALYTIC, "freeze": {"N": 3} if kind == "frozen" else None}
    plain = rlflow.optimize(source, **options)
    monkeypatch.setattr("rlflow.deployment.source._SHARED_BYTES", 0)
    shared = rlflow.optimize(source, output=out, **options)
    assert shared.improved
    assert shared.report.verified is not None
    assert shared.report.verified.passed
    assert shared.report.bytes_after == plain.report.bytes_after
    assert shared.model == plain.model == onnx.load(out)


def timed_by_operators(ratio: float) -> Any:
    """Blocks that no clock has a part in: the baseline takes 10 ms, a candidate less. They differ too little for one in
    twenty to contradict the others, as real ones do.
    """
    from rlflow.runtime import Samples

    def block(self: Any, names: Any, seed: int, seconds: float) -> Any:
        true = [10.0 if name == "baseline" or name.startswith("beside") else 10.0 / ratio for name in names]
        matrix = np.array(true) * np.random.default_rng(seed).lognormal(0, 0.0002, (5, len(names)))
        return Samples(matrix, matrix, (1,) * len(names))

    return block


def test_a_second_run_does_not_search_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from rlflow.price.database import PriceDatabase

    monkeypatch.setenv("RLFLOW_CACHE", str(learnt(tmp_path / "prices.sqlite").parent))
    monkeypatch.setattr("rlflow.price.sampler.WorkerSampler.block", timed_by_operators(1.1))

    def run(**other: Any) -> tuple[bool, Any]:
        options: dict[str, Any] = {"search": "greedy", "budget": "500x", "gate_seconds": 0.2, "dims": {"N": 4}}
        report = rlflow.optimize(product_model(detour=False), **{**options, **other}).report
        assert report.improved and report.stop_reason == "exhausted"
        return any("The search is that of" in note for note in report.notes), report

    searched, first = run()
    assert not searched
    repeated, second = run()
    assert repeated
    assert (second.trace, second.expansions, second.measurements) == (first.trace, first.expansions, 0)
    assert not run(seed=1)[0]
    again, third = run(fresh=True)
    assert not again and third.gate["earlier"] is None
    with PriceDatabase() as base:
        base.prune(everything=True)
    learnt(tmp_path / "prices.sqlite")
    assert not run()[0]


def test_a_second_run_starts_from_the_comparison_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    monkeypatch.setenv("RLFLOW_CACHE", str(learnt(tmp_path / "prices.sqlite").parent))
    monkeypatch.setattr("rlflow.deployment.source._SHARED_BYTES", 0)
    monkeypatch.setattr("rlflow.race.gate.DEAR_SELECTION", 0.0)
    options: dict[str, Any] = {"budget": "30x", "gate_seconds": 0.2, "dims": {"N": 4}}

    def gate(ratio: float, **other: Any) -> Any:
        monkeypatch.setattr("rlflow.price.sampler.WorkerSampler.block", timed_by_operators(ratio))
        result = rlflow.optimize(product_model(detour=False), **{**options, **other})
        assert result.improved
        assert result.report.verified is not None
        assert result.report.verified.passed
        assert set(result.report.stages) >= {
            "loading",
            "searching",
            "timing",
            *(["writing"] if "output" in other else []),
        }
        return result.report

    assert gate(1.1).gate["earlier"] is None
    again = gate(1.1, output=tmp_path / "out.onnx")
    assert again.gate["earlier"]["used"]
    assert again.gate["blocks"] == 3
    assert any("3 fresh ones do not contradict them" in note for note in again.notes)
    assert gate(1.1, dims={"N": 5}).gate["earlier"] is None  # other inputs
    changed = gate(1.02)
    assert not changed.gate["earlier"]["used"]
    assert any("was thrown away" in note for note in changed.notes)


def test_a_search_that_no_longer_gains_ends_and_says_so() -> None:
    result = rlflow.optimize(product_model(), cost="analytic", search="mcts", budget="60s", patience=30)
    assert result.report.stop_reason == "converged"
    assert result.report.seconds < 60
    assert any("--patience off" in note for note in result.report.notes)
    with pytest.raises(errors.UsageError, match="patience"):
        rlflow.optimize(product_model(), patience="long", **ANALYTIC)
