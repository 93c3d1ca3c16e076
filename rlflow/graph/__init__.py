"""The immutable graph value: made by a frontend, by a builder or from text, compared by digest.

>>> from rlflow.graph import Graph
>>> graph = Graph.parse("x: f32[2,3] = input  y = Relu(x)  return y")

Nodes and values are numbered; ``graph.order()`` lists the nodes in canonical topological order, which does not depend
on how or in which process the graph was made, nor does ``graph.digest``. Dimensions are integers, symbolic text such as
``"N*64"``, or ``None`` where unknown; dtypes are ONNX's numbers.
"""

from __future__ import annotations

import re
from collections import Counter

import rlflow.ops  # noqa: F401 - operators of other distributions, before a graph reads the table
from rlflow._core import Graph, GraphBuilder

__all__ = ["Graph", "GraphBuilder", "operator_counts", "symbols"]


def operator_counts(graph: Graph) -> Counter[str]:
    """How often each operator occurs, inputs and everything that only depends on constants left out."""
    work = (node for node in graph.order() if not graph.is_const(node))
    return Counter(graph.op(node) for node in work if graph.op(node) not in ("Input", "Constant"))


def symbols(graph: Graph) -> list[str]:
    """Names of the symbolic dimensions of the graph's inputs, in order of appearance."""
    found: dict[str, None] = {}
    for node in graph.inputs():
        for value in graph.node_outputs(node):
            for dim in graph.shape(value) or ():
                if isinstance(dim, str):
                    found |= dict.fromkeys(_names_in(dim))
    return list(found)


def _names_in(dim: str) -> list[str]:
    return re.findall(r"[^\W\d][\w.]*", dim)
