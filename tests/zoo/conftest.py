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
    "resnet-18": {"image": 32, "classes": 10, "width": 25},
    "resnet-50": {"image": 32, "classes": 10, "width": 25},
    "resnext-50": {"image": 32, "classes": 10, "width": 25},
    "inception-v3": {"image": 75, "classes": 10, "width": 25},
    "nasnet-a": {"image": 32, "classes": 10, "cells": 1, "filters": 8, "stem": 8},
    "nasnet-a-large": {"image": 33, "classes": 10, "cells": 1, "filters": 8, "stem": 8},
    "densenet-121": {"image": 32, "classes": 10, "growth": 8},
    "mobilenet-v2": {"image": 32, "classes": 10, "width": 25},
    "shufflenet-v2": {"image": 32, "classes": 10, "width": 50},
    "repvgg-a0": {"image": 32, "classes": 10, "width": 25},
    "unet": {"image": 32, "classes": 4, "channels": 4},
    "fpn-resnet18": {"image": 32, "width": 25, "pyramid": 16},
    "nasrnn": {"steps": 3, "hidden": 16, "biases": True},
    "bert-base": {"layers": 1, "hidden": 32, "heads": 2, "seq": 8, "feed_forward": 64, "vocab": 50},
    "bert6-classifier": {"layers": 1, "hidden": 32, "heads": 2, "seq": 8, "feed_forward": 64, "vocab": 50, "labels": 5},
    "vit-base": {
        "image": 32, "patch": 8, "layers": 2, "hidden": 32, "heads": 2, "feed_forward": 64, "classes": 10,
    },
    "llama-decoder-step": {
        "layers": 2, "hidden": 48, "heads": 6, "kv_heads": 2, "feed_forward": 64, "vocab": 50, "seq": 7, "mask": True,
    },
    "transducer": {
        "audio_layers": 2, "label_layers": 1, "hidden": 32, "heads": 2, "feed_forward": 64, "seq": 9, "features": 6,
        "labels": 4,
    },
    "dalle-decoder": {
        "layers": 2, "hidden": 32, "heads": 2, "feed_forward": 48, "vocab": 50, "seq": 6, "text": 5,
    },
    "taso/resnet50": {"image": 16, "width": 25},
    "taso/resnext50": {"image": 32, "width": 25},
    "taso/batched_resnet": {"image": 16, "width": 25},
    "taso/nasnet_a": {"image": 32, "width": 12, "cells": 1},
    "taso/nasrnn": {"steps": 3, "hidden": 16},
    "taso/inceptionv3": {"image": 75, "width": 25, "batch": 1},
    "taso/bert": {"batch": 1, "seq": 8, "layers": 2, "hidden": 32, "heads": 4},
}  # fmt: skip
# Random integer inputs are below these: vocabularies of the small models, segments, positions.
_INTEGER_LIMITS = {"input_ids": 50, "token_type_ids": 2, "position_ids": 100, "labels": 10, "image_tokens": 50}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model_name" in metafunc.fixturenames:
        metafunc.parametrize("model_name", zoo.names())


@pytest.fixture(scope="session")
def sizes() -> dict[str, dict[str, Any]]:
    """The options of every model's small variant."""
    return SMALL


@pytest.fixture(scope="session")
def small() -> Callable[..., onnx.ModelProto]:
    """small(name, **sizes): the zoo model at test size. A repeated request gives the same object: change no result."""
    built: dict[tuple[Any, ...], onnx.ModelProto] = {}

    def make(name: str, **sizes: Any) -> onnx.ModelProto:
        key = name, *sorted(sizes.items())
        if key not in built:
            built[key] = zoo.build(name, **{**SMALL[name], **sizes})
        return built[key]

    return make


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
