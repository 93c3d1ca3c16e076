"""Observations put side by side as tensors: nodes, edges and candidates in one row each, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlflow.graph.features import GraphFeatures
from rlflow.nn.observation import Observation


@dataclass(frozen=True)
class GraphBatch:
    """Graphs side by side. ``op``, ``dtype`` [n]; ``node`` [n, f]; ``source``, ``target`` [m]; ``edge`` [m, e];
    ``owner`` [n]: the graph of each node; ``count``: number of graphs.
    """

    op: Tensor
    dtype: Tensor
    node: Tensor
    source: Tensor
    target: Tensor
    edge: Tensor
    owner: Tensor
    count: int

    @classmethod
    def of(cls, graphs: Sequence[GraphFeatures], op_rows: np.ndarray) -> GraphBatch:
        sizes = [len(graph.op) for graph in graphs]
        begins = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)

        def links(name: str) -> Tensor:
            return _long(np.concatenate([getattr(g, name) + b for g, b in zip(graphs, begins, strict=True)]))

        return cls(
            _long(op_rows[np.concatenate([graph.op for graph in graphs])]),
            _long(np.concatenate([graph.dtype for graph in graphs])),
            torch.from_numpy(np.concatenate([graph.node for graph in graphs])),
            links("source"),
            links("target"),
            torch.from_numpy(np.concatenate([graph.edge for graph in graphs])),
            _long(np.repeat(np.arange(len(graphs)), sizes)),
            len(graphs),
        )

    def to(self, device: str | torch.device) -> GraphBatch:
        return GraphBatch(*[_moved(getattr(self, field.name), device) for field in fields(self)])


@dataclass(frozen=True)
class Batch:
    """States side by side. ``globals`` [s, g]; of the candidates: ``rule`` [k], ``delta`` [k, d], ``owner`` [k] (the
    state, ascending); ``touched`` [t] rows of ``graph``'s nodes and ``touched_by`` [t] the candidate. ``children``: the
    candidates' graphs in the candidates' order, where the observations hold them.
    """

    graph: GraphBatch
    globals: Tensor
    rule: Tensor
    delta: Tensor
    owner: Tensor
    touched: Tensor
    touched_by: Tensor
    children: GraphBatch | None = None

    @classmethod
    def of(cls, seen: Sequence[Observation], op_rows: np.ndarray) -> Batch:
        """``seen``: observations with embedding rows for rules (:meth:`TokenVocabulary.translate`)."""
        graph = GraphBatch.of([one.graph for one in seen], op_rows)
        nodes = np.cumsum([0, *(len(one.graph.op) for one in seen[:-1])])
        candidates = np.cumsum([0, *(one.candidates for one in seen[:-1])])
        children = [child for one in seen for child in one.children]
        return cls(
            graph,
            torch.from_numpy(np.stack([one.globals for one in seen])),
            _long(np.concatenate([one.rule for one in seen])),
            torch.from_numpy(np.concatenate([one.delta for one in seen])),
            _long(np.repeat(np.arange(len(seen)), [one.candidates for one in seen])),
            _long(np.concatenate([one.touched + begin for one, begin in zip(seen, nodes, strict=True)])),
            _long(np.concatenate([one.touched_by + begin for one, begin in zip(seen, candidates, strict=True)])),
            GraphBatch.of(children, op_rows) if children else None,
        )

    @property
    def count(self) -> int:
        """Number of states."""
        return self.graph.count

    def to(self, device: str | torch.device) -> Batch:
        return Batch(*[_moved(getattr(self, field.name), device) for field in fields(self)])


def _long(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))


def _moved(value: Any, device: str | torch.device) -> Any:
    return value.to(device) if isinstance(value, (Tensor, GraphBatch)) else value
