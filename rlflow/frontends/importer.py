"""ONNX in: a file, bytes or a ModelProto becomes a core graph, with all that is needed to write it back the way it
came.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import onnx
from onnx import helper

from rlflow.errors import GraphError
from rlflow.frontends import canonical, dimensions, inference, intake, opening, raising, scopes
from rlflow.frontends.canonical import Canonical, Declined
from rlflow.frontends.constants import ConstantStore, Template
from rlflow.frontends.dimensions import Symbols
from rlflow.frontends.imported import ImportedModel, Origin, Provenance, Slot
from rlflow.frontends.inference import UNKNOWN, ValueType
from rlflow.frontends.node_view import NodeView
from rlflow.frontends.opening import Source
from rlflow.frontends.values import Values
from rlflow.graph import Graph, GraphBuilder
from rlflow.ops import extension_of


def load_model(
    source: Source,
    *,
    keep_initializer_inputs: bool = False,
    freeze: Mapping[str, int] | None = None,
    newest_opset: int | None = None,
) -> ImportedModel:
    """Reads an ONNX model: a path, serialised bytes, a ModelProto, an ``onnx_ir.Model`` or an ``ONNXProgram`` of torch;
    none of them is changed.

    ``keep_initializer_inputs``: initialisers that are also graph inputs stay inputs that a caller may override; by
    default they become plain constants, because a runtime cannot fold them otherwise. ``freeze``: symbolic dimension ->
    size, set before anything else; an unnamed dimension is called ``input.axis``, such as ``image.0``.
    ``newest_opset``: rewrites may raise the model's opset as far as that (default: not at all).

    A model that cannot be read as a graph of ONNX's default operators (opset below 7, sparse initialisers, …) has
    ``passthrough`` set. Raises ModelError for what is not a usable model, UsageError for a dimension that the model
    does not have.
    """
    model, path, raw = opening.open_source(source)
    base_dir = "" if path is None else os.path.dirname(os.path.abspath(path))
    external = intake.admit(model, base_dir, opening.place_of(path))
    notes: list[str] = []
    opening.require_graph(model, opening.place_of(path))
    opening.assume_opset(model, notes)
    symbols = dimensions.name_dims(model)
    dimensions.freeze(model, symbols, freeze)
    reason = opening.refusal(model)
    # A file of other domains alone has none, and what is written beside its nodes needs one.
    opset = scopes.opset_versions(model).get("", opening.first_opset(model) if reason is None else 0)
    origin = Origin(model, base_dir, opset)
    if reason is not None:
        return ImportedModel(GraphBuilder().finish([]), ConstantStore(), origin, notes, reason, path, raw, external)
    values = Values(model.graph, origin)
    graph = _Importer(values, symbols, notes).run(keep_initializer_inputs)
    imported = ImportedModel(graph, values.constants, origin, notes, None, path, raw, external)
    raising.allow_opset(imported, newest_opset)
    return imported


class _Importer:
    """Reads the nodes of a model, one by one, in topological order."""

    def __init__(self, values: Values, symbols: Symbols, notes: list[str]) -> None:
        self.values = values
        self.origin = values.origin
        self.notes = notes
        model = values.origin.model
        self._model = model
        self._bare = inference.bare_model(model)
        self._symbols = symbols
        self._used = _used_names(model.graph)
        self._imported: list[tuple[int, Provenance]] = []
        self._functions = scopes.function_table(model)
        self._pure = scopes.Purity(self._functions)
        self._types: dict[str, ValueType] | None = None
        self._opaque: Counter[str] = Counter()
        self._refused: dict[str, str] = {}
        self._opsets = tuple(sorted(scopes.opset_versions(model).items()))

    def run(self, keep_inputs: bool) -> Graph:
        """The core graph; the origin and the notes are filled."""
        graph = self._model.graph
        complaint = inference.complaint(self._bare)
        if complaint is not None:
            self.notes.append(f"onnx's checker complains about the model: {complaint}")
        nodes = scopes.sort_nodes(graph)
        if any(a is not b for a, b in zip(nodes, graph.node, strict=True)):
            self.notes.append("The nodes were not in topological order; they are sorted.")
        self.values.read_inputs(self._model, self._symbols, keep_inputs, self.notes)
        self.values.read_initializers(self.notes)
        for node in nodes:
            self._read_node(node)
        outputs = [self.values.output(info.name) for info in graph.output]
        result = self.values.builder.finish(outputs)
        self._settle(result)
        return result

    def _settle(self, graph: Graph) -> None:
        """Fills the origin once node ids are known, and tells what was carried opaquely."""
        alive = set(graph.order())
        for value, provenance in self._imported:
            node = graph.producer(value)
            if node in alive and graph.op(node) == provenance.op:
                self.origin.nodes.setdefault(node, replace(provenance, attrs=graph.attrs(node)))
        self.values.settle(graph)
        origin = self.origin
        origin.names = frozenset(scopes.all_names(self._model.graph))
        origin.symbols = frozenset(name for name, place in self._symbols.items() if place is None)
        origin.unnamed = frozenset(self._symbols) - origin.symbols
        if self._opaque:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(self._opaque.items()))
            number = sum(self._opaque.values())
            carried = "1 node is carried as it is" if number == 1 else f"{number} nodes are carried as they are"
            self.notes.append(f"{carried}: {listed}.")
        self.notes.extend(f"{where} is carried as it is, because {reason}." for where, reason in self._refused.items())

    # -- nodes

    def _read_node(self, node: onnx.NodeProto) -> None:
        if not any(node.output):
            return  # nobody can read what it makes
        try:
            known = not scopes.domain_of(node) or extension_of(node.domain, node.op_type) is not None
            if not known or scopes.key_of(node) in self._functions:
                raise Declined("its domain is not ONNX's own")
            if node.op_type == "Constant" and self._read_constant(node):
                return
            operands = [self.values.of(name) for name in node.input]
            view = NodeView(node, operands, self.origin.opset, self._used, self.values.builder, self.values)
            self._add(node, operands, self._canonical(node, view))
        except Declined:
            self._read_opaque(node)

    def _canonical(self, node: onnx.NodeProto, view: NodeView) -> Canonical:
        """The node's canonical form. Raises Declined also where it lacks what its operator cannot do without, or has it
        of another kind. The runtime says what it thinks of such a node, and a note says what was found here.
        """
        try:
            return canonical.read(view)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            reason = f"its operands or attributes are not those of its operator ({type(error).__name__}: {error})"
            self._refused[scopes.describe(node)] = reason
            raise Declined(reason) from error

    def _add(self, node: onnx.NodeProto, values: list[int], form: Canonical) -> None:
        if form.op == "Identity":
            if not form.inputs:
                raise Declined("it lacks an operand")
            self.values.bind(node.output[0], self.values.operand(form.inputs[0], values))
            return None
        operands = [self.values.operand(operand, values) for operand in form.inputs]
        table = canonical.row(form.op) or {}
        wanted = (
            form.outputs
            if "variadic_outputs" in canonical.flags(form.op)
            else max(form.outputs, table.get("outputs", 1))
        )
        try:
            first = self.values.builder.add(form.op, dict(form.attrs), operands, wanted)
        except UnicodeEncodeError as error:
            raise Declined("an attribute of it is not text in UTF-8") from error
        except GraphError as error:
            if form.otherwise is not None:
                return self._add(node, values, form.otherwise)
            self._refused[scopes.describe(node)] = str(error).rstrip(".")
            raise Declined(str(error)) from error
        for index, name in enumerate(node.output[:wanted]):
            if name:
                self.values.bind(name, first + index)
        self._imported.append((first, Provenance(node, form.op, {}, len(operands), self._slots(node, form))))
        return None

    def _slots(self, node: onnx.NodeProto, form: Canonical) -> tuple[Slot, ...] | None:
        where = {operand: index for index, operand in enumerate(form.inputs) if isinstance(operand, int)}
        slots: list[Slot] = []
        for slot, name in enumerate(node.input):
            if slot in where:
                slots.append(where[slot])
            elif not name:
                slots.append(None)
            elif name in self.origin.constants:
                slots.append(name)
            else:
                return None
        return tuple(slots)

    def _read_constant(self, node: onnx.NodeProto) -> bool:
        """Reads a Constant node; False for a sparse one, which stays opaque."""
        for attribute in node.attribute:
            if attribute.name == "value":
                self.values.constant(node.output[0], attribute.t, node)
                return True
            dtype, kind = _CONSTANT_TYPES.get(attribute.name, (0, -1))
            if attribute.type == kind:
                proto = _literal(helper.get_attribute_value(attribute), dtype)
                self.values.constant(node.output[0], proto, node)
                return True
        return False

    def _read_opaque(self, node: onnx.NodeProto) -> None:
        captured = scopes.captures(node)
        inputs = [self.values.of(name) for name in (*node.input, *captured)]
        functions = tuple(self._model.functions)
        payload = scopes.payload(node, self._opsets, functions)
        pure = self._pure(node)
        types = [self._type(name) for name in node.output]
        if node.op_type in _MISINFERRED or scopes.describe(node) in self._refused:
            types = [(dtype, None if dims is None else [None] * len(dims)) for dtype, dims in types]
        name = f"{node.domain}.{node.op_type}" if scopes.domain_of(node) else node.op_type
        first = self.values.builder.opaque(name, payload, pure, inputs, types)
        self._opaque[name] += 1
        template = Template(node, len(node.input), tuple(captured), self._opsets, functions)
        self.values.constants.put_template(payload, template)
        for index, output in enumerate(node.output):
            if output:
                self.values.bind(output, first + index)
        slots = tuple(index if name else None for index, name in enumerate(node.input))
        self._imported.append((first, Provenance(node, "Opaque", {}, len(inputs), slots)))

    def _type(self, name: str) -> ValueType:
        if self._types is None:
            inference.name_dimensions(self._bare, self._symbols)
            self._types, trouble = inference.infer(self._bare, frozenset(self._symbols))
            if trouble is not None:
                self.notes.append(f"onnx's shape inference failed, so some shapes stay unknown: {trouble}")
        return self._types.get(name, UNKNOWN)


#: Operators whose extents onnx infers otherwise than the runtime computes them. The same is feared of a node that the
#: core refused: what it refuses is often what runtimes disagree about.
_MISINFERRED = frozenset({"STFT"})
#: Attribute of a Constant: (element type, kind of attribute). One of another kind leaves the node as it is.
_CONSTANT_TYPES = {
    "value_float": (onnx.TensorProto.FLOAT, onnx.AttributeProto.FLOAT),
    "value_floats": (onnx.TensorProto.FLOAT, onnx.AttributeProto.FLOATS),
    "value_int": (onnx.TensorProto.INT64, onnx.AttributeProto.INT),
    "value_ints": (onnx.TensorProto.INT64, onnx.AttributeProto.INTS),
    "value_string": (onnx.TensorProto.STRING, onnx.AttributeProto.STRING),
    "value_strings": (onnx.TensorProto.STRING, onnx.AttributeProto.STRINGS),
}


def _literal(value: Any, dtype: int) -> onnx.TensorProto:
    """A Constant node's number, text or list as a tensor of rank 0 or 1."""
    scalar = isinstance(value, (int, float, bytes))
    return helper.make_tensor("value", dtype, [] if scalar else [len(value)], [value] if scalar else list(value))


def _used_names(graph: onnx.GraphProto) -> set[str]:
    """Names that something reads: a node, a body, or the graph's outputs."""
    used = {info.name for info in graph.output}
    for node in graph.node:
        used.update(node.input)
        used.update(scopes.captures(node))
    used.discard("")
    return used
