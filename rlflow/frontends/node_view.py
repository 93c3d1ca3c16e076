"""An ONNX node as the adaptors read it: attributes in Python values, operands with what is known about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import onnx
from onnx import helper

from rlflow.frontends import canonical
from rlflow.frontends.canonical import Declined
from rlflow.frontends.constants import Array
from rlflow.frontends.symbolic import Dim
from rlflow.graph import GraphBuilder
from rlflow.ops import extension_of

ABSENT = -1
_PLAIN = frozenset(
    onnx.AttributeProto.AttributeType.Value(name) for name in ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
)


class Constants(Protocol):
    """Where a view finds the elements of constants."""

    def array(self, value: int) -> Array | None:
        """The elements of a constant of the file by its value id, or None."""


class NodeView:
    """A node that is being read: the :class:`~rlflow.frontends.forms.Source` of the adaptors."""

    def __init__(
        self,
        node: onnx.NodeProto,
        values: Sequence[int],
        opset: int,
        used: Collection[str],
        builder: GraphBuilder,
        constants: Constants,
    ) -> None:
        self._builder = builder
        self._constants = constants
        self._values = values
        added = extension_of(node.domain, node.op_type)
        self.op = node.op_type if added is None else added.name
        self.opset = opset
        self.attrs: Mapping[str, Any] = attributes(node, opset)
        self.inputs = len(values)
        read = [index for index, name in enumerate(node.output) if name in used]
        variadic = "variadic_outputs" in canonical.flags(self.op)
        self.outputs = len(node.output) if variadic else read[-1] + 1 if read else 1
        self.declared = sum(1 for name in node.output if name)

    def has(self, slot: int) -> bool:
        return slot < len(self._values) and self._values[slot] != ABSENT

    def const(self, slot: int) -> Array | None:
        return self._constants.array(self._values[slot]) if self.has(slot) else None

    def ints(self, slot: int) -> list[Dim] | None:
        if not self.has(slot):
            return None
        array = self.const(slot)
        if array is not None and array.size <= 1024 and array.dtype.kind in "iu":
            return [int(value) for value in array.reshape(-1)]
        return self._builder.data(self._values[slot])

    def shape(self, slot: int) -> list[Dim] | None:
        return self._builder.shape(self._values[slot]) if self.has(slot) else None

    def dtype(self, slot: int) -> int:
        return self._builder.dtype(self._values[slot]) if self.has(slot) else 0


def attributes(node: onnx.NodeProto, opset: int) -> dict[str, Any]:
    """Attribute -> Python value; a tensor is an array. Raises Declined for what only an opaque node can carry."""
    values: dict[str, Any] = {}
    known = canonical.schema(node.op_type, opset)
    wanted = {} if known is None else known.attributes
    for attribute in node.attribute:
        expected = wanted.get(attribute.name)
        if expected is not None and expected.type.value != attribute.type:  # type: ignore[attr-defined]
            raise Declined(f"attribute '{attribute.name}' is of another type than its operator has it")
        if attribute.ref_attr_name:
            raise Declined("an attribute refers to one of an enclosing function")
        if attribute.type == onnx.AttributeProto.TENSOR:
            values[attribute.name] = _array(attribute)
        elif attribute.type in _PLAIN:
            values[attribute.name] = canonical.python_value(helper.get_attribute_value(attribute))
        else:
            raise Declined(f"attribute '{attribute.name}' is a graph, a type or a sparse tensor")
    return values


def _array(attribute: onnx.AttributeProto) -> Any:
    try:
        return onnx.numpy_helper.to_array(attribute.t)
    except (KeyError, TypeError, ValueError) as error:
        raise Declined(f"the tensor of attribute '{attribute.name}' cannot be read: {error}") from error
