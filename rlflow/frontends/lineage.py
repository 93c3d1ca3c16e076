"""Which node of the file a node of a rewritten graph still is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlflow.frontends.imported import ImportedModel, Provenance
from rlflow.graph import Graph


class Lineage:
    """What a graph's nodes have in common with those of the model that it was made from."""

    def __init__(self, imported: ImportedModel, graph: Graph) -> None:
        self._origin = imported.origin
        self._graph = graph
        self._before, self._known = imported.graph, set(imported.graph.order())

    def original(self, node: int) -> Provenance | None:
        """The node's original, where it is still the same operator with the same attributes."""
        found = self._origin.nodes.get(node) if self.persists(node) else None
        if found is None or self._graph.op(node) != found.op or len(self._graph.node_inputs(node)) != found.inputs:
            return None
        return found if self._graph.attrs(node) == found.attrs else None

    def persists(self, node: int) -> bool:
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

    def name(self, node: int, value: int) -> str | None:
        """The name that a node's output had in the file."""
        return self._origin.value_names.get(value) if self.persists(node) else None


def _agree(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Whether two shapes may be one: they differ in no dimension that is a number in both."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(one, other, strict=True)
    )
