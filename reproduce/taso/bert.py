"""The transformer of TASO's example as it is: K is not transposed, and no layer reads the attention of another."""

from __future__ import annotations

import taso

ALPHA, BUDGET = 1.0, 100
HIDDEN, HEADS, LENGTH, LAYERS = 1024, 16, 64, 8


def attention(graph: taso.PyGraph, x: taso.PyTensor) -> taso.PyTensor:
    """One layer; its attention output is left over, and so a graph output."""
    weights = [graph.new_weight(dims=(HIDDEN, HIDDEN)) for _ in range(4)]
    rows = x.dim(0)
    shape = (rows // LENGTH, LENGTH, HEADS, HIDDEN // HEADS)
    q, k, v = (
        graph.transpose(graph.reshape(graph.matmul(x, weight), shape=shape), perm=(0, 2, 1, 3), shuffle=True)
        for weight in weights[:3]
    )
    output = graph.transpose(graph.matmul(graph.matmul(q, k), v), perm=(0, 2, 1, 3), shuffle=True)
    graph.reshape(output, shape=(rows, HIDDEN))
    return graph.matmul(x, weights[3])


def build(batch: int = 16) -> taso.PyGraph:
    graph = taso.new_graph()
    x = graph.relu(graph.new_input(dims=(batch * LENGTH, HIDDEN)))
    for _ in range(LAYERS):
        x = attention(graph, x)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
