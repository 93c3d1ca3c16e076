"""Where the result will run: providers, another runtime, a device behind a command; and Ctrl-C at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from rlflow.cli import main

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Transposes that cancel: the optimised file is smaller and faster."""
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32) / 8, "w")
    nodes, last = [], "x"
    for k in range(6):
        nodes.append(helper.make_node("Transpose", [last], [f"a{k}"], perm=[1, 0]))
        nodes.append(helper.make_node("Transpose", [f"a{k}"], [f"b{k}"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [f"b{k}", "w"], [f"c{k}"]))
        last = f"c{k}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


QUICK = ("--budget", "30x", "--gate-seconds", "0.2", "--quiet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--provider", "cuda"], "has no CUDAExecutionProvider; it offers"),
        (["--provider", "no-such"], "has no no-suchExecutionProvider; it offers"),
        (["--provider", "cuda", "--cost", "end-to-end"], "has no CUDAExecutionProvider"),
        (["--runtime", "openvino", "--provider", "cuda"], "openvino knows no CUDAExecutionProvider"),
        (["--measure-cmd", "run.sh"], "write {model} in its place"),
        (["--measure-cmd", "run.sh {model}", "--provider", "cuda"], "already says where the model runs"),
        (["--measure", "lazy", "--cost", "analytic"], "has no option 'measure'"),
        (["--cost", "end-to-end:nonsense=1"], "has no option 'nonsense'"),
        (["--cost", "end-to-end:tolerance"], "has no value"),
        (["--gate-seconds", "0"], "above zero seconds"),
        (["--measure-cmd", "exit 7 # {model}"], "cannot be timed: The measuring command ended with status 7"),
    ],
)
def test_mistakes_are_sentences(model: Path, tmp_path: Path, options: list[str], words: str) -> None:
    out = tmp_path / "out.onnx"
    found = run("optimize", model, out, *QUICK, *options)
    assert found.exit_code in (1, 2), found.output
    assert words in found.output
    assert found.output.count("\n") == 1
    assert not out.exists()


@pytest.mark.skipif(os.name != "posix", reason="the command is for a POSIX shell")
@pytest.mark.parametrize("cost", ["analytic", "end-to-end:seconds=0.1"])
def test_a_device_decides(model: Path, tmp_path: Path, cost: str) -> None:
    """On this device a model takes as long as its file is large."""
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    found = run("optimize", model, out, *QUICK, "--cost", cost, "--measure-cmd", "wc -c < {model}", "--json", report)
    assert found.exit_code == 0, found.output
    told = json.loads(report.read_text())
    assert told["improved"] is True
    assert told["runtime"]["name"] == "wc -c < {model}"
    assert told["baseline_ms"] > told["optimized_ms"] > 0
    assert told["verified"]["passed"] is True
    assert len(onnx.load(out).graph.node) < 18


def test_whole_graphs_are_the_cost(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    spec = "end-to-end:seconds=0.2,max_noise=99,tolerance=0.05"
    found = run("optimize", model, tmp_path / "out.onnx", *QUICK, "--cost", spec, "--budget", "8meas", "--json", report)
    assert found.exit_code == 0, found.output
    told = json.loads(report.read_text())
    assert told["cost_model"] == "end-to-end"
    assert 1 <= told["measurements"] <= 8
    assert told["measurements_before"] == 1


def test_estimates_are_marked(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    found = run("optimize", model, *QUICK, "--measure", "lazy", "--json", report)
    assert found.exit_code == 0, found.output
    told = json.loads(report.read_text())
    assert told["gate"] is not None or told["improved"] is False


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_at_the_last_comparison_keeps_the_original(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    command = [
        sys.executable,
        "-m",
        "rlflow",
        "optimize",
        str(model),
        str(out),
        "--budget",
        "30x",
        "--cost",
        "analytic",
    ]
    # Never faster, whatever is asked: a comparison that would take minutes.
    command += ["--budget", "30x", "--measure-cmd", "sleep 0.05; echo 5 # {model}", "--gate-seconds", "300"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert child.stderr is not None
    for line in child.stderr:
        if "timing the candidates" in line:
            break
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    printed, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert "interrupted" in printed
    assert out.read_bytes() == model.read_bytes()
