"""SqueezeNet 1.1: squeeze (1x1) and expand (1x1 beside 3x3) convolutions with biases, no batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# (squeeze, expand) channels of each fire module; None is a max pooling.
_FIRES: tuple[tuple[int, int] | None, ...] = (
    None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256),
)  # fmt: skip


def _conv_relu(
    b: ModelBuilder, x: str, name: str, channels: tuple[int, int], kernel: int, stride: int = 1, pad: int = 0
) -> str:
    return b.node("Relu", layers.conv(b, x, name, channels, kernel, stride=stride, pad=pad, bias=True))


def _fire(b: ModelBuilder, x: str, name: str, into: int, squeeze: int, expand: int) -> str:
    with b.scope(name):
        narrow = _conv_relu(b, x, "squeeze", (into, squeeze), 1)
        small = _conv_relu(b, narrow, "expand1x1", (squeeze, expand), 1)
        large = _conv_relu(b, narrow, "expand3x3", (squeeze, expand), 3, pad=1)
        return b.node("Concat", [small, large], axis=1)


def write(b: ModelBuilder, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels, 17 at least; ``width``: percent of the published channel counts."""
    require(
        image >= 17,
        "squeezenet1.1",
        f"image is {image}",
        "17 pixels or more, so that every pooling has something to pool",
    )
    x = b.input("input", np.float32, (batch, 3, image, image))
    channels = layers.scaled(64, width)
    x = _conv_relu(b, x, "stem", (3, channels), 3, stride=2)
    for index, fire in enumerate(_FIRES):
        if fire is None:
            x = layers.pool(b, x, "Max", 3, stride=2, ceil=True)
            continue
        squeeze, expand = (layers.scaled(size, width) for size in fire)
        x = _fire(b, x, f"fire{index}", channels, squeeze, expand)
        channels = 2 * expand
    x = _conv_relu(b, x, "classifier", (channels, classes), 1)
    b.output(b.node("Flatten", b.node("GlobalAveragePool", x), axis=1), "logits")


ENTRIES = (
    ZooEntry(
        name="squeezenet1.1",
        title="SqueezeNet 1.1",
        source="Iandola et al. 2016 (arXiv 1602.07360), release 1.1; a benchmark of TASO, Tensat and X-RLflow",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]",
        write=write,
        options={"image": 224, "classes": 1000, "width": 100},
        parameters=1_235_496,
        macs=349_000_000,
    ),
)
