"""What ONNX itself can say about a model cheaply: value types by shape inference, and complaints by its checker.

Both work on a copy in which each large initialiser is a graph input, so that they cost the same for a 1 MB and a 1 GB
model.
"""

from __future__ import annotations

import functools
from math import prod

import onnx
from onnx import helper

from rlflow import forks
from rlflow.frontends import symbolic
from rlflow.frontends.dimensions import Symbols
from rlflow.frontends.symbolic import Dim

# Larger tensors are never shapes, axes or pads, which are all that inference reads.
_SHAPE_LIKE_ELEMENTS = 1024
_BODIES = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
ValueType = tuple[int, list[Dim] | None]
UNKNOWN: ValueType = (0, None)


def bare_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the elements of large initialisers; they are graph inputs of the same type."""
    bare = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    graph = model.graph
    bare.graph.name = graph.name or "graph"
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    bare.graph.output.extend(graph.output)
    bare.graph.value_info.extend(graph.value_info)
    listed = {info.name for info in graph.input}
    for tensor in graph.initializer:
        if prod(tensor.dims) <= _SHAPE_LIKE_ELEMENTS and tensor.data_location != onnx.TensorProto.EXTERNAL:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            bare.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    _forget_negative_extents(bare.graph)
    return bare


def _forget_negative_extents(graph: onnx.GraphProto) -> None:
    """Old exporters write -1 for an extent that is not known; inference of a Slice within a Scan aborts on it."""
    for info in (*graph.input, *graph.value_info, *graph.output):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_value < 0:
                dim.Clear()
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.type in _BODIES else ():
                _forget_negative_extents(body)


def name_dimensions(bare: onnx.ModelProto, symbols: Symbols) -> None:
    """Gives unnamed dimensions of inputs their names, so that they are still these behind other operators."""
    infos = {info.name: info for info in bare.graph.input}
    for symbol, place in symbols.items():
        if place is not None:
            infos[place[0]].type.tensor_type.shape.dim[place[1]].dim_param = symbol


def complaint(bare: onnx.ModelProto) -> str | None:
    """What onnx's checker finds wrong with a bare model, in one line, or None."""
    try:
        onnx.checker.check_model(bare)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return None


def infer(bare: onnx.ModelProto, symbols: frozenset[str]) -> tuple[dict[str, ValueType], str | None]:
    """Types of the main graph's values by name, and why there are fewer than could be (None where nothing went wrong).

    Inference invents names for dimensions that it does not know; only those in ``symbols`` are kept.
    """
    try:
        inferred = _inferred(bare)
    except forks.Failed as error:
        why = str(error).strip().splitlines() or [error.kind]
        return _types(bare.graph, symbols), why[0] if error.kind else f"onnx's inference failed: {why[0]}"
    return _types(inferred.graph, symbols), None


def _inferred(bare: onnx.ModelProto) -> onnx.ModelProto:
    """Inference follows the numbers that shapes are made of; where it would follow a tensor larger than memory, it goes
    without numbers.
    """
    try:
        return inferred_apart(bare, strict=False, numbers=True)
    except forks.Failed as error:
        if error.kind not in ("MemoryError", ""):
            raise
        return inferred_apart(bare, strict=False, numbers=False)


def inferred_apart(bare: onnx.ModelProto, *, strict: bool, numbers: bool) -> onnx.ModelProto:
    """onnx's shape inference, in a copy of this process: it trusts the numbers that it follows, and the wrong ones end
    the process. Raises :class:`forks.Failed`.
    """
    data = bare.SerializeToString()
    infer = _inferred_bytes if len(data) <= _REMEMBERED else _inferred_bytes.__wrapped__
    return onnx.ModelProto.FromString(infer(data, strict, numbers))


#: Bytes of a model whose inference is remembered: that of a body is asked for when it is taken out of its node, and
#: when it is read.
_REMEMBERED = 1 << 20


@functools.lru_cache(maxsize=4)
def _inferred_bytes(data: bytes, strict: bool, numbers: bool) -> bytes:
    def work() -> bytes:
        made: onnx.ModelProto = onnx.shape_inference.infer_shapes(data, strict_mode=strict, data_prop=numbers)
        return made.SerializeToString()

    return forks.apart(work)


def _types(graph: onnx.GraphProto, symbols: frozenset[str]) -> dict[str, ValueType]:
    infos = [*graph.input, *graph.value_info, *graph.output]
    return {info.name: type_of(info, symbols) for info in infos}


def type_of(info: onnx.ValueInfoProto, symbols: frozenset[str] | None = None) -> ValueType:
    """(element type, dimensions) of a value; (0, None) for a sequence, map or optional. Names outside ``symbols`` are
    not known.
    """
    if info.type.WhichOneof("value") != "tensor_type":
        return UNKNOWN
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    return tensor.elem_type, [_dim(dim, symbols) for dim in tensor.shape.dim]


def _dim(dim: onnx.TensorShapeProto.Dimension, symbols: frozenset[str] | None) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    if dim.dim_param and (symbols is None or dim.dim_param in symbols):
        return symbolic.quote(dim.dim_param)
    return None
