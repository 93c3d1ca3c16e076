"""Several small residual networks over one input that share their first blocks, as in TASO's example."""

from __future__ import annotations

import argparse

import taso

ALPHA, BUDGET = 1.0, 1000
BLOCKS = ((64, 1), (64, 1), (64, 1), (128, 2), (128, 1), (128, 1), (128, 1))


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


def build(batch: int = 1, num_models: int = 1, num_shared_blocks: int = 0) -> taso.PyGraph:
    graph = taso.new_graph()
    shared = graph.new_input(dims=(batch, 3, 32, 32))
    for channels, stride in BLOCKS[:num_shared_blocks]:
        shared = block(graph, shared, channels, stride)
    for _ in range(num_models):
        x = shared
        for channels, stride in BLOCKS[num_shared_blocks:]:
            x = block(graph, x, channels, stride)
    return graph


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_models", type=int, default=1)
    parser.add_argument("--num_shared_blocks", type=int, default=0)
    options = parser.parse_args()
    built = build(num_models=options.num_models, num_shared_blocks=options.num_shared_blocks)
    optimized = taso.optimize(built, alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
