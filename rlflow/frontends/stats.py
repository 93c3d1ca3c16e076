"""What a paper's table prints about a network: its parameters, its products, its operators, its inputs and outputs.

All are computed from the ModelProto alone; weights are never read, only their shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import NamedTuple

import onnx
from onnx import helper

from rlflow import forks
from rlflow.errors import ModelError
from rlflow.frontends.inference import bare_model, inferred_apart

_FLOATING = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
)
_Shapes = dict[str, tuple[int, ...]]


class ModelStats(NamedTuple):
    """``parameters``: trainable numbers; ``macs``: multiply-accumulates of one run (a product and its sum are 1)."""

    parameters: int
    macs: int


def stats(model: onnx.ModelProto) -> ModelStats:
    """Parameters and multiply-accumulates of ``model``'s main graph.

    Parameters are the elements of all floating-point initialisers, each counted once however often it is used, without
    the running mean and variance of BatchNormalization: training estimates them but no gradient reaches them, and no
    paper counts them. Numbers in Constant nodes are not parameters. Multiply-accumulates are those of Conv,
    ConvTranspose, MatMul and Gemm (without bias additions); no other operator, and no subgraph, is counted, as in the
    published figures for convolutional networks.

    Raises ModelError where a shape that is needed cannot be inferred as integers (a symbolic dimension, for example).
    """
    shapes = _static_shapes(model)
    return ModelStats(_count_parameters(model.graph), sum(count_macs(node, shapes) for node in model.graph.node))


class ModelDescription(NamedTuple):
    """A row of a table of models. ``operators``: how often each operator occurs, the most frequent first, without the
    constants; ``inputs`` and ``outputs``: name, dimensions and element type of each, as one phrase."""

    parameters: int
    macs: int
    operators: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """Number of operators."""
        return sum(self.operators.values())


def describe(model: onnx.ModelProto) -> ModelDescription:
    """The row of ``model``. Weights are not read. Raises ModelError as stats() does."""
    counted = Counter(node.op_type for node in model.graph.node if node.op_type != "Constant")
    operators = dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = (info for info in model.graph.input if info.name not in weights)
    return ModelDescription(*stats(model), operators, _phrases(inputs), _phrases(model.graph.output))


def _phrases(infos: Iterable[onnx.ValueInfoProto]) -> tuple[str, ...]:
    return tuple(f"{info.name} {_phrase(info.type.tensor_type)}" for info in infos)


def _phrase(tensor: onnx.TypeProto.Tensor) -> str:
    dims = ", ".join(dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim)
    return f"[{dims}] {helper.tensor_dtype_to_np_dtype(tensor.elem_type)}"


def infer_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The inferred type of each value of the main graph by name, initialisers included; untypable values are left out.

    Works on a copy without the large weights, so that it costs the same for a 1 MB and a 1 GB model.
    Raises ModelError where the shapes contradict each other.
    """
    try:
        inferred = inferred_apart(bare_model(model), strict=True, numbers=True)
    except forks.Failed as error:
        raise ModelError(f"While inferring the shapes of model '{model.graph.name}': {error}") from error
    infos = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
    types = {info.name: info.type for info in infos if info.type.WhichOneof("value") is not None}
    types.update({tensor.name: _tensor_type(tensor) for tensor in inferred.graph.initializer})
    return types


def _tensor_type(tensor: onnx.TensorProto) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))


def _static_shapes(model: onnx.ModelProto) -> _Shapes:
    """The shapes of all values whose dimensions are all known integers."""
    shapes: _Shapes = {}
    for name, value_type in infer_types(model).items():
        tensor = value_type.tensor_type
        if not tensor.HasField("shape"):
            continue
        if all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            shapes[name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return shapes


def _count_parameters(graph: onnx.GraphProto) -> int:
    buffers = set(_running_statistics(graph))
    counted = (tensor for tensor in graph.initializer if tensor.data_type in _FLOATING and tensor.name not in buffers)
    return sum(prod(tensor.dims) for tensor in counted)


def _running_statistics(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            yield from node.input[3:5]


def count_macs(node: onnx.NodeProto, shapes: _Shapes) -> int:
    """Multiply-accumulates of one node. Raises ModelError where a shape that is needed is not in ``shapes``."""
    count = _MACS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if count is None:
        return 0
    try:
        return count(node, shapes)
    except KeyError as missing:
        raise ModelError(
            f"While counting the products of node '{node.name}' ({node.op_type}): the shape of value {missing} is not "
            "known as integers; give every dynamic dimension a size first."
        ) from missing


def _conv(node: onnx.NodeProto, shapes: _Shapes) -> int:
    # The weight is [C_out, C_in / group, *kernel]: its trailing part is exactly what one output element sums over.
    return prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])


def _conv_transpose(node: onnx.NodeProto, shapes: _Shapes) -> int:
    # The weight is [C_in, C_out / group, *kernel]: each *input* element is spread over its trailing part.
    return prod(shapes[node.input[0]]) * prod(shapes[node.input[1]][1:])


def _matmul(node: onnx.NodeProto, shapes: _Shapes) -> int:
    return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: onnx.NodeProto, shapes: _Shapes) -> int:
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]


_MACS: dict[str, Callable[[onnx.NodeProto, _Shapes], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
