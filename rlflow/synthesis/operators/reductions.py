"""Reductions, arg-extremes and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, OfNothing, Unsupported
from rlflow.synthesis.integers import limits
from rlflow.synthesis.operators.exact import extreme_over, function_of, mean_over
from rlflow.synthesis.operators.facets import Call, Drawn, NeedsOrder, register, register_class
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.operators.unary import integer_function
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _reduced(c: Call, x: Array, axes: tuple[int, ...]) -> Array:
    d, op = c.domain, c.op
    if op in ("ReduceMax", "ReduceMin"):
        return extreme_over(c, x, axes, op == "ReduceMax")
    if op == "ReduceMean":
        return mean_over(d, x, axes)
    if op == "ReduceProd":
        for a in sorted(axes, reverse=True):
            out = d.constant(1)
            for k in range(x.shape[a]):
                out = d.mul(out, x.take(k, axis=a))
            x = np.broadcast_to(out, x.shape[:a] + x.shape[a + 1 :])
        return x
    before = {
        "ReduceL1": lambda e: function_of(d, "Abs", e),
        "ReduceLogSumExp": lambda e: function_of(d, "Exp", e),
    }.get(op, lambda e: e)
    if op in ("ReduceL2", "ReduceSumSquare"):
        x = d.mul(x, x)
    total = d.total(before(x), axes)
    after = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}.get(op)
    return function_of(d, after, total) if after else total


def _of_integers(c: Call, axes: tuple[int, ...]) -> Array:
    """What wraps is exact, and an extreme of nothing is the end of the type. Where runtimes round or overflow as they
    like, the result is an arbitrary function of the total."""
    x, op = c.of_numbers().arg(0), c.op
    if op in ("ReduceMax", "ReduceMin"):
        least, most = limits(c.dtypes[0]) or (False, True)
        extreme, start = (np.maximum, least) if op == "ReduceMax" else (np.minimum, most)
        return c.whole(np.asarray(extreme.reduce(x, axis=axes, initial=start)))
    c.no_arithmetic_of_truths()
    if op == "ReduceProd":
        return np.asarray(np.multiply.reduce(c.arg(0), axis=axes))
    if op == "ReduceL1":
        x = np.abs(x)
    elif op == "ReduceLogSumExp":
        x = integer_function(field.key_of("Exp"), x)
    elif op in ("ReduceL2", "ReduceSumSquare"):
        x = x * x
    total = np.asarray(np.add.reduce(c.whole(x), axis=axes))
    if op in ("ReduceSum", "ReduceL1", "ReduceSumSquare"):
        return total
    return integer_function(field.key_of(op, math.prod(x.shape[a] for a in axes)), total)


def _reduce(c: Call) -> Array:
    if c.present(1):
        raise Unsupported("a reduction whose axes are a tensor")
    x, axes = c.arg(0), tuple(c.attrs["axes"])
    out = _reduced(c, x, axes) if c.is_float() else _of_integers(c, axes)
    return out.reshape([1 if k in axes else e for k, e in enumerate(x.shape)]) if c.attrs["keepdims"] else out


def _arg(c: Call) -> Array:
    c.no_arithmetic_of_truths()
    if c.is_float() and not c.domain.ordered:
        raise NeedsOrder(c.op)
    x, axis = c.of_numbers().arg(0), c.attrs["axis"]
    if x.ndim == 0:  # a scalar's largest element is its first
        return np.zeros((), np.int64)
    if x.shape[axis] == 0:
        raise OfNothing("an extreme of nothing")
    rows = np.moveaxis(x, axis, -1)
    out = np.empty(rows.shape[:-1], np.int64)
    for index in np.ndindex(rows.shape[:-1]):
        row = list(rows[index])
        best = max(row) if c.op == "ArgMax" else min(row)
        out[index] = len(row) - 1 - row[::-1].index(best) if c.attrs["select_last_index"] else row.index(best)
    return np.expand_dims(out, axis) if c.attrs["keepdims"] else out


def _cumsum(c: Call) -> Array:
    c.no_arithmetic_of_truths()
    if c.arg(1).size != 1:
        raise Unsupported("a running sum along several axes")
    x, axis = c.arg(0), int(c.arg(1).reshape(()))
    add = c.domain.add if c.is_float() else np.add
    if not -x.ndim <= axis < x.ndim:
        raise Unsupported("a running sum along an axis that is not there")
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if c.attrs["reverse"] else rows
    out, state = np.empty(rows.shape, rows.dtype), np.zeros(rows.shape[1:], rows.dtype)
    for k in range(rows.shape[0]):
        before, state = state, add(state, rows[k])
        out[k] = before if c.attrs["exclusive"] else state
    out = out[::-1] if c.attrs["reverse"] else out
    return np.moveaxis(out, 0, axis)


def _draw_arg(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    return [x], {
        "axis": d.attr(term, op, "axis", lambda: d.rng.randrange(max(1, len(d.shape(x))))),
        "keepdims": d.attr(term, op, "keepdims", lambda: d.rng.randint(0, 1)),
        "select_last_index": d.attr(term, op, "select_last_index", lambda: d.rng.randint(0, 1)),
    }


def _draw_cumsum(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    axis = d.child(term.children[1], Want(shape=(), dtype=7, index_below=max(1, len(d.shape(x)))))
    return [x, axis], {n: d.attr(term, op, n, lambda: d.rng.randint(0, 1)) for n in ("exclusive", "reverse")}


def _rank(d: Draw, term: Term) -> int:
    """A rank that the hints give a variable below, or 0."""
    ranks = [r for t in term.walk() if d.obey for r in d.hints.ranks.get(t.name, [])]
    return d.rng.choice(ranks) if ranks else 0


def _draw_by_flags(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    wish = want.shape
    if wish != () and d.rng.random() < 0.08:  # of nothing
        wish = wish or d.dims(want.rank or _rank(d, term) or d.rank(max(1, want.least_rank)))
        empty = d.rng.randrange(len(wish))
        wish = (*wish[:empty], 0, *wish[empty + 1 :])
    x = d.child(term.children[0], Want(shape=wish, least_rank=max(1, want.least_rank), rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp

    def axes() -> list[int]:
        if d.rng.random() < 0.3:
            return list(range(2, rank)) or [rank - 1]
        if d.rng.random() < 0.4:
            return [rank - 1]
        return sorted(d.rng.sample(range(rank), d.rng.randint(1, rank)))

    return [x], {
        "axes": d.attr(term, op, "axes", axes),
        "keepdims": d.attr(term, op, "keepdims", lambda: d.rng.randint(0, 1)),
    }


def _native(kind: str) -> Callable[[Attributes], NativeKind]:
    return lambda a: NativeKind(kind, 1, [a.get("keepdims", 1), *a["axes"]])


register_class("reduce", draw=_draw_by_flags)
for _name in ("ReduceSum", "ReduceMean", "ReduceMax"):
    register(_name, meaning=_reduce, native=_native(_name))
register("ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare", meaning=_reduce)
register("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", meaning=_reduce)
register("ArgMax", "ArgMin", meaning=_arg, draw=_draw_arg)
register("CumSum", meaning=_cumsum, draw=_draw_cumsum)
