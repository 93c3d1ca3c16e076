"""A model as the search sees it: the core graph, its constants, and where each of its nodes came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from rlflow.frontends.constants import ConstantStore
from rlflow.frontends.emitter import expressible
from rlflow.frontends.opening import read_file
from rlflow.graph import Graph

Slot = int | str | None


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

    ``source``: the file that it was read from, if it was one. ``symbols``: the names that the file gives to open
    dimensions; ``unnamed``: those that the others got here.
    ``newest``: the newest opset that a rewrite may need (0: the model's own, and no newer one).
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
    newest: int = 0
    source: str | None = None


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
            return read_file(self.source_path)
        source = self.origin.model if self._source is None else self._source
        return source.SerializeToString(deterministic=True)

    def in_place_of(self, other: ImportedModel) -> ImportedModel:
        """This model, which came as ``other`` came: where nothing is gained, that is what is written."""
        return replace(self, source_path=other.source_path, _source=other._source, external=other.external)

    def inexpressible(self, graph: Graph) -> str | None:
        """Why ``graph``, a rewrite of this model's, cannot be written for the newest opset that it may have (the
        model's own, unless more is allowed), or None where it can.

        Looks at new nodes only: what came from the file can be written as it came.
        """
        known = self.origin.nodes
        new = [node for node in graph.order() if node not in known or graph.attrs(node) != known[node].attrs]
        return expressible(graph, max(self.origin.opset, self.origin.newest), new)
