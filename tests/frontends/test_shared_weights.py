"""A model and its rewrites beside one file of weights: what the runtime maps is what would be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends import load_model, save_model
from rlflow.frontends.exporter import slim_model
from rlflow.frontends.storage import SharedWeights
from rlflow.rulesets import load_library
from rlflow.search import Problem, solve


def product(size: int = 64) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    big = [numpy_helper.from_array(rng.standard_normal((size, size)).astype(np.float32), name) for name in "vw"]
    listed = helper.make_tensor("b", TensorProto.FLOAT, [size], rng.standard_normal(size).astype(np.float32).tolist())
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"]),
        helper.make_node("MatMul", ["x", "w"], ["k"]),
        helper.make_node("Add", ["h", "k"], ["s"]),
        helper.make_node("Add", ["s", "b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [*big, listed])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def results(model: bytes | str, x: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_slim_and_whole_are_the_same_model(tmp_path: Path) -> None:
    model = product()
    imported = load_model(model)
    found = solve(Problem(imported.graph, load_library(None), analytic(), "20x"), "greedy")
    weights = SharedWeights(tmp_path)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    for graph in (imported.graph, found.graph):
        whole, slim = save_model(imported, graph), slim_model(imported, graph, weights)
        assert weights.whole(slim).SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)
        size = weights.write_whole(slim, tmp_path / "whole.onnx")
        assert (tmp_path / "whole.onnx").read_bytes() == whole.SerializeToString(deterministic=True)
        assert size == (tmp_path / "whole.onnx").stat().st_size
        assert slim.ByteSize() < whole.ByteSize() / 4
        path = weights.write(slim, "one.onnx")
        np.testing.assert_array_equal(results(path, x), results(whole.SerializeToString(), x))


def test_a_weight_is_written_once(tmp_path: Path) -> None:
    model = product()
    imported = load_model(model)
    weights = SharedWeights(tmp_path)
    weights.slim(model)
    before = (tmp_path / "weights.bin").stat().st_size
    slim_model(imported, imported.graph, weights)
    assert (tmp_path / "weights.bin").stat().st_size == before == 2 * 64 * 64 * 4


def test_weights_of_another_file_are_taken_over(tmp_path: Path) -> None:
    onnx.save_model(product(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    imported = load_model(tmp_path / "m.onnx")
    (tmp_path / "shared").mkdir()
    weights = SharedWeights(tmp_path / "shared", str(tmp_path))
    slim = weights.slim(imported.origin.model)
    x = np.ones((4, 64), np.float32)
    np.testing.assert_array_equal(
        results(weights.write(slim, "original.onnx"), x), results(str(tmp_path / "m.onnx"), x)
    )


def analytic() -> object:
    from rlflow import price

    return price.make("analytic")
