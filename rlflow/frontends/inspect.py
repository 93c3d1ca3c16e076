"""What a model file says about itself, without importing it: inputs and outputs, operator counts, sizes, operators
outside the table.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import onnx

from rlflow.frontends import canonical, inference, scopes, storage
from rlflow.frontends.symbolic import Dim, unquote


class ValueSummary(NamedTuple):
    """A graph input or output: name, element type as ONNX calls it ("float", "int64", …), dimensions (None: rank
    unknown).
    """

    name: str
    dtype: str
    shape: list[Dim] | None


class ModelInterface(NamedTuple):
    """Inputs (without initialisers) and outputs of a model, in order."""

    inputs: list[ValueSummary]
    outputs: list[ValueSummary]


def io(model: onnx.ModelProto) -> ModelInterface:
    """The names, types and shapes of a model's inputs and outputs; a symbolic dimension is its name, an unnamed one
    None.
    """
    initialised = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in initialised]
    return ModelInterface([_summary(info) for info in inputs], [_summary(info) for info in model.graph.output])


def _summary(info: onnx.ValueInfoProto) -> ValueSummary:
    dtype, shape = inference.type_of(info)
    kind = info.type.WhichOneof("value") or "unknown"
    name = (
        onnx.TensorProto.DataType.Name(dtype).lower() if kind == "tensor_type" and dtype else kind.removesuffix("_type")
    )
    return ValueSummary(
        info.name, name, None if shape is None else [unquote(dim) if isinstance(dim, str) else dim for dim in shape]
    )


def operator_counts(model: onnx.ModelProto, *, bodies: bool = True) -> Counter[str]:
    """How often each operator occurs ("domain.Name" outside ONNX's own), bodies of If, Loop and Scan included unless
    ``bodies`` is False.
    """
    counts: Counter[str] = Counter()

    def count(node: onnx.NodeProto) -> None:
        domain = scopes.domain_of(node)
        counts[f"{domain}.{node.op_type}" if domain else node.op_type] += 1

    if bodies:
        scopes.walk(model.graph, count)
    else:
        for node in model.graph.node:
            count(node)
    return counts


def foreign_operators(model: onnx.ModelProto) -> Counter[str]:
    """Operators of the main graph that the operator table does not know: they are carried as they are and never
    rewritten.
    """
    known = {"Constant", "Identity", "Dropout", "Upsample", "Scatter", "CastLike"}
    counts = operator_counts(model, bodies=False)
    return Counter({op: count for op, count in counts.items() if op not in known and canonical.row(op) is None})


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the main graph's initialisers, those in external files included."""
    return storage.weight_bytes(model)


def opset(model: onnx.ModelProto) -> int | None:
    """The version of the default domain that the model imports, or None."""
    return scopes.opset_versions(model).get("")
