"""ONNX models as taso graphs, and TASO's table of importers, which scripts may extend.

Models go through rlflow's frontend, which takes any ONNX model. Only where a script has put its own function into
``xf_operators`` for an operator that the model uses, the model is read node by node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlflow.compat.taso.arguments import is_integer
from rlflow.compat.taso.names import FLOAT
from rlflow.compat.taso.onnx_export import opset_of
from rlflow.compat.taso.pygraph import PyGraph
from rlflow.compat.taso.store import Dim, PyTensor, Store
from rlflow.errors import GraphError, ModelError, UsageError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

Handler = Callable[..., Any]
_OLDEST_NODEWISE = 11


class InputNotFoundError(ModelError):
    """A node reads a value that nothing before it makes."""


def load_onnx(
    filename: str | os.PathLike[str] | bytes | ModelProto, *, dims: Mapping[str, int] | None = None
) -> PyGraph:
    """A graph of an ONNX model, of any opset from 7 on and any operators; weights keep their elements.

    ``dims`` sets symbolic dimensions for good; others stay symbolic. Raises ModelError for what is not a usable model.
    """
    from rlflow.frontends import baseline, load_model

    if dims is not None and not (isinstance(dims, Mapping) and all(map(is_integer, dims.values()))):
        raise UsageError(f'taso: load_onnx(): dims={dims!r}; expected a mapping such as {{"N": 1}}.')
    imported = load_model(filename, freeze=dims)
    model = imported.origin.model
    own = {op: handler for op, handler in xf_operators.items() if handler is not import_node}
    if any(node.op_type in own for node in model.graph.node):
        return _load_nodewise(model, imported.origin.base_dir)
    names = [] if imported.passthrough else [info.name for info in model.graph.output]
    return PyGraph._of(imported, baseline(imported), names)


def _check_output(taso_output: Any, onnx_output: str | ValueInfoProto) -> bool:
    """Whether a tensor can stand for an ONNX value, given by its name or by its type (a ValueInfoProto).

    TASO's importers ask this of every result; there the answer was always yes. An unknown type or extent agrees with
    any.
    """
    if not isinstance(taso_output, PyTensor):
        return False
    if isinstance(onnx_output, str):
        return bool(onnx_output)
    wanted = onnx_output.type.tensor_type
    if wanted.elem_type and taso_output.dtype and wanted.elem_type != taso_output.dtype:
        return False
    shape = taso_output.shape
    if shape is None or not wanted.HasField("shape"):
        return True
    extents = [one.dim_value if one.HasField("dim_value") else None for one in wanted.shape.dim]
    return len(extents) == len(shape) and all(
        there is None or not isinstance(here, int) or here == there for here, there in zip(shape, extents, strict=True)
    )


# --- node by node ---------------------------------------------------------------------------------------------------


def import_node(
    op: NodeProto, graph: PyGraph, tensors: Mapping[str, PyTensor], initializer: Sequence[TensorProto]
) -> list[PyTensor]:
    """The importer that ``xf_operators`` holds for every operator: adds the node to the graph and returns its results.

    ``tensors``: values by name. ``initializer`` is taken because TASO's importers take it. Raises GraphError for an
    operator that ONNX does not have, and for one with a body.
    """
    from rlflow.frontends import load_model
    from rlflow.frontends.builder import ModelBuilder

    store = graph._store
    builder = ModelBuilder(op.op_type, opset=store.opset)
    given: dict[str, PyTensor] = {}
    operands = []
    for place, name in enumerate(op.input):
        operands.append(name and _operand(builder, graph, f"x{place}", _lookup(op, name, tensors), given))
    while operands and not operands[-1]:
        operands.pop()
    attrs = {attribute.name: _attribute(op, attribute) for attribute in op.attribute}
    for output in builder.node_outputs(op.op_type, operands, len(op.output), **attrs):
        builder.output(output)
    imported = load_model(builder.build())
    return store.splice(imported.graph, imported.constants, given)


def _operand(builder: Any, graph: PyGraph, name: str, tensor: PyTensor, given: dict[str, PyTensor]) -> str:
    from rlflow.frontends.constants import numpy_dtype

    record = graph._store.records[tensor.tensor[0]]
    if record.type == "Weight":
        return str(builder.parameter(name, graph._elements(record)))
    if tensor.shape is None or not tensor.dtype:
        raise GraphError(f"taso: the rank or type of operand {name} of {builder.name} is not known; expected both.")
    given[name] = tensor
    shape = [f"{name}_{axis}" if dim is None else dim for axis, dim in enumerate(tensor.shape)]
    return str(builder.input(name, numpy_dtype(tensor.dtype), shape))


def _attribute(op: NodeProto, attribute: Any) -> Any:
    """The value of an AttributeProto, by its type's number."""
    fields = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings", 9: "tensors"}
    if attribute.type not in fields:
        raise GraphError(
            f"taso: node {op.name!r} ({op.op_type}) has the attribute {attribute.name!r}, a body or another kind that "
            "cannot be read by itself; put an importer for it into xf_operators, or none at all."
        )
    value = getattr(attribute, fields[attribute.type])
    return list(value) if attribute.type >= 6 else value


