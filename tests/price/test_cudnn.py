"""The cudnn cost model: what it says without a GPU, and prices on a stand-in for NVIDIA's libraries."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlflow import price
from rlflow._core import gpu_missing
from rlflow.errors import CostError, UsageError
from rlflow.graph import Graph
from rlflow.price.cudnn import CudnnCost
from rlflow.price.database import PriceDatabase
from rlflow.runtime import RuntimeOptions, cuda_libraries

_SPEC = importlib.util.spec_from_file_location("gpu_conftest", Path(__file__).parents[1] / "gpu" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_GPU = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_GPU)
fake_folder, fake_gpu = _GPU.fake_folder, _GPU.fake_gpu

TEXT = """
x: f32[1,4,8,8] = input
w: f32[4,4,3,3] = const
b: f32[4] = const
u: f32[4,4,1,1] = const
y = Conv{pads=[1,1,1,1]}(x, w, b)
r = Relu(y)
z = Conv(r, u)
t = Transpose{perm=[0,2,3,1]}(z)
s = Softmax(t)
return s
"""
SYMBOLIC = "x: f32[N,8] = input\nw: f32[8,8] = const\ny = MatMul(x, w)\nreturn y"


# --- without a GPU --------------------------------------------------------------------------------------------------


def test_each_missing_piece_is_one_sentence(tmp_path: Path) -> None:
    found = gpu_missing([str(tmp_path)], system=False)
    assert [sentence.split(" ")[0] for sentence in found] == ["The", "NVRTC", "cuBLASLt", "cuDNN"]
    assert "libcuda.so.1 was not found" in found[0]
    assert all(sentence.endswith(".") for sentence in found)
    assert all("pip install 'rlflow[gpu]'" in sentence for sentence in found[1:])


@pytest.mark.parametrize("absent", ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"])
def test_one_missing_library_is_named(fake_folder: Path, tmp_path: Path, absent: str) -> None:
    for name in _GPU.stand_in.LIBRARIES:
        if name != absent:
            (tmp_path / name).symlink_to(fake_folder / name)
    (sentence,) = gpu_missing([str(tmp_path)], system=False)
    assert absent in sentence


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("RLFLOW_FAKE_DEVICES", "0", "sees no GPU here"),
        ("RLFLOW_FAKE_DEVICES", "-1", "no CUDA-capable device is detected"),
        ("RLFLOW_FAKE_DRIVER", "11040", "supports CUDA 11.4, expected 12.0 or newer: update the driver"),
        ("RLFLOW_FAKE_CUDNN", "80907", "expected 9.0.0 or newer"),
    ],
)
def test_what_is_too_old_or_absent_is_said(
    fake_folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    (found,) = gpu_missing([str(fake_folder)], system=False)
    assert sentence in found


def test_a_library_without_the_functions_is_another_version(fake_folder: Path, tmp_path: Path) -> None:
    for name in _GPU.stand_in.LIBRARIES:
        (tmp_path / name).symlink_to(fake_folder / name)
    empty = tmp_path / "libnvrtc.so.13"
    empty.unlink()
    compiler = _GPU.stand_in.compiler()
    assert compiler is not None
    subprocess.run([*compiler, "-shared", "-x", "c++", os.devnull, "-o", str(empty)], check=True)
    found = gpu_missing([str(tmp_path)], system=False)
    assert found
    assert all(sentence.startswith("NVRTC has no function nvrtc") for sentence in found)


def test_the_model_refuses_with_the_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CUDA_PATH", str(tmp_path))
    monkeypatch.setenv("RLFLOW_CUDA_ONLY", "1")
    with CudnnCost() as model:
        reason = model.available()
    assert reason is not None
    assert "libcuda.so.1" in reason
    assert "libcudnn.so.9" in reason


def test_rlflow_info_says_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "RLFLOW_CUDA_PATH": str(tmp_path), "RLFLOW_CUDA_ONLY": "1"}
    command = [sys.executable, "-m", "rlflow", "info", "--json"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "libcuda.so.1 was not found" in json.loads(shown.stdout)["cost_models"]["cudnn"]


def test_folders_that_the_user_names_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CUDA_PATH", str(tmp_path))
    assert cuda_libraries.folders()[0] == str(tmp_path)


def test_precisions_belong_to_a_gpu() -> None:
    with pytest.raises(UsageError, match="precision 'float8' is unknown"):
        price.make("cudnn:dtype=float8")
    with pytest.raises(UsageError, match="ONNX Runtime does not compute with tf32; it knows float32"):
        RuntimeOptions(precision="tf32")
    assert RuntimeOptions(runtime="cudnn").effective_clock == "wall"


# --- on the stand-in ------------------------------------------------------------------------------------------------


@pytest.fixture
def model(fake_gpu: Path, tmp_path: Path):
    with CudnnCost(database=tmp_path / "prices.sqlite") as made:
        yield made


def test_prices_are_those_of_the_regions(model: CudnnCost) -> None:
    assert model.available() is None
    report = model.cost(Graph.parse(TEXT))
    assert report.unmeasured == 0
    assert report.device.startswith("Fake GPU (sm_90")
    assert "cuDNN 9.10.0" in (report.runtime or "")
    by_operators = {row.operators: row.ms for row in report.per_region}
    # The stand-in's clock: 22 us for the fused convolution, 20 for the plain one, 3 for a transposition, 4 for a
    # softmax; the start of a replay (2 us) is spread over a chain of 41 to 64.
    assert by_operators[("Conv", "Relu")] == pytest.approx(0.022, rel=0.01)
    assert by_operators[("Conv",)] == pytest.approx(0.020, rel=0.01)
    assert by_operators[("Softmax",)] == pytest.approx(0.004, rel=0.02)
    assert report.total_ms == pytest.approx(0.022 + 0.020 + 0.003 + 0.004, rel=0.02)


def test_the_whole_graph_takes_what_its_regions_take(model: CudnnCost) -> None:
    graph = Graph.parse(TEXT)
    assert model.run_time(graph) == pytest.approx(model.cost(graph).total_ms, rel=0.02)


def test_prices_are_kept_by_gpu_version_and_precision(model: CudnnCost, tmp_path: Path) -> None:
    graph = Graph.parse(TEXT)
    measured = model.fill([graph]).measured
    assert measured > 0
    with CudnnCost(database=tmp_path / "prices.sqlite") as again:
        report = again.fill([graph])
        assert (report.measured, report.cached) == (0, measured)
    with CudnnCost(dtype="float16", database=tmp_path / "prices.sqlite") as other:
        assert other.fill([graph]).measured == measured
    with PriceDatabase(tmp_path / "prices.sqlite") as database:
        contexts = {(one.context.runtime, one.context.level): one.prices for one in database.contexts()}
        price = next(iter(database.all_here(database.contexts()[0].context).values()))
    assert contexts == {("cudnn", "float32"): measured, ("cudnn", "float16"): measured}
    assert price.clock == "CUDA events, captured chain"


def test_symbolic_dimensions_are_bound(fake_gpu: Path, tmp_path: Path) -> None:
    with CudnnCost(database=tmp_path / "prices.sqlite", dims={"N": 4}) as model:
        assert model.cost(Graph.parse(SYMBOLIC)).total_ms == pytest.approx(0.008, rel=0.02)
        assert model.run_time(Graph.parse(SYMBOLIC)) == pytest.approx(0.008, rel=0.02)


def test_weights_beyond_the_cache_are_read_from_memory(fake_gpu: Path, tmp_path: Path) -> None:
    large = "x: f32[1,600] = input\nw: f32[600,600] = const\ny = MatMul(x, w)\nreturn y"
    with CudnnCost(database=tmp_path / "prices.sqlite") as model:
        model.cost(Graph.parse(large))
        keys = list(model.database.all_here(model.place))
    assert [key.split(":")[1] for key in keys] == ["cold"]


def test_what_the_gpu_cannot_run_is_named(model: CudnnCost) -> None:
    odd = Graph.parse("x: f32[1,2,3,3] = input\ny = MeanVarianceNormalization(x)\nreturn y")
    report = model.cost(odd)
    assert report.unpriced == ("MeanVarianceNormalization",)
    assert "there is no kernel for it" in next(iter(report.refusals.values()))
    with pytest.raises(CostError, match="cannot be timed on the GPU"):
        model.run_time(odd)
