"""What the tests of the taso module share: a small graph, and the outputs of a model."""

from __future__ import annotations

import numpy as np
import onnx

import taso
from rlflow.frontends import reference


def two_products(seed: int = 0) -> taso.PyGraph:
    """x · A + x · B, for which one product does, and its relu."""
    graph = taso.new_graph(seed=seed)
    x = graph.new_input(dims=(4, 32))
    a, b = (graph.matmul(x, graph.new_weight(dims=(32, 16))) for _ in range(2))
    graph.relu(graph.mark_output(graph.add(a, b)))
    return graph


def outputs_of(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return reference.run(model, feeds)
