"""The transformer of TASO's example as it is: K is not transposed, and no layer reads the attention of another."""

from __future__ import annotations

from nets import TasoNet

import taso
from rlflow.zoo import taso_bert

ALPHA, BUDGET = 1.0, 100


def build(batch: int = 16, length: int = 64, layers: int = 8, hidden: int = 1024, heads: int = 16) -> taso.PyGraph:
    """The attentions are left over, and so graph outputs."""
    graph = taso.new_graph()
    x = graph.relu(graph.new_input(dims=(batch * length, hidden)))
    taso_bert.stack(TasoNet(graph), x, (batch, length, heads, hidden // heads), layers)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
