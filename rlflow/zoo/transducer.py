"""Transformer transducer (T-T): an audio encoder, a causal label encoder (predictor), and a joint network over both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_EPSILON = 1e-5


@dataclass(frozen=True)
class _Encoder:
    name: str
    layers: int
    rows: int
    heads: nn.Heads
    feed_forward: int
    causal: bool


def _positions(rows: int, hidden: int) -> npt.NDArray[np.float64]:
    """Sinusoids [1, rows, hidden] (Vaswani et al. 2017, section 3.5), sines in the first half of the columns."""
    angle = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(0, hidden, 2) / hidden)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[None]


def _layer(b: ModelBuilder, x: str, e: _Encoder, mask: str | None) -> str:
    """Attention, then two dense layers; each is added to its *normalised* input, as in the paper."""
    hidden = e.heads.hidden
    x = nn.layer_norm(b, x, "norm1", hidden, epsilon=_EPSILON)
    with b.scope("attention"):
        x = b.node("Add", [x, nn.attention(b, x, x, e.heads, mask=mask)])
    x = nn.layer_norm(b, x, "norm2", hidden, epsilon=_EPSILON)
    inner = b.node("Relu", nn.linear(b, x, "mlp1", (hidden, e.feed_forward), gain=nn.RELU_GAIN))
    return b.node("Add", [x, nn.linear(b, inner, "mlp2", (e.feed_forward, hidden))])


def _encode(b: ModelBuilder, x: str, e: _Encoder) -> str:
    with b.scope(e.name):
        x = b.node("Add", [x, b.constant(_positions(e.rows, e.heads.hidden), np.float32)])
        mask = nn.causal_mask(b, e.rows) if e.causal else None
        for index in range(e.layers):
            with b.scope(f"layer{index}"):
                x = _layer(b, x, e, mask)
        return nn.layer_norm(b, x, "norm", e.heads.hidden, epsilon=_EPSILON)


def _joint(b: ModelBuilder, audio: str, label: str, hidden: int, vocab: int) -> str:
    """log P(next | frame, labels so far) [batch, frames, labels, vocab]."""
    with b.scope("joint"):
        rows = b.node("Unsqueeze", nn.linear(b, audio, "audio", (hidden, hidden)), axes=[2])
        columns = b.node("Unsqueeze", nn.linear(b, label, "label", (hidden, hidden), bias=False), axes=[1])
        both = b.node("Tanh", b.node("Add", [rows, columns]))
        return b.node("LogSoftmax", nn.linear(b, both, "output", (hidden, vocab)), axis=-1)


def write(
    b: ModelBuilder,
    *,
    batch: int,
    frames: int,
    features: int,
    labels: int,
    audio_layers: int,
    label_layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    vocab: int,
) -> None:
    """``frames`` of ``features`` numbers are heard, ``labels`` of ``vocab`` are known (the blank among both).

    ``heads`` divides ``hidden``, which is even. Every frame reads every other (the paper's full-context encoder) and a
    label itself and earlier ones; positions are added sinusoids where the paper's are relative.
    """
    require(hidden % heads == 0, "transducer", f"{heads} heads do not divide hidden {hidden}", "a divisor")
    require(hidden % 2 == 0, "transducer", f"hidden is {hidden}", "an even number, for the sinusoids")
    size = hidden // heads
    audio = _Encoder(
        "audio", audio_layers, frames, nn.Heads(batch, frames, frames, heads, size), feed_forward, causal=False
    )
    label = _Encoder(
        "label", label_layers, labels, nn.Heads(batch, labels, labels, heads, size), feed_forward, causal=True
    )
    heard = nn.linear(b, b.input("audio", np.float32, (batch, frames, features)), "frontend", (features, hidden))
    tokens = b.input("labels", np.int64, (batch, labels))
    known = b.node("Gather", [b.weight("label_embedding", (vocab, hidden), 1), tokens], axis=0)
    b.output(_joint(b, _encode(b, heard, audio), _encode(b, known, label), hidden, vocab), "log_probabilities")


ENTRIES = (
    ZooEntry(
        name="transducer",
        title="Transformer transducer (T-T): audio encoder, label encoder, joint network",
        source="Zhang et al. 2020 (arXiv 2002.02562), section 2; sizes of X-RLflow's benchmark",
        shapes="audio [batch, frames, features] float32, labels [batch, labels] int64 -> "
        "log_probabilities [batch, frames, labels, vocab]",
        write=write,
        seq=80,
        seq_option="frames",
        options={
            "features": 16,
            "labels": 16,
            "audio_layers": 12,
            "label_layers": 2,
            "hidden": 512,
            "heads": 8,
            "feed_forward": 2048,
            "vocab": 10,
        },
    ),
)