def _lookup(op: NodeProto, name: str, tensors: Mapping[str, PyTensor]) -> PyTensor:
    if name not in tensors:
        raise InputNotFoundError(
            f"taso: while loading node {op.name!r} ({op.op_type}): nothing before it makes its operand {name!r}."
        )
    return tensors[name]


def _load_nodewise(model: ModelProto, base_dir: str) -> PyGraph:
    """A model read with the functions of ``xf_operators``."""
    opset = opset_of(model)
    if opset < _OLDEST_NODEWISE:
        raise UsageError(
            f"taso: xf_operators were changed, which needs a model of opset {_OLDEST_NODEWISE} or newer; found {opset}."
        )
    graph = PyGraph()
    graph._store.opset = opset
    tensors = _initial_tensors(graph._store, model, base_dir)
    initializers = list(model.graph.initializer)
    for node in model.graph.node:
        for name in filter(None, node.input):
            _lookup(node, name, tensors)
        made = xf_operators.get(node.op_type, import_node)(node, graph, tensors, initializers)
        results = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(results) < len(node.output):
            raise GraphError(
                f"taso: the importer of {node.op_type} returned {len(results)} tensors for node {node.name!r}, "
                f"which has {len(node.output)} outputs."
            )
        tensors.update({name: tensor for name, tensor in zip(node.output, results, strict=False) if name})
    names = [info.name for info in model.graph.output]
    missing = [name for name in names if name not in tensors]
    if missing:
        raise InputNotFoundError(f"taso: nothing makes the model's outputs {missing}.")
    graph._store.settle()
    graph._store.pin([tensors[name] for name in names], names)
    return graph


def _initial_tensors(store: Store, model: ModelProto, base_dir: str) -> dict[str, PyTensor]:
    tensors = {}
    for proto in model.graph.initializer:
        digest = store.constants.put_proto(proto, base_dir)
        tensors[proto.name] = store.weight(store.constants[digest], proto.name)
    for info in model.graph.input:
        if info.name not in tensors:
            tensors[info.name] = store.input(*_input_type(info), info.name)
    return tensors


def _input_type(info: ValueInfoProto) -> tuple[list[Dim] | None, int]:
    """Extents and element type of a model's input: (None, 0) for a sequence or an optional."""
    if not info.type.HasField("tensor_type"):
        return None, 0
    kind = info.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in kind.shape.dim]
    return dims if kind.HasField("shape") else None, kind.elem_type or FLOAT


_OPERATORS = (
    "Add", "ArgMax", "ArgMin", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Concat", "Constant",
    "Conv", "Div", "Dropout", "Equal", "Exp", "Flatten", "Gemm", "GlobalAveragePool", "Greater", "Identity",
    "LeakyRelu", "Less", "Log", "MatMul", "Max", "MaxPool", "Min", "Mul", "Not", "PRelu", "Pad", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Shape", "Size", "Slice",
    "Split", "Sqrt", "Squeeze", "StridedSlice", "Sub", "Sum", "Transpose", "Unsqueeze",
)  # fmt: skip
#: ONNX operator -> ``f(op, graph, tensors, initializer)``, which adds the node and returns its result or results.
xf_operators: dict[str, Handler] = dict.fromkeys(_OPERATORS, import_node)
