"""ONNX out: a core graph that came from a model is written back, with everything that the search did not touch as it
was.

Untouched nodes are their original NodeProtos. New nodes, folded constants and their outputs are named
``rlflow_{what}_{k}`` in canonical order, so that the same graph always gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import helper

from rlflow.errors import GraphError, OutputError, UsageError
from rlflow.files import check_output, is_same_file, write_atomically
from rlflow.frontends import conditions, raising, scopes, storage
from rlflow.frontends.assembly import NODE_METADATA_IR, RULE_KEY, RULES_KEY, assemble
from rlflow.frontends.emitter import Emitter, UniqueNames, expressible
from rlflow.frontends.imported import ImportedModel, Origin, Provenance
from rlflow.frontends.lineage import Lineage
from rlflow.frontends.written_constants import ConstantWriter
from rlflow.graph import Graph


def save_model(
    imported: ImportedModel,
    graph: Graph,
    path: str | os.PathLike[str] | None = None,
    *,
    rules: Mapping[int, str] | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """Writes ``graph``, a rewrite of ``imported.graph``, as ONNX: a new ModelProto, and the file ``path`` where given.

    Names and order of inputs and outputs, opset imports, metadata, doc strings, functions, bodies, and untouched nodes
    stay as they were; where a newer opset is allowed (``newest_opset`` of :func:`load_model`) and new nodes need it,
    untouched ones are written for it too. Constant subgraphs that a rewrite made are folded: computed in double
    precision, rounded once. A model of more than 1.75 GB, or a large one whose weights were in another file, has them
    in ``<path>.data``; without a path such a model holds them itself. ``rules``: node id -> name of the rule that made
    it, noted in the node's metadata (IR version 10 and newer) or else in the model's. ``opset``: of the default domain,
    in place of the model's own, such as that of :func:`rlflow.frontends.lowering.faster_opset`; where it cannot express
    the graph, the model keeps its own. Raises GraphError for a node that the model's opset cannot express, OutputError
    where ``path`` cannot be written, or holds weights of the model.
    """
    _check_kinds(imported, graph)
    if path is not None:
        _check_is_no_source(path, imported.origin)
    if imported.passthrough is not None:
        model = onnx.ModelProto()
        model.CopyFrom(imported.origin.model)
        if imported.external:
            base_dir = imported.origin.base_dir
            return storage.embed(model, base_dir) if path is None else storage.write(model, path, base_dir, True)
        if path is not None:
            write_atomically(path, imported.source_bytes())
        return model
    writer = _Writer(imported, graph, rules or {}, opset=opset)
    model = writer.run()
    if path is None:
        return storage.embed(model, imported.origin.base_dir)
    return storage.write(model, path, imported.origin.base_dir, writer.external)


def _check_kinds(imported: Any, graph: Any) -> None:
    if not isinstance(imported, ImportedModel) or not isinstance(graph, Graph):
        kinds = f"{type(imported).__name__} and {type(graph).__name__}"
        raise UsageError(f"What is saved is a model of rlflow.load and its graph, or a rewritten one; got {kinds}.")


def _check_is_no_source(path: str | os.PathLike[str], origin: Origin) -> None:
    """That ``path`` holds no weights of the model; the model's own file may be replaced by what it becomes."""
    check_output(path, None)
    outside = (one for one in origin.model.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL)
    names = {entry.value for one in outside for entry in one.external_data if entry.key == "location"}
    files = [os.path.join(origin.base_dir, name) for name in names]
    if any(is_same_file(path, file) for file in files):
        raise OutputError(
            f"The output {os.fspath(path)} holds weights of the model that is saved; give another name, the "
            "original is never overwritten."
        )


def baseline(imported: ImportedModel) -> onnx.ModelProto:
    """The model with zero rewrites, cleaned like any output: what a search must beat."""
    return save_model(imported, imported.graph)


