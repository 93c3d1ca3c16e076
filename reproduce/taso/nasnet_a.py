"""NasNet-A as in TASO's example: three stacks of five normal cells and a reduction cell."""

from __future__ import annotations

import taso

ALPHA, BUDGET = 1.0, 100


class Cells:
    """The layers of the cells, on one graph."""

    def __init__(self, graph: taso.PyGraph) -> None:
        self.graph = graph

    def conv(
        self, x: taso.PyTensor, channels: int, kernel: int, stride: int = 1, activation: str = "RELU"
    ) -> taso.PyTensor:
        weight = self.graph.new_weight(dims=(channels, x.dim(1), kernel, kernel))
        return self.graph.conv2d(
            input=x, weight=weight, strides=(stride, stride), padding="SAME", activation=activation
        )

    def fit(self, current: taso.PyTensor, previous: taso.PyTensor) -> taso.PyTensor:
        """The earlier tensor in the shape of the current one."""
        same = current.dim(2) == previous.dim(2)
        return self.conv(previous, current.dim(1), 1) if same else self.conv(previous, current.dim(1), 3, 2)

    def separable(self, x: taso.PyTensor, channels: int, kernel: int, stride: int = 1) -> taso.PyTensor:
        """One filter per channel, then 1x1."""
        weight = self.graph.new_weight(dims=(x.dim(1), 1, kernel, kernel))
        deep = self.graph.conv2d(input=x, weight=weight, strides=(stride, stride), padding="SAME")
        return self.conv(deep, channels, 1, activation="NONE")

    def average(self, x: taso.PyTensor, stride: int = 1) -> taso.PyTensor:
        return self.graph.avgpool2d(input=x, kernels=(3, 3), strides=(stride, stride), padding="SAME")

    def largest(self, x: taso.PyTensor) -> taso.PyTensor:
        return self.graph.maxpool2d(input=x, kernels=(3, 3), strides=(2, 2), padding="SAME")

    def normal(self, previous: taso.PyTensor, current: taso.PyTensor, c: int) -> taso.PyTensor:
        add = self.graph.add
        current = self.conv(current, c, 1)
        previous = self.fit(current, previous)
        sums = [
            add(self.separable(current, c, 3), current),
            add(self.separable(previous, c, 3), self.separable(current, c, 3)),
            add(self.average(current), previous),
            add(self.average(previous), self.average(previous)),
            add(self.separable(previous, c, 3), self.separable(previous, c, 3)),
        ]
        return self.graph.concat(1, sums)

    def reduction(self, previous: taso.PyTensor, current: taso.PyTensor, c: int) -> taso.PyTensor:
        add = self.graph.add
        current = self.conv(current, c, 1)
        previous = self.fit(current, previous)
        a = add(self.separable(previous, c, 7, 2), self.separable(current, c, 5, 2))
        b = add(self.largest(current), self.separable(previous, c, 7, 2))
        c_sum = add(self.average(current, 2), self.separable(previous, c, 5, 2))
        d = add(self.largest(current), self.separable(a, c, 3))
        e = add(self.average(a), b)
        return self.graph.concat(1, [a, b, c_sum, d, e])


def build(batch: int = 1) -> taso.PyGraph:
    graph = taso.new_graph()
    cells = Cells(graph)
    x = cells.conv(graph.new_input(dims=(batch, 3, 224, 224)), 64, 7, 2)
    x = cells.largest(x)
    channels = 128
    for _ in range(3):
        previous = current = x
        for _ in range(5):
            previous, current = current, cells.normal(previous, current, channels)
        channels *= 2
        x = cells.reduction(previous, current, channels)
    return graph


if __name__ == "__main__":
    optimized = taso.optimize(build(), alpha=ALPHA, budget=BUDGET)
    taso.export_onnx(optimized)
    print(optimized.cost())
