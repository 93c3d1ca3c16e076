"""Core nodes as ONNX nodes: names, constants and computed shapes, for one opset. Saving and stand-alone models both
build on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rlflow.errors import GraphError
from rlflow.frontends import canonical, scopes, symbolic
from rlflow.frontends.canonical import Declined, Form, Target
from rlflow.frontends.constants import (
    Array,
    ConstantStore,
    Template,
    array_to_proto,
    constant_array,
    is_float,
    onnx_dtype,
)
from rlflow.frontends.symbolic import Dim
from rlflow.graph import Graph
from rlflow.ops import extension_of

DOUBLE = int(onnx.TensorProto.DOUBLE)
# The first opset whose Shape reads a part of the axes.
_SHAPE_OF_SOME_AXES = 15
# Attributes whose value is an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype"})
# Operators that compute in the type that an attribute names: widened, they do it in double precision.
_STASHING = frozenset({"GroupNormalization"})


class UniqueNames:
    """Fresh names ``rlflow_{stem}_{k}`` that differ from all names taken before."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Reserves a name; False where it is taken already."""
        free = name not in self._taken
        self._taken.add(name)
        return free

    def fresh(self, stem: str) -> str:
        """Reserves and returns the next free name of a stem."""
        while True:
            index = self._next.get(stem, 0)
            self._next[stem] = index + 1
            name = f"rlflow_{stem}_{index}"
            if self.take(name):
                return name


