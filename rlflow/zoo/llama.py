"""One decoding step of a small LLaMA-style language model: grouped-query attention over cached keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import layers as nn
from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_THETA = 10000.0
_END = int(np.iinfo(np.int64).max)
# Trained attention is peaked; with plain fan-in weights a thousand cached tokens would average to nothing and hide from
# every check.
_SHARP = 2.0


@dataclass(frozen=True)
class _Sizes:
    batch: int
    past: int
    heads: int
    kv_heads: int
    head: int  # numbers in one head

    @property
    def hidden(self) -> int:
        return self.heads * self.head

    @property
    def total(self) -> int:
        """Tokens that the new one reads: the cached ones and itself."""
        return self.past + 1


def _rotary_tables(b: ModelBuilder, positions: str, head: int) -> tuple[str, str]:
    """Cosines and sines [batch, 1, 1, head] of position · theta^(-2i/head) (Su et al. 2021, equation 15)."""
    frequencies = _THETA ** (-np.arange(0, head, 2, dtype=np.float64) / head)
    with b.scope("rotary"):
        wide = b.node("Unsqueeze", b.node("Cast", positions, to=1), axes=[2])
        angle = b.node("Mul", [wide, b.constant(frequencies[None, None, :], np.float32)])
        both = b.node("Unsqueeze", b.node("Concat", [angle, angle], axis=-1), axes=[1])
        return b.node("Cos", both), b.node("Sin", both)


def _rotate(b: ModelBuilder, x: str, tables: tuple[str, str], head: int) -> str:
    """x · cos + (-x₂, x₁) · sin for the halves x₁, x₂ of the last axis."""
    first = b.node("Slice", x, starts=[0], ends=[head // 2], axes=[3], steps=[1])
    second = b.node("Slice", x, starts=[head // 2], ends=[_END], axes=[3], steps=[1])
    turned = b.node("Concat", [b.node("Neg", second), first], axis=-1)
    return b.node("Add", [b.node("Mul", [x, tables[0]]), b.node("Mul", [turned, tables[1]])])


def _repeat(b: ModelBuilder, x: str, s: _Sizes) -> str:
    """Each key or value head once for every query head of its group: kv_heads become heads on axis 1."""
    if s.heads == s.kv_heads:
        return x
    wide = b.node("Unsqueeze", x, axes=[2])
    groups = b.node("Expand", wide, shape=[s.batch, s.kv_heads, s.heads // s.kv_heads, s.total, s.head])
    return b.node("Reshape", groups, shape=[s.batch, s.heads, s.total, s.head])


def _project(b: ModelBuilder, x: str, name: str, heads: int, s: _Sizes, gain: float = 1.0) -> str:
    flat = nn.linear(b, x, name, (s.hidden, heads * s.head), bias=False, gain=gain)
    return nn.split_heads(b, flat, (s.batch, 1, heads, s.head), (0, 2, 1, 3))


def _attention(
    b: ModelBuilder, x: str, s: _Sizes, tables: tuple[str, str], cache: tuple[str, str], mask: str | None
) -> tuple[str, str, str]:
    """The block's output [batch, 1, hidden] and the longer key and value caches."""
    query = _rotate(b, _project(b, x, "query", s.heads, s, _SHARP), tables, s.head)
    key = _rotate(b, _project(b, x, "key", s.kv_heads, s), tables, s.head)
    value = _project(b, x, "value", s.kv_heads, s)
    keys, values = (b.node("Concat", [old, new], axis=2) for old, new in zip(cache, (key, value), strict=True))
    turned = b.node("Transpose", _repeat(b, keys, s), perm=[0, 1, 3, 2])
    scores = b.node("Mul", [b.node("MatMul", [query, turned]), b.constant(1.0 / sqrt(s.head), np.float32)])
    if mask is not None:
        scores = b.node("Add", [scores, mask])
    context = b.node("MatMul", [b.node("Softmax", scores, axis=-1), _repeat(b, values, s)])
    merged = nn.merge_heads(b, context, (s.batch, 1, s.hidden))
    return nn.linear(b, merged, "output", (s.hidden, s.hidden), bias=False), keys, values


