"""Products of matrices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.operators import degrees
from rlflow.synthesis.operators.exact import floats_only
from rlflow.synthesis.operators.facets import Call, Drawn, register
from rlflow.synthesis.operators.native import NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _matmul(c: Call) -> Array:
    a, b = c.arg(0), c.arg(1)
    if not c.is_float():
        return np.matmul(a, b)
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    out = c.domain.matmul(left, right)
    out = out[..., 0] if b.ndim == 1 else out
    return (out[..., 0, :] if b.ndim > 1 else out[..., 0]) if a.ndim == 1 else out


def _gemm(c: Call) -> Array:
    a = c.arg(0).T if c.attrs["transA"] else c.arg(0)
    b = c.arg(1).T if c.attrs["transB"] else c.arg(1)
    d, alpha, beta = c.domain, c.attrs["alpha"], c.attrs["beta"]
    if not c.is_float():
        if not (alpha.is_integer() and beta.is_integer()):
            raise Unsupported("Gemm of integers by fractions")
        whole = int(alpha) * np.matmul(a, b)
        return whole + int(beta) * c.arg(2) if c.present(2) else whole
    out = d.mul(d.constant(alpha), d.matmul(a, b))
    return d.add(out, d.mul(d.constant(beta), c.arg(2))) if c.present(2) else out


def _draw_matmul(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    left, right = term.children
    wide = want.shape if want.shape and len(want.shape) >= 2 else None
    if d.is_known(right) and not d.is_known(left):
        b = d.child(right)
        return [_left_of(d, left, d.shape(b), wide, d.dtype_of(b)), b], {}
    rows = wide[-2] if wide else d.extent()
    if d.is_known(left):
        a = d.child(left, Want(least_rank=1))
    else:
        lead = wide[:-2] if wide else d.dims(d.rng.choice([0, 0, 1, 1, 2]))
        shape = (*lead, rows, d.extent()) if d.rng.random() < 0.93 else (d.extent(),)
        a = d.child(left, Want(shape=shape))
    k = d.shape(a)[-1:] or (1,)
    return [a, d.child(right, Want(shape=_right_shape(d, right, d.shape(a), k[0], wide), dtype=d.dtype_of(a)))], {}


def _right_shape(d: Draw, right: Term, a: tuple[int, ...], k: int, wide: tuple[int, ...] | None) -> tuple[int, ...]:
    columns = wide[-1] if wide else d.extent()
    if right.kind != "op" and d.obey and d.hints.ranks.get(right.name) == [2]:
        return (k, columns)
    way = d.rng.random()
    if way < 0.45:
        return (k, columns)
    if way < 0.85:
        return (*a[:-2], k, columns)
    if way < 0.95:
        return (*d.partner(a[:-2]), k, columns)
    return (k,)


def _left_of(d: Draw, left: Term, b: tuple[int, ...], wide: tuple[int, ...] | None, dtype: int) -> int:
    k = b[-2] if len(b) > 1 else (b or (1,))[0]
    way = d.rng.random()
    lead = (
        wide[:-2]
        if wide
        else d.dims(d.rng.choice([0, 1, 2]))
        if way < 0.4
        else b[:-2]
        if way < 0.85
        else d.partner(b[:-2])
    )
    shape = (*lead, wide[-2] if wide else d.extent(), k) if d.rng.random() < 0.93 else (k,)
    return d.child(left, Want(shape=shape, dtype=dtype))


def _draw_gemm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = {n: d.attr(term, op, n, lambda: d.rng.choice([1.0, 1.0, 0.5, 2.0])) for n in ("alpha", "beta")}
    attrs |= {n: d.attr(term, op, n, lambda: d.rng.randint(0, 1)) for n in ("transA", "transB")}
    wide = want.shape if want.shape and len(want.shape) == 2 else None
    m, k, n = wide[0] if wide else d.extent(), d.extent(), wide[1] if wide else d.extent()
    known = d.is_known(term.children[1]) and not d.is_known(term.children[0])
    if known:
        b = d.child(term.children[1], Want(shape=(n, k) if attrs["transB"] else (k, n)))
        if len(d.shape(b)) != 2:
            raise GiveUp
        n, k = d.shape(b) if attrs["transB"] else d.shape(b)[::-1]
    a = d.child(term.children[0], Want(shape=(k, m) if attrs["transA"] else (m, k)))
    if len(d.shape(a)) != 2:
        raise GiveUp
    m, k = d.shape(a)[::-1] if attrs["transA"] else d.shape(a)
    if not known:
        b = d.child(term.children[1], Want(shape=(n, k) if attrs["transB"] else (k, n), dtype=d.dtype_of(a)))
        n = d.shape(b)[0 if attrs["transB"] else -1]
    inputs = [a, b]
    if len(term.children) > 2:
        inputs.append(
            d.child(
                term.children[2],
                Want(shape=d.rng.choice([(n,), (n,), (1, n), (m, n), (), (1,), (m, 1)]), dtype=d.dtype_of(a)),
            )
        )
    return inputs, attrs


def _einsum(c: Call) -> Array:
    """Sums of products over the labels that the output lacks."""
    floats_only(c)
    left, output = c.attrs["equation"].split("->")
    terms = left.split(",")
    if "." in left or any(len(set(term)) < len(term) for term in terms):
        raise Unsupported("an equation with an ellipsis or a diagonal")
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    d, factors = c.domain, []
    for i, term in enumerate(terms):
        order = sorted(range(len(term)), key=[labels.index(label) for label in term].__getitem__)
        extents = dict(zip(term, c.arg(i).shape, strict=True))
        factors.append(c.arg(i).transpose(order).reshape([extents.get(label, 1) for label in labels]))
    return d.total(functools.reduce(d.mul, factors), tuple(range(len(output), len(labels))))


def _einsum_degree(operands: list[degrees.Degree]) -> degrees.Degree:
    return sum(above for above, _ in operands), sum(below for _, below in operands)


def _draw_einsum(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    """Operands as a literal equation names them."""
    equation = d.attr(term, op, "equation", lambda: "ab,bc->ac")
    extents = {label: d.extent() for label in equation if label.isalpha()}
    operands: list[int] = []
    for part, child in zip(equation.split("->")[0].split(","), term.children, strict=True):
        dtype = d.dtype_of(operands[0]) if operands else None
        operands.append(d.child(child, Want(shape=tuple(extents[label] for label in part), dtype=dtype)))
        found = d.shape(operands[-1])
        if len(found) != len(part):
            raise GiveUp
        extents |= dict(zip(part, found, strict=True))
    return operands, {"equation": equation}


register(
    "MatMul", meaning=_matmul, draw=_draw_matmul, degree=degrees.product, native=lambda a: NativeKind("MatMul", 2, [])
)
register("Gemm", meaning=_gemm, draw=_draw_gemm, degree=degrees.product)
register("Einsum", meaning=_einsum, draw=_draw_einsum, degree=_einsum_degree, integers=False)
