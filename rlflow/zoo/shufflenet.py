"""ShuffleNet-v2: half of the channels pass a unit unchanged; a shuffle (reshape, transpose, reshape) mixes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# Units and output channels of each stage at x1.0: table 5 of the paper. The first unit of a stage halves the image.
_STAGES = ((4, 116), (8, 232), (4, 464))
_STEM, _LAST = 24, 1024


def _shuffle(b: ModelBuilder, x: str, shape: tuple[int, int, int]) -> str:
    """Interleaves the two halves of the channels of ``x`` [batch, channels, size, size]."""
    batch, channels, size = shape
    halves = b.node("Reshape", x, shape=[batch, 2, channels // 2, size, size])
    return b.node("Reshape", b.node("Transpose", halves, perm=[0, 2, 1, 3, 4]), shape=[batch, channels, size, size])


def _branch(b: ModelBuilder, x: str, into: int, out: int, stride: int) -> str:
    x = layers.conv_norm(b, x, "pointwise1", (into, out), 1)
    x = layers.conv_norm(b, x, "depthwise", (out, out), 3, stride=stride, group=out, activation="")
    return layers.conv_norm(b, x, "pointwise2", (out, out), 1)


def _basic_unit(b: ModelBuilder, x: str, half: int) -> str:
    kept, worked = b.node_outputs("Split", x, 2, axis=1, split=[half, half])
    return b.node("Concat", [kept, _branch(b, worked, half, half, 1)], axis=1)


def _halving_unit(b: ModelBuilder, x: str, into: int, half: int) -> str:
    with b.scope("shortcut"):
        left = layers.conv_norm(b, x, "depthwise", (into, into), 3, stride=2, group=into, activation="")
        left = layers.conv_norm(b, left, "pointwise", (into, half), 1)
    return b.node("Concat", [left, _branch(b, x, into, half, 2)], axis=1)


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels; ``width``: percent of the channel counts of x1.0."""
    channels, size = layers.scaled(_STEM, width), image
    x = b.input("input", np.float32, (batch, 3, image, image))
    x = layers.conv_norm(b, x, "stem", (3, channels), 3, stride=2)
    x = layers.pool(b, x, "Max", 3, stride=2, pad=1)
    for _ in range(2):  # the stem's convolution and pooling; a padded stride of 2 rounds up
        size = (size + 1) // 2
    for stage, (units, out) in enumerate(_STAGES):
        half, size = layers.scaled(out // 2, width), (size + 1) // 2
        for index in range(units):
            with b.scope(f"stage{stage + 2}.unit{index}"):
                joined = _halving_unit(b, x, channels, half) if index == 0 else _basic_unit(b, x, half)
                channels = 2 * half
                x = _shuffle(b, joined, (batch, channels, size))
    last = layers.scaled(_LAST, width)
    x = layers.conv_norm(b, x, "last", (channels, last), 1)
    pooled = b.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    b.output(layers.dense(b, pooled, "fc", (last, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="shufflenet-v2",
        title="ShuffleNet-v2 x1.0, BN not folded",
        source="Ma et al. 2018 (arXiv 1807.11164), table 5, as in torchvision",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]",
        write=write,
        options={"image": 224, "classes": 1000, "width": 100},
        parameters=2_278_604,
        macs=145_000_000,
    ),
)