def _feed_forward(b: ModelBuilder, x: str, hidden: int, inner: int) -> str:
    """SwiGLU (Shazeer 2020): (SiLU(x·G) ∘ x·U) · D."""
    gate = nn.linear(b, x, "gate", (hidden, inner), bias=False)
    silu = b.node("Mul", [gate, b.node("Sigmoid", gate)])
    return nn.linear(
        b,
        b.node("Mul", [silu, nn.linear(b, x, "up", (hidden, inner), bias=False)]),
        "down",
        (inner, hidden),
        bias=False,
    )


def _layer(
    b: ModelBuilder, x: str, s: _Sizes, tables: tuple[str, str], cache: tuple[str, str], mask: str | None, inner: int
) -> tuple[str, str, str]:
    with b.scope("attention"):
        attended, keys, values = _attention(b, nn.rms_norm(b, x, "norm", s.hidden), s, tables, cache, mask)
    x = b.node("Add", [x, attended])
    with b.scope("mlp"):
        x = b.node("Add", [x, _feed_forward(b, nn.rms_norm(b, x, "norm", s.hidden), s.hidden, inner)])
    return x, keys, values


def _check(heads: int, kv_heads: int, hidden: int) -> None:
    model = "llama-decoder-step"
    require(
        hidden % heads == 0 and hidden // heads % 2 == 0,
        model,
        f"hidden {hidden} in {heads} heads",
        "heads of an even whole size",
    )
    require(heads % kv_heads == 0, model, f"{kv_heads} key/value heads do not divide {heads} heads", "a divisor")


def write(
    b: ModelBuilder,
    *,
    batch: int,
    past: int,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    feed_forward: int,
    vocab: int,
    mask: bool,
) -> None:
    """``past``: cached tokens; ``kv_heads`` divides ``heads``; ``mask``: adds an input [batch, past + 1].

    The default vocabulary is a byte-level one, because a large language head would hide the decoder's own time.
    """
    _check(heads, kv_heads, hidden)
    s = _Sizes(batch, past, heads, kv_heads, hidden // heads)
    tokens = b.input("input_ids", np.int64, (batch, 1))
    positions = b.input("position_ids", np.int64, (batch, 1))
    added = nn.additive_mask(b, b.input("attention_mask", np.int64, (batch, s.total))) if mask else None
    tables = _rotary_tables(b, positions, s.head)
    x = b.node("Gather", [b.weight("embedding", (vocab, hidden), 1), tokens], axis=0)
    present: list[tuple[str, str]] = []
    for index in range(layers):
        shape = (batch, kv_heads, past, s.head)
        cache = tuple(b.input(f"past.{index}.{kind}", np.float32, shape) for kind in ("key", "value"))
        with b.scope(f"layer{index}"):
            x, keys, values = _layer(b, x, s, tables, (cache[0], cache[1]), added, feed_forward)
        present += [(keys, f"present.{index}.key"), (values, f"present.{index}.value")]
    b.output(nn.linear(b, nn.rms_norm(b, x, "norm", hidden), "lm_head", (hidden, vocab), bias=False), "logits")
    for value, name in present:
        b.output(value, name)


ENTRIES = (
    ZooEntry(
        name="llama-decoder-step",
        title="LLaMA-style decoder, one token with a cache, grouped-query attention",
        source="Touvron et al. 2023 (arXiv 2302.13971); grouped queries: Ainslie et al. 2023 (arXiv 2305.13245)",
        shapes="input_ids, position_ids [batch, 1] int64, past.N.key/value [batch, kv_heads, past, hidden/heads] "
        "float32 -> logits [batch, 1, vocab], present.N.key/value [batch, kv_heads, past + 1, hidden/heads]",
        write=write,
        seq=1024,
        seq_option="past",
        options={
            "layers": 2,
            "hidden": 768,
            "heads": 12,
            "kv_heads": 3,
            "feed_forward": 2048,
            "vocab": 512,
            "mask": False,
        },
    ),
)
