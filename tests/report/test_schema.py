"""The JSON form of a report is what its schema says, field by field, for real runs of several kinds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rlflow
from rlflow import zoo
from rlflow.cli import main
from rlflow.race.decision import GateDecision
from rlflow.report import schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

SMALL = "nasrnn?steps=2&hidden=8"


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema(), format_checker=jsonschema.FormatChecker())


def run(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "report.json"
    done = CliRunner().invoke(main, ["optimize", SMALL, *arguments, "--json", str(out), "-q"])
    assert done.exit_code == 0, done.output
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cost", "analytic", "--budget", "60x", "--search", "greedy"),
        ("--cost", "analytic", "--budget", "20x", "--profile-rules"),
        ("--cost", "analytic", "--budget", "20x", "--only-rules", "merge-conv-channels"),
        ("--cost", "analytic", "--budget", "20x", "--no-verify"),
        ("--cost", "analytic", "--budget", "20x", "--search", "eqsat"),
        pytest.param(("--budget", "5s"), marks=pytest.mark.clock),
    ],
    ids=["greedy", "profile", "nothing gained", "not verified", "e-graph", "measured"],
)
def test_a_real_report_is_what_the_schema_says(arguments: tuple[str, ...], validator: Any, tmp_path: Path) -> None:
    if "eqsat" in arguments:
        pytest.importorskip("highspy", reason="highspy is not installed")
    plain = run(tmp_path, *arguments)
    assert not [error.message for error in validator.iter_errors(plain)]
    assert set(plain) == set(schema()["properties"])  # no field without a word about it
    assert plain["command"].startswith("rlflow")
    assert len(plain["input"]["graph"]) > 8


def test_every_field_of_a_comparison_has_a_word() -> None:
    plain = GateDecision(None, "nothing was faster", "cpu", "baseline").to_dict()
    gate = schema()["$defs"]["gate"]
    assert set(gate["properties"]) == set(plain) and not gate["additionalProperties"]
    assert [name for name, field in gate["properties"].items() if not field.get("description")] == []


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    path.write_bytes(zoo.build("nasrnn", steps=1, hidden=4).SerializeToString())
    report = rlflow.optimize(path, cost="analytic", budget="5x").report
    assert report.input["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report.input["bytes"] == path.stat().st_size
    assert report.command is None and report.to_dict()["schema"] == "rlflow-report/1"


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema", "rlflow-report/2"), ("improved", "yes"), ("trace", [{"rule": "a"}]), ("input", {"sha256": "x"})],
)
def test_what_is_wrong_is_refused(field: str, value: Any, validator: Any) -> None:
    plain = rlflow.optimize(zoo.build("nasrnn", steps=1, hidden=4), cost="analytic", budget="5x").report.to_dict()
    assert validator.is_valid(json.loads(json.dumps(plain)))
    assert not validator.is_valid(json.loads(json.dumps({**plain, field: value})))


def test_the_verb_prints_it() -> None:
    done = CliRunner().invoke(main, ["info", "report-schema"])
    assert done.exit_code == 0 and json.loads(done.stdout) == schema()
