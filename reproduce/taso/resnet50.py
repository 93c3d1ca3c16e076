"""ResNet-50 as in TASO's example: 16 bottleneck blocks, without stem, normalisation and classifier."""

from __future__ import annotations

import taso

ALPHA, BUDGET = 1.0, 1000
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


def block(graph: taso.PyGraph, x: taso.PyTensor, channels: int, stride: int) -> taso.PyTensor:
    """1x1, 3x3, 1x1 with a shortcut, which is a convolution where the shape changes."""
    width, out = x.dim(1), 4 * channels
    first = graph.new_weight(dims=(channels, width, 1, 1))
    main = graph.conv2d(input=x, weight=first, strides=(1, 1), padding="SAME", activation="RELU")
    second = graph.new_weight(dims=(channels, channels, 3, 3))
    main = graph.conv2d(input=main, weight=second, strides=(stride, stride), padding="SAME", activation="RELU")
    main = graph.conv2d(input=main, weight=graph.new_weight(dims=(out, channels, 1, 1)), strides=(1, 1), padding="SAME")
    if stride > 1 or width != out:
        weight = graph.new_weight(dims=(out, width, 1, 1))
        x = graph.conv2d(input=x, weight=weight, strides=(stride, stride), padding="SAME", activation="RELU")
    return graph.relu(graph.add(x, main))


def build(batch: int = 1) -> taso.PyGraph:
    graph = taso.new_graph()
    x = graph.new_input(dims=(batch, 64, 56, 56))
    for count, channels, stride in STAGES:
        for index in range(count):
            x = block(graph, x, channels, stride if index == 0 else 1)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
