"""TASO's example graph BERT: eight layers of products without softmax, scaling, residual sum or feed-forward.

The published script multiplies a layer's *input*, not its attention, by the last weight, so that nothing reads the
attentions; they are kept as outputs here, as the original's graph keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo.entry import ZooEntry, require

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder


def _heads(b: ModelBuilder, x: str, name: str, shape: tuple[int, int, int, int], perm: tuple[int, ...]) -> str:
    hidden = shape[2] * shape[3]
    product = b.node("MatMul", [x, b.weight(name, (hidden, hidden), hidden)])
    return b.node("Transpose", b.node("Reshape", product, shape=list(shape)), perm=list(perm))


def _attention(b: ModelBuilder, x: str, shape: tuple[int, int, int, int], turned: bool) -> str:
    batch, seq, heads, size = shape
    query = _heads(b, x, "query", shape, (0, 2, 1, 3))
    # Unturned, query · key sums a query's numbers against a head's *rows*: defined only because both are as many.
    key = _heads(b, x, "key", shape, (0, 2, 3, 1) if turned else (0, 2, 1, 3))
    value = _heads(b, x, "value", shape, (0, 2, 1, 3))
    context = b.node("MatMul", [b.node("MatMul", [query, key]), value])
    merged = b.node("Transpose", context, perm=[0, 2, 1, 3])
    return b.node("Reshape", merged, shape=[batch * seq, heads * size])


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
    x = b.node("Relu", b.input("data", np.float32, (batch * seq, hidden)))
    dead = []
    for index in range(layers):
        with b.scope(f"layer{index}"):
            attended = _attention(b, x, (batch, seq, heads, size), attend)
            if not attend:
                dead.append(attended)
            x = b.node("MatMul", [attended if attend else x, b.weight("output", (hidden, hidden), hidden)])
    b.output(x, "states")
    for index, value in enumerate(dead):
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
