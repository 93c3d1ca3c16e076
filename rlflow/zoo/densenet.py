"""DenseNet-121: a layer reads the concatenation of all earlier ones of its block; BN, ReLU, then convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_BLOCKS = (6, 12, 24, 16)
_BOTTLENECK = 4


def _norm_relu(b: ModelBuilder, x: str, name: str, channels: int) -> str:
    return b.node("Relu", layers.batch_norm(b, x, name, channels))


def _dense_layer(b: ModelBuilder, x: str, channels: int, growth: int) -> str:
    inner = _BOTTLENECK * growth
    x = layers.conv(b, _norm_relu(b, x, "norm1", channels), "conv1", (channels, inner), 1)
    return layers.conv(b, _norm_relu(b, x, "norm2", inner), "conv2", (inner, growth), 3, pad=1)


def _dense_block(b: ModelBuilder, x: str, count: int, channels: int, growth: int) -> tuple[str, int]:
    features = [x]
    for index in range(1, count + 1):
        with b.scope(f"layer{index}"):
            joined = features[0] if len(features) == 1 else b.node("Concat", features, axis=1)
            features.append(_dense_layer(b, joined, channels, growth))
            channels += growth
    return b.node("Concat", features, axis=1), channels


def _transition(b: ModelBuilder, x: str, channels: int) -> tuple[str, int]:
    x = layers.conv(b, _norm_relu(b, x, "norm", channels), "conv", (channels, channels // 2), 1)
    return layers.pool(b, x, "Average", 2, stride=2), channels // 2


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, growth: int) -> None:
    """``image``: height and width in pixels, 29 at least; ``growth``: channels that a layer adds (32 in the paper)."""
    require(image >= 29, "densenet-121", f"image is {image}", "29 pixels or more: it is halved five times")
    channels = 2 * growth
    x = b.input("input", np.float32, (batch, 3, image, image))
    x = _norm_relu(b, layers.conv(b, x, "conv0", (3, channels), 7, stride=2, pad=3), "norm0", channels)
    x = layers.pool(b, x, "Max", 3, stride=2, pad=1)
    for number, count in enumerate(_BLOCKS, 1):
        with b.scope(f"denseblock{number}"):
            x, channels = _dense_block(b, x, count, channels, growth)
        if number < len(_BLOCKS):
            with b.scope(f"transition{number}"):
                x, channels = _transition(b, x, channels)
    x = _norm_relu(b, x, "norm5", channels)
    b.output(layers.global_pool_classifier(b, x, "classifier", (channels, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="densenet-121",
        title="DenseNet-121, BN not folded",
        source="Huang et al. 2017 (arXiv 1608.06993), table 1, as in torchvision",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]; image >= 29",
        write=write,
        options={"image": 224, "classes": 1000, "growth": 32},
        parameters=7_978_856,
        macs=2_834_000_000,
    ),
)
