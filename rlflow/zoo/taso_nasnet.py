"""TASO's example graph NasNet-A: one separable convolution where the paper has two, and no ReLU or BN around it.

The zoo, TASO's script and Tensat's terms are written by :func:`network`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry
from rlflow.zoo.net import Net, OnnxNet, SameConvolution, Value

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_STACKS = 3
_STEM = 64
_FIRST = 128


def _squeezed(net: Net, previous: Value, current: Value, sizes: tuple[int, int, int]) -> tuple[Value, Value]:
    """Both inputs with ``sizes[2]`` channels; the first two are what they have."""

    # The ReLU halves the variance that the sums of the cell before have doubled, so no gain to make up for it.
    def fit() -> Value:
        return net.conv(previous, "fit", SameConvolution((sizes[0], sizes[2]), 1, relu=True))

    def squeeze() -> Value:
        return net.conv(current, "squeeze", SameConvolution((sizes[1], sizes[2]), 1, relu=True))

    if net.earlier_first:
        return fit(), squeeze()
    later = squeeze()
    return fit(), later


def _separable(net: Net, x: Value, name: str, channels: int, kernel: int, stride: int = 1) -> Value:
    with net.scope(name):
        x = net.conv(x, "depthwise", SameConvolution((channels, channels), kernel, stride=stride, groups=channels))
        return net.conv(x, "pointwise", SameConvolution((channels, channels), 1))


def _normal_cell(net: Net, previous: Value, current: Value, sizes: tuple[int, int, int]) -> Value:
    """``sizes``: channels of the two inputs and of each of the five sums."""
    channels = sizes[2]
    p, h = _squeezed(net, previous, current, sizes)
    sums = (
        (_separable(net, h, "left1", channels, 3), h),
        (_separable(net, p, "left2", channels, 3), _separable(net, h, "right2", channels, 3)),
        (net.pool(h, "Average"), p),
        (net.pool(p, "Average"), net.pool(p, "Average")),
        (_separable(net, p, "left5", channels, 3), _separable(net, p, "right5", channels, 3)),
    )
    return net.concat([net.apply("Add", *pair) for pair in sums])


def _reduction_cell(net: Net, previous: Value, current: Value, sizes: tuple[int, int, int]) -> Value:
    channels = sizes[2]
    p, h = _squeezed(net, previous, current, sizes)

    def add(x: Value, y: Value) -> Value:
        return net.apply("Add", x, y)

    first = add(_separable(net, p, "left1", channels, 7, 2), _separable(net, h, "right1", channels, 5, 2))
    second = add(net.pool(h, "Max", 2), _separable(net, p, "right2", channels, 7, 2))
    third = add(net.pool(h, "Average", 2), _separable(net, p, "right3", channels, 5, 2))
    fourth = add(net.pool(h, "Max", 2), _separable(net, first, "right4", channels, 3))
    fifth = add(net.pool(first, "Average"), second)
    return net.concat([first, second, third, fourth, fifth])


def network(net: Net, image: Value, cells: int, width: int = 100) -> Value:
    """The features of ``image`` [batch, 3, height, width]. ``cells``: normal cells of each of the three stacks;
    ``width``: percent of the original's channels.
    """
    into, channels = layers.scaled(_STEM, width), layers.scaled(_FIRST, width)
    x = net.conv(image, "stem", SameConvolution((3, into), 7, stride=2, relu=True, gain=layers.RELU_GAIN))
    x = net.pool(x, "Max", 2)
    for stack in range(_STACKS):
        previous, current, sizes = x, x, (into, into)
        for index in range(cells):
            with net.scope(f"stack{stack}.cell{index}"):
                previous, current = current, _normal_cell(net, previous, current, (*sizes, channels))
                sizes = (sizes[1], 5 * channels)
        channels *= 2
        with net.scope(f"stack{stack}.reduction"):
            x, into = _reduction_cell(net, previous, current, (*sizes, channels)), 5 * channels
    return x


def write(b: ModelBuilder, *, batch: int, image: int, cells: int, width: int) -> None:
    """``cells`` and ``width``: see :func:`network`."""
    b.output(network(OnnxNet(b), b.input("data", np.float32, (batch, 3, image, image)), cells, width), "features")


ENTRIES = (
    ZooEntry(
        name="taso/nasnet_a",
        title="TASO's NasNet-A: single separable convolutions, no BN, bias or classifier",
        source="TASO (Jia et al. 2019, doi 10.1145/3341301.3359630), examples/nasnet_a.py",
        shapes="data [batch, 3, image, image] float32 -> features [batch, channels, height, width]",
        write=write,
        options={"image": 224, "cells": 5, "width": 100},
    ),
)
