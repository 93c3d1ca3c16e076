"""Inception-v3 without the auxiliary classifier: Conv, batch normalisation (not folded) and ReLU throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# One convolution of a branch: output channels, kernel, stride, and whether the borders are padded to keep the size.
_Step = tuple[int, layers.Pair, int, bool]
_MIN_IMAGE = 75


class InceptionNet:
    """The model's builder and channel scale, so that a module reads as its table of branches.

    A subclass may exchange the convolution with what follows it. ``nested``: a fork at the end of a branch is
    concatenated before the branches are; ``count_pad``: means count the padding.
    """

    nested = True
    count_pad = True

    def __init__(self, b: ModelBuilder, width: int) -> None:
        self.b = b
        self.width = width

    def conv(self, x: str, name: str, into: int, step: _Step) -> tuple[str, int]:
        """One convolution with what follows it; returns the value and its (scaled) channels."""
        size, kernel, stride, same = step
        out = layers.scaled(size, self.width)
        height, wide = layers.pair(kernel)
        pad = (height // 2, wide // 2) if same else 0
        with self.b.scope(name):
            return self.layer(x, (into, out), kernel, stride, pad), out

    def layer(self, x: str, channels: tuple[int, int], kernel: layers.Pair, stride: int, pad: layers.Pair) -> str:
        """Conv + BN + ReLU."""
        y = layers.conv(self.b, x, "conv", channels, kernel, stride=stride, pad=pad)
        y = layers.batch_norm(self.b, y, "bn", channels[1], epsilon=0.001)
        return self.b.node("Relu", y)

    def chain(self, x: str, name: str, into: int, steps: Sequence[_Step]) -> tuple[str, int]:
        """Convolutions one after another."""
        for index, step in enumerate(steps, 1):
            x, into = self.conv(x, f"{name}_{index}", into, step)
        return x, into

    def concat(self, branches: Sequence[tuple[str, int]]) -> tuple[str, int]:
        """Branches side by side."""
        value = self.b.node("Concat", [value for value, _ in branches], axis=1)
        return value, sum(channels for _, channels in branches)

    def pooled(self, x: str, into: int, size: int) -> tuple[str, int]:
        """The pooling branch: 3x3 mean, then 1x1 convolution."""
        mean = layers.pool(self.b, x, "Average", 3, stride=1, pad=1, count_pad=self.count_pad)
        return self.conv(mean, "branch_pool", into, _same(size, 1))


def _same(size: int, kernel: layers.Pair) -> _Step:
    return size, kernel, 1, True


def _halve(size: int) -> _Step:
    return size, 3, 2, False


def _module_a(net: InceptionNet, x: str, into: int, pool_features: int) -> tuple[str, int]:
    return net.concat([
        net.conv(x, "branch1x1", into, _same(64, 1)),
        net.chain(x, "branch5x5", into, [_same(48, 1), _same(64, 5)]),
        net.chain(x, "branch3x3dbl", into, [_same(64, 1), _same(96, 3), _same(96, 3)]),
        net.pooled(x, into, pool_features),
    ])  # fmt: skip


def _module_b(net: InceptionNet, x: str, into: int) -> tuple[str, int]:
    return net.concat([
        net.conv(x, "branch3x3", into, _halve(384)),
        net.chain(x, "branch3x3dbl", into, [_same(64, 1), _same(96, 3), _halve(96)]),
        (layers.pool(net.b, x, "Max", 3, stride=2), into),
    ])  # fmt: skip


def _module_c(net: InceptionNet, x: str, into: int, inner: int) -> tuple[str, int]:
    row, column = (1, 7), (7, 1)
    double = [_same(inner, 1), _same(inner, column), _same(inner, row), _same(inner, column), _same(192, row)]
    return net.concat([
        net.conv(x, "branch1x1", into, _same(192, 1)),
        net.chain(x, "branch7x7", into, [_same(inner, 1), _same(inner, row), _same(192, column)]),
        net.chain(x, "branch7x7dbl", into, double),
        net.pooled(x, into, 192),
    ])  # fmt: skip


def _module_d(net: InceptionNet, x: str, into: int) -> tuple[str, int]:
    return net.concat([
        net.chain(x, "branch3x3", into, [_same(192, 1), _halve(320)]),
        net.chain(x, "branch7x7x3", into, [_same(192, 1), _same(192, (1, 7)), _same(192, (7, 1)), _halve(192)]),
        (layers.pool(net.b, x, "Max", 3, stride=2), into),
    ])  # fmt: skip


def _module_e(net: InceptionNet, x: str, into: int) -> tuple[str, int]:
    def fork(name: str, value: str, channels: int) -> list[tuple[str, int]]:
        parts = [
            net.conv(value, f"{name}_row", channels, _same(384, (1, 3))),
            net.conv(value, f"{name}_column", channels, _same(384, (3, 1))),
        ]
        return [net.concat(parts)] if net.nested else parts

    single = net.conv(x, "branch3x3_1", into, _same(384, 1))
    double = net.chain(x, "branch3x3dbl", into, [_same(448, 1), _same(384, 3)])
    return net.concat([
        net.conv(x, "branch1x1", into, _same(320, 1)),
        *fork("branch3x3_2", *single),
        *fork("branch3x3dbl_3", *double),
        net.pooled(x, into, 192),
    ])  # fmt: skip


_MODULES: tuple[tuple[str, Callable[..., tuple[str, int]], tuple[int, ...]], ...] = (
    ("mixed_5b", _module_a, (32,)),
    ("mixed_5c", _module_a, (64,)),
    ("mixed_5d", _module_a, (64,)),
    ("mixed_6a", _module_b, ()),
    ("mixed_6b", _module_c, (128,)),
    ("mixed_6c", _module_c, (160,)),
    ("mixed_6d", _module_c, (160,)),
    ("mixed_6e", _module_c, (192,)),
    ("mixed_7a", _module_d, ()),
    ("mixed_7b", _module_e, ()),
    ("mixed_7c", _module_e, ()),
)


def _stem(net: InceptionNet, x: str) -> tuple[str, int]:
    x, channels = net.chain(x, "stem1", 3, [(32, 3, 2, False), (32, 3, 1, False), (64, 3, 1, True)])
    x = layers.pool(net.b, x, "Max", 3, stride=2)
    x, channels = net.chain(x, "stem2", channels, [(80, 1, 1, False), (192, 3, 1, False)])
    return layers.pool(net.b, x, "Max", 3, stride=2), channels


def features(net: InceptionNet, image: str) -> tuple[str, int]:
    """The last module's value and its channels."""
    x, channels = _stem(net, image)
    for name, module, sizes in _MODULES:
        with net.b.scope(name):
            x, channels = module(net, x, channels, *sizes)
    return x, channels


def check_image(model: str, image: int) -> None:
    """Raises UsageError for an image that the reductions would use up."""
    require(
        image >= _MIN_IMAGE,
        model,
        f"image is {image}",
        f"{_MIN_IMAGE} pixels or more: the stem and two reductions halve it five times",
    )


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels, 75 at least; ``width``: percent of the published channel counts."""
    check_image("inception-v3", image)
    x, channels = features(InceptionNet(b, width), b.input("input", np.float32, (batch, 3, image, image)))
    b.output(layers.global_pool_classifier(b, x, "fc", (channels, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="inception-v3",
        title="Inception-v3, no auxiliary head, BN not folded",
        source="Szegedy et al. 2016 (arXiv 1512.00567), as in torchvision; used by TASO, Tensat, RLFlow and X-RLflow",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]; image >= 75",
        write=write,
        options={"image": 299, "classes": 1000, "width": 100},
        parameters=23_834_568,
        macs=5_713_000_000,
    ),
)
