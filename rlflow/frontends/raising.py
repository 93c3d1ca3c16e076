"""Writing a model for a newer opset than it came with, where its user allows that and a rewrite needs it.

Nodes whose form is the same in both opsets stay as they were; the others are written anew from their canonical form.
What is not read as a graph (bodies, functions, operators that the table lacks) cannot be written anew: such a model
keeps its opset, unless the form is the same.
"""

from __future__ import annotations

import onnx

from rlflow.frontends import canonical, scopes
from rlflow.frontends.emitter import expressible
from rlflow.frontends.imported import ImportedModel
from rlflow.frontends.lineage import Lineage
from rlflow.graph import Graph

__all__ = ["allow_opset", "hindrance", "needed_opset", "newest_opset", "same_form"]


def newest_opset() -> int:
    """The newest opset of the default domain that the installed onnx knows."""
    return int(onnx.defs.onnx_opset_version())


def allow_opset(imported: ImportedModel, newest: int | None) -> None:
    """Lets rewrites of a model need up to this opset of the default domain; where the model cannot be written for it, a
    note says why. An opset that is not newer than the model's changes nothing.
    """
    origin = imported.origin
    if newest is None or imported.passthrough is not None or newest <= origin.opset:
        return
    reason = hindrance(imported, newest)
    if reason is None:
        origin.newest = newest
    else:
        imported.notes.append(f"The model stays at opset {origin.opset}, because {reason}.")


def needed_opset(imported: ImportedModel, graph: Graph) -> int:
    """The opset of the default domain for which ``graph``, a rewrite of the model's, is written: the model's own, or
    the first that has all new operators where that is allowed.
    """
    origin = imported.origin
    if not origin.newest:
        return origin.opset
    lineage = Lineage(imported, graph)
    rows = (canonical.row(graph.op(node)) for node in graph.order() if lineage.original(node) is None)
    needed = max((int(row["since"]) for row in rows if row is not None), default=0)
    return max(origin.opset, needed) if needed <= origin.newest else origin.opset


def same_form(node: onnx.NodeProto, before: int, after: int) -> bool:
    """Whether a node is written the same way for both opsets, because the later ones did not change its operator."""
    if before == after or scopes.domain_of(node):
        return True
    old, new = canonical.schema(node.op_type, before), canonical.schema(node.op_type, after)
    return old is not None and new is not None and old.since_version == new.since_version


def hindrance(imported: ImportedModel, other: int) -> str | None:
    """Why the model cannot be written for another opset than its own, newer or older, or None where it can."""
    model, own = imported.origin.model, imported.origin.opset
    if model.functions:
        return "it has functions of its own"
    graph = imported.graph
    for node in graph.order():
        if graph.op(node) != "Opaque":
            continue
        template = imported.constants.template(graph.attrs(node)["payload"])
        if template is None or any(scopes.bodies(template.node)):
            return f"{graph.attrs(node)['name']} nodes have bodies, which are carried as they are"
        if not same_form(template.node, own, other):
            return f"{scopes.describe(template.node)} is carried as it is, and is another operator in opset {other}"
    found = expressible(graph, other)
    return None if found is None else f"it cannot be written for another: {found}"
