"""Which program a runtime made of a model: the same for models that it optimises to the same kernels."""

from __future__ import annotations

import functools
import hashlib

import onnx
from onnx import defs, helper, numpy_helper

from rlflow.errors import ModelError
from rlflow.frontends.opening import parse_model

__all__ = ["program_digest"]

#: Integer constants of at most so many elements (shapes, axes, bounds of slices) are part of the program.
_FEW = 64
#: Where ONNX Runtime keeps the operators of its blocked layout.
_BLOCKED = "com.microsoft.nchwc"


def program_digest(content: bytes) -> str:
    """A digest of the kernels in ``content`` (a serialized ONNX model, as a runtime saves what it executes): their
    operators, attributes and order, what feeds what, and the types of inputs and constants. Names do not matter, nor
    what is in the weights; the elements of scalars and of small integer tensors do.

    Raises :class:`ModelError` where ``content`` is no model, or holds subgraphs.
    """
    model = parse_model(content, "what the runtime made of a model")
    if not model.graph.output:
        raise ModelError("What the runtime made of a model has no outputs.")
    hasher = hashlib.blake2b(digest_size=16)
    values: dict[str, str] = {"": "-"}
    for number, info in enumerate(model.graph.input):
        values[info.name] = f"input {number} {info.type.SerializeToString(deterministic=True).hex()}"
    for tensor in model.graph.initializer:
        values[tensor.name] = _constant(tensor)
    for number, node in enumerate(model.graph.node):
        attributes = sorted(_attribute(one) for one in node.attribute if not _is_default(node, one))
        operands = [values[name] for name in node.input]
        hasher.update(repr((node.domain, node.op_type, attributes, operands, len(node.output))).encode())
        values.update({name: f"value {number}.{slot}" for slot, name in enumerate(node.output) if name})
    hasher.update(repr([values[info.name] for info in model.graph.output]).encode())
    return hasher.hexdigest()


def _is_default(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> bool:
    """Whether the attribute says what holds without it: a runtime writes it for some models and not for others."""
    schema = _schema(node.op_type, node.domain)
    default = None if schema is None or attribute.name not in schema.attributes else schema.attributes[attribute.name]
    if default is None or not default.default_value.name:
        return False
    return bool(helper.get_attribute_value(default.default_value) == helper.get_attribute_value(attribute))


@functools.cache
def _schema(operator: str, domain: str) -> defs.OpSchema | None:
    """The newest definition; the runtime's own blocked operators take their attributes from the standard ones."""
    known = "" if domain == _BLOCKED else domain
    return defs.get_schema(operator, known) if defs.has(operator, known) else None


def _attribute(attribute: onnx.AttributeProto) -> tuple[str, str]:
    if attribute.HasField("g") or attribute.graphs:
        raise ModelError(f"What the runtime made of a model holds a subgraph ({attribute.name}).")
    return attribute.name, attribute.SerializeToString(deterministic=True).hex()


def _constant(tensor: onnx.TensorProto) -> str:
    kind = f"constant {tensor.data_type} {list(tensor.dims)}"
    size = 1
    for dim in tensor.dims:
        size *= dim
    integer = tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    if size == 1 or (integer and size <= _FEW):
        return f"{kind} {numpy_helper.to_array(tensor).ravel().tolist()}"
    return kind
