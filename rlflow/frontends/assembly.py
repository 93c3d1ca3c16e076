"""A ModelProto of written nodes and initialisers, and everything else as the file had it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from rlflow.frontends import storage, symbolic
from rlflow.frontends.emitter import Emitter, UniqueNames, added_domains
from rlflow.frontends.imported import Origin
from rlflow.frontends.standalone import value_info

RULE_KEY = "rlflow.rule"
RULES_KEY = "rlflow.rules"
#: The first IR version in which a node carries metadata.
NODE_METADATA_IR = 10
#: Both names of ONNX's own domain.
_DEFAULT = frozenset({"", "ai.onnx"})


def assemble(origin: Origin, emitter: Emitter, rules: Iterable[str], new_values: Sequence[int]) -> onnx.ModelProto:
    """The model. ``rules``: names of the rules behind new nodes; ``new_values``: values that the file does not have
    under their names.
    """
    source = origin.model
    model = onnx.ModelProto()
    storage.copy_fields(source, model, skip=("graph",))
    storage.copy_fields(source.graph, model.graph, skip=("node", "initializer", "value_info"))
    model.graph.node.extend(emitter.nodes)
    _part_namesakes(model.graph, emitter.names)
    for entry in model.opset_import:
        if entry.domain in _DEFAULT:
            entry.version = emitter.opset  # another than the file's where that is allowed and of use
    imported = {entry.domain for entry in model.opset_import}
    if imported.isdisjoint(_DEFAULT) and any(node.domain in _DEFAULT for node in model.graph.node):
        model.opset_import.add(domain="", version=emitter.opset)  # a file of other domains alone has none
    for domain, version in added_domains(model.graph.node).items():
        if domain not in imported:
            model.opset_import.add(domain=domain, version=version)
    order = {tensor.name: index for index, tensor in enumerate(source.graph.initializer)}
    ranked = sorted(emitter.initializers, key=lambda tensor: order.get(tensor.name, len(order)))
    model.graph.initializer.extend(ranked)
    _add_value_info(model, origin, emitter, new_values)
    listed = {info.name for info in model.graph.input}
    if any(tensor.name not in listed for tensor in model.graph.initializer):
        model.ir_version = max(model.ir_version, 4)  # older versions list every initialiser among the inputs
    if model.ir_version < NODE_METADATA_IR:
        _note_rules(model, set(rules))
    return model


def _part_namesakes(graph: onnx.GraphProto, names: UniqueNames) -> None:
    """Renames all but the first of the nodes that have one name in the file: some runtimes refuse a model for it, or do
    once a rewrite moved one of them.
    """
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            node.name = names.fresh("node")
        if node.name:
            seen.add(node.name)


def _note_rules(model: onnx.ModelProto, fresh: set[str]) -> None:
    """Adds the names of the rules behind the graph's new nodes to those that the model lists already."""
    if not fresh:
        return
    entry = next((entry for entry in model.metadata_props if entry.key == RULES_KEY), None)
    if entry is None:
        entry = model.metadata_props.add(key=RULES_KEY)
    listed = {name for name in entry.value.split(", ") if name}
    entry.value = ", ".join(sorted(listed | fresh))


def _add_value_info(model: onnx.ModelProto, origin: Origin, emitter: Emitter, new_values: Sequence[int]) -> None:
    """The file's own value types where the value is still there under its name; inferred ones for new values."""
    made = {name for node in model.graph.node for name in node.output} | {
        tensor.name for tensor in model.graph.initializer
    }
    declared = {info.name for infos in (model.graph.input, model.graph.output) for info in infos}
    new = {emitter.name(value): value for value in new_values}
    kept = [info for info in origin.model.graph.value_info if info.name in made and info.name not in new]
    model.graph.value_info.extend(kept)
    for name, value in new.items():
        dtype = emitter.graph.dtype(value)
        if name in made and name not in declared and dtype:
            shape = emitter.graph.shape(value)
            model.graph.value_info.append(value_info(name, dtype, _public_dims(shape, origin.symbols)))


def _public_dims(shape: list[symbolic.Dim] | None, public: frozenset[str]) -> list[symbolic.Dim] | None:
    """Dimensions without the names that only this library gave."""
    if shape is None:
        return None
    return [dim if isinstance(dim, int) or set(symbolic.names([dim])) <= public else None for dim in shape]
