"""RepVGG-A0 as it is trained: a block sums a 3x3, a 1x1 and, where shapes permit, an identity branch, each with BN."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# (blocks, channels) of each stage; the first block of a stage halves the image.
_STAGES = ((1, 48), (2, 48), (4, 96), (14, 192), (1, 1280))


def _block(b: ModelBuilder, x: str, into: int, out: int, stride: int) -> str:
    identity = into == out and stride == 1
    center = 1.0 / sqrt(3 if identity else 2)  # the sum of the branches then has the spread of one of them
    large = layers.conv(b, x, "conv3x3", (into, out), 3, stride=stride, pad=1)
    small = layers.conv(b, x, "conv1x1", (into, out), 1, stride=stride)
    total = b.node(
        "Add",
        [
            layers.batch_norm(b, large, "bn3x3", out, center=center),
            layers.batch_norm(b, small, "bn1x1", out, center=center),
        ],
    )
    if identity:
        total = b.node("Add", [total, layers.batch_norm(b, x, "bn_identity", out, center=center)])
    return b.node("Relu", total)


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels; ``width``: percent of the published channel counts."""
    x, channels = b.input("input", np.float32, (batch, 3, image, image)), 3
    for stage, (blocks, size) in enumerate(_STAGES):
        out = layers.scaled(size, width)
        for index in range(blocks):
            with b.scope(f"stage{stage}.block{index}"):
                x, channels = _block(b, x, channels, out, 2 if index == 0 else 1), out
    b.output(layers.global_pool_classifier(b, x, "linear", (channels, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="repvgg-a0",
        title="RepVGG-A0, training form",
        source="Ding et al. 2021 (arXiv 2101.03697), tables 2 and 4",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]",
        write=write,
        options={"image": 224, "classes": 1000, "width": 100},
        parameters=9_110_000,
    ),
)
