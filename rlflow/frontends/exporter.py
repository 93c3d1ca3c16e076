"""ONNX out: a core graph that came from a model is written back, with everything that the search did not touch as it
was.

Untouched nodes are their original NodeProtos. New nodes, folded constants and their outputs are named
``rlflow_{what}_{k}`` in canonical order, so that the same graph always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import helper

from rlflow.errors import GraphError
from rlflow.files import write_atomically
from rlflow.frontends import scopes, storage, symbolic
from rlflow.frontends.constants import array_to_proto, constant_array
from rlflow.frontends.emitter import Emitter, Names
from rlflow.frontends.importer import ImportedModel, NamedConstant, Origin, Provenance
from rlflow.frontends.reference import Folder
from rlflow.frontends.standalone import value_info
from rlflow.graph import Graph

RULE_KEY = "rlflow.rule"
RULES_KEY = "rlflow.rules"
_NODE_METADATA_IR = 10
_LONGEST_CONDITION = 64


def save_model(
    imported: ImportedModel, graph: Graph, path: str | None = None, *, rules: Mapping[int, str] | None = None
) -> onnx.ModelProto:
    """Writes ``graph``, a rewrite of ``imported.graph``, as ONNX: a new ModelProto, and the file ``path`` where given.

    Names and order of inputs and outputs, opset imports, metadata, doc strings, functions, bodies, and untouched nodes
    stay as they were. Constant subgraphs that a rewrite made are folded: computed in double precision, rounded once. A
    model of more than 1.75 GB, or a large one whose weights were in another file, has them in ``<path>.data``; without
    a path such a model holds them itself. ``rules``: node id -> name of the rule that made it, noted in the node's
    metadata (IR version 10 and newer) or else in the model's. Raises GraphError for a node that the model's opset
    cannot express, OutputError where ``path`` cannot be written.
    """
    if imported.passthrough is not None:
        model = onnx.ModelProto()
        model.CopyFrom(imported.origin.model)
        if imported.external:
            base_dir = imported.origin.base_dir
            return storage.embed(model, base_dir) if path is None else storage.write(model, path, base_dir, True)
        if path is not None:
            write_atomically(path, imported.source_bytes())
        return model
    writer = _Writer(imported, graph, rules or {})
    model = writer.run()
    if path is None:
        return storage.embed(model, imported.origin.base_dir)
    return storage.write(model, path, imported.origin.base_dir, writer.external)


def slim_model(
    imported: ImportedModel, graph: Graph, weights: storage.SharedWeights, *, rules: Mapping[int, str] | None = None
) -> onnx.ModelProto:
    """As :func:`save_model`, with large weights in the file of ``weights``, to which the model refers.

    ``weights.whole`` makes of it what :func:`save_model` makes. For models that are not carried through as they came.
    """
    return _Writer(imported, graph, rules or {}, weights).run()


@dataclass
class _Plan:
    """What has to be written: nodes to emit in order, constants to fold (value ids), and the values that are read."""

    emitted: list[int] = field(default_factory=list)
    folded: dict[int, list[int]] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)


class _Writer:
    def __init__(
        self,
        imported: ImportedModel,
        graph: Graph,
        rules: Mapping[int, str],
        weights: storage.SharedWeights | None = None,
    ) -> None:
        self._weights = weights
        origin = imported.origin
        self._origin: Origin = origin
        self._graph = graph
        self._constants = imported.constants
        self._rules = rules
        self._before, self._known = imported.graph, set(imported.graph.order())
        self._names = Names(origin.names)
        self._labels = Names(_node_names(origin.model.graph))
        self._emitter = Emitter(graph, origin.opset, self._names, imported.constants)
        self._folder = Folder(graph, imported.constants)
        self._written: set[str] = set()
        self._by_digest: dict[str, str] = {}
        self._original_tensors = {tensor.name: tensor for tensor in origin.model.graph.initializer}
        self._outputs = {info.name for info in origin.model.graph.output}
        self._new_values: list[int] = []
        self.external = imported.external

    def run(self) -> onnx.ModelProto:
        plan = self._plan()
        aliases = self._name_outputs()
        self._name_values(plan)
        for name in self._origin.kept_inputs:
            self._copy_initializer(name)
        for node in plan.emitted:
            self._emit(node, plan)
        for source, output in aliases:
            self._emit_identity(source, output)
        return self._assemble()

    # -- what to write

    def _plan(self) -> _Plan:
        graph, plan = self._graph, _Plan()
        plan.used.update(graph.outputs())
        for node in reversed(graph.order()):
            outputs = graph.node_outputs(node)
            wanted = [value for value in outputs if value in plan.used]
            op = graph.op(node)
            if op != "Input" and not wanted:
                continue
            plan.emitted.append(node)
            if self._fold(node, wanted):
                plan.folded[node] = wanted
                continue
            plan.used.update(value for value in graph.node_inputs(node) if value >= 0)
        plan.emitted.reverse()
        return plan

    def _fold(self, node: int, wanted: Iterable[int]) -> bool:
        """Whether a node is a constant that a rewrite made and that can be computed now.

        What was constant in the file already (a quantised weight and its DequantizeLinear, a Shape) stays as it is: the
        runtime folds it, and the file's structure and size are its author's choice.
        """
        graph = self._graph
        if not graph.is_const(node) or graph.op(node) in ("Constant", "Opaque") or self._original(node) is not None:
            return False
        try:
            for value in wanted:
                self._folder.folded(value)
        except GraphError:
            return False  # the evaluator lacks the operator: the runtime will fold it
        return True

    def _original(self, node: int) -> Provenance | None:
        """The node's original, where it is still the same operator with the same attributes."""
        found = self._origin.nodes.get(node) if self._persists(node) else None
        if found is None or self._graph.op(node) != found.op or len(self._graph.node_inputs(node)) != found.inputs:
            return None
        return found if self._graph.attrs(node) == found.attrs else None

    def _persists(self, node: int) -> bool:
        """Whether the node's id is that of a node of the imported graph, and means the same. Rewrites keep ids; a graph
        that was put together anew (extracted from an e-graph) counts from zero, so that its ids say nothing.
        """
        before, graph = self._before, self._graph
        if node not in self._known or before.op(node) != graph.op(node):
            return False
        if graph.op(node) == "Constant":
            return bool(before.const_digest(node) == graph.const_digest(node))
        return all(
            one == other and _agree(before.shape(one), graph.shape(other))
            for one, other in zip(before.node_outputs(node), graph.node_outputs(node), strict=False)
        )

    def _original_name(self, node: int, value: int) -> str | None:
        """The name that a node's output had in the file."""
        return self._origin.value_names.get(value) if self._persists(node) else None

    # -- names

    def _name_outputs(self) -> list[tuple[str, str]]:
        """Gives output values their names; returns (value's name, output's name) where one value serves twice or is an
        input.
        """
        graph, names = self._graph, self._emitter.value_names
        for node, info in zip(graph.inputs(), self._origin.model.graph.input, strict=True):
            names[graph.node_outputs(node)[0]] = info.name
        aliases = []
        for value, info in zip(graph.outputs(), self._origin.model.graph.output, strict=True):
            if value not in names:
                names[value] = info.name
            elif names[value] != info.name:
                aliases.append((names[value], info.name))
        return aliases

    def _name_values(self, plan: _Plan) -> None:
        """Original names where they are free, fresh ones for the rest."""
        graph, names = self._graph, self._emitter.value_names
        reserved = {
            info.name for infos in (self._origin.model.graph.input, self._origin.model.graph.output) for info in infos
        }
        reserved |= set(names.values()) | self._origin.kept_inputs
        for node in plan.emitted:
            for value in graph.node_outputs(node):
                if value in names:
                    if names[value] != self._original_name(node, value):
                        self._new_values.append(value)
                    continue
                original = self._original_name(node, value)
                if original is not None and original not in reserved:
                    names[value] = original
                    reserved.add(original)
                else:
                    names[value] = self._names.fresh("folded" if node in plan.folded else graph.op(node))
                    self._new_values.append(value)

    # -- nodes

    def _label(self, name: str) -> str:
        """The name of a new node: that of its first output, unless another node has it."""
        return name if self._labels.take(name) else self._names.fresh("node")

    def _emit_identity(self, source: str, output: str) -> None:
        self._emitter.nodes.append(helper.make_node("Identity", [source], [output], name=self._label(output)))

    def _emit(self, node: int, plan: _Plan) -> None:
        op = self._graph.op(node)
        if op == "Input":
            return
        if node in plan.folded:
            for value in plan.folded[node]:
                self._emit_folded(value)
        elif op == "Constant":
            self._emit_constant(node)
        else:
            self._emit_node(node, plan)

    def _emit_node(self, node: int, plan: _Plan) -> None:
        original = self._original(node)
        before = len(self._emitter.nodes)
        if self._graph.op(node) == "Opaque":
            self._emit_opaque(node, original, plan)
        elif original is not None and original.slots is not None:
            self._emit_original(node, original, plan)
        else:
            outputs = [self._emitter.name(value) for value in self._graph.node_outputs(node)]
            label = original.node.name if original is not None else self._label(outputs[0])
            proto = self._emitter.emit(node, outputs, label)
            if original is not None:
                _copy_texts(original.node, proto)
        if original is None and node in self._rules and self._origin.model.ir_version >= _NODE_METADATA_IR:
            for proto in self._emitter.nodes[before:]:
                helper.set_model_props(proto, {RULE_KEY: self._rules[node]})

    def _emit_original(self, node: int, original: Provenance, plan: _Plan) -> None:
        proto = onnx.NodeProto()
        proto.CopyFrom(original.node)
        values = self._graph.node_inputs(node)
        del proto.input[:]
        for slot in original.slots or ():
            if slot is None:
                proto.input.append("")
            elif isinstance(slot, int):
                proto.input.append(self._emitter.name(values[slot]))
            else:
                proto.input.append(self._constant_name(slot))
        self._set_outputs(proto, node, plan)
        self._emitter.nodes.append(proto)

    def _set_outputs(self, proto: onnx.NodeProto, node: int, plan: _Plan) -> None:
        """Names the outputs that the core knows; further ones, which nobody reads, keep their names."""
        for index, value in enumerate(self._graph.node_outputs(node)):
            if index < len(proto.output) and (proto.output[index] or value in plan.used):
                proto.output[index] = self._emitter.name(value)

    def _emit_opaque(self, node: int, original: Provenance | None, plan: _Plan) -> None:
        attrs = self._graph.attrs(node)
        template = self._constants.template(attrs["payload"])
        if template is None:
            raise GraphError(
                f"While writing node {node} ({attrs['name']}): its original is not among those of the model."
            )
        source = original.node if original is not None else template.node
        outputs = [self._emitter.name(value) for value in self._graph.node_outputs(node)]
        label = source.name if original is not None else self._label(outputs[0])
        proto = self._emitter.emit_template(template, node, outputs, label)
        for index, value in enumerate(self._graph.node_outputs(node)):
            if not source.output[index] and value not in plan.used:
                proto.output[index] = ""
        if proto.op_type == "If":
            self._keep_condition(proto, node, source.input[0])
        _copy_texts(source, proto)

    def _keep_condition(self, proto: onnx.NodeProto, node: int, name: str) -> None:
        """Computes the condition of an If as the file did, where shape arithmetic found it constant but the file had it
        computed.

        A runtime inlines an If whose condition is constant, and then checks shapes that the file's author never saw
        checked.
        """
        condition = self._graph.node_inputs(node)[0]
        if not self._graph.is_const(self._graph.producer(condition)) or name in self._origin.constants:
            return
        chain = self._chain(name)
        if chain is None:
            return
        self._emitter.nodes.pop()  # the If itself: what it reads comes first
        renamed: dict[str, str] = {}
        for original in chain:
            copy = onnx.NodeProto()
            copy.CopyFrom(original)
            copy.name = copy.output[0] = self._names.fresh("condition")
            for slot, operand in enumerate(copy.input):
                known = self._constant_name(operand) if operand in self._origin.constants else operand
                copy.input[slot] = renamed.get(operand, known)
            renamed[original.output[0]] = copy.output[0]
            self._emitter.nodes.append(copy)
        proto.input[0] = renamed[name]
        self._emitter.nodes.append(proto)

    def _chain(self, name: str) -> list[onnx.NodeProto] | None:
        """The file's nodes that compute a value from graph inputs and constants only, in order; None where it takes
        more than that.
        """
        graph = self._origin.model.graph
        producers = {output: node for node in graph.node for output in node.output}
        leaves = {info.name for info in graph.input} | set(self._origin.constants) | {""}
        chain: list[onnx.NodeProto] = []
        done: set[str] = set()
        pending = [name]
        while pending:
            current = pending[-1]
            maker = producers.get(current)
            if current in leaves or current in done:
                pending.pop()
                continue
            if (
                maker is None
                or scopes.domain_of(maker)
                or len(maker.output) != 1
                or any(True for _ in scopes.bodies(maker))
            ):
                return None
            missing = [operand for operand in maker.input if operand not in leaves and operand not in done]
            if missing:
                pending.extend(missing)
            else:
                chain.append(maker)
                done.add(current)
            if len(pending) + len(chain) > _LONGEST_CONDITION:
                return None
        return chain

    # -- constants

    def _constant_name(self, name: str) -> str:
        """Makes sure that a constant of the file is written, and returns the name under which it is."""
        constant = self._origin.constants[name]
        if constant.digest in self._by_digest:
            return self._by_digest[constant.digest]
        self._by_digest[constant.digest] = name
        self._write_constant(name, constant)
        return name

    def _write_constant(self, name: str, constant: NamedConstant) -> None:
        if name in self._written:
            return
        self._written.add(name)
        if isinstance(constant.proto, onnx.NodeProto):
            proto = onnx.NodeProto()
            proto.CopyFrom(constant.proto)
            proto.output[0] = name
            self._emitter.nodes.append(proto)
        else:
            self._copy_initializer(constant.proto.name, name)

    def _copy_initializer(self, original: str, name: str | None = None) -> None:
        tensor = self._original_tensors[original]
        if name is not None and name != original:
            renamed = onnx.TensorProto()
            renamed.CopyFrom(tensor)
            renamed.name = name
            tensor = renamed
        self._written.add(tensor.name)
        self._add_tensor(tensor, f"original:{original}")

    def _add_tensor(self, tensor: onnx.TensorProto, key: str) -> None:
        slim = tensor if self._weights is None else self._weights.moved(tensor, key)
        self._emitter.initializers.append(slim)  # the model's list copies it

    def _emit_constant(self, node: int) -> None:
        value = self._graph.node_outputs(node)[0]
        name = self._emitter.name(value)
        constant = self._origin.constants.get(self._original_name(node, value) or "")
        if constant is not None:
            known = self._by_digest.get(constant.digest)
            if known is not None and known != name:
                self._share(value, known, name)
                return
            self._by_digest[constant.digest] = name
            self._write_constant(name, constant)
            return
        array = constant_array(self._graph, node, self._constants)
        if array is None:
            raise GraphError(
                f"While writing constant '{name}': nobody has its elements (digest {self._graph.const_digest(node)})."
            )
        digest = self._graph.const_digest(node)
        self._add_tensor(array_to_proto(array, name, self._graph.dtype(value)), f"constant:{digest}")

    def _emit_folded(self, value: int) -> None:
        name = self._emitter.name(value)
        array = self._folder.folded(value)
        digest = self._constants.put(array)
        known = self._by_digest.setdefault(digest, name)
        if known == name:
            self._add_tensor(
                array_to_proto(array, name, self._graph.dtype(value)), f"folded:{self._graph.dtype(value)}:{digest}"
            )
        else:
            self._share(value, known, name)

    def _share(self, value: int, known: str, name: str) -> None:
        """Lets a constant be one that is written already; a graph output still needs a value of its own name."""
        if name in self._outputs:
            self._emit_identity(known, name)
        else:
            self._emitter.value_names[value] = known

    # -- the model

    def _assemble(self) -> onnx.ModelProto:
        source = self._origin.model
        model = onnx.ModelProto()
        storage.copy_fields(source, model, skip=("graph",))
        storage.copy_fields(source.graph, model.graph, skip=("node", "initializer", "value_info"))
        model.graph.node.extend(self._emitter.nodes)
        self._part_namesakes(model.graph)
        order = {tensor.name: index for index, tensor in enumerate(source.graph.initializer)}
        ranked = sorted(self._emitter.initializers, key=lambda tensor: order.get(tensor.name, len(order)))
        model.graph.initializer.extend(ranked)
        self._add_value_info(model)
        listed = {info.name for info in model.graph.input}
        if any(tensor.name not in listed for tensor in model.graph.initializer):
            model.ir_version = max(model.ir_version, 4)  # older versions list every initialiser among the inputs
        if model.ir_version < _NODE_METADATA_IR:
            self._note_rules(model)
        return model

    def _part_namesakes(self, graph: onnx.GraphProto) -> None:
        """Renames all but the first of the nodes that have one name in the file: some runtimes refuse a model for it,
        or do once a rewrite moved one of them.
        """
        seen: set[str] = set()
        for node in graph.node:
            if node.name in seen:
                node.name = self._names.fresh("node")
            if node.name:
                seen.add(node.name)

    def _note_rules(self, model: onnx.ModelProto) -> None:
        """Adds the names of the rules behind the graph's new nodes to those that the model lists already."""
        fresh = {self._rules[node] for node in self._graph.order() if node in self._rules}
        if not fresh:
            return
        entry = next((entry for entry in model.metadata_props if entry.key == RULES_KEY), None)
        if entry is None:
            entry = model.metadata_props.add(key=RULES_KEY)
        listed = {name for name in entry.value.split(", ") if name}
        entry.value = ", ".join(sorted(listed | fresh))

    def _add_value_info(self, model: onnx.ModelProto) -> None:
        """The file's own value types where the value is still there under its name; inferred ones for new values."""
        made = {name for node in model.graph.node for name in node.output} | {
            tensor.name for tensor in model.graph.initializer
        }
        declared = {info.name for infos in (model.graph.input, model.graph.output) for info in infos}
        new = {self._emitter.name(value): value for value in self._new_values}
        kept = [info for info in self._origin.model.graph.value_info if info.name in made and info.name not in new]
        model.graph.value_info.extend(kept)
        for name, value in new.items():
            dtype = self._graph.dtype(value)
            if name in made and name not in declared and dtype:
                model.graph.value_info.append(value_info(name, dtype, self._public_dims(value)))

    def _public_dims(self, value: int) -> list[symbolic.Dim] | None:
        """A value's dimensions without the names that only this library gave."""
        shape = self._graph.shape(value)
        if shape is None:
            return None
        return [
            dim if isinstance(dim, int) or set(symbolic.names([dim])) <= self._origin.symbols else None for dim in shape
        ]


def _node_names(graph: onnx.GraphProto) -> set[str]:
    """Names of a graph's nodes and of those in the bodies below."""
    found: set[str] = set()
    scopes.walk(graph, lambda node: found.add(node.name))
    return found


def _agree(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Whether two shapes may be one: they differ in no dimension that is a number in both."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(one, other, strict=True)
    )


def _copy_texts(source: onnx.NodeProto, target: onnx.NodeProto) -> None:
    """Gives a node another one's doc string and metadata, and no name where that one has none."""
    for text in ("name", "doc_string"):
        if not source.HasField(text):
            target.ClearField(text)
    if source.HasField("doc_string"):
        target.doc_string = source.doc_string
    del target.metadata_props[:]
    target.metadata_props.extend(source.metadata_props)


__all__ = ["RULES_KEY", "RULE_KEY", "save_model", "slim_model"]
