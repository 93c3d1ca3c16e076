"""NasRNN as in TASO's example: five steps of the cell, each with its own weights."""

from __future__ import annotations

import taso

ALPHA, BUDGET = 1.0, 100
HIDDEN, STEPS = 512, 5


def combine(graph: taso.PyGraph, x: taso.PyTensor, state: taso.PyTensor) -> taso.PyTensor:
    """x · W + state · U."""
    w, u = (graph.new_weight(dims=(HIDDEN, HIDDEN)) for _ in range(2))
    return graph.add(graph.matmul(x, w), graph.matmul(state, u))


def cell(graph: taso.PyGraph, x: taso.PyTensor, state: taso.PyTensor) -> taso.PyTensor:
    t = [combine(graph, x, state) for _ in range(8)]
    relu, sigmoid, tanh, add, mul = graph.relu, graph.sigmoid, graph.tanh, graph.add, graph.mul
    m0 = add(relu(t[0]), sigmoid(t[3]))
    m1 = add(sigmoid(t[1]), tanh(t[2]))
    m2 = mul(sigmoid(t[4]), tanh(t[5]))
    m3 = mul(sigmoid(t[6]), relu(t[7]))
    m4 = add(sigmoid(m1), tanh(m2))
    m5 = mul(tanh(m0), tanh(m3))
    return tanh(mul(tanh(m4), tanh(m5)))


def build(batch: int = 1) -> taso.PyGraph:
    graph = taso.new_graph()
    xs = [graph.new_input(dims=(batch, HIDDEN)) for _ in range(STEPS)]
    state = graph.new_weight(dims=(1, HIDDEN))
    for x in xs:
        state = cell(graph, x, state)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
