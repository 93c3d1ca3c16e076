"""TASO's example graphs on residual blocks: ResNet-50 without stem, ResNeXt-50, and the short one that it batches.

As there: no normalisation, no bias, no classifier; a ReLU after every convolution but a block's last, that of the
shortcut included. The original fuses it into the convolution, which ONNX does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# Nothing normalises these graphs, so that every block adds to the signal's variance: by a quarter, with this scale.
_BRANCH_GAIN = sqrt(0.5)
_IMAGE, _STEM = 3, 64


@dataclass(frozen=True)
class _Plan:
    """``stages``: (blocks, width); a block ends with ``expansion`` times its width; ``into``: channels of the input;
    ``stem``: the graph starts with one."""

    name: str
    stages: tuple[tuple[int, int], ...]
    expansion: int = 4
    groups: int = 1
    into: int = _IMAGE
    stem: bool = False


def conv_relu(b: ModelBuilder, x: str, name: str, channels: tuple[int, int], kernel: int, *, stride: int = 1) -> str:
    """Convolution with SAME padding (symmetric) and ReLU."""
    return b.node("Relu", layers.conv(b, x, name, channels, kernel, stride=stride, pad=kernel // 2))


def stem(b: ModelBuilder, image: str, channels: int) -> str:
    """7x7 convolution with ReLU and 3x3 max pooling, each of stride 2."""
    x = conv_relu(b, image, "stem", (3, channels), 7, stride=2)
    return layers.pool(b, x, "Max", 3, stride=2, pad=1)


def _block(b: ModelBuilder, x: str, plan: _Plan, into: int, size: int, stride: int) -> str:
    out = size * plan.expansion
    y = conv_relu(b, x, "conv1", (into, size), 1)
    y = b.node("Relu", layers.conv(b, y, "conv2", (size, size), 3, stride=stride, pad=1, group=plan.groups))
    y = layers.conv(b, y, "conv3", (size, out), 1, gain=_BRANCH_GAIN)
    if stride > 1 or into != out:
        x = conv_relu(b, x, "shortcut", (into, out), 1, stride=stride)
    return b.node("Relu", b.node("Add", [x, y]))


def write(b: ModelBuilder, plan: _Plan, *, batch: int, image: int, width: int) -> None:
    """``image``: height and width of the input; ``width``: percent of the original's channels."""
    widths = [layers.scaled(size, width) for _, size in plan.stages]
    require(
        all(size % plan.groups == 0 for size in widths),
        plan.name,
        f"width {width} leaves {widths} channels for {plan.groups} groups",
        "a whole number in each",
    )
    channels = plan.into if plan.into == _IMAGE else layers.scaled(plan.into, width)
    x = b.input("data", np.float32, (batch, channels, image, image))
    if plan.stem:
        channels = layers.scaled(_STEM, width)
        x = stem(b, x, channels)
    for stage, ((count, _), size) in enumerate(zip(plan.stages, widths, strict=True)):
        for index in range(count):
            with b.scope(f"stage{stage}.block{index}"):
                x = _block(b, x, plan, channels, size, 2 if stage > 0 and index == 0 else 1)
                channels = size * plan.expansion
    b.output(x, "features")


_RESNET50 = _Plan("taso/resnet50", ((3, 64), (4, 128), (6, 256), (3, 512)), into=_STEM)
_RESNEXT50 = _Plan("taso/resnext50", ((3, 128), (4, 256), (6, 512), (3, 1024)), expansion=2, groups=32, stem=True)
_BATCHED = _Plan("taso/batched_resnet", ((3, 64), (4, 128)))


def _entry(plan: _Plan, title: str, shape: str, image: int) -> ZooEntry:
    return ZooEntry(
        name=plan.name,
        title=title,
        source=f"TASO (Jia et al. 2019, doi 10.1145/3341301.3359630), examples/{plan.name.removeprefix('taso/')}.py",
        shapes=f"data {shape} float32 -> features [batch, channels, height, width]",
        write=partial(write, plan=plan),
        options={"image": image, "width": 100},
    )


ENTRIES = (
    _entry(_RESNET50, "TASO's ResNet-50: no stem, BN, bias or classifier", "[batch, 64, image, image]", 56),
    _entry(_RESNEXT50, "TASO's ResNeXt-50: no BN, bias or classifier", "[batch, 3, image, image]", 224),
    _entry(_BATCHED, "TASO's short ResNet, one model of its batch", "[batch, 3, image, image]", 32),
)
