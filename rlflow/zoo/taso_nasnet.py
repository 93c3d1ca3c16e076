"""TASO's example graph NasNet-A: one separable convolution where the paper has two, and no ReLU or BN around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry
from rlflow.zoo.taso_resnet import stem

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_STACKS = 3
_STEM = 64
_FIRST = 128


def _squeeze(b: ModelBuilder, x: str, name: str, into: int, out: int) -> str:
    # The ReLU halves the variance that the sums of the cell before have doubled, so no gain to make up for it.
    return b.node("Relu", layers.conv(b, x, name, (into, out), 1, gain=1.0))


def _separable(b: ModelBuilder, x: str, name: str, channels: int, kernel: int, stride: int = 1) -> str:
    pad = kernel // 2
    with b.scope(name):
        x = layers.conv(
            b, x, "depthwise", (channels, channels), kernel, stride=stride, pad=pad, group=channels, gain=1.0
        )
        return layers.conv(b, x, "pointwise", (channels, channels), 1, gain=1.0)


def _pool(b: ModelBuilder, x: str, kind: str, stride: int = 1) -> str:
    return layers.pool(b, x, kind, 3, stride=stride, pad=1, count_pad=False)


def _normal_cell(b: ModelBuilder, previous: str, current: str, sizes: tuple[int, int, int]) -> str:
    """``sizes``: channels of the two inputs and of each of the five sums."""
    channels = sizes[2]
    p = _squeeze(b, previous, "fit", sizes[0], channels)
    h = _squeeze(b, current, "squeeze", sizes[1], channels)
    sums = (
        (_separable(b, h, "left1", channels, 3), h),
        (_separable(b, p, "left2", channels, 3), _separable(b, h, "right2", channels, 3)),
        (_pool(b, h, "Average"), p),
        (_pool(b, p, "Average"), _pool(b, p, "Average")),
        (_separable(b, p, "left5", channels, 3), _separable(b, p, "right5", channels, 3)),
    )
    return b.node("Concat", [b.node("Add", list(pair)) for pair in sums], axis=1)


def _reduction_cell(b: ModelBuilder, previous: str, current: str, sizes: tuple[int, int, int]) -> str:
    channels = sizes[2]
    p = _squeeze(b, previous, "fit", sizes[0], channels)
    h = _squeeze(b, current, "squeeze", sizes[1], channels)

    def add(x: str, y: str) -> str:
        return b.node("Add", [x, y])

    first = add(_separable(b, p, "left1", channels, 7, 2), _separable(b, h, "right1", channels, 5, 2))
    second = add(_pool(b, h, "Max", 2), _separable(b, p, "right2", channels, 7, 2))
    third = add(_pool(b, h, "Average", 2), _separable(b, p, "right3", channels, 5, 2))
    fourth = add(_pool(b, h, "Max", 2), _separable(b, first, "right4", channels, 3))
    fifth = add(_pool(b, first, "Average"), second)
    return b.node("Concat", [first, second, third, fourth, fifth], axis=1)


def write(b: ModelBuilder, *, batch: int, image: int, cells: int, width: int) -> None:
    """``cells``: normal cells of each of the three stacks; ``width``: percent of the original's channels."""
    into, channels = layers.scaled(_STEM, width), layers.scaled(_FIRST, width)
    x = stem(b, b.input("data", np.float32, (batch, 3, image, image)), into)
    for stack in range(_STACKS):
        previous, current, sizes = x, x, (into, into)
        for index in range(cells):
            with b.scope(f"stack{stack}.cell{index}"):
                previous, current = current, _normal_cell(b, previous, current, (*sizes, channels))
                sizes = (sizes[1], 5 * channels)
        channels *= 2
        with b.scope(f"stack{stack}.reduction"):
            x, into = _reduction_cell(b, previous, current, (*sizes, channels)), 5 * channels
    b.output(x, "features")


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
