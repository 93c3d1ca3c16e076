"""Operators of ``com.microsoft``, ONNX Runtime's own domain, that rules may put into a model where the user allows it.

A model that has one runs in ONNX Runtime only. They are added to the table like operators from outside, by one call
each; the prover's facets are in ``rlflow/synthesis/operators``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlflow.errors import UsageError
from rlflow.ops.extension import extension, register

__all__ = ["DOMAIN", "add", "asked_domain"]

Array = npt.NDArray[Any]
Extent = int | str | None

DOMAIN = "com.microsoft"
_ADDED = ("FastGelu", "MultiHeadAttention")


def asked_domain(op: str) -> str:
    """The domain that a user has to allow before a rule may write the operator; "" for all others, those that a user
    registered included.
    """
    return DOMAIN if op in _ADDED else ""


def add() -> None:
    """Registers them, once in a process; they are the first that are added."""
    if extension(_ADDED[0]) is not None:
        return
    register("FastGelu", _fast_gelu, domain=DOMAIN, flags=["zero_preserving"], flops=8.0)
    register(
        "MultiHeadAttention",
        _attention,
        domain=DOMAIN,
        inputs=3,
        shape=_attention_shape,
        examples=[[(2, 3, 8), (2, 5, 8), (2, 5, 12)]],
        defaults={"num_heads": 1, "scale": 0.0},
        flops=64.0,
    )


def _fast_gelu(x: Array) -> Array:
    """GELU by Tanh (Hendrycks and Gimpel 2016, arXiv 1606.08415), its constants as float32 holds them."""
    inner, cubic = float(np.float32(math.sqrt(2 / math.pi))), float(np.float32(0.044715))
    return np.asarray(0.5 * x * (1 + np.tanh(inner * (x + cubic * x * x * x))), dtype=x.dtype)


def _heads(x: Array, heads: int) -> Array:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _attention(query: Array, key: Array, value: Array, num_heads: int, scale: float) -> Array:
    """Softmax(scale Q K') V for each head; a scale of 0 stands for 1 / sqrt(size of a head)."""
    q, k, v = (_heads(x, num_heads) for x in (query, key, value))
    scores = (scale or 1 / math.sqrt(q.shape[-1])) * (q @ k.swapaxes(-1, -2))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = (weights / weights.sum(axis=-1, keepdims=True)) @ v
    return np.asarray(out.transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1), dtype=query.dtype)


def _attention_shape(
    query: Sequence[Extent], key: Sequence[Extent], value: Sequence[Extent], num_heads: int, scale: float
) -> list[Extent]:
    """[B, S, H*D], [B, T, H*D], [B, T, H*E] -> [B, S, H*E]."""
    if not len(query) == len(key) == len(value) == 3:
        raise UsageError("queries, keys and values have rank 3")
    pairs = ((query[0], key[0]), (query[0], value[0]), (query[2], key[2]), (key[1], value[1]))
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        raise UsageError(f"the shapes {list(query)}, {list(key)} and {list(value)} do not fit each other")
    if num_heads < 1 or any(isinstance(one[2], int) and one[2] % num_heads for one in (query, value)):
        raise UsageError(f"the columns do not divide into {num_heads} heads")
    return [query[0], query[1], value[2]]
