"""ViT-Base: a pre-norm Transformer over patches of an image and one class token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_EPSILON = 1e-6


def _tokens(b: ModelBuilder, batch: int, image: int, patch: int, hidden: int) -> str:
    """Class token and patches with their positions [batch, 1 + patches, hidden]."""
    x = b.input("input", np.float32, (batch, 3, image, image))
    patches = (image // patch) ** 2
    with b.scope("embeddings"):
        grid = nn.conv(b, x, "patch", (3, hidden), patch, stride=patch, bias=True, gain=1.0)
        rows = b.node("Transpose", b.node("Reshape", grid, shape=[batch, hidden, patches]), perm=[0, 2, 1])
        token = b.weight("class_token", (1, 1, hidden), 1)
        first = b.node("Expand", token, shape=[batch, 1, hidden])
        position = b.weight("position", (1, patches + 1, hidden), 1, 0.5)
        return b.node("Add", [b.node("Concat", [first, rows], axis=1), position])


def _layer(b: ModelBuilder, x: str, heads: nn.Heads, feed_forward: int) -> str:
    hidden = heads.hidden
    inner = nn.layer_norm(b, x, "norm1", hidden, epsilon=_EPSILON)
    with b.scope("attention"):
        x = b.node("Add", [x, nn.attention(b, inner, inner, heads)])
    inner = nn.layer_norm(b, x, "norm2", hidden, epsilon=_EPSILON)
    inner = b.node("Gelu", nn.linear(b, inner, "mlp1", (hidden, feed_forward)))
    return b.node("Add", [x, nn.linear(b, inner, "mlp2", (feed_forward, hidden))])


def write(
    b: ModelBuilder,
    *,
    batch: int,
    image: int,
    patch: int,
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    classes: int,
) -> None:
    """``patch`` divides ``image`` (both in pixels); ``heads`` divides ``hidden``."""
    require(image % patch == 0, "vit-base", f"image {image} in patches of {patch}", "a whole number of patches")
    require(hidden % heads == 0, "vit-base", f"{heads} heads do not divide hidden {hidden}", "a divisor")
    count = (image // patch) ** 2 + 1
    x = _tokens(b, batch, image, patch, hidden)
    for index in range(layers):
        with b.scope(f"layer{index}"):
            x = _layer(b, x, nn.Heads(batch, count, count, heads, hidden // heads), feed_forward)
    x = nn.layer_norm(b, x, "norm", hidden, epsilon=_EPSILON)
    token = b.node("Gather", [x, b.constant(0, np.int64)], axis=1)
    b.output(nn.dense(b, token, "head", (hidden, classes)), "logits")


ENTRIES = (
    ZooEntry(
        name="vit-base",
        title="ViT-Base/16",
        source="Dosovitskiy et al. 2021 (arXiv 2010.11929), table 1; figures: torchvision's vit_b_16",
        shapes="input [batch, 3, image, image] float32 -> logits [batch, classes]; patch divides image",
        write=write,
        options={
            "image": 224,
            "patch": 16,
            "layers": 12,
            "hidden": 768,
            "heads": 12,
            "feed_forward": 3072,
            "classes": 1000,
        },
        parameters=86_567_656,
        macs=17_564_000_000,
    ),
)
