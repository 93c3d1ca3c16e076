"""Small variants of every zoo model, and inputs that they accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from rlflow import zoo

Feed = dict[str, np.ndarray]

# Small enough that the whole table builds and runs in seconds; the topology is the full one but for the layer counts.
SMALL: dict[str, dict[str, Any]] = {
    "squeezenet1.1": {"image": 64, "classes": 10},
    "inception-v3": {"image": 75, "classes": 10, "width": 25},
    "densenet-121": {"image": 32, "classes": 10, "growth": 8},
    "repvgg-a0": {"image": 32, "classes": 10, "width": 25},
    "nasrnn": {"steps": 3, "hidden": 16, "biases": True},
    "bert6-classifier": {"layers": 1, "hidden": 32, "heads": 2, "seq": 8, "feed_forward": 64, "vocab": 50, "labels": 5},
    "llama-decoder-step": {
        "layers": 2, "hidden": 48, "heads": 6, "kv_heads": 2, "feed_forward": 64, "vocab": 50, "seq": 7, "mask": True,
    },
}  # fmt: skip
_INTEGER_LIMITS = {"input_ids": 50, "token_type_ids": 2, "position_ids": 100}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model_name" in metafunc.fixturenames:
        metafunc.parametrize("model_name", zoo.names())


@pytest.fixture(scope="session")
def small() -> Callable[..., onnx.ModelProto]:
    """small(name, **sizes): the zoo model at test size."""
    return lambda name, **sizes: zoo.build(name, **{**SMALL[name], **sizes})


@pytest.fixture(scope="session")
def feed() -> Callable[[onnx.ModelProto, int], Feed]:
    """feed(model, seed): random inputs, integers within the ranges that the small models accept, nothing masked."""

    def make(model: onnx.ModelProto, seed: int) -> Feed:
        rng = np.random.default_rng(seed)
        values: Feed = {}
        for info in model.graph.input:
            tensor = info.type.tensor_type
            shape = [dim.dim_value for dim in tensor.shape.dim]
            if info.name == "attention_mask":
                values[info.name] = np.ones(shape, np.int64)
            elif tensor.elem_type == onnx.TensorProto.INT64:
                values[info.name] = rng.integers(0, _INTEGER_LIMITS[info.name], shape)
            else:
                values[info.name] = rng.standard_normal(shape).astype(np.float32)
        return values

    return make


@pytest.fixture(scope="session")
def run() -> Callable[[onnx.ModelProto, Feed], list[np.ndarray]]:
    """run(model, feed): the outputs in ONNX Runtime, one thread, optimisations as deployed."""
    runtime = pytest.importorskip("onnxruntime")

    def evaluate(model: onnx.ModelProto, values: Feed) -> list[np.ndarray]:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, values)

    return evaluate


@pytest.fixture(scope="session")
def newest_run_opset(run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]) -> int:
    """The newest opset that the installed runtime loads (it lags behind onnx)."""
    from rlflow.frontends.builder import ModelBuilder

    for opset in range(onnx.defs.onnx_opset_version(), 16, -1):
        b = ModelBuilder("probe", opset=opset)
        b.output(b.node("Relu", b.input("x", np.float32, (1,))))
        try:
            run(b.build(), {"x": np.ones(1, np.float32)})
        except Exception as error:  # the runtime has no public class for "opset too new"
            if "opset" not in str(error).lower():
                raise
            continue
        return opset
    pytest.fail("the runtime loads none of the opsets above 16")
