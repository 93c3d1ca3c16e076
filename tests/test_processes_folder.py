"""A folder that somebody else filled: nothing of what lies there runs because rlflow was started in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlflow.frontends import graph_to_model
from rlflow.testing.random_graphs import random_graph

HOSTILE = (
    "json", "numpy", "onnxruntime", "sitecustomize", "usercustomize", "pickle", "threading", "socket", "selectors",
    "multiprocessing", "signal", "struct", "rlflow", "onnx", "encodings", "runpy", "tempfile", "random",
)  # fmt: skip
LINE = "import os; open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'RAN-' + __name__), 'w').close()\n"
SCRIPT = Path(sys.executable).with_name("rlflow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "models"
    place.mkdir()
    for name in HOSTILE:
        (place / f"{name}.py").write_text(LINE)
    return place


def started_in(folder: Path, *command: str | Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert not list(folder.glob("RAN-*")), done.stderr
    assert done.returncode == 0, done.stderr


def test_the_trap_works(folder: Path) -> None:
    with pytest.raises(AssertionError):
        started_in(folder, sys.executable, "-c", "import json")
    assert (folder / "RAN-json").exists()


@pytest.mark.skipif(not SCRIPT.exists(), reason="rlflow is not installed beside this Python")
@pytest.mark.parametrize(
    "options",
    [
        ("optimize", "m.onnx", "o.onnx", "--quiet", "--budget", "2c"),
        ("search", "run", "m.onnx", "--cost", "analytic", "--search", "random", "--workers", "2", "--budget", "4c"),
    ],
    ids=["the runtime's process", "a search in several processes"],
)
def test_the_command_line(folder: Path, options: tuple[str, ...]) -> None:
    (folder / "m.onnx").write_bytes(graph_to_model(random_graph(1, 6)).SerializeToString())
    started_in(folder, SCRIPT, *options)


def test_a_script_elsewhere_that_uses_the_library(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from rlflow.spawning import safe_context\n"
        "if __name__ == '__main__':\n"
        "    with safe_context().Pool(2) as pool:\n"
        "        assert pool.map(abs, [-1, 2]) == [1, 2]\n"
    )
    started_in(folder, sys.executable, script)


def test_as_a_module_python_itself_looks_there_and_rlflow_does_not(tmp_path: Path) -> None:
    # What Python imports before rlflow's first line (runpy, __future__, rlflow itself) is out of our hands.
    for name in ("json", "numpy", "click", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text(LINE)
    started_in(tmp_path, sys.executable, "-m", "rlflow", "info")
