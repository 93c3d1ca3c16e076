"""What a benchmark network is written over, so that one text gives an ONNX model, a ``taso`` graph or Tensat's terms.

The networks that TASO and Tensat share with the zoo (NasRNN, BERT, NasNet-A) are functions over a :class:`Net`. Values
are whatever the net makes of them: names, tensors, numbers of terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlflow.zoo import layers

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

Value = Any


@dataclass(frozen=True)
class SameConvolution:
    """From ``channels[0]`` to ``channels[1]`` with SAME padding and a weight of that ``gain``; ``relu``: activated."""

    channels: tuple[int, int]
    kernel: int
    stride: int = 1
    groups: int = 1
    relu: bool = False
    gain: float = 1.0

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """The weight's shape."""
        return self.channels[1], self.channels[0] // self.groups, self.kernel, self.kernel


class Net(Protocol):
    """``earlier_first``: which of its two inputs a cell of NasNet-A squeezes first. The computation is the same, but
    weights without names are drawn in the order in which they are made.
    """

    earlier_first: bool

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Where what is made inside belongs, for the names of nodes and weights."""
        ...

    def weight(self, name: str, rows: int, columns: int) -> Value:
        """A matrix [rows, columns]."""
        ...

    def vector(self, name: str, size: int) -> Value:
        """A bias [size]."""
        ...

    def apply(self, operator: str, *values: Value) -> Value:
        """MatMul, Add, Mul, Relu, Sigmoid or Tanh."""
        ...

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value: ...

    def transposed(self, x: Value, perm: Sequence[int]) -> Value: ...

    def conv(self, x: Value, name: str, how: SameConvolution) -> Value: ...

    def pool(self, x: Value, kind: str, stride: int = 1) -> Value:
        """3x3 pooling, ``Max`` or ``Average``, with SAME padding."""
        ...

    def concat(self, parts: Sequence[Value]) -> Value:
        """Along the channels."""
        ...


class OnnxNet:
    """Writes ONNX through a builder; a stride of two pads both ends alike."""

    earlier_first = True

    def __init__(self, b: ModelBuilder) -> None:
        self.b = b

    def scope(self, name: str) -> AbstractContextManager[None]:
        return self.b.scope(name)

    def weight(self, name: str, rows: int, columns: int) -> str:
        return self.b.weight(name, (rows, columns), rows)

    def vector(self, name: str, size: int) -> str:
        return self.b.bias(name, size)

    def apply(self, operator: str, *values: str) -> str:
        return self.b.node(operator, list(values))

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return self.b.node("Reshape", x, shape=list(shape))

    def transposed(self, x: str, perm: Sequence[int]) -> str:
        return self.b.node("Transpose", x, perm=list(perm))

    def conv(self, x: str, name: str, how: SameConvolution) -> str:
        place, pad = (how.channels, how.kernel), how.kernel // 2
        y = layers.conv(self.b, x, name, *place, stride=how.stride, pad=pad, group=how.groups, gain=how.gain)
        return self.b.node("Relu", y) if how.relu else y

    def pool(self, x: str, kind: str, stride: int = 1) -> str:
        return layers.pool(self.b, x, kind, 3, stride=stride, pad=1, count_pad=False)

    def concat(self, parts: Sequence[str]) -> str:
        return self.b.node("Concat", list(parts), axis=1)
