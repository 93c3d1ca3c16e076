"""A BERT encoder with a classifier that reads one token, as frameworks export it."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_POSITIONS = 512
_SEGMENTS = 2
# Queries and keys are drawn wider than the rest: trained attention is peaked, and a flat one would hide the keys from
# every check.
_SHARP = sqrt(2.0)


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


def _attention(b: ModelBuilder, x: str, mask: str, shape: tuple[int, int, int, int]) -> str:
    batch, seq, heads, size = shape
    hidden = heads * size
    query = nn.split_heads(b, nn.linear(b, x, "query", (hidden, hidden), gain=_SHARP), shape, (0, 2, 1, 3))
    key = nn.split_heads(b, nn.linear(b, x, "key", (hidden, hidden), gain=_SHARP), shape, (0, 2, 3, 1))
    value = nn.split_heads(b, nn.linear(b, x, "value", (hidden, hidden)), shape, (0, 2, 1, 3))
    scores = b.node("Div", [b.node("MatMul", [query, key]), b.constant(sqrt(size), np.float32)])
    weights = b.node("Softmax", b.node("Add", [scores, mask]), axis=-1)
    context = nn.merge_heads(b, b.node("MatMul", [weights, value]), (batch, seq, hidden))
    return nn.linear(b, context, "output", (hidden, hidden))


def _layer(b: ModelBuilder, x: str, mask: str, shape: tuple[int, int, int, int], feed_forward: int) -> str:
    hidden = shape[2] * shape[3]
    with b.scope("attention"):
        attended = _attention(b, x, mask, shape)
    x = nn.layer_norm(b, b.node("Add", [attended, x]), "attention_norm", hidden)
    inner = b.node("Gelu", nn.linear(b, x, "intermediate", (hidden, feed_forward)))
    outer = nn.linear(b, inner, "output", (feed_forward, hidden))
    return nn.layer_norm(b, b.node("Add", [outer, x]), "output_norm", hidden)


def write(
    b: ModelBuilder,
    *,
    batch: int,
    seq: int,
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    vocab: int,
    labels: int,
) -> None:
    """``seq``: tokens; ``feed_forward``: width of the inner layer; ``heads`` must divide ``hidden``."""
    require(hidden % heads == 0, "bert6-classifier", f"{heads} heads do not divide hidden {hidden}", "a divisor")
    shape = (batch, seq, heads, hidden // heads)
    x = _embeddings(b, batch, seq, hidden, vocab)
    mask = nn.additive_mask(b, b.input("attention_mask", np.int64, (batch, seq)))
    for index in range(layers):
        with b.scope(f"layer{index}"):
            x = _layer(b, x, mask, shape, feed_forward)
    token = b.node("Gather", [x, b.constant(0, np.int64)], axis=1)
    pooled = b.node("Tanh", nn.dense(b, token, "pooler", (hidden, hidden)))
    b.output(nn.dense(b, pooled, "classifier", (hidden, labels)), "logits")


ENTRIES = (
    ZooEntry(
        name="bert6-classifier",
        title="BERT, 6 layers, classifier on the first token",
        source="Devlin et al. 2019 (arXiv 1810.04805), BERT-base width; depth: Turc et al. 2019 (arXiv 1908.08962)",
        shapes="input_ids, token_type_ids, attention_mask [batch, seq] int64 -> logits [batch, labels]",
        write=write,
        seq=128,
        seq_option="seq",
        options={"layers": 6, "hidden": 768, "heads": 12, "feed_forward": 3072, "vocab": 30522, "labels": 2},
    ),
)
