"""A graph as arrays, for learned models; made in the core (``features.cc``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlflow._core import Graph, graph_features

#: Columns of ``GraphFeatures.node``. ``dim-4`` is the last but three of the first output's dims; logarithms have base 2
#: and are scaled to about one; ``attribute i``: attributes hashed by name and position (Weinberger et al. 2009).
NODE_COLUMNS = (
    *(f"log dim-{i}" for i in (4, 3, 2, 1)),
    "rank",
    "log elements",
    "outputs",
    "operands",
    "constant operands",
    "log constant elements",
    "users",
    "is graph output",
    "share of the cost of its region",
    "log price of its region",
    "is head of its region",
    "has no price",
    *(f"attribute {i}" for i in range(16)),
)
EDGE_COLUMNS = (
    *(f"log dim-{i}" for i in (4, 3, 2, 1)),
    "rank",
    "log elements",
    "operand slot",
    "output index",
)


class GraphFeatures(NamedTuple):
    """The nodes that do work or feed it, in canonical order, and the tensors between them.

    ``row`` [ids] int32: row of a node id, -1 where it has none (constants, and what only depends on them). ``op``
    [n] int32: index in the operator table; ``dtype`` [n] int32: ONNX number of the first output's type. ``node``
    [n, len(NODE_COLUMNS)] float32. ``source``, ``target`` [m] int32: rows at the ends of each tensor's way. ``edge``
    [m, len(EDGE_COLUMNS)] float32.
    """

    row: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    node: np.ndarray
    source: np.ndarray
    target: np.ndarray
    edge: np.ndarray

    @classmethod
    def of(cls, graph: Graph, pricer: Any = None) -> GraphFeatures:
        """The features of ``graph``; without a ``pricer`` (of :mod:`rlflow.price`) nothing has a price."""
        return cls(*graph_features(graph, pricer))


__all__ = ["EDGE_COLUMNS", "NODE_COLUMNS", "GraphFeatures"]
