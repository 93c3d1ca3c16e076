"""Signals and closed streams, sent to real processes: how long they take, what they say, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are looked up where Linux lists them"
)
#: From the signal to the end of the process; a second is what is promised, the rest is for a busy machine.
AT_ONCE = 3.0
#: What some builds of ONNX Runtime keep in the temporary folder.
RUNTIME = ".ses"
#: What a shell starts in the background ignores Ctrl-C, what nohup starts the hang-up; and so would their children.
HEARING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
)
ANALYTIC, TIMED = ("--cost", "analytic"), ("--gate-seconds", "60")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Six layers of two products that can be merged, with large weights in a file beside."""
    draw, nodes, weights = np.random.default_rng(1), [], []
    for layer in range(6):
        for k in range(2):
            weight = draw.standard_normal((64, 64)).astype(np.float32) / 8
            weights.append(numpy_helper.from_array(weight, f"w{layer}_{k}"))
            nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}_{k}"], [f"p{layer}_{k}"]))
        nodes.append(helper.make_node("Mul", [f"p{layer}_0", f"p{layer}_1"], [f"m{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"x{layer + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 64]) for name in ("x0", "x6")]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, path, save_as_external_data=True, location="model.bin", size_threshold=0)
    return path


class Child:
    """``python -c code arguments``, with temporary and output folders that are its own."""

    def __init__(self, folder: Path, code: str, arguments: Sequence[str | Path], **streams: object) -> None:
        self.temporary, self.output = folder / "tmp", folder / "out"
        self.temporary.mkdir()
        self.output.mkdir()
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(self.temporary),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [sys.executable, "-c", HEARING + code, *map(str, arguments)]
        self.process = subprocess.Popen(command, text=True, env=environment, **streams)  # type: ignore[call-overload]
        self.descendants: set[int] = set()

    def until(self, word: str) -> None:
        for line in self.process.stderr:
            if word in line:
                return
        raise AssertionError(f"{word!r} was not said")

    def send(self, number: int) -> None:
        self.descendants |= set(descendants(self.process.pid))
        self.process.send_signal(number)

    def end(self) -> tuple[float, str]:
        """Seconds until it ended, and the rest of what it said."""
        begun = time.monotonic()
        errors = self.process.communicate(timeout=60)[1]
        return time.monotonic() - begun, errors

    @property
    def left(self) -> list[str]:
        """Files, folders and processes that are still there; a process has a moment to go."""
        end = time.monotonic() + 2.0
        while (alive := [one for one in self.descendants if is_alive(one)]) and time.monotonic() < end:
            time.sleep(0.02)
        files = [
            str(path) for folder in (self.temporary, self.output) for path in folder.rglob("*") if path.name != RUNTIME
        ]
        return [*files, *(f"process {one}" for one in alive)]


def descendants(of: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent(int(entry.name)) == of:
            yield int(entry.name)
            yield from descendants(int(entry.name))


def parent(process: int) -> int | None:
    fields = status(process)
    return int(fields[1]) if fields else None


def is_alive(process: int) -> bool:
    fields = status(process)
    return bool(fields) and fields[0] != "Z"


def status(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


CLI = "import sys; from rlflow.cli import main; main(sys.argv[1:])"
#: The check takes its time and lets no Ctrl-C through, as native code would.
STUBBORN = (
    """
import sys, time
import rlflow.pipeline as pipeline
def check(*rest):
    sys.stderr.write("checking\\n")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
pipeline.check = check
"""
    + CLI
)


@pytest.fixture
def optimize(model: Path, tmp_path: Path) -> Iterator[object]:
    children = []

    def start(*options: str, code: str = CLI, **streams: object) -> Child:
        given = ["optimize", model, tmp_path / "out" / "o.onnx", "--budget", "100s", "--patience", "off", *options]
        children.append(Child(tmp_path, code, given, **streams))
        return children[-1]

    yield start
    for child in children:
        child.process.kill()
        child.process.communicate()


@pytest.mark.parametrize(
    ("options", "code", "stage", "pause", "then", "gap"),
    [
        pytest.param(ANALYTIC, CLI, "searching", 0.0, None, 0.0, id="in the search, both at once"),
        pytest.param(TIMED, CLI, "pricing", 1.0, None, 0.1, id="while regions are priced, the second soon after"),
        pytest.param(TIMED, CLI, "searching", 1.0, "timing the", 0.3, id="the second in the race"),
        pytest.param(ANALYTIC, STUBBORN, "searching", 0.0, "checking", 0.3, id="the second where nothing heeds it"),
    ],
)
def test_a_second_interrupt_ends_at_once(optimize, options, code, stage, pause, then, gap) -> None:  # type: ignore[no-untyped-def]
    child = optimize(*options, "--search", "random", code=code)
    child.until(stage)
    time.sleep(pause)
    child.send(signal.SIGINT)
    if then is not None:
        child.until(then)
    time.sleep(gap)  # two signals of a kind that wait at the same time are one to the system
    child.send(signal.SIGINT)
    seconds, errors = child.end()
    assert child.process.returncode == 130, errors
    assert seconds < AT_ONCE
    assert "rlflow: error: interrupted" in errors
    assert "Traceback" not in errors
    assert child.left == []


@pytest.mark.parametrize(
    ("number", "options", "stage"), [(signal.SIGHUP, ANALYTIC, "searching"), (signal.SIGTERM, TIMED, "pricing")]
)
def test_other_signals_end_and_tidy_up(optimize, number, options, stage) -> None:  # type: ignore[no-untyped-def]
    child = optimize(*options, "--search", "random")
    child.until(stage)
    time.sleep(0.5)
    child.send(number)
    seconds, errors = child.end()
    assert child.process.returncode == 128 + number
    assert seconds < AT_ONCE
    assert errors.splitlines()[-1] == f"rlflow: ended by {number.name}; nothing was written."
    assert child.left == []


def test_a_script_that_is_ended_leaves_what_the_next_run_removes(model: Path, tmp_path: Path) -> None:
    """Python ends a script that handles no SIGTERM without a word; its worker goes, its temporary folder stays."""
    code = """
import sys, rlflow
from rlflow.files import ScratchFolder
folder = ScratchFolder()
rlflow.optimize(sys.argv[1], budget="100s", on_stage=lambda said: print(said, file=sys.stderr))
"""
    child = Child(tmp_path, code, [model])
    child.until("pricing")
    time.sleep(0.5)
    child.send(signal.SIGTERM)
    child.end()
    assert child.process.returncode == -signal.SIGTERM
    folders = child.left
    assert folders, "what is to be removed is there"
    assert not any(one.startswith("process") for one in folders)
    for path in child.temporary.iterdir():
        os.utime(path, (0, 0))
    sweep = "from rlflow.files import ScratchFolder; ScratchFolder().cleanup()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(child.temporary)}
    subprocess.run([sys.executable, "-c", sweep], check=True, env=environment)
    assert child.left == []


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-", "| head -c0", "2>&1 | head -c0"], ids=lambda text: text)
def test_a_closed_stream_costs_no_result(model: Path, tmp_path: Path, redirection: str) -> None:
    out, errors = tmp_path / "o.onnx", tmp_path / "errors"
    command = f'"$0" -m rlflow optimize "$1" "$2" --cost analytic --budget 20x 2>"$3" {redirection}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = [sys.executable, str(model), str(out), str(errors)]
    subprocess.run(["sh", "-c", command, *given], env=environment, timeout=60, check=False)
    assert "Traceback" not in errors.read_text()
    assert "Exception ignored" not in errors.read_text()
    assert out.exists(), errors.read_text()
    onnx.checker.check_model(str(out))