class Emitter:
    """Writes nodes of ``graph`` for ``opset`` into ``nodes`` and ``initializers``, naming values by ``value_names``.

    ``widen``: everything in floating point becomes double precision, as the evaluator wants it.
    """

    def __init__(
        self,
        graph: Graph,
        opset: int,
        names: UniqueNames,
        constants: ConstantStore | None = None,
        *,
        widen: bool = False,
    ) -> None:
        self.graph = graph
        self.opset = opset
        self.names = names
        self.constants = constants
        self.widen = widen
        self.value_names: dict[int, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._operands: dict[tuple[int, tuple[int, ...], bytes], str] = {}
        self._dims: dict[str, str] = {}
        self._shapes: dict[int, str] = {}

    # -- values

    def name(self, value: int) -> str:
        """A value's name; "" for an absent operand."""
        return "" if value < 0 else self.value_names[value]

    def constant(self, array: Array) -> str:
        """The name of an initialiser with these elements; equal ones are shared."""
        elements = np.asarray(array)
        dtype = onnx_dtype(elements)
        key = (dtype, elements.shape, elements.tobytes())
        if key not in self._operands:
            name = self.names.fresh("Constant")
            self.initializers.append(array_to_proto(self.widened(elements, dtype), name))
            self._operands[key] = name
        return self._operands[key]

    def widened(self, array: Array, dtype: int) -> Array:
        """The array, in double precision where this emitter widens and it holds floats."""
        return array.astype(np.float64) if self.widen and is_float(dtype) else array

    def element_type(self, dtype: int) -> int:
        """The element type that values of ``dtype`` have in the written model."""
        return DOUBLE if self.widen and is_float(dtype) else dtype

    def dims(self, values: Sequence[Dim]) -> str:
        """The name of a 1-D int64 tensor of dimensions; symbolic ones are computed from the shapes of the graph's
        inputs.
        """
        if symbolic.is_plain(values):
            return self.constant(np.asarray(values, np.int64).reshape(len(values)))
        if not symbolic.is_known(values):
            raise Declined("a dimension that it needs is not known")
        for name in symbolic.names(values):
            self._place(name)  # before anything is written: all of them can be read, or none is
        pieces = [
            self._computed(dim) if isinstance(dim, str) else self.constant(np.asarray([dim], np.int64))
            for dim in values
        ]
        return pieces[0] if len(pieces) == 1 else self._plain_node("Concat", pieces, axis=0)

    def _computed(self, dim: str) -> str:
        total = ""
        for monomial, coefficient in sorted(symbolic.parse(dim).items()):
            factors = [self._symbol(name) for name in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, self.constant(np.asarray([coefficient], np.int64)))
            piece = factors[0]
            for factor in factors[1:]:
                piece = self._plain_node("Mul", [piece, factor])
            total = self._plain_node("Add", [total, piece]) if total else piece
        return total or self.constant(np.zeros(1, np.int64))

    def _symbol(self, name: str) -> str:
        """A [1] tensor with the size of a named dimension, read from the first graph input that has it."""
        if name not in self._dims:
            value, axis = self._place(name)
            if self.opset >= _SHAPE_OF_SOME_AXES:
                self._dims[name] = self._plain_node("Shape", [self.name(value)], start=axis, end=axis + 1)
            else:
                if value not in self._shapes:
                    self._shapes[value] = self._plain_node("Shape", [self.name(value)])
                index = self.constant(np.asarray([axis], np.int64))
                self._dims[name] = self._plain_node("Gather", [self._shapes[value], index], axis=0)
        return self._dims[name]

    def _place(self, name: str) -> tuple[int, int]:
        """(graph input, axis) of the first that has a named dimension; raises Declined where none has."""
        for node in self.graph.inputs():
            value = self.graph.node_outputs(node)[0]
            for axis, dim in enumerate(self.graph.shape(value) or ()):
                if isinstance(dim, str) and symbolic.unquote(dim) == name:
                    return value, axis
        raise Declined(f"dimension '{name}' that it needs is not one of the graph's inputs")

    def _plain_node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        name = self.names.fresh(op)
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    # -- nodes

    def target(self, node: int, inputs: Sequence[str] | None = None) -> Target:
        """A node of the graph for the adaptors; ``inputs`` overrides the names of its operands."""
        graph = self.graph
        operands = graph.node_inputs(node)
        return Target(
            op=graph.op(node),
            opset=self.opset,
            attrs=graph.attrs(node),
            inputs=[self.name(value) for value in operands] if inputs is None else inputs,
            shapes=[None if value < 0 else graph.shape(value) for value in operands],
            dtypes=[0 if value < 0 else self.element_type(graph.dtype(value)) for value in operands],
            outputs=len(graph.node_outputs(node)),
            constant=self.constant,
            dims=self.dims,
            known=lambda slot: self._known(operands[slot]),
            strict=not self.widen,
        )

    def _known(self, value: int) -> Array | None:
        producer = self.graph.producer(value) if value >= 0 else -1
        if producer < 0 or self.graph.op(producer) != "Constant":
            return None
        return constant_array(self.graph, producer, self.constants)

    def form(self, node: int) -> Form:
        """How the opset writes a node. Raises GraphError naming the node where it cannot."""
        try:
            form = canonical.write(self.target(node))
        except Declined as declined:
            raise GraphError(
                f"While writing node {node} ({self.graph.op(node)}) for opset {self.opset}: {declined}."
            ) from declined
        attrs = self._widened_attrs(form.attrs)
        return replace(form, attrs={**attrs, "stash_type": DOUBLE} if self.widen and form.op in _STASHING else attrs)

    def _widened_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._widened_attr(name, value) for name, value in attrs.items()}

    def _widened_attr(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return array_to_proto(self.widened(value, onnx_dtype(value)), name)
        return self.element_type(value) if name in _TYPE_ATTRIBUTES and isinstance(value, int) else value

    def emit(self, node: int, outputs: Sequence[str], label: str = "") -> onnx.NodeProto:
        """Appends a node in the opset's form, with these output names, and returns it."""
        form = self.form(node)
        proto = make_node(form, outputs, label)
        self.nodes.append(proto)
        return proto

    def emit_template(self, template: Template, node: int, outputs: Sequence[str], label: str = "") -> onnx.NodeProto:
        """Appends the original node behind an opaque operator, reading this node's operands. A captured value whose
        new name a body has for something of its own gets one more name, by an Identity.
        """
        proto = onnx.NodeProto()
        proto.CopyFrom(template.node)
        inputs = [self.name(value) for value in self.graph.node_inputs(node)]
        del proto.input[:], proto.output[:]
        proto.input.extend(inputs[: template.inputs])
        proto.output.extend(outputs)
        renamed = {
            old: new for old, new in zip(template.captured, inputs[template.inputs :], strict=True) if old != new
        }
        if renamed:
            hidden = scopes.own_names(proto)
            seen = {new: self._plain_node("Identity", [new]) if new in hidden else new for new in renamed.values()}
            scopes.rename_captures(proto, {old: seen[new] for old, new in renamed.items()})
        proto.name = label
        self.nodes.append(proto)
        return proto


def make_node(form: Form, outputs: Sequence[str], label: str = "") -> onnx.NodeProto:
    """A NodeProto of a form. Empty lists are written with the type that the operator's schema wants."""
    proto = onnx.NodeProto(
        op_type=form.op, domain=form.domain or None, name=label, input=list(form.inputs), output=list(outputs)
    )
    for name, value in sorted(form.attrs.items()):
        if value is None:
            continue
        attribute = proto.attribute.add()
        attribute.CopyFrom(_attribute(name, value))
    return proto


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, str):
        return helper.make_attribute(name, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list) and value and all(isinstance(item, (int, float)) for item in value):
        floats = any(isinstance(item, float) for item in value)
        kind = onnx.AttributeProto.FLOATS if floats else onnx.AttributeProto.INTS
        return helper.make_attribute(name, [float(item) for item in value] if floats else value, attr_type=kind)
    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS)
    if isinstance(value, list):
        return helper.make_attribute(name, [item.encode("utf-8", "surrogateescape") for item in value])
    return helper.make_attribute(name, value)


def added_domains(nodes: Iterable[onnx.NodeProto]) -> dict[str, int]:
    """Domain -> version of the nodes that stand for operators that were added to the table."""
    found = (extension_of(node.domain, node.op_type) for node in nodes if scopes.domain_of(node))
    return {added.domain: added.version for added in found if added is not None}


def expressible(graph: Graph, opset: int, nodes: Iterable[int] | None = None) -> str | None:
    """Why a graph (or only ``nodes`` of it) cannot be written for a default-domain opset, or None where it can.

    Nothing is written; opaque nodes are taken to be of that opset already.
    """
    probe = Emitter(graph, opset, UniqueNames())
    probe.value_names = _AnyName()
    for node in graph.order() if nodes is None else nodes:
        op = graph.op(node)
        if op in ("Input", "Constant", "Opaque"):
            continue
        try:
            canonical.write(probe.target(node))
        except Declined as declined:
            return f"{op} (node {node}) at opset {opset}: {declined}"
    return None


class _AnyName(dict[int, str]):
    """Names for values that are only asked whether they are there."""

    def __missing__(self, value: int) -> str:
        return f"v{value}"


def operator_opset(op: str) -> int | None:
    """The first opset in which an operator of the table can be written in some form, or None for one that it does not
    know.
    """
    table = canonical.row(op)
    return None if table is None else int(table["since"])
