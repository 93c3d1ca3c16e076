"""Tensat's benchmark graphs that its programs build in code: BERT, NasRNN, NasNet-A, ResNet-50, ResNeXt-50.

Sizes and wiring as in the published e-graphs (see docs/eqsat.md); the others are ``.model`` files.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rlflow.search.eqsat.tensat_text import TermBuilder, TermGraph, join_dims
from rlflow.zoo import nasrnn as cell
from rlflow.zoo import taso_bert, taso_nasnet
from rlflow.zoo.net import SameConvolution

SAME, NONE, RELU = 0, 0, 2


class _Terms:
    """Tensat's terms as what the zoo's networks are written over."""

    earlier_first = False

    def __init__(self) -> None:
        self.builder = TermBuilder()

    def scope(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def weight(self, name: str, *dims: int) -> int:
        return self.builder.weight(*dims)

    vector = weight

    def apply(self, operator: str, *values: int) -> int:
        if operator == "MatMul":
            return self.builder.with_numbers("matmul", (NONE,), *values)
        return self.builder.call(_HEADS.get(operator, operator.lower()), *values)

    def reshaped(self, x: int, shape: Sequence[int]) -> int:
        return self.builder.call("reshape", x, self.builder.leaf(join_dims(shape)))

    def transposed(self, x: int, perm: Sequence[int]) -> int:
        return self.builder.call("transpose", x, self.builder.leaf(join_dims(perm)), self.builder.leaf(1))

    def conv(self, x: int, name: str, how: SameConvolution) -> int:
        numbers = (how.stride,), (how.stride,), (SAME,), (RELU if how.relu else NONE,)
        return self.builder.with_numbers("conv2d", *numbers, x, self.weight(name, *how.weight))

    def pool(self, x: int, kind: str, stride: int = 1) -> int:
        return self.builder.with_numbers(_HEADS[kind], x, (3,), (3,), (stride,), (stride,), (SAME,), (NONE,))

    def concat(self, parts: Sequence[int]) -> int:
        return self.builder.with_numbers(f"concat{len(parts)}", (1,), (4,), *parts)


_HEADS = {"Add": "ewadd", "Mul": "ewmul", "Max": "poolmax", "Average": "poolavg"}


def bert() -> TermGraph:
    """Eight blocks of attention at sequence 64, hidden 1024, 16 heads; the next block reads input · W of the last."""
    b = _Terms()
    states, unread = taso_bert.stack(b, b.apply("Relu", b.builder.input(64, 1024)), (64, 16, 64), 8)
    return b.builder.finish([*unread, states])


def nasrnn() -> TermGraph:
    """Five steps of the cell at hidden size 512, each with its own weights."""
    b = _Terms()
    xs = [b.builder.input(1, 512) for _ in range(5)]
    return b.builder.finish([cell.unrolled(b, xs, b.weight("initial_state", 1, 512), 512)])


def nasneta() -> TermGraph:
    """Three stacks of five normal cells and a reduction cell, 128 channels at first."""
    b = _Terms()
    return b.builder.finish([taso_nasnet.network(b, b.builder.input(1, 3, 224, 224), 5)])


def resnet50() -> TermGraph:
    """Blocks 3, 4, 6, 3 of bottlenecks from 1x64x56x56; no stem, normalisation or classifier."""
    b = _Terms()
    return b.builder.finish([_bottlenecks(b, b.builder.input(1, 64, 56, 56), (64, 128, 256, 512), 4, 1)])


def resnext50() -> TermGraph:
    """32 groups, from 1x3x224x224 with a stem; no normalisation or classifier."""
    b = _Terms()
    stem = SameConvolution((3, 64), 7, stride=2, relu=True)
    x = b.pool(b.conv(b.builder.input(1, 3, 224, 224), "stem", stem), "Max", 2)
    return b.builder.finish([_bottlenecks(b, x, (128, 256, 512, 1024), 2, 32)])


def _bottlenecks(b: _Terms, x: int, widths: Sequence[int], expansion: int, groups: int) -> int:
    into = 64
    for stage, (blocks, width) in enumerate(zip((3, 4, 6, 3), widths, strict=True)):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x, into = _bottleneck(b, x, (into, width, expansion * width), stride, groups), expansion * width
    return x


def _bottleneck(b: _Terms, x: int, channels: tuple[int, int, int], stride: int, groups: int) -> int:
    into, width, out = channels
    t = b.conv(x, "conv1", SameConvolution((into, width), 1, relu=True))
    t = b.conv(t, "conv2", SameConvolution((width, width), 3, stride=stride, groups=groups, relu=True))
    t = b.conv(t, "conv3", SameConvolution((width, out), 1))
    if stride > 1 or into != out:
        x = b.conv(x, "shortcut", SameConvolution((into, out), 1, stride=stride, relu=True))
    return b.apply("Relu", b.apply("Add", x, t))


BENCHMARKS = {"bert": bert, "nasrnn": nasrnn, "nasneta": nasneta, "resnet50": resnet50, "resnext50": resnext50}
