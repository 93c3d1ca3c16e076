"""BERT encoders as frameworks export them: all states and the pooled one, or a classifier that reads one token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import Option, ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_POSITIONS = 512
_SEGMENTS = 2


def _embeddings(b: ModelBuilder, batch: int, seq: int, hidden: int, vocab: int) -> str:
    tokens = b.input("input_ids", np.int64, (batch, seq))
    segments = b.input("token_type_ids", np.int64, (batch, seq))
    positions = b.constant(np.arange(seq)[None, :], np.int64)
    with b.scope("embeddings"):
        token = b.node("Gather", [b.weight("word", (vocab, hidden), 1), tokens], axis=0)
        segment = b.node("Gather", [b.weight("segment", (_SEGMENTS, hidden), 1, 0.5), segments], axis=0)
        position = b.node("Gather", [b.weight("position", (max(_POSITIONS, seq), hidden), 1, 0.5), positions], axis=0)
        total = b.node("Add", [b.node("Add", [token, segment]), position])
        return nn.layer_norm(b, total, "norm", hidden)


def _layer(b: ModelBuilder, x: str, mask: str, heads: nn.Heads, feed_forward: int) -> str:
    hidden = heads.hidden
    with b.scope("attention"):
        attended = nn.attention(b, x, x, heads, mask=mask)
    x = nn.layer_norm(b, b.node("Add", [attended, x]), "attention_norm", hidden)
    inner = b.node("Gelu", nn.linear(b, x, "intermediate", (hidden, feed_forward)))
    outer = nn.linear(b, inner, "output", (feed_forward, hidden))
    return nn.layer_norm(b, b.node("Add", [outer, x]), "output_norm", hidden)


@dataclass(frozen=True)
class _Sizes:
    batch: int
    seq: int
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocab: int


def _encoder(b: ModelBuilder, model: str, s: _Sizes) -> tuple[str, str]:
    """The last layer's states [batch, seq, hidden], and the pooled first token [batch, hidden]."""
    require(s.hidden % s.heads == 0, model, f"{s.heads} heads do not divide hidden {s.hidden}", "a divisor")
    heads = nn.Heads(s.batch, s.seq, s.seq, s.heads, s.hidden // s.heads)
    x = _embeddings(b, s.batch, s.seq, s.hidden, s.vocab)
    mask = nn.additive_mask(b, b.input("attention_mask", np.int64, (s.batch, s.seq)))
    for index in range(s.layers):
        with b.scope(f"layer{index}"):
            x = _layer(b, x, mask, heads, s.feed_forward)
    token = b.node("Gather", [x, b.constant(0, np.int64)], axis=1)
    return x, b.node("Tanh", nn.dense(b, token, "pooler", (s.hidden, s.hidden)))


def write_encoder(b: ModelBuilder, **sizes: int) -> None:
    """``seq``: tokens; ``feed_forward``: width of the inner layer; ``heads`` must divide ``hidden``."""
    states, pooled = _encoder(b, "bert-base", _Sizes(**sizes))
    b.output(states, "last_hidden_state")
    b.output(pooled, "pooler_output")


def write_classifier(b: ModelBuilder, *, labels: int, **sizes: int) -> None:
    """The sizes of write_encoder(), and ``labels``: the classes. Only the first token is read."""
    _, pooled = _encoder(b, "bert6-classifier", _Sizes(**sizes))
    b.output(nn.dense(b, pooled, "classifier", (sizes["hidden"], labels)), "logits")


_BASE: dict[str, Option] = {"layers": 12, "hidden": 768, "heads": 12, "feed_forward": 3072, "vocab": 30522}

ENTRIES = (
    ZooEntry(
        name="bert-base",
        title="BERT-base encoder with pooler",
        source="Devlin et al. 2019 (arXiv 1810.04805), section 3; 109,482,240 parameters in the released checkpoint",
        shapes="input_ids, token_type_ids, attention_mask [batch, seq] int64 -> "
        "last_hidden_state [batch, seq, hidden], pooler_output [batch, hidden]",
        write=write_encoder,
        seq=128,
        seq_option="seq",
        options=_BASE,
        parameters=109_482_240,
    ),
    ZooEntry(
        name="bert6-classifier",
        title="BERT, 6 layers, classifier on the first token",
        source="Devlin et al. 2019 (arXiv 1810.04805), BERT-base width; depth: Turc et al. 2019 (arXiv 1908.08962)",
        shapes="input_ids, token_type_ids, attention_mask [batch, seq] int64 -> logits [batch, labels]",
        write=write_classifier,
        seq=128,
        seq_option="seq",
        options={**_BASE, "layers": 6, "labels": 2},
    ),
)
