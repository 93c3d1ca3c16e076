"""What is priced on the GPU is timed and verified there: the façade on the stand-in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlflow
from rlflow.deployment import Deployment
from rlflow.frontends import graph_to_model
from rlflow.graph import Graph
from rlflow.runtime import RuntimeOptions, Worker

pytestmark = pytest.mark.usefixtures("fake_gpu")

# Two products of one input: side by side they cost the stand-in 8 us each, merged 8 and a split.
TEXT = """
x: f32[4,16] = input
w: f32[16,8] = const
v: f32[16,8] = const
a = MatMul(x, w)
b = MatMul(x, v)
c = Add(a, b)
return c
"""


def test_the_default_place_of_a_price_on_the_gpu_is_the_gpu() -> None:
    found = Deployment.priced_by("cudnn:dtype=tf32", 1, "onnxruntime", None, None)
    assert found.runtime in ("cudnn", "torch", "onnxruntime")
    assert not found.is_default
    assert Deployment.priced_by("cudnn", 1, "onnxruntime", "cpu", None).is_default
    assert Deployment.priced_by("analytic", 1, "onnxruntime", None, None).is_default


def test_a_worker_runs_and_times_on_the_gpu() -> None:
    model = graph_to_model(Graph.parse(TEXT)).SerializeToString()
    feeds = {"x": np.ones((4, 16), np.float32)}
    with Worker(RuntimeOptions(runtime="cudnn")) as gpu, Worker() as cpu:
        one, other = gpu.load(model), cpu.load(model)
        found, expected = gpu.run(one, feeds), cpu.run(other, feeds)
        np.testing.assert_allclose(found["output_0"], expected["output_0"], rtol=1e-5)
        times = gpu.time_interleaved([one], feeds, rounds=2, inner=1)
        assert (times.wall_ms > 0).all()
        assert [row.op_type for row in gpu.profile(one, feeds)] == ["product", "product"]


@pytest.mark.slow  # a dozen processes for the final comparison
def test_optimise_with_prices_of_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path))
    model = graph_to_model(Graph.parse(TEXT))
    report = rlflow.optimize(model, cost="cudnn", runtime="cudnn", budget="5x", gate_seconds=2.0).report
    assert report.verified is None or report.verified.passed
    assert report.cost_before_ms == pytest.approx(0.020, rel=0.05)
    assert report.runtime.name == "cudnn"
