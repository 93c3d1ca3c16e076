"""``rlflow tune`` on the recorded environment: gone on with, with an earlier plan in the model, without TVM."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from rlflow.frontends import blocked
from rlflow.kernels import KEY, Choice, KernelPlan, unavailable
from rlflow.kernels.preparing import block_here
from rlflow.runtime import inprocess
from rlflow.runtime.interface import metadata_entry
from rlflow.tuned import _Ends, tune
from rlflow.tuner import KernelEngine
from tests.cli.recorded_tune import NO_PLAN, Recorded
from tests.kernels import blocked_models

ROOT = Path(__file__).resolve().parents[2]
TRIALS = 32
PLAN = KernelPlan("1.0", 16, 1, 1.5, (Choice("conv", (32, 32), "winograd-4x4", 2.0),))
Rows = dict[tuple[str, ...], tuple[float, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    path.write_bytes(blocked_models.small_network(32, 32))
    return path


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.fspath(ROOT), *filter(None, sys.path)]), **changes}


# --- interrupted ------------------------------------------------------------------------------------------------------


def tuned(model: Path, folder: Path, after: int = 0, presses: int = 0) -> int:
    """The exit status of a tuning of so many trials; Ctrl-C comes ``presses`` times after the first ``after``."""
    script = [sys.executable, os.fspath(ROOT / "tests" / "cli" / "recorded_tune.py"), str(after), str(presses)]
    how = ["--budget", f"{TRIALS}meas", "--method", "evolutionary", "-q"]
    ended = subprocess.run(
        [*script, "tune", os.fspath(model), "-o", os.fspath(folder), *how],
        env=environment(), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode


def rows(folder: Path) -> Rows:
    """Seconds and date by place, subgraph and program."""
    connection = sqlite3.connect(folder / "trials.sqlite")
    try:
        found = connection.execute("SELECT place, subgraph, program, seconds, measured_at FROM trials").fetchall()
    finally:
        connection.close()
    return {tuple(row[:3]): tuple(row[3:]) for row in found}


def times(found: Rows) -> dict[tuple[str, ...], float]:
    return {key: seconds for key, (seconds, _) in found.items()}


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
def test_interrupted_and_gone_on_with_it_has_the_database_of_one_that_was_left_alone(
    model: Path, tmp_path: Path
) -> None:
    """One Ctrl-C ends a tuning after the round, two in the middle of it; either way it is run again."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert tuned(model, whole) == 0
    kept: Rows = {}
    for count in (1, 2):
        status = tuned(model, parts, after=10, presses=count)
        assert (status == 0) == (count == 1)
        before, kept = kept, rows(parts)
        assert before.items() < kept.items()
        assert len(before) < len(kept) < TRIALS
        assert (parts / "model.onnx").exists()
    assert tuned(model, parts) == 0
    assert kept.items() < rows(parts).items()
    assert times(rows(parts)) == times(rows(whole))
    assert len(rows(whole)) == TRIALS


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("earlier", [None, PLAN])
@pytest.mark.parametrize("found", [None, KernelPlan("2.0", 16, 1, 1.25, PLAN.choices)])
def test_a_model_has_the_plan_of_this_tuning_and_no_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: KernelPlan | None, found: KernelPlan | None
) -> None:
    raw = onnx.ModelProto.FromString(blocked_models.small_network(32, 32))
    blocked.set_metadata(raw, "author", "somebody")
    blocked.set_metadata(raw, KEY, None if earlier is None else earlier.text())
    monkeypatch.setattr(KernelEngine, "of", lambda *_, **__: Recorded())
    monkeypatch.setattr(_Ends, "planned", lambda _: ([], found, None, NO_PLAN))
    done = tune(raw.SerializeToString(), tmp_path / "out", budget="4meas", by="random")
    assert done.speedup == (None if found is None else 1.25)
    assert metadata_entry(done.model, KEY) == (None if found is None else found.text())
    assert metadata_entry(done.model, "author") == "somebody"
    written = onnx.load(done.model)
    assert written.graph == raw.graph


# --- without TVM ------------------------------------------------------------------------------------------------------

TRAP = "import os, pathlib; pathlib.Path(os.environ['TVM_WAS_OPENED']).touch(); raise ImportError('there is no TVM')"
RUN = """
import sys, warnings
import numpy as np
import rlflow.kernels
warnings.simplefilter("error", rlflow.kernels.KernelsNotUsed)
session = rlflow.kernels.session(sys.argv[1])
x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
np.save(sys.argv[2], session.run(None, {"x": x})[0])
"""


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.skipif(
    unavailable() is None and not block_here(), reason="this processor's ONNX Runtime has no blocked layout"
)
def test_tuned_models_are_made_and_run_without_opening_tvm(model: Path, tmp_path: Path) -> None:
    """The winners are kernels of the library, so a machine without TVM runs the same ones. Whoever opens TVM, in a
    child process too, steps into a trap.
    """
    trap, opened = tmp_path / "trap" / "tvm", tmp_path / "opened"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(TRAP)
    path = os.pathsep.join([os.fspath(trap.parent), *filter(None, sys.path)])
    there = environment(PYTHONPATH=path, TVM_WAS_OPENED=os.fspath(opened), RLFLOW_CACHE=os.fspath(tmp_path / "cache"))

    def python(*arguments: object) -> int:
        return subprocess.run([sys.executable, *map(str, arguments)], env=there, timeout=200).returncode

    out = tmp_path / "out"
    assert python("-m", "rlflow", "tune", model, "-o", out, "--budget", "3s", "--method", "evolutionary", "-q") == 0
    planned, result = tmp_path / "planned.onnx", tmp_path / "y.npy"
    planned.write_bytes(with_plan(model.read_bytes()))
    assert python("-c", RUN, planned, result) == 0
    assert not opened.exists()
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    expected = inprocess.open_session(model.read_bytes(), inprocess.new_options(), None).run(None, {"x": x})[0]
    assert np.abs(np.load(result) - expected).max() < 1e-5 * np.abs(expected).max()
    assert python("-c", "import tvm") != 0 and opened.exists()


def with_plan(raw: bytes) -> bytes:
    """The model with a plan for every convolution that a kernel can do."""
    block = block_here()
    sites = blocked.BlockedGraph(inprocess.optimised(raw), block).sites()
    choices = tuple(Choice(one.name, one.sizes, "winograd-4x4", 2.0) for one in sites)
    assert choices
    return blocked.with_metadata(raw, KEY, KernelPlan("1.0", block, 1, 1.5, choices).text())
