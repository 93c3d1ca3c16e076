"""rlflow optimize in process: what it prints and writes; what is wrong is not written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper

from rlflow.pipeline import checking
from rlflow.rewrite import RuleLibrary, load_rules
from tests.cli.commands import RNG, plain_model, rlflow

REPORT_SCHEMA = {
    "type": "object",
    "required": [
        "model", "original_ms", "baseline_ms", "optimized_ms", "speedup", "speedup_ci95", "improved", "verified",
        "cost_before_ms", "cost_after_ms", "strategy", "seed", "stop_reason", "candidates", "expansions",
        "measurements", "seconds", "trace", "runtime",
    ],
    "properties": {
        "improved": {"type": "boolean"},
        "verified": {
            "type": ["object", "null"],
            "required": ["outputs"],
            "properties": {
                "outputs": {"type": "array", "items": {"type": "object", "required": ["name", "max_abs", "max_rel"]}},
            },
        },
        "trace": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["rule", "match"],
                "properties": {"rule": {"type": "string"}, "match": {"type": "array", "items": {"type": "integer"}}},
            },
        },
        "runtime": {"type": "object", "required": ["name", "version", "threads"]},
        "stop_reason": {"type": "string"},
        "candidates": {"type": "integer"},
        "seconds": {"type": "number"},
    },
}  # fmt: skip


def test_optimize_profiles_the_rules(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--profile-rules", "--json", report)
    assert result.exit_code == 0, result.output
    assert "Rules by time" in result.output
    found = json.loads(report.read_text())
    uses = found["rule_profile"]
    times = [use["match_ms"] + use["build_ms"] for use in uses]
    assert times == sorted(times, reverse=True) and times[0] > 0
    assert sum(use["applied"] for use in uses) == len(found["trace"]) > 0
    assert all(use["tried"] > 0 and use["file"].endswith(".json") and use["line"] > 0 for use in uses)


def test_optimize_writes_a_model_and_a_report(model: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    done = rlflow("optimize", model, out, "--cost", "analytic", "--budget", "200x", "--json", report)
    assert done.exit_code == 0, done.output
    onnx.checker.check_model(onnx.load(out), full_check=True)
    plain = json.loads(report.read_text())
    jsonschema.validate(plain, REPORT_SCHEMA)
    assert plain["improved"]
    assert plain["cost_after_ms"] < plain["cost_before_ms"]
    assert plain["speedup"] is None  # no clock, no claim about time
    assert plain["verified"]["outputs"][0]["name"] == "y"
    assert plain["verified"]["outputs"][0]["max_rel"] < 1e-4
    assert plain["trace"]
    assert plain["written"] == str(out)
    for heading in ("Analytic cost", "Operators", "Substitutions applied", "Outputs against the original's"):
        assert heading in done.stdout
    assert "rlflow: searching" in done.stderr


def test_the_result_computes_what_the_model_computes(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    out = tmp_path / "out.onnx"
    assert rlflow("optimize", model, "-o", out, "--cost", "analytic", "--budget", "200x", "--quiet").exit_code == 0
    feeds = {"x": RNG.standard_normal((4, 64)).astype(np.float32)}
    before, after = (onnxruntime.InferenceSession(path.read_bytes()).run(None, feeds)[0] for path in (model, out))
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_quiet_prints_nothing(model: Path) -> None:
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "20x", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_without_an_output_only_the_report_is_made(model: Path) -> None:
    before = sorted(model.parent.iterdir())
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "20x")
    assert done.exit_code == 0
    assert sorted(model.parent.iterdir()) == before


def test_a_model_without_a_gain_is_written_as_it_came(tmp_path: Path) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(plain_model().SerializeToString())
    done = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "20x")
    assert done.exit_code == 0
    assert out.read_bytes() == source.read_bytes()
    assert "Nothing gained" in done.stdout


@pytest.mark.parametrize("search", ["greedy", "random", "backtracking:alpha=1.2,queue=50"])
def test_every_strategy_can_be_asked_for(model: Path, search: str) -> None:
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--search", search)
    assert done.exit_code == 0, done.output
    assert search in done.stdout


def test_a_frozen_dimension_is_set_for_good(tmp_path: Path) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(plain_model(shape=["N", 3]).SerializeToString())
    assert rlflow("optimize", source, out, "--cost", "analytic", "--budget", "5x", "--freeze", "N=4").exit_code == 0
    shape = onnx.load(out).graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [4, 3]


def test_input_data_are_used_to_verify(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.npz"
    np.savez(data, x=np.ones((4, 64), np.float32))
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--input-data", data)
    assert done.exit_code == 0, done.output
    wrong = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--input-data", "y=" + str(data))
    assert wrong.exit_code == 2


@pytest.fixture
def lying_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that the prover would refuse, put in by the back door: Sin(x) = x and MatMul before Relu exchanged."""
    from rlflow.pipeline import loading
    from rlflow.rewrite import Rule

    lie = Rule(
        name="drop-sine", family="lies", source=("(Sin ?x)",), target=("(Identity ?x)",), where=("is_float(?x)",)
    )
    library = RuleLibrary([*load_rules().values(), lie])
    monkeypatch.setattr(loading, "load_library", lambda rules: library)


def with_a_sine(path: Path) -> Path:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Cos", ["c"], ["y"]),
    ]
    path.write_bytes(plain_model(nodes, shape=[32, 32]).SerializeToString())
    return path


def test_a_wrong_result_is_not_written_and_the_step_is_named(tmp_path: Path, lying_rules: None) -> None:
    source, out = with_a_sine(tmp_path / "in.onnx"), tmp_path / "out.onnx"
    done = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "50x", "--json", tmp_path / "r.json")
    assert done.exit_code == 3, done.output
    assert "rule 'drop-sine'" in done.stderr
    assert "smallest prefix" in done.stderr
    assert not out.exists()
    assert not (tmp_path / "r.json").exists()
    trusting = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "50x", "--no-verify")
    assert trusting.exit_code == 0
    assert out.exists()


def test_where_roundings_show_the_original_is_written_and_the_rule_is_named(
    tmp_path: Path, lying_rules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_ROUNDINGS", 10.0)  # a sine is no rounding: this stands for a rule that is near it
    source, out, report = with_a_sine(tmp_path / "in.onnx"), tmp_path / "out.onnx", tmp_path / "r.json"
    done = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "50x", "--json", report)
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())
    assert not found["improved"]
    why = r"roundings show: .* from step \d of \d on, rule 'drop-sine'; --skip-rule drop-sine"
    assert re.search(why, found["reason"])
    assert out.read_bytes() == source.read_bytes()
