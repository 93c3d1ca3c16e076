"""Residual networks: ResNet-18, ResNet-50 and ResNeXt-50, batch normalisation not folded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_EXPANSION = 4
# Gammas of a block's last normalisation: trained ones are small, so that a block adds a part of what passes it by.
_BRANCH = 0.5


@dataclass(frozen=True)
class ResNetPlan:
    """``blocks``: residual blocks in each of the four stages; ``bottleneck``: 1x1, 3x3 in ``groups``, 1x1 instead of
    3x3, 3x3; ``inner``: width of a bottleneck's 3x3 as a multiple of the stage's."""

    name: str
    blocks: tuple[int, int, int, int]
    bottleneck: bool = True
    groups: int = 1
    inner: int = 1


RESNET18 = ResNetPlan("resnet-18", (2, 2, 2, 2), bottleneck=False)
RESNET50 = ResNetPlan("resnet-50", (3, 4, 6, 3))
RESNEXT50 = ResNetPlan("resnext-50", (3, 4, 6, 3), groups=32, inner=2)


def _branch(b: ModelBuilder, x: str, plan: ResNetPlan, into: int, size: int, out: int, stride: int) -> str:
    if not plan.bottleneck:
        x = layers.conv_norm(b, x, "conv1", (into, size), 3, stride=stride)
        return layers.conv_norm(b, x, "conv2", (size, out), 3, activation="", center=_BRANCH)
    inner = size * plan.inner
    x = layers.conv_norm(b, x, "conv1", (into, inner), 1)
    x = layers.conv_norm(b, x, "conv2", (inner, inner), 3, stride=stride, group=plan.groups)
    return layers.conv_norm(b, x, "conv3", (inner, out), 1, activation="", center=_BRANCH)


def _block(b: ModelBuilder, x: str, plan: ResNetPlan, into: int, size: int, stride: int) -> tuple[str, int]:
    out = size * _EXPANSION if plan.bottleneck else size
    branch = _branch(b, x, plan, into, size, out, stride)
    if stride != 1 or into != out:
        x = layers.conv_norm(b, x, "downsample", (into, out), 1, stride=stride, activation="")
    return b.node("Relu", b.node("Add", [branch, x])), out


def features(b: ModelBuilder, x: str, plan: ResNetPlan, width: int) -> list[tuple[str, int]]:
    """The stages' last values with their channels, at 1/4, 1/8, 1/16 and 1/32 of the image's size.

    ``width``: percent of the published channel counts. Raises UsageError where it leaves no whole groups.
    """
    base = layers.scaled(64, width)
    require(
        base * plan.inner % plan.groups == 0,
        plan.name,
        f"width {width} leaves {base * plan.inner} channels for {plan.groups} groups",
        "a whole number in each",
    )
    x = layers.conv_norm(b, x, "stem", (3, base), 7, stride=2)
    x, channels = layers.pool(b, x, "Max", 3, stride=2, pad=1), base
    stages = []
    for stage, count in enumerate(plan.blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            with b.scope(f"stage{stage + 1}.block{index}"):
                x, channels = _block(b, x, plan, channels, base << stage, stride)
        stages.append((x, channels))
    return stages


def write(b: ModelBuilder, plan: ResNetPlan, *, batch: int, image: int, classes: int, width: int) -> None:
    """``image``: height and width in pixels; ``width``: percent of the published channel counts."""
    x, channels = features(b, b.input("input", np.float32, (batch, 3, image, image)), plan, width)[-1]
    b.output(layers.global_pool_classifier(b, x, "fc", (channels, classes)), "logits")


def _entry(plan: ResNetPlan, title: str, source: str, parameters: int, macs: int) -> ZooEntry:
    return ZooEntry(
        name=plan.name,
        title=title,
        source=source,
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]",
        write=partial(write, plan=plan),
        options={"image": 224, "classes": 1000, "width": 100},
        parameters=parameters,
        macs=macs,
    )


_HE = "He et al. 2016 (arXiv 1512.03385), table 1, as in torchvision (stride in the 3x3)"
_XIE = "Xie et al. 2017 (arXiv 1611.05431), table 1, 32x4d, as in torchvision"

ENTRIES = (
    _entry(RESNET18, "ResNet-18, BN not folded", _HE, 11_689_512, 1_814_000_000),
    _entry(RESNET50, "ResNet-50, BN not folded", _HE, 25_557_032, 4_089_000_000),
    _entry(RESNEXT50, "ResNeXt-50 32x4d, BN not folded", _XIE, 25_028_904, 4_230_000_000),
)
