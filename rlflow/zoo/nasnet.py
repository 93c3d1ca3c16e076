"""NasNet-A: cells of five sums of separable convolutions, poolings and identities, found by search on CIFAR-10.

A cell reads the outputs of the two cells before it. Stem and widths are those of the released ImageNet networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_EPSILON = 1e-3
_CELL_OUTPUTS = 6  # what a normal cell concatenates
_MIN_IMAGE = 32
# Gammas of what a cell adds up (inputs, separable convolutions): a sum then has the spread of one of its terms.
_TERM = sqrt(0.5)


@dataclass(frozen=True)
class _Value:
    """An activation [batch, channels, size, size]."""

    name: str
    channels: int
    size: int


def _pads(kernel: int, stride: int, size: int) -> tuple[int, int, int, int]:
    """TensorFlow's SAME padding in ONNX's order: for an even size and a stride of 2 the odd row is at the end."""
    before = kernel // 2 - (1 if stride == 2 and size % 2 == 0 else 0)
    return before, before, kernel // 2, kernel // 2


def _halved(size: int, stride: int) -> int:
    return -(-size // stride)


class _Net:
    """The model's builder, so that a cell reads as the paper's figure 4."""

    def __init__(self, b: ModelBuilder) -> None:
        self.b = b

    def norm(self, x: str, name: str, channels: int, center: float = 1.0) -> str:
        return layers.batch_norm(self.b, x, name, channels, epsilon=_EPSILON, center=center)

    def project(self, x: _Value, name: str, out: int) -> _Value:
        """ReLU, 1x1 convolution, BN."""
        with self.b.scope(name):
            y = layers.conv(self.b, self.b.node("Relu", x.name), "conv", (x.channels, out), 1)
            return _Value(self.norm(y, "bn", out, _TERM), out, x.size)

    def _half(self, x: _Value, name: str, out: int, kernel: int, stride: int, center: float = 1.0) -> _Value:
        """ReLU, depthwise and 1x1 convolution, BN: one of the two of a separable convolution."""
        c = x.channels
        with self.b.scope(name):
            y = self.b.node("Relu", x.name)
            pad = _pads(kernel, stride, x.size)
            y = layers.conv(self.b, y, "depthwise", (c, c), kernel, stride=stride, pad=pad, group=c)
            y = layers.conv(self.b, y, "pointwise", (c, out), 1, gain=1.0)
            return _Value(self.norm(y, "bn", out, center), out, _halved(x.size, stride))

    def separable(self, x: _Value, name: str, out: int, kernel: int, stride: int = 1) -> _Value:
        """A separable convolution applied twice, the second time without stride."""
        with self.b.scope(name):
            return self._half(self._half(x, "first", out, kernel, stride), "second", out, kernel, 1, _TERM)

    def pool(self, x: _Value, kind: str, stride: int = 1) -> _Value:
        """3x3 pooling; the mean leaves the padding out."""
        pad = _pads(3, stride, x.size)
        y = layers.pool(self.b, x.name, kind, 3, stride=stride, pad=pad, count_pad=False)
        return _Value(y, x.channels, _halved(x.size, stride))

    def add(self, x: _Value, y: _Value) -> _Value:
        return _Value(self.b.node("Add", [x.name, y.name]), x.channels, x.size)

    def concat(self, *parts: _Value) -> _Value:
        name = self.b.node("Concat", [part.name for part in parts], axis=1)
        return _Value(name, sum(part.channels for part in parts), parts[0].size)

    def fit(self, previous: _Value, current: _Value, out: int) -> _Value:
        """``previous`` with the size of ``current`` and ``out`` channels."""
        if previous.size == current.size:
            return previous if previous.channels == out else self.project(previous, "fit", out)
        with self.b.scope("fit"):
            x = self.b.node("Relu", previous.name)
            # The two halves see pixels of even and of odd places, so that halving the size loses none.
            shifted = self.b.node("Pad", x, pads=[0, 0, 0, 0, 0, 0, 1, 1], value=0.0, mode="constant")
            shifted = self.b.node("Slice", shifted, starts=[1, 1], ends=[previous.size + 1] * 2, axes=[2, 3])
            sizes = (out // 2, out - out // 2)
            halves = [
                layers.conv(
                    self.b,
                    layers.pool(self.b, source, "Average", 1, stride=2),
                    name,
                    (previous.channels, size),
                    1,
                )
                for source, name, size in zip((x, shifted), ("even", "odd"), sizes, strict=True)
            ]
            return _Value(self.norm(self.b.node("Concat", halves, axis=1), "bn", out, _TERM), out, current.size)


def _normal_cell(net: _Net, previous: _Value, current: _Value, out: int) -> _Value:
    p, h = net.fit(previous, current, out), net.project(current, "squeeze", out)
    return net.concat(
        p,
        net.add(net.separable(h, "left1", out, 5), net.separable(p, "right1", out, 3)),
        net.add(net.separable(p, "left2", out, 5), net.separable(p, "right2", out, 3)),
        net.add(net.pool(h, "Average"), p),
        net.add(net.pool(p, "Average"), net.pool(p, "Average")),
        net.add(net.separable(h, "left5", out, 3), h),
    )


def _reduction_cell(net: _Net, previous: _Value | None, current: _Value, out: int) -> _Value:
    p = current if previous is None else net.fit(previous, current, out)
    h = net.project(current, "squeeze", out)
    first = net.add(net.separable(h, "left1", out, 5, 2), net.separable(p, "right1", out, 7, 2))
    second = net.add(net.pool(h, "Max", 2), net.separable(p, "right2", out, 7, 2))
    third = net.add(net.pool(h, "Average", 2), net.separable(p, "right3", out, 5, 2))
    fourth = net.add(second, net.pool(first, "Average"))
    fifth = net.add(net.separable(first, "left5", out, 3), net.pool(h, "Max", 2))
    return net.concat(second, third, fourth, fifth)


def _stem(net: _Net, image: str, size: int, channels: int, filters: int) -> tuple[_Value, _Value]:
    b = net.b
    with b.scope("stem0"):
        x = net.norm(layers.conv(b, image, "conv", (3, channels), 3, stride=2), "bn", channels)
    first = _Value(x, channels, (size - 3) // 2 + 1)
    with b.scope("stem1"):
        second = _reduction_cell(net, None, first, max(1, filters // 4))
    with b.scope("stem2"):
        return second, _reduction_cell(net, first, second, max(1, filters // 2))


def write(
    b: ModelBuilder, *, batch: int, image: int, classes: int, cells: int, filters: int, stem: int, skip_reduction: bool
) -> None:
    """``cells``: normal cells of each of the three stages; ``filters``: channels of the first; ``stem``: of the stem.

    ``skip_reduction``: the first cell after a reduction reads, besides it, the cell two before it instead of one (the
    large release). The releases are called N @ penultimate, where penultimate = 24 · filters.
    """
    require(image >= _MIN_IMAGE, "nasnet-a", f"image is {image}", f"{_MIN_IMAGE} pixels or more")
    net = _Net(b)
    previous, current = _stem(net, b.input("input", np.float32, (batch, 3, image, image)), image, stem, filters)
    for stage in range(3):
        out = filters << stage
        if stage > 0:
            with b.scope(f"reduction{stage}"):
                reduced = _reduction_cell(net, previous, current, out)
            previous, current = (previous if skip_reduction else current), reduced
        for index in range(cells):
            with b.scope(f"stage{stage}.cell{index}"):
                previous, current = current, _normal_cell(net, previous, current, out)
    x = b.node("Relu", current.name)
    b.output(layers.global_pool_classifier(b, x, "fc", (_CELL_OUTPUTS * out, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="nasnet-a",
        title="NasNet-A 4 @ 1056 (mobile), no auxiliary head, BN not folded",
        source="Zoph et al. 2018 (arXiv 1707.07012), figure 4 and table 3; "
        "parameters: the trainable ones of Keras' NASNetMobile",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]; image >= 32",
        write=write,
        options={"image": 224, "classes": 1000, "cells": 4, "filters": 44, "stem": 32, "skip_reduction": False},
        parameters=5_289_978,
        macs=564_000_000,
    ),
    ZooEntry(
        name="nasnet-a-large",
        title="NasNet-A 6 @ 4032 (large), no auxiliary head, BN not folded",
        source="Zoph et al. 2018 (arXiv 1707.07012), figure 4 and table 2; "
        "parameters: the trainable ones of Keras' NASNetLarge",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]; image >= 32",
        write=write,
        options={"image": 331, "classes": 1000, "cells": 6, "filters": 168, "stem": 96, "skip_reduction": True},
        parameters=88_753_150,
        macs=23_800_000_000,
    ),
)