def slim_model(
    imported: ImportedModel,
    graph: Graph,
    weights: storage.SharedWeights,
    *,
    rules: Mapping[int, str] | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """As :func:`save_model`, with large weights in the file of ``weights``, to which the model refers.

    ``weights.whole`` makes of it what :func:`save_model` makes. For models that are not carried through as they came.
    """
    return _Writer(imported, graph, rules or {}, weights, opset).run()


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
        opset: int | None = None,
    ) -> None:
        origin = imported.origin
        self._origin = origin
        self._graph = graph
        self._templates = imported.constants
        self._rules = rules
        self._lineage = Lineage(imported, graph)
        self._names = UniqueNames(origin.names)
        self._labels = UniqueNames(_node_names(origin.model.graph))
        if opset is None or expressible(graph, opset) is not None:
            opset = raising.needed_opset(imported, graph)
        self._emitter = Emitter(graph, opset, self._names, imported.constants)
        outputs = {info.name for info in origin.model.graph.output}
        self._constants = ConstantWriter(imported, self._emitter, weights, outputs, self._emit_identity)
        self._new_values: list[int] = []
        self.external = imported.external

    def run(self) -> onnx.ModelProto:
        plan = self._plan()
        aliases = self._name_outputs()
        self._name_values(plan)
        for name in self._origin.kept_inputs:
            self._constants.copy_initializer(name)
        for node in plan.emitted:
            self._emit(node, plan)
        for source, output in aliases:
            self._emit_identity(source, output)
        fresh = (self._rules[node] for node in self._graph.order() if node in self._rules)
        return assemble(self._origin, self._emitter, fresh, self._new_values)

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
        if (
            not graph.is_const(node)
            or graph.op(node) in ("Constant", "Opaque")
            or self._lineage.original(node) is not None
        ):
            return False
        try:
            for value in wanted:
                self._constants.folder.folded(value)
        except GraphError:
            return False  # the evaluator lacks the operator: the runtime will fold it
        return True

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
                    if names[value] != self._lineage.name(node, value):
                        self._new_values.append(value)
                    continue
                original = self._lineage.name(node, value)
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
                self._constants.emit_folded(value)
        elif op == "Constant":
            self._constants.emit(node, self._lineage.name(node, self._graph.node_outputs(node)[0]))
        else:
            self._emit_node(node, plan)

    def _emit_node(self, node: int, plan: _Plan) -> None:
        original = self._lineage.original(node)
        before = len(self._emitter.nodes)
        if self._graph.op(node) == "Opaque":
            self._emit_opaque(node, original, plan)
        elif original is not None and original.slots is not None and self._keeps_form(original.node):
            self._emit_original(node, original, plan)
        else:
            outputs = [self._emitter.name(value) for value in self._graph.node_outputs(node)]
            label = original.node.name if original is not None else self._label(outputs[0])
            proto = self._emitter.emit(node, outputs, label)
            if original is not None:
                _copy_texts(original.node, proto)
        if original is None and node in self._rules and self._origin.model.ir_version >= NODE_METADATA_IR:
            for proto in self._emitter.nodes[before:]:
                helper.set_model_props(proto, {RULE_KEY: self._rules[node]})

    def _keeps_form(self, node: onnx.NodeProto) -> bool:
        return raising.same_form(node, self._origin.opset, self._emitter.opset)

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
                proto.input.append(self._constants.name(slot))
        self._set_outputs(proto, node, plan)
        self._emitter.nodes.append(proto)

    def _set_outputs(self, proto: onnx.NodeProto, node: int, plan: _Plan) -> None:
        """Names the outputs that the core knows; further ones, which nobody reads, keep their names."""
        for index, value in enumerate(self._graph.node_outputs(node)):
            if index < len(proto.output) and (proto.output[index] or value in plan.used):
                proto.output[index] = self._emitter.name(value)

    def _emit_opaque(self, node: int, original: Provenance | None, plan: _Plan) -> None:
        attrs = self._graph.attrs(node)
        template = self._templates.template(attrs["payload"])
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
        if proto.op_type == "If" and source.input:  # a faulty one has none
            self._keep_condition(proto, node, source.input[0])
        _copy_texts(source, proto)

    def _keep_condition(self, proto: onnx.NodeProto, node: int, name: str) -> None:
        """Computes the condition of an If as the file did, where shape arithmetic found it constant but the file had it
        computed.
        """
        condition = self._graph.node_inputs(node)[0]
        if not self._graph.is_const(self._graph.producer(condition)) or name in self._origin.constants:
            return
        chain = conditions.chain_of(self._origin, name)
        if chain is None:
            return
        self._emitter.nodes.pop()  # the If itself: what it reads comes first
        proto.input[0] = conditions.emit(chain, self._origin, self._emitter, self._constants.name)
        self._emitter.nodes.append(proto)


def _node_names(graph: onnx.GraphProto) -> set[str]:
    """Names of a graph's nodes and of those in the bodies below."""
    found: set[str] = set()
    scopes.walk(graph, lambda node: found.add(node.name))
    return found


def _copy_texts(source: onnx.NodeProto, target: onnx.NodeProto) -> None:
    """Gives a node another one's doc string and metadata, and no name where that one has none."""
    for text in ("name", "doc_string"):
        if not source.HasField(text):
            target.ClearField(text)
    if source.HasField("doc_string"):
        target.doc_string = source.doc_string
    del target.metadata_props[:]
    target.metadata_props.extend(source.metadata_props)


__all__ = ["RULES_KEY", "RULE_KEY", "baseline", "save_model", "slim_model"]
