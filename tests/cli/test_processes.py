"""The command line as users start it: real processes, signals, determinism across processes."""

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
from onnx import TensorProto, helper, numpy_helper

import rlflow


def command(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rlflow", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    child = command(*arguments, **environment)
    out, err = child.communicate(timeout=240)
    return child.returncode, out, err


@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["--help"], ["info"], ["search", "list", "--json"], ["rules", "stats"]])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_under_what_is_printed_is_a_sentence(arguments: list[str], buffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rlflow", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": buffered},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "rlflow: error: What rlflow prints cannot be written: No space left on device.\n"


def test_a_width_of_nothing_is_no_width() -> None:
    code, out, err = run("rules", "stats", COLUMNS="0")
    assert (code, err) == (0, "")
    assert out == run("rules", "stats", COLUMNS="")[1] != ""


def test_characters_that_cannot_be_printed_end_nothing(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["größe"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("größe", "y")]
    path = tmp_path / "odd.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "odd", values[:1], values[1:]), ir_version=8), path)
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code, out, err = run("inspect", path, **ascii_only)
    assert (code, "gr??e" in out) == (0, True), err
    code, out, err = run("inspect", path, "--json", **ascii_only)
    assert (code, "größe" in json.dumps(json.loads(out), ensure_ascii=False)) == (0, True), err


COMMAND, MODULE = ("-c", "from rlflow.cli import program; program()"), ("-m", "rlflow")


@pytest.mark.parametrize(
    ("start", "module"),
    [
        (COMMAND, "typing"),
        (COMMAND, "click"),
        (COMMAND, "rlflow.processes"),
        (MODULE, "rlflow.cli"),
        (MODULE, "typing"),
        (MODULE, "rlflow.processes"),
    ],
)
def test_an_interrupt_while_python_starts_ends_quietly(start: tuple[str, str], module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
    )
    done = subprocess.run(
        [sys.executable, *start, "--version"],
        capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Eight layers of three products that can be merged, behind transposes that can be cancelled."""
    rng = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for layer in range(8):
        for k in range(3):
            name = f"w{layer}_{k}"
            weights.append(numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32) / 6, name))
            nodes.append(helper.make_node("MatMul", [last, name], [f"p{layer}_{k}"]))
        nodes.append(helper.make_node("Add", [f"p{layer}_0", f"p{layer}_1"], [f"s{layer}"]))
        nodes.append(helper.make_node("Mul", [f"s{layer}", f"p{layer}_2"], [f"m{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"]))
        last = f"t{layer}"
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 32])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [16, 32])],
        weights,
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_two_runs_in_fresh_processes_write_the_same_bytes(model: Path, tmp_path: Path) -> None:
    outputs, traces = [], []
    for seed in ("1", "77"):
        out, report = tmp_path / f"out{seed}.onnx", tmp_path / f"report{seed}.json"
        options = ("--cost", "analytic", "--seed", "7", "--budget", "500c", "--json", report)
        code, _, err = run("optimize", model, out, *options, PYTHONHASHSEED=seed, OMP_NUM_THREADS=seed[0])
        assert code == 0, err
        outputs.append(out.read_bytes())
        traces.append(json.loads(report.read_text())["trace"])
    assert traces[0] == traces[1]
    assert traces[0]
    assert outputs[0] == outputs[1]


def test_a_second_pass_over_an_exhausted_result_changes_nothing(model: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    report = tmp_path / "report.json"
    options = ("--cost", "analytic", "--search", "backtracking", "--budget", "20000x", "--rules", "merge", "--quiet",
               "--json", report)  # fmt: skip
    code, _, err = run("optimize", model, first, *options)
    assert code == 0, err
    assert json.loads(report.read_text())["stop_reason"] == "exhausted"
    assert run("optimize", first, second, *options)[0] == 0
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_ctrl_c_writes_the_best_so_far(model: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    child = command(
        "optimize", model, out, "--cost", "analytic", "--budget", "200s", "--search", "random", "--json", report
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "searching" in line:
            break
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    child.stderr.read()
    assert child.wait(timeout=120) == 0
    plain = json.loads(report.read_text())
    assert plain["stop_reason"] == "interrupted"
    assert plain["seconds"] < 60
    onnx.checker.check_model(onnx.load(out), full_check=True)


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
def test_a_second_ctrl_c_ends_at_once_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "from rlflow.search import Problem\n"
        "plain = Problem.moves\n"
        "def twice(self, *rest):\n"
        "    os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGINT)\n"
        "    return plain(self, *rest)\n"
        "Problem.moves = twice\n"
        "from rlflow.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["optimize", str(model), str(out), "--cost", "analytic", "--budget", "100s", "--search", "backtracking"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 130
    assert "rlflow: error: interrupted" in done.stderr
    assert not out.exists()


def test_a_mistake_is_one_line_on_stderr(tmp_path: Path) -> None:
    code, out, err = run("optimize", tmp_path / "none.onnx", "--cost", "analytic")
    assert code == 1
    assert out == ""
    assert [line for line in err.splitlines() if "error" in line] == err.splitlines()[-1:]
    assert run("optimize", tmp_path / "none.onnx", "--cost", "analytic", RLFLOW_DEBUG="1")[2].count("Traceback") >= 1
    assert run("nothing")[0] == 2


def test_a_reader_that_leaves_does_no_harm() -> None:
    child = command("rules", "list")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert "Traceback" not in child.stderr.read()
    child.wait(timeout=60)


def test_importing_the_package_opens_nothing_heavy() -> None:
    code = (
        "import sys; import rlflow\n"
        "names = ('onnx', 'onnxruntime', 'torch', 'rich', 'numpy', 'rlflow._core')\n"
        "heavy = [name for name in names if name in sys.modules]\n"
        "print(heavy); assert callable(rlflow.optimize) and rlflow.__version__ and 'optimize' in dir(rlflow)\n"
        "try:\n    rlflow.nothing\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "[]"
    assert "no attribute 'nothing'" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="a folder in use stays")
def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && "$0" -m rlflow info strategies', sys.executable],
        cwd=gone,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rlflow.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert "mixed" in done.stdout
