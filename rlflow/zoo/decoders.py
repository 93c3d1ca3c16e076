"""Dense prediction: decoders that enlarge by nearest neighbour, on a U-Net and on a ResNet-18."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers, resnet
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_LEVELS = 4  # halvings of the U-Net
_STRIDE = 32  # of the ResNet's last stage


def _double_conv(b: ModelBuilder, x: str, into: int, out: int) -> str:
    return layers.conv_norm(b, layers.conv_norm(b, x, "conv1", (into, out), 3), "conv2", (out, out), 3)


def _up(b: ModelBuilder, x: str, skip: str, channels: int) -> str:
    """Enlarges ``x`` of 2 · channels, narrows it by a 1x1, and joins it with ``skip`` of ``channels``."""
    x = layers.conv_norm(b, layers.upsample(b, x), "up", (2 * channels, channels), 1)
    return _double_conv(b, b.node("Concat", [skip, x], axis=1), 2 * channels, channels)


def write_unet(b: ModelBuilder, *, batch: int, image: int, classes: int, channels: int) -> None:
    """``image``: height and width in pixels, a multiple of 16; ``channels``: those of the first level."""
    require(image % (1 << _LEVELS) == 0, "unet", f"image is {image}", f"a multiple of {1 << _LEVELS}")
    x, into = b.input("input", np.float32, (batch, 3, image, image)), 3
    skips = []
    for level in range(_LEVELS + 1):
        with b.scope(f"down{level}"):
            out = channels << level
            x, into = _double_conv(b, x if level == 0 else layers.pool(b, x, "Max", 2, stride=2), into, out), out
            skips.append(x)
    for level in reversed(range(_LEVELS)):
        with b.scope(f"up{level}"):
            x = _up(b, x, skips[level], channels << level)
    b.output(layers.conv(b, x, "head", (channels, classes), 1, bias=True), "logits")


def _pyramid(b: ModelBuilder, stages: list[tuple[str, int]], finest: tuple[int, int, int, int]) -> list[str]:
    """Top-down sums of the stages, each with the channels of ``finest``, smoothed by a 3x3; the finest level, which has
    that shape, first."""
    batch, size, height, width = finest
    levels: list[str] = []
    top = ""
    for level, (x, channels) in reversed(list(enumerate(stages))):
        with b.scope(f"level{level}"):
            lateral = layers.conv(b, x, "lateral", (channels, size), 1, bias=True, gain=1.0)
            shape = (batch, size, height >> level, width >> level)
            top = b.node("Add", [lateral, layers.upsample_to(b, top, shape)]) if top else lateral
            levels.insert(0, layers.conv(b, top, "smooth", (size, size), 3, pad=1, bias=True, gain=1.0))
    return levels


def write_fpn(b: ModelBuilder, *, batch: int, image: int, width: int, pyramid: int) -> None:
    """``image``: a multiple of 32; ``width``: percent of the body's channels; ``pyramid``: channels of each level."""
    require(image % _STRIDE == 0, "fpn-resnet18", f"image is {image}", f"a multiple of {_STRIDE}")
    x = b.input("input", np.float32, (batch, 3, image, image))
    with b.scope("backbone"):
        stages = resnet.features(b, x, resnet.RESNET18, width)
    levels = _pyramid(b, stages, (batch, pyramid, image // 4, image // 4))
    coarsest = layers.pool(b, levels[-1], "Max", 1, stride=2)
    for level, value in enumerate(levels):
        b.output(value, f"level{level}")
    b.output(coarsest, "pool")


ENTRIES = (
    ZooEntry(
        name="unet",
        title="U-Net with nearest-neighbour decoder, BN not folded",
        source="Ronneberger et al. 2015 (arXiv 1505.04597), figure 1, padded, BN; up-convolution: nearest, then 1x1",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes, image, image]; image in 16s",
        write=write_unet,
        options={"image": 256, "classes": 21, "channels": 32},
    ),
    ZooEntry(
        name="fpn-resnet18",
        title="Feature pyramid on ResNet-18, as torchvision exports it",
        source="Lin et al. 2017 (arXiv 1612.03144), section 3, with torchvision's coarsest level; BN not folded",
        shapes="input [batch, 3, image, image] float32 -> level0 to level3 [batch, pyramid, image/4 to image/32, ...], "
        "pool [batch, pyramid, image/64, ...]; image in 32s",
        write=write_fpn,
        options={"image": 224, "width": 100, "pyramid": 256},
    ),
)
