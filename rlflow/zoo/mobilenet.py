"""MobileNet-v2: inverted residuals, that is 1x1 to widen, depthwise 3x3, and a 1x1 to narrow without activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# Expansion, output channels, blocks, stride of the first block: table 2 of the paper.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_STEM, _LAST = 32, 1280


def _block(b: ModelBuilder, x: str, into: int, out: int, expansion: int, stride: int) -> str:
    inner, y = into * expansion, x
    if expansion != 1:
        y = layers.conv_norm(b, y, "expand", (into, inner), 1, activation="Relu6")
    y = layers.conv_norm(b, y, "depthwise", (inner, inner), 3, stride=stride, group=inner, activation="Relu6")
    y = layers.conv_norm(b, y, "project", (inner, out), 1, activation="")
    return b.node("Add", [x, y]) if stride == 1 and into == out else y


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels; ``width``: percent of the published channel counts."""
    channels = layers.scaled(_STEM, width)
    x = b.input("input", np.float32, (batch, 3, image, image))
    x = layers.conv_norm(b, x, "stem", (3, channels), 3, stride=2, activation="Relu6")
    for stage, (expansion, size, blocks, stride) in enumerate(_STAGES):
        out = layers.scaled(size, width)
        for index in range(blocks):
            with b.scope(f"stage{stage}.block{index}"):
                x, channels = _block(b, x, channels, out, expansion, stride if index == 0 else 1), out
    last = layers.scaled(_LAST, width)
    x = layers.conv_norm(b, x, "last", (channels, last), 1, activation="Relu6")
    b.output(layers.global_pool_classifier(b, x, "classifier", (last, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="mobilenet-v2",
        title="MobileNet-v2, BN not folded",
        source="Sandler et al. 2018 (arXiv 1801.04381), table 2, as in torchvision; a benchmark of Tensat",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]",
        write=write,
        options={"image": 224, "classes": 1000, "width": 100},
        parameters=3_504_872,
        macs=301_000_000,
    ),
)
