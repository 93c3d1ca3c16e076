"""ONNX in: a file, bytes or a ModelProto becomes a core graph, with all that is needed to write it back the way it
came.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper

from rlflow.errors import GraphError, ModelError, UsageError
from rlflow.frontends import canonical, inference, intake, scopes, symbolic
from rlflow.frontends.canonical import Canonical, Declined
from rlflow.frontends.constants import CORE_DIGEST, Array, ConstantStore, Template, facts, inline_values
from rlflow.frontends.inference import UNKNOWN, ValueType
from rlflow.frontends.node_view import ABSENT, NodeView
from rlflow.graph import Graph, GraphBuilder

OLDEST_OPSET = 7
Slot = int | str | None
Source = str | os.PathLike[str] | bytes | onnx.ModelProto


@dataclass(frozen=True)
class Provenance:
    """The ONNX node that a core node was imported from.

    ``slots`` says where each ONNX operand is now: an index of the core node's inputs, the name of a constant that
    became an attribute, or None (absent). ``slots`` itself is None where an operand that was computed became an
    attribute: then only names can be taken over.
    """

    node: onnx.NodeProto
    op: str
    attrs: Mapping[str, Any]
    inputs: int
    slots: tuple[Slot, ...] | None


@dataclass(frozen=True)
class NamedConstant:
    """A constant of the file: its digest, and the initialiser or Constant node that held it."""

    digest: str
    proto: onnx.TensorProto | onnx.NodeProto


@dataclass
class Origin:
    """What saving needs to know about the model that a graph came from. ``model`` is the library's own copy.

    ``symbols``: the names that the file gives to open dimensions; ``unnamed``: those that the others got here.
    """

    model: onnx.ModelProto
    base_dir: str
    opset: int
    value_names: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, Provenance] = field(default_factory=dict)
    constants: dict[str, NamedConstant] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    symbols: frozenset[str] = frozenset()
    unnamed: frozenset[str] = frozenset()
    kept_inputs: frozenset[str] = frozenset()


@dataclass
class ImportedModel:
    """A model as the search sees it.

    ``graph``: the core graph (an empty one where ``passthrough`` says why the model is carried through as it came);
    ``constants``: its tensors by digest; ``notes``: sentences about what was assumed or cleaned; ``origin``: names and
    original nodes, for saving.
    """

    graph: Graph
    constants: ConstantStore
    origin: Origin
    notes: list[str]
    passthrough: str | None = None
    source_path: str | None = None
    _source: bytes | onnx.ModelProto | None = None
    #: Whether tensors of the model, wherever in it, came in files beside it.
    external: bool = False

    def source_bytes(self) -> bytes:
        """The model as it came, serialised. Raises ModelError where its file has gone."""
        if isinstance(self._source, bytes):
            return self._source
        if self.source_path is not None:
            return _read_file(self.source_path)
        source = self.origin.model if self._source is None else self._source
        return source.SerializeToString(deterministic=True)

    def inexpressible(self, graph: Graph) -> str | None:
        """Why ``graph``, a rewrite of this model's, cannot be written at the model's opset, or None where it can.

        Looks at new nodes only: what came from the file can be written as it came.
        """
        from rlflow.frontends.emitter import expressible

        known = self.origin.nodes
        new = [node for node in graph.order() if node not in known or graph.attrs(node) != known[node].attrs]
        return expressible(graph, self.origin.opset, new)

    def baseline(self) -> onnx.ModelProto:
        """The model with zero rewrites, cleaned like any output: what a search must beat."""
        from rlflow.frontends.exporter import save_model

        return save_model(self, self.graph)


def load_model(
    source: Source, *, keep_initializer_inputs: bool = False, freeze: Mapping[str, int] | None = None
) -> ImportedModel:
    """Reads an ONNX model (a path, serialised bytes, or a ModelProto, which is not changed).

    ``keep_initializer_inputs``: initialisers that are also graph inputs stay inputs that a caller may override; by
    default they become plain constants, because a runtime cannot fold them otherwise. ``freeze``: symbolic dimension ->
    size, set before anything else; an unnamed dimension is called ``input.axis``, such as ``image.0``.

    A model that cannot be read as a graph of ONNX's default operators (opset below 7, sparse initialisers, …) has
    ``passthrough`` set. Raises ModelError for what is not a usable model, UsageError for a dimension that the model
    does not have.
    """
    model, path, raw = _open(source)
    base_dir = "" if path is None else os.path.dirname(os.path.abspath(path))
    external = intake.admit(model, base_dir, _place(path))
    notes: list[str] = []
    _require_graph(model, _place(path))
    _assume_opset(model, notes)
    symbols = _name_dims(model)
    _freeze(model, symbols, freeze or {})
    reason = _refusal(model)
    if reason is not None:
        empty = Origin(model, base_dir, scopes.opset_versions(model).get("", 0))
        return ImportedModel(GraphBuilder().finish([]), ConstantStore(), empty, notes, reason, path, raw, external)
    importer = _Importer(model, base_dir, keep_initializer_inputs, symbols, notes)
    graph = importer.run()
    return ImportedModel(graph, importer.constants, importer.origin, notes, None, path, raw, external)


# -- opening -----------------------------------------------------------------------------------------------------------
# ------------------


def _open(source: Source) -> tuple[onnx.ModelProto, str | None, bytes | onnx.ModelProto | None]:
    """(the library's own ModelProto, path, what was given instead of a path) of a source."""
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        return model, None, source
    if isinstance(source, (bytes, bytearray, memoryview)):
        raw = bytes(source)
        return parse_model(raw, "the given bytes"), None, raw
    path = os.fspath(source)
    return read_model(path), path, None


def _place(path: str | None) -> str:
    return "the given model" if path is None else f"'{path}'"


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ModelError(f"While loading a model: the file '{path}' does not exist.") from error
    except IsADirectoryError as error:
        raise ModelError(f"While loading a model: '{path}' is a directory; expected an ONNX file.") from error
    except OSError as error:
        raise ModelError(f"While loading a model: '{path}' cannot be read: {error.strerror or error}.") from error


def read_model(path: str) -> onnx.ModelProto:
    """The ModelProto in a file, parsed where the system maps it. Raises ModelError."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            mapped = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return parse_model(stack.enter_context(memoryview(mapped)), _place(path))
    except (OSError, ValueError):  # no file, an empty one, or none that can be mapped
        return parse_model(_read_file(path), _place(path))


def parse_model(raw: bytes | memoryview, place: str) -> onnx.ModelProto:
    """A ModelProto of serialised bytes; ``place`` names them in the ModelError that is raised for anything else."""
    if not raw:
        raise ModelError(f"While loading a model: {place} is empty; expected a serialised ONNX ModelProto.")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except DecodeError as error:
        raise ModelError(
            f"While loading a model: {place} ({len(raw)} bytes) is not a serialised ONNX ModelProto; "
            "it is something else, or truncated."
        ) from error
    return model


def _require_graph(model: onnx.ModelProto, place: str) -> None:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(
            f"While loading a model: {place} holds no graph; expected an ONNX model with nodes and outputs."
        )
    if not model.graph.output:
        raise ModelError(f"While loading a model: the graph of {place} has no outputs; it computes nothing.")


def _assume_opset(model: onnx.ModelProto, notes: list[str]) -> None:
    """Adds the default domain's opset where the model forgot it: the one of its IR version's first release."""
    if "" in scopes.opset_versions(model):
        return
    domains: set[str] = set()
    scopes.walk(model.graph, lambda node: domains.add(scopes.domain_of(node)))
    if "" not in domains:
        return
    released = [row[2] for row in helper.VERSION_TABLE if row[1] == model.ir_version]
    opset = min(released, default=OLDEST_OPSET)
    model.opset_import.append(helper.make_opsetid("", opset))
    notes.append(
        f"The model imports no opset of the default domain; opset {opset}, "
        f"that of IR version {model.ir_version}, is assumed."
    )


def _refusal(model: onnx.ModelProto) -> str | None:
    opset = scopes.opset_versions(model).get("", OLDEST_OPSET)
    newest = onnx.defs.onnx_opset_version()
    if opset < OLDEST_OPSET:
        return f"its opset is {opset}, and forms before opset {OLDEST_OPSET} are not read"
    if opset > newest:
        return f"its opset is {opset}, and the installed onnx knows those up to {newest}"
    if model.graph.sparse_initializer:
        return "it has sparse initialisers"
    if model.training_info:
        return "it carries its own training step"
    return None


# -- dimensions --------------------------------------------------------------------------------------------------------
# ------------------


def _name_dims(model: onnx.ModelProto) -> dict[str, tuple[str, int] | None]:
    """Name -> None for the file's own dimension names; -> (input, axis) for the unnamed ones, which are named here."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in initialised]
    symbols: dict[str, tuple[str, int] | None] = {}
    unnamed: list[tuple[str, int]] = []
    for info in inputs:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param and not dim.HasField("dim_value"):
                symbols[dim.dim_param] = None
            elif not dim.HasField("dim_value") or dim.dim_value < 0:
                unnamed.append((info.name, axis))
    for name, axis in unnamed:
        symbol = f"{name}.{axis}"
        while symbol in symbols:
            symbol += "_"
        symbols[symbol] = (name, axis)
    return symbols


def _freeze(model: onnx.ModelProto, symbols: dict[str, tuple[str, int] | None], freeze: Mapping[str, int]) -> None:
    """Writes sizes in place of dimension names, in every value that names them, and forgets those names."""
    for name, size in freeze.items():
        if name not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise UsageError(
                f"While freezing dimension '{name}': the model's inputs have no such dimension; they have {known}."
            )
        if size < 1:
            raise UsageError(f"While freezing dimension '{name}': found size {size}; expected 1 or more.")
        place = symbols.pop(name)
        for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                here = (info.name, axis) == place if place is not None else dim.dim_param == name
                if here:
                    dim.dim_value = size


# -- nodes -------------------------------------------------------------------------------------------------------------
# ------------------


class _Importer:
    def __init__(
        self,
        model: onnx.ModelProto,
        base_dir: str,
        keep_inputs: bool,
        symbols: dict[str, tuple[str, int] | None],
        notes: list[str],
    ) -> None:
        self.builder = GraphBuilder()
        self.constants = ConstantStore()
        self.notes = notes
        self.used: set[str] = set()
        self._model = model
        self._keep_inputs = keep_inputs
        self._symbols = symbols
        self._values: dict[str, int] = {}
        self._arrays: dict[int, str] = {}
        self._imported: list[tuple[int, Provenance]] = []
        self._functions = scopes.function_table(model)
        self._pure = scopes.Purity(self._functions)
        self._types: dict[str, ValueType] | None = None
        self._opaque: Counter[str] = Counter()
        self._refused: dict[str, str] = {}
        versions = scopes.opset_versions(model)
        self._opsets = tuple(sorted(versions.items()))
        self.origin = Origin(model, base_dir, versions.get("", 1))

    def run(self) -> Graph:
        graph = self._model.graph
        self._check()
        nodes = scopes.sort_nodes(graph)
        if any(a is not b for a, b in zip(nodes, graph.node, strict=True)):
            self.notes.append("The nodes were not in topological order; they are sorted.")
        self.used = _used_names(graph)
        self._read_inputs()
        self._read_initializers()
        for node in nodes:
            self._read_node(node)
        outputs = [self._output(info.name) for info in graph.output]
        result = self.builder.finish(outputs)
        self._settle(result)
        return result

    def _check(self) -> None:
        self._bare = inference.bare_model(self._model)
        complaint = inference.complaint(self._bare)
        if complaint is not None:
            self.notes.append(f"onnx's checker complains about the model: {complaint}")

    def _settle(self, graph: Graph) -> None:
        """Fills the origin once node ids are known, and tells what was carried opaquely."""
        alive = set(graph.order())
        for value, provenance in self._imported:
            node = graph.producer(value)
            if node in alive and graph.op(node) == provenance.op:
                self.origin.nodes.setdefault(node, _with_attrs(provenance, graph.attrs(node)))
        for node in graph.order():
            value = graph.node_outputs(node)[0] if graph.node_outputs(node) else ABSENT
            if value in self._arrays:
                self.constants.alias(str(graph.const_digest(node)), self._arrays[value])
        origin = self.origin
        origin.names = frozenset(scopes.all_names(self._model.graph))
        origin.symbols = frozenset(name for name, place in self._symbols.items() if place is None)
        origin.unnamed = frozenset(self._symbols) - origin.symbols
        if self._opaque:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(self._opaque.items()))
            self.notes.append(f"{sum(self._opaque.values())} nodes are carried as they are: {listed}.")
        self.notes.extend(f"{where} is carried as it is, because {reason}." for where, reason in self._refused.items())

    # -- values

    def _read_inputs(self) -> None:
        graph = self._model.graph
        initialised = {tensor.name for tensor in graph.initializer}
        both = [info for info in graph.input if info.name in initialised]
        if both and not self._keep_inputs:
            kept = [info for info in graph.input if info.name not in initialised]
            del graph.input[:]
            graph.input.extend(kept)
            self._model.ir_version = max(self._model.ir_version, 4)
            self.notes.append(
                f"{len(both)} initialisers were also graph inputs; "
                "they are constants now and can no longer be overridden."
            )
        places = {place: name for name, place in self._symbols.items() if place is not None}
        self.origin.kept_inputs = frozenset(info.name for info in both) if self._keep_inputs else frozenset()
        for info in graph.input:
            if info.name in self._values:
                raise ModelError(f"While reading graph '{graph.name}': two inputs have the name '{info.name}'.")
            dtype, shape = inference.type_of(info)
            if shape is not None:
                named = [(dim, places.get((info.name, axis))) for axis, dim in enumerate(shape)]
                shape = [symbolic.quote(name) if dim is None and name else dim for dim, name in named]
            self._bind(info.name, self.builder.input(info.name, dtype, shape))

    def _read_initializers(self) -> None:
        seen: set[str] = set()
        for tensor in self._model.graph.initializer:
            if tensor.name in seen:
                self.notes.append(f"Two initialisers have the name '{tensor.name}'; the first one is taken.")
            elif tensor.name not in self.origin.kept_inputs:
                self._constant(tensor.name, tensor, tensor)
            seen.add(tensor.name)

    def _constant(self, name: str, tensor: onnx.TensorProto, proto: onnx.TensorProto | onnx.NodeProto) -> None:
        digest = self.constants.put_proto(tensor, self.origin.base_dir)
        value = self._add_constant(digest)
        self.origin.constants.setdefault(name, NamedConstant(digest, proto))
        self._bind(name, value)

    def _add_constant(self, digest: str) -> int:
        content, array = self.constants.content(digest), self._elements(digest)
        values = None if array is None else inline_values(content.dtype, array)
        known = None if array is None or values is not None else facts(content.dtype, array)
        key = digest if values is None else CORE_DIGEST
        value = self.builder.constant(content.dtype, list(content.shape), key, values, known)
        self._arrays.setdefault(value, digest)
        return value

    def array(self, value: int) -> Array | None:
        """The elements of a constant of the file, or of one that shape arithmetic made (its known integers)."""
        digest = self._arrays.get(value)
        return None if digest is None else self._elements(digest)

    def _elements(self, digest: str) -> Array | None:
        """None for a weight of an outline."""
        return None if self.constants.outlined(digest) else self.constants[digest]

    def _bind(self, name: str, value: int) -> None:
        self._values[name] = value
        self.origin.value_names.setdefault(value, name)

    def _value(self, name: str) -> int:
        return self._values[name] if name else ABSENT

    def _output(self, name: str) -> int:
        if name not in self._values:
            raise ModelError(
                f"While reading graph '{self._model.graph.name}': nothing makes the graph output '{name}'."
            )
        return self._values[name]

    # -- nodes

    def _read_node(self, node: onnx.NodeProto) -> None:
        if not any(node.output):
            return  # nobody can read what it makes
        try:
            if scopes.domain_of(node) or scopes.key_of(node) in self._functions:
                raise Declined("its domain is not ONNX's own")
            if node.op_type == "Constant" and self._read_constant(node):
                return
            values = [self._value(name) for name in node.input]
            view = NodeView(node, values, self.origin.opset, self.used, self.builder, self)
            self._add(node, view, values, canonical.read(view))
        except Declined:
            self._read_opaque(node)

    def _add(self, node: onnx.NodeProto, view: NodeView, values: list[int], form: Canonical) -> None:
        if form.op == "Identity":
            if not form.inputs:
                raise Declined("it lacks an operand")
            self._bind(node.output[0], self._operand(form.inputs[0], values))
            return None
        operands = [self._operand(operand, values) for operand in form.inputs]
        table = canonical.row(form.op) or {}
        wanted = (
            form.outputs
            if "variadic_outputs" in canonical.flags(form.op)
            else max(form.outputs, table.get("outputs", 1))
        )
        try:
            first = self.builder.add(form.op, dict(form.attrs), operands, wanted)
        except GraphError as error:
            if form.otherwise is not None:
                return self._add(node, view, values, form.otherwise)
            self._refused[scopes.describe(node)] = str(error).rstrip(".")
            raise Declined(str(error)) from error
        for index, name in enumerate(node.output[:wanted]):
            if name:
                self._bind(name, first + index)
        self._imported.append((first, Provenance(node, form.op, {}, len(operands), self._slots(node, form))))
        return None

    def _operand(self, operand: int | Array | None, values: list[int]) -> int:
        if operand is None:
            return ABSENT
        if isinstance(operand, np.ndarray):
            return self._add_constant(self.constants.put(operand))
        if operand >= len(values):
            raise Declined("it lacks an operand")
        return values[operand]

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
                self._constant(node.output[0], attribute.t, node)
                return True
            dtype = _CONSTANT_TYPES.get(attribute.name)
            if dtype is not None:
                value = helper.get_attribute_value(attribute)
                proto = _literal(value, dtype)
                self._constant(node.output[0], proto, node)
                return True
        return False

    def _read_opaque(self, node: onnx.NodeProto) -> None:
        captured = scopes.captures(node)
        inputs = [self._value(name) for name in (*node.input, *captured)]
        functions = tuple(self._model.functions)
        payload = scopes.payload(node, self._opsets, functions)
        pure = self._pure(node)
        types = [self._type(name) for name in node.output]
        name = f"{node.domain}.{node.op_type}" if scopes.domain_of(node) else node.op_type
        first = self.builder.opaque(name, payload, pure, inputs, types)
        self._opaque[name] += 1
        self.constants.put_template(payload, Template(node, len(node.input), tuple(captured), self._opsets, functions))
        for index, output in enumerate(node.output):
            if output:
                self._bind(output, first + index)
        slots = tuple(index if name else None for index, name in enumerate(node.input))
        self._imported.append((first, Provenance(node, "Opaque", {}, len(inputs), slots)))

    def _type(self, name: str) -> ValueType:
        if self._types is None:
            for symbol, place in self._symbols.items():
                if place is not None:
                    inference.name_dimension(self._bare, *place, symbol)
            self._types, trouble = inference.infer(self._bare, frozenset(self._symbols))
            if trouble is not None:
                self.notes.append(f"onnx's shape inference failed, so some shapes stay unknown: {trouble}")
        return self._types.get(name, UNKNOWN)


_CONSTANT_TYPES = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
    "value_strings": onnx.TensorProto.STRING,
}


def _literal(value: Any, dtype: int) -> onnx.TensorProto:
    """A Constant node's number, text or list as a tensor of rank 0 or 1."""
    scalar = isinstance(value, (int, float, bytes))
    return helper.make_tensor("value", dtype, [] if scalar else [len(value)], [value] if scalar else list(value))


def _with_attrs(provenance: Provenance, attrs: Mapping[str, Any]) -> Provenance:
    return Provenance(provenance.node, provenance.op, attrs, provenance.inputs, provenance.slots)


def _used_names(graph: onnx.GraphProto) -> set[str]:
    """Names that something reads: a node, a body, or the graph's outputs."""
    used = {info.name for info in graph.output}
    for node in graph.node:
        used.update(node.input)
        used.update(scopes.captures(node))
    used.discard("")
    return used
