"""NasRNN as in TASO's example: five steps of the cell, each with its own weights."""

from __future__ import annotations

from nets import TasoNet

import taso
from rlflow.zoo import nasrnn

ALPHA, BUDGET = 1.0, 100


def build(batch: int = 1, steps: int = 5, hidden: int = 512) -> taso.PyGraph:
    graph = taso.new_graph()
    xs = [graph.new_input(dims=(batch, hidden)) for _ in range(steps)]
    nasrnn.unrolled(TasoNet(graph), xs, graph.new_weight(dims=(1, hidden)), hidden)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
