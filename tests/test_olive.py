"""rlflow as a pass of the real Olive, in an environment that has it: make test-peers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from rlflow import verify
from tests.cli.commands import merge_model

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(
        importlib.util.find_spec("olive") is None, reason="Olive is not installed: pip install 'rlflow[olive]'"
    ),
]


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLIVE_DISABLE_TELEMETRY", "1")


def ran(model: Path, folder: Path, **options: Any) -> Path:
    """The model that a pipeline of our pass alone writes."""
    from olive import run

    import rlflow.olive

    config = {
        "input_model": {"type": "ONNXModel", "model_path": str(model)},
        "passes": {"faster": {"type": "RlflowOptimization", "budget": "300c", "cost": "analytic", **options}},
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
        "log_severity_level": 3,
    }
    found = run(config, package_config=rlflow.olive.package_config())
    return Path(found.get_best_candidate().model_path)


def test_a_pipeline_gives_a_smaller_model_that_computes_the_same(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(merge_model().SerializeToString())
    faster = ran(model, tmp_path, options={"seed": 1})
    before, after = onnx.load(model), onnx.load(faster)
    assert "rlflow.rules" in {entry.key for entry in after.metadata_props}
    assert sum(node.op_type == "MatMul" for node in after.graph.node) < 3
    assert [one.name for one in after.graph.input] == [one.name for one in before.graph.input]
    assert verify(str(model), str(faster)).passed


def test_weights_in_a_file_beside_the_model_stay_there(tmp_path: Path) -> None:
    model = tmp_path / "in" / "model.onnx"
    model.parent.mkdir()
    onnx.save(merge_model(), model, save_as_external_data=True, location="weights.bin", size_threshold=64)
    faster = ran(model, tmp_path)
    assert faster.parent.is_dir() and verify(str(model), str(faster)).passed


def test_where_it_fails_nothing_is_written(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(merge_model().SerializeToString())
    with contextlib.suppress(Exception):  # how Olive ends is its own affair
        ran(model, tmp_path, cost="analytc")
    assert not list((tmp_path / "out").rglob("*.onnx"))


def test_the_list_of_passes_is_what_olive_reads(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-m", "rlflow.olive"], capture_output=True, check=True, env=os.environ)
    path = tmp_path / "passes.json"
    path.write_bytes(printed.stdout)
    from olive.package_config import OlivePackageConfig

    known = OlivePackageConfig.parse_file_or_obj(str(path))
    assert known.import_pass_module("RlflowOptimization").__module__ == "rlflow.olive"
    assert len(json.loads(printed.stdout)["passes"]) > 20
