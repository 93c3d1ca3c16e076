"""A taso graph as what the zoo's networks are written over."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import taso
from rlflow.zoo.net import SameConvolution

_POOLS = {"Max": "maxpool2d", "Average": "avgpool2d"}


class TasoNet:
    """Calls the methods of a graph; weights are drawn in the order in which they are made, and have no names."""

    earlier_first = False

    def __init__(self, graph: taso.PyGraph) -> None:
        self.graph = graph

    def scope(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def weight(self, name: str, rows: int, columns: int) -> taso.PyTensor:
        return self.graph.new_weight(dims=(rows, columns))

    def vector(self, name: str, size: int) -> taso.PyTensor:
        return self.graph.new_weight(dims=(size,))

    def apply(self, operator: str, *values: taso.PyTensor) -> taso.PyTensor:
        return getattr(self.graph, operator.lower())(*values)

    def reshaped(self, x: taso.PyTensor, shape: Sequence[int]) -> taso.PyTensor:
        return self.graph.reshape(x, shape=shape)

    def transposed(self, x: taso.PyTensor, perm: Sequence[int]) -> taso.PyTensor:
        return self.graph.transpose(x, perm=perm, shuffle=True)

    def conv(self, x: taso.PyTensor, name: str, how: SameConvolution) -> taso.PyTensor:
        weight, strides = self.graph.new_weight(dims=how.weight), (how.stride, how.stride)
        activation = "RELU" if how.relu else "NONE"
        return self.graph.conv2d(input=x, weight=weight, strides=strides, padding="SAME", activation=activation)

    def pool(self, x: taso.PyTensor, kind: str, stride: int = 1) -> taso.PyTensor:
        pool = getattr(self.graph, _POOLS[kind])
        return pool(input=x, kernels=(3, 3), strides=(stride, stride), padding="SAME")

    def concat(self, parts: Sequence[taso.PyTensor]) -> taso.PyTensor:
        return self.graph.concat(1, list(parts))
