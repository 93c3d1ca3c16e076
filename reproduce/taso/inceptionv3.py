"""Inception-v3 as in TASO's example: every convolution with ReLU, without normalisation and classifier."""

from __future__ import annotations

import taso

ALPHA, BUDGET = 1.0, 30
Pair = tuple[int, int]


class Layers:
    """The network's modules, on one graph."""

    def __init__(self, graph: taso.PyGraph) -> None:
        self.graph = graph

    def conv(
        self, x: taso.PyTensor, channels: int, kernel: Pair = (1, 1), stride: int = 1, pad: bool = False
    ) -> taso.PyTensor:
        weight = self.graph.new_weight(dims=(channels, x.dim(1), *kernel))
        padding = "VALID" if not pad and sum(kernel) > 2 else "SAME"
        return self.graph.conv2d(input=x, weight=weight, strides=(stride, stride), padding=padding, activation="RELU")

    def largest(self, x: taso.PyTensor) -> taso.PyTensor:
        return self.graph.maxpool2d(input=x, kernels=(3, 3), strides=(2, 2), padding="VALID")

    def pooled(self, x: taso.PyTensor, channels: int) -> taso.PyTensor:
        return self.conv(self.graph.avgpool2d(input=x, kernels=(3, 3), strides=(1, 1), padding="SAME"), channels)

    def chain(self, x: taso.PyTensor, *steps: tuple[int, Pair]) -> taso.PyTensor:
        """Padded convolutions one after the other."""
        for channels, kernel in steps:
            x = self.conv(x, channels, kernel, pad=True)
        return x

    def module_a(self, x: taso.PyTensor, pool: int) -> taso.PyTensor:
        five = self.chain(x, (48, (1, 1)), (64, (5, 5)))
        double = self.chain(x, (64, (1, 1)), (96, (3, 3)), (96, (3, 3)))
        return self.graph.concat(1, [self.conv(x, 64), five, double, self.pooled(x, pool)])

    def module_b(self, x: taso.PyTensor) -> taso.PyTensor:
        double = self.conv(self.chain(x, (64, (1, 1)), (96, (3, 3))), 96, (3, 3), 2)
        return self.graph.concat(1, [self.conv(x, 384, (3, 3), 2), double, self.largest(x)])

    def module_c(self, x: taso.PyTensor, c: int) -> taso.PyTensor:
        seven = self.chain(x, (c, (1, 1)), (c, (1, 7)), (192, (7, 1)))
        double = self.chain(x, (c, (1, 1)), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7)))
        return self.graph.concat(1, [self.conv(x, 192), seven, double, self.pooled(x, 192)])

    def module_d(self, x: taso.PyTensor) -> taso.PyTensor:
        three = self.conv(self.conv(x, 192), 320, (3, 3), 2)
        seven = self.conv(self.chain(x, (192, (1, 1)), (192, (1, 7)), (192, (7, 1))), 192, (3, 3), 2)
        return self.graph.concat(1, [three, seven, self.largest(x)])

    def module_e(self, x: taso.PyTensor) -> taso.PyTensor:
        three = self.conv(x, 384)
        double = self.chain(x, (448, (1, 1)), (384, (3, 3)))
        halves = [self.chain(part, (384, kernel)) for part in (three, double) for kernel in ((1, 3), (3, 1))]
        return self.graph.concat(1, [self.conv(x, 320), *halves, self.pooled(x, 192)])


def build(batch: int = 32) -> taso.PyGraph:
    graph = taso.new_graph()
    net = Layers(graph)
    x = net.conv(graph.new_input(dims=(batch, 3, 299, 299)), 32, (3, 3), 2)
    x = net.conv(net.conv(x, 32, (3, 3)), 64, (3, 3), pad=True)
    x = net.conv(net.conv(net.largest(x), 80), 192, (3, 3))
    x = net.largest(x)
    for pool in (32, 64, 64):
        x = net.module_a(x, pool)
    x = net.module_b(x)
    for width in (128, 160, 160, 192):
        x = net.module_c(x, width)
    x = net.module_e(net.module_e(net.module_d(x)))
    graph.avgpool2d(input=x, kernels=(1, 1), strides=(1, 1), padding="VALID")
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
