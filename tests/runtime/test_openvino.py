"""OpenVINO behind the same worker as ONNX Runtime; skipped, with the reason, where it is not installed."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import optimizer, price
from rlflow.errors import RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.graph import Graph
from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason
from rlflow.runtime.interface import interface_names

FLOAT = TensorProto.FLOAT
installed = importlib.util.find_spec("openvino") is not None
needs_openvino = pytest.mark.skipif(not installed, reason=str(unavailable_reason("openvino")))


def network(repeats: int = 2, shape: tuple[object, ...] = (4, 64)) -> bytes:
    """Products with a relu, and a copy as the output, which runtimes remove."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    names = ["x", *(f"v{k}" for k in range(repeats))]
    nodes = [helper.make_node("MatMul", [one, "w"], [two]) for one, two in itertools.pairwise(names)]
    nodes += [helper.make_node("Relu", [names[-1]], ["r"]), helper.make_node("Identity", ["r"], ["y"])]
    ends = [helper.make_tensor_value_info(name, FLOAT, list(shape)) for name in ("x", "y", "r")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


FEEDS = {"x": np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)}


class TestInterface:
    def test_names_are_read_from_the_wire(self, tmp_path: Path) -> None:
        assert interface_names(network()) == (["x"], ["y", "r"])
        path = tmp_path / "m.onnx"
        path.write_bytes(network())
        assert interface_names(str(path)) == (["x"], ["y", "r"])

    @pytest.mark.parametrize("cut", [10, 400, -3])
    def test_a_truncated_model_is_refused(self, cut: int) -> None:
        with pytest.raises(RuntimeRefused, match="not ONNX"):
            interface_names(network()[:cut])


class TestAbsence:
    def test_absence_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(RuntimeUnavailable, match=r"OpenVINO is not installed: pip install 'rlflow\[openvino\]'"):
            Worker(RuntimeOptions(runtime="openvino"))
        for name in ("openvino", "end-to-end"):
            model = price.make(name) if name == "openvino" else price.make(name, runtime="openvino")
            assert "OpenVINO is not installed" in (model.available() or "")

    @pytest.mark.parametrize(
        ("options", "words"),
        [({"runtime": "tvm"}, "no runtime 'tvm'"), ({"runtime": "openvino", "provider": "cuda"}, "knows no cuda")],
    )
    def test_mistakes(self, options: dict[str, str], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            RuntimeOptions(**options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(RuntimeOptions(runtime="openvino")) as found:
        yield found


@needs_openvino
class TestWorker:
    @pytest.mark.parametrize("level", ["disable", "all"])
    def test_outputs_are_those_of_onnx_runtime(self, worker: Worker, level: str) -> None:
        with Worker() as other:
            expected = other.run(other.load(network()), FEEDS)
        handle = worker.load(network(), level=level)
        found = worker.run(handle, FEEDS)
        assert [info.name for info in handle.io.outputs] == ["y", "r"]
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)

    def test_open_dimensions_are_fed_at_any_size(self, worker: Worker) -> None:
        handle = worker.load(network(shape=("n", 64)))
        assert handle.io.inputs[0].shape == (None, 64)
        for size in (1, 5):
            assert worker.run(handle, {"x": np.ones((size, 64), np.float32)})["y"].shape == (size, 64)

    def test_it_says_what_it_is(self, worker: Worker) -> None:
        found = worker.describe()
        assert found["runtime"] == "openvino"
        assert found["version"][0].isdigit()
        assert found["device"]

    @pytest.mark.clock
    def test_more_work_takes_longer(self, worker: Worker) -> None:
        handles = [worker.load(network(repeats)) for repeats in (1, 40)]
        samples = worker.time_interleaved(handles, FEEDS, rounds=5)
        few, many = np.median(samples.cpu_ms, axis=0)
        assert 0 < few < many
        assert worker.overhead().ms > 0
        assert any(node.us > 0 for node in worker.profile(network(40), FEEDS))

    @pytest.mark.parametrize(("model", "words"), [(b"garbage", "refused to load"), (network()[:-9], "refused to load")])
    def test_refusals_are_sentences(self, worker: Worker, model: bytes, words: str) -> None:
        with pytest.raises(RuntimeRefused, match=f"OpenVINO {words}"):
            worker.load(model)
        with pytest.raises(RuntimeRefused, match="was not given"):
            worker.run(worker.load(network()), {})
        with pytest.raises(RuntimeRefused, match="does not hand out"):
            worker.optimized(network())


@needs_openvino
class TestCost:
    def test_regions_are_priced(self, tmp_path: Path) -> None:
        text = "x: f32[{n},256] = input\nw: f32[256,256] = const\nm = MatMul(x, w)\ny = Relu(m)\nreturn y"
        with price.make("openvino", database=tmp_path / "p.sqlite") as model:  # type: ignore[attr-defined]
            assert model.available() is None
            small, large = (model.cost(Graph.parse(text.replace("{n}", n))) for n in ("8", "512"))
        assert [row.operators for row in small.per_region] == [("MatMul", "Relu")]
        assert 0 < small.total_ms < large.total_ms
        assert small.runtime is not None
        assert small.runtime.startswith("openvino ")

    def test_a_model_is_optimised_for_it(self, tmp_path: Path) -> None:
        source, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
        onnx.save(onnx.load_from_string(network(3)), source)
        found = rlflow.optimize(
            source, output=target, cost="openvino", runtime="openvino", budget="20x", gate_seconds=0.1
        )
        assert found.report.runtime is not None
        assert found.report.runtime.name == "openvino"
        assert target.exists()
        assert optimizer.verify(source, target, runtime="openvino").passed
