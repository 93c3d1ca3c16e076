"""Attention as one operator (ONNX's, ONNX Runtime's MultiHeadAttention), and the RotaryEmbedding of its operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.operators import degrees
from rlflow.synthesis.operators.degrees import Degree
from rlflow.synthesis.operators.exact import floats_only, rows_over
from rlflow.synthesis.operators.facets import FLOATS, Call, Drawn, register
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw

_SOFTMAX = field.key_of("Softmax", None)  # as the operator of that name has it


def _heads(x: Array, heads: int) -> Array:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _rows(x: Array) -> Array:
    """[batch, heads, length, size] -> [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def _attended(c: Call, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Softmax(scale Q K' + mask) V, whatever Softmax is; a head of keys serves as many of queries as there are more."""
    d, scale = c.domain, c.attrs.get("scale") or 0.0
    if not scale:
        root = math.isqrt(q.shape[-1])
        if root * root != q.shape[-1]:
            raise Unsupported("an irrational scale")
        scale = 1.0 / root
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = d.mul(d.constant(scale), d.matmul(q, k.swapaxes(-1, -2)))
    scores = scores if mask is None else d.add(scores, mask)
    return d.matmul(rows_over(c, scores, [3], _SOFTMAX), v)


def _attention(c: Call) -> Array:
    floats_only(c)
    masked = c.present(3)
    if c.attrs["is_causal"] or c.attrs["softcap"] or (masked and c.dtypes[3] not in FLOATS):
        raise Unsupported("attention that is causal, capped, or has a mask of truth values")
    mask = c.arg(3) if masked else None
    q, k, v = (c.arg(i) for i in range(3))
    if q.ndim == 4:
        return _attended(c, q, k, v, mask)
    keys = c.attrs["kv_num_heads"]
    return _rows(_attended(c, _heads(q, c.attrs["q_num_heads"]), _heads(k, keys), _heads(v, keys), mask))


def _multi_head_attention(c: Call) -> Array:
    floats_only(c)
    q, k, v = (_heads(c.arg(i), c.attrs["num_heads"]) for i in range(3))
    return _rows(_attended(c, q, k, v, None))


def _degree(operands: list[Degree]) -> Degree:
    """Of a product with the weights, which are arbitrary functions of their row."""
    above, below = operands[2]
    return above + 1, below


def _rotary_embedding(c: Call) -> Array:
    """Columns i and i + half turned by the angle of their row and column (Su et al. 2021, arXiv 2104.09864)."""
    floats_only(c)
    x = c.arg(0)
    if c.present(3) or x.ndim != 4 or c.attrs["interleaved"] or c.attrs["rotary_embedding_dim"]:
        raise Unsupported("rotations with positions, of rows, of neighbours, or of a part of the columns")
    d, half = c.domain, x.shape[3] // 2
    cos, sin = (c.arg(i)[:, None] for i in (1, 2))
    left, right = x[..., :half], x[..., half:]
    turned = [d.sub(d.mul(left, cos), d.mul(right, sin)), d.add(d.mul(right, cos), d.mul(left, sin))]
    return np.concatenate(turned, axis=3)


def _rotated_degree(operands: list[Degree]) -> Degree:
    """Of a sum of two products, one with either table."""
    return degrees.total([degrees.product([operands[0], operands[i]]) for i in (1, 2)])


def _draw_attention(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    """Operands of rank 4, as rules about it have them."""
    q = d.child(term.children[0], Want(rank=4))
    if len(d.shape(q)) != 4:
        raise GiveUp
    batch, heads, queries, size = d.shape(q)
    dtype = d.dtype_of(q)
    k = d.child(term.children[1], Want(shape=(batch, heads, d.extent(), size), dtype=dtype))
    if len(d.shape(k)) != 4:
        raise GiveUp
    keys = d.shape(k)[2]
    operands = [q, k, d.child(term.children[2], Want(shape=(batch, heads, keys, d.extent()), dtype=dtype))]
    if len(term.children) > 3:
        shape = d.rng.choice([(queries, keys), (1, 1, queries, keys), (batch, heads, queries, keys)])
        operands.append(d.child(term.children[3], Want(shape=shape, dtype=dtype)))
    return operands, {"scale": d.attr(term, op, "scale", lambda: d.rng.choice([1.0, 0.5, 0.25]))}


register("Attention", meaning=_attention, draw=_draw_attention, degree=_degree, integers=False)
register("MultiHeadAttention", meaning=_multi_head_attention, degree=_degree, integers=False)
register("RotaryEmbedding", meaning=_rotary_embedding, degree=_rotated_degree, integers=False)
