"""The peak memory of a model: measured in a fresh process, and told where it is known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.pipeline.parts import ModelTimes, Parts
from rlflow.pipeline.peaks import in_file, peak
from rlflow.report import Report, TimeInterval, render
from rlflow.report.page import page
from rlflow.runtime import Worker

MB = 1 << 20


def expanding(megabytes: int) -> bytes:
    """A small file whose one intermediate tensor has so many megabytes."""
    shape = numpy_helper.from_array(np.array([megabytes * MB // 4], np.int64), "shape")
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("ReduceMax", ["wide"], ["y"], keepdims=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="this system does not say how much memory was used")
def test_a_large_intermediate_is_counted_and_a_small_one_not(tmp_path: Path) -> None:
    feeds = {"x": np.ones(1, np.float32)}
    with Worker() as worker:
        small, large = (
            peak(worker, in_file(expanding(size), tmp_path / f"{size}.onnx"), feeds) or 0 for size in (1, 200)
        )
    assert 200 * MB <= large - small + 1 * MB < 260 * MB


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    assert in_file("model.onnx", tmp_path / "other.onnx") == "model.onnx"
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize(
    ("budget", "pace", "allowed"),
    [(60.0, ModelTimes(0.5, 0.1), True), (10.0, ModelTimes(20.0, 1.0), False), (None, ModelTimes(20.0, 1.0), True)],
)
def test_it_is_left_out_where_the_time_is_over(budget: float | None, pace: ModelTimes, allowed: bool) -> None:
    now = [0.0]
    parts = Parts(budget, clock=lambda: now[0])
    parts.begin()
    parts.plan(pace, models=2)
    now[0] = budget or 0.0
    assert parts.allows_memory() is allowed


def test_the_report_shows_it_with_percentiles_of_both_clocks() -> None:
    timing = {"ms": 2.0, "low": 1.9, "high": 2.1, "wall_ms": 2.5, "rounds": 9, "p99": 3.25, "wall_p99": 4.75}
    report = Report(
        "m", True, "", "greedy", "onnxruntime", "60s", 0, "converged", speedup=1.5, speedup_ci95=(1.4, 1.6),
        intervals={"optimized": TimeInterval(2.0, 1.9, 2.1)}, trace=(), bytes_before=4_000_000, bytes_after=3_000_000,
        peak_bytes_before=20_000_000, peak_bytes_after=15_000_000,
        gate={"clock": "cpu", "timings": {"candidate 1": timing}},
    )  # fmt: skip
    model = helper.make_model(helper.make_graph([], "g", [], []))
    text = page(report, model, model)
    for figure in ("2.5", "3.25", "4.75", "20.00", "15.00", "-25.0 %", "p50", "p99", "processor time", "wall clock"):
        assert figure in text, figure
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    Console(file=stream, width=120).print(render(report))
    assert "peak memory 20.0 MB -> 15.0 MB (-25.0 %)" in stream.getvalue()
