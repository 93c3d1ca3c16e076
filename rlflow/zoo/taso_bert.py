"""TASO's example graph BERT: eight layers of products without softmax, scaling, residual sum or feed-forward.

The published script multiplies a layer's *input*, not its attention, by the last weight, so that nothing reads the
attentions; they are kept as outputs here, as the original's graph keeps them. The zoo, TASO's script and Tensat's terms
are written by :func:`stack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo.entry import ZooEntry, require
from rlflow.zoo.net import Net, OnnxNet, Value

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder


def _heads(net: Net, x: Value, name: str, shape: Sequence[int], turned: bool = False) -> Value:
    """x · W as [(batch,) heads, seq, size]; ``turned``: with the last two exchanged."""
    hidden, first = shape[-2] * shape[-1], len(shape) - 3
    product = net.apply("MatMul", x, net.weight(name, hidden, hidden))
    order = (1, 2, 0) if turned else (1, 0, 2)
    return net.transposed(net.reshaped(product, shape), [*range(first), *(first + axis for axis in order)])


def _attention(net: Net, x: Value, shape: Sequence[int], turned: bool) -> Value:
    query = _heads(net, x, "query", shape)
    # Unturned, query · key sums a query's numbers against a head's *rows*: defined only because both are as many.
    key = _heads(net, x, "key", shape, turned)
    value = _heads(net, x, "value", shape)
    context = net.apply("MatMul", net.apply("MatMul", query, key), value)
    first = len(shape) - 3
    merged = net.transposed(context, [*range(first), first + 1, first, first + 2])
    return net.reshaped(merged, [prod(shape[:-2]), shape[-2] * shape[-1]])


def stack(net: Net, x: Value, shape: Sequence[int], layers: int, attend: bool = False) -> tuple[Value, list[Value]]:
    """The last layer's states of ``x`` [rows, hidden], and the attentions that nothing reads.

    ``shape``: (batch, seq, heads, size of a head), or without a batch. ``attend``: see :func:`write`.
    """
    hidden, unread = shape[-2] * shape[-1], []
    for index in range(layers):
        with net.scope(f"layer{index}"):
            attended = _attention(net, x, shape, attend)
            if not attend:
                unread.append(attended)
            x = net.apply("MatMul", attended if attend else x, net.weight("output", hidden, hidden))
    return x, unread


def write(b: ModelBuilder, *, batch: int, seq: int, layers: int, hidden: int, heads: int, attend: bool) -> None:
    """``attend``: the last product of a layer reads the attention, and the keys are turned (TASO's C++ version).

    Without it the head size hidden / heads must equal ``seq``, because the keys are not turned.
    """
    require(hidden % heads == 0, "taso/bert", f"{heads} heads do not divide hidden {hidden}", "a divisor")
    size = hidden // heads
    require(
        attend or size == seq,
        "taso/bert",
        f"seq {seq} with heads of {size} and keys that are not turned",
        "equal numbers, or attend=True",
    )
    net = OnnxNet(b)
    x = net.apply("Relu", b.input("data", np.float32, (batch * seq, hidden)))
    states, unread = stack(net, x, (batch, seq, heads, size), layers, attend)
    b.output(states, "states")
    for index, value in enumerate(unread):
        b.output(value, f"attention{index}")


ENTRIES = (
    ZooEntry(
        name="taso/bert",
        title="TASO's BERT: products only; the attentions are read by nothing",
        source="TASO (Jia et al. 2019, doi 10.1145/3341301.3359630), examples/bert.py; attend: cpp_examples/bert.h",
        shapes="data [batch · seq, hidden] float32 -> states and attention0 … [batch · seq, hidden]",
        write=write,
        batch=16,
        seq=64,
        seq_option="seq",
        options={"layers": 8, "hidden": 1024, "heads": 16, "attend": False},
    ),
)
