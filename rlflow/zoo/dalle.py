"""A small DALL-E-style decoder: image tokens read earlier ones and an encoded text; gated feed-forward, no biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_EPSILON = 1e-5
_POSITIONS = 256  # a grid of 16 x 16 image tokens


def _feed_forward(b: ModelBuilder, x: str, hidden: int, inner: int) -> str:
    """GEGLU (Shazeer 2020): (GELU(x·G) ∘ x·U) · D, normalised in the middle."""
    gate = b.node("Gelu", nn.linear(b, x, "gate", (hidden, inner), bias=False))
    product = b.node("Mul", [gate, nn.linear(b, x, "up", (hidden, inner), bias=False)])
    product = nn.layer_norm(b, product, "middle_norm", inner, epsilon=_EPSILON)
    return nn.linear(b, product, "down", (inner, hidden), bias=False)


def _layer(
    b: ModelBuilder, x: str, text: str, masks: tuple[str, str], heads: tuple[nn.Heads, nn.Heads], inner: int
) -> str:
    own, cross = heads
    with b.scope("attention"):
        normed = nn.layer_norm(b, x, "norm", own.hidden, epsilon=_EPSILON)
        x = b.node("Add", [x, nn.attention(b, normed, normed, own, mask=masks[0], bias=False)])
    with b.scope("cross_attention"):
        normed = nn.layer_norm(b, x, "norm", own.hidden, epsilon=_EPSILON)
        x = b.node("Add", [x, nn.attention(b, normed, text, cross, mask=masks[1], bias=False)])
    with b.scope("mlp"):
        normed = nn.layer_norm(b, x, "norm", own.hidden, epsilon=_EPSILON)
        return b.node("Add", [x, _feed_forward(b, normed, own.hidden, inner)])


def write(
    b: ModelBuilder,
    *,
    batch: int,
    seq: int,
    text: int,
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    vocab: int,
) -> None:
    """``seq``: image tokens; ``text``: encoded text tokens that they read; ``heads`` divides ``hidden``."""
    require(hidden % heads == 0, "dalle-decoder", f"{heads} heads do not divide hidden {hidden}", "a divisor")
    size = hidden // heads
    tokens = b.input("image_tokens", np.int64, (batch, seq))
    states = b.input("text_states", np.float32, (batch, text, hidden))
    masks = nn.causal_mask(b, seq), nn.additive_mask(b, b.input("attention_mask", np.int64, (batch, text)))
    with b.scope("embeddings"):
        token = b.node("Gather", [b.weight("token", (vocab, hidden), 1), tokens], axis=0)
        table = b.weight("position", (max(_POSITIONS, seq), hidden), 1, 0.5)
        position = b.node("Gather", [table, b.constant(np.arange(seq)[None, :], np.int64)], axis=0)
        x = nn.layer_norm(b, b.node("Add", [token, position]), "norm", hidden, epsilon=_EPSILON)
    shapes = nn.Heads(batch, seq, seq, heads, size), nn.Heads(batch, seq, text, heads, size)
    for index in range(layers):
        with b.scope(f"layer{index}"):
            x = _layer(b, x, states, masks, shapes, feed_forward)
    x = nn.layer_norm(b, x, "norm", hidden, epsilon=_EPSILON)
    b.output(nn.linear(b, x, "lm_head", (hidden, vocab), bias=False), "logits")


ENTRIES = (
    ZooEntry(
        name="dalle-decoder",
        title="DALL-E-style decoder with cross attention and gated feed-forward",
        source="Ramesh et al. 2021 (arXiv 2102.12092); gate: Shazeer 2020 (arXiv 2002.05202); sizes of X-RLflow's mini "
        "DALL-E, image codes 16 x 16 of 16,384 (Esser et al. 2021, arXiv 2012.09841)",
        shapes="image_tokens [batch, seq] int64, text_states [batch, text, hidden] float32, "
        "attention_mask [batch, text] int64 -> logits [batch, seq, vocab]",
        write=write,
        seq=256,
        seq_option="seq",
        options={"text": 16, "layers": 8, "hidden": 768, "heads": 12, "feed_forward": 2048, "vocab": 16384},
    ),
)
