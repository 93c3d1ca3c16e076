"""Small models for the tests of this folder, and the runtime to run them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Mapping[str, Any] | None = None,
    opset: int = 17,
    ir_version: int = 8,
    **fields: Any,
) -> onnx.ModelProto:
    """A model of the default domain; ``initializers``: name -> array."""
    tensors = [tensor(name, array) for name, array in (initializers or {}).items()]
    graph = helper.make_graph(list(nodes), "main", list(inputs), list(outputs), tensors)
    imports = [helper.make_opsetid("", opset), *fields.pop("more_opsets", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, **fields)


def run(built: onnx.ModelProto | str, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs in ONNX Runtime, without its graph optimisations, so that what is tested is the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = built if isinstance(built, str) else built.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def node_names(built: onnx.ModelProto) -> list[str]:
    return [node.name for node in built.graph.node]
