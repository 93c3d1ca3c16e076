"""NasNet-A as in TASO's example: three stacks of five normal cells and a reduction cell."""

from __future__ import annotations

from nets import TasoNet

import taso
from rlflow.zoo import taso_nasnet

ALPHA, BUDGET = 1.0, 100


def build(batch: int = 1) -> taso.PyGraph:
    graph = taso.new_graph()
    taso_nasnet.network(TasoNet(graph), graph.new_input(dims=(batch, 3, 224, 224)), cells=5)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
