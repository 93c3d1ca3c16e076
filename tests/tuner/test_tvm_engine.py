"""TVM's programs, built and timed for real: a small product, in a child process that may die."""

from __future__ import annotations

import math
import os
import signal

import pytest

from rlflow.errors import UsageError
from rlflow.search import Budget
from rlflow.tuner import TensorProgram, Tuner, TvmEngine, TvmOperator, method
from rlflow.tuner.tvm_engine import unavailable

needs_tvm = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


@pytest.fixture(scope="module")
def engine():
    made = TvmEngine([TvmOperator("64 cubed", "gemm", (64, 64, 64))])
    yield made
    made.close()


@needs_tvm
def test_a_product_is_tuned(engine) -> None:
    (subgraph,) = engine.subgraphs
    assert subgraph.flops == 2 * 64**3
    assert [[(one.extent, one.parts) for one in sketch.tiles] for sketch in subgraph.space.sketches] == [
        [(64, 4), (64, 4), (64, 2)]
    ] * 3
    result = Tuner(engine, method("evolutionary"), 0).run(Budget(measurements=8))
    assert result.best[0] is not None
    assert 1e-7 < result.best[0][1] < 1e-2
    assert result.rounds[-1].cpu_seconds > 0.5
    assert "tvm" in engine.place


@needs_tvm
def test_a_program_that_cannot_be_built_is_invalid_and_the_others_are_not(engine) -> None:
    good = TensorProgram(2, (1, 4, 4, 4, 1, 4, 1, 16, 16, 4, 1))
    bad = TensorProgram(2, (1, 4, 4, 4, 1, 4, 1, 16, 16, 4, 9))  # it has no tenth depth of unrolling
    seconds = engine.measure(0, [good, bad, good])
    assert seconds[1] == math.inf
    assert seconds[0] < 1 and seconds[2] < 1


@needs_tvm
def test_a_process_that_dies_is_replaced(engine) -> None:
    good = TensorProgram(2, (1, 4, 4, 4, 1, 4, 1, 16, 16, 4, 1))
    os.kill(engine._child.pid, signal.SIGKILL)
    seconds = engine.measure(0, [good, good])
    assert min(seconds) < 1


@pytest.mark.parametrize(("kind", "sizes"), [("fft", (8,)), ("gemm", (8, -1, 8)), ("gemm", (8, 2.5, 8))])
def test_an_operator_that_cannot_be_is_refused(kind, sizes) -> None:
    with pytest.raises(UsageError):
        TvmOperator("x", kind, sizes)


def test_without_tvm_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(
        "rlflow.tuner.tvm_engine.unavailable", lambda: "TVM is not installed: pip install 'rlflow[tuner]'"
    )
    with pytest.raises(UsageError, match=r"rlflow\[tuner\]"):
        TvmEngine([TvmOperator("x", "gemm", (8, 8, 8))])
