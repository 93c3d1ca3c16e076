"""Pointwise operators of two and more operands. Binary ones of which nothing is said follow from their rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Field, Ordered, Unsupported
from rlflow.synthesis.operators import degrees
from rlflow.synthesis.operators.exact import function_of
from rlflow.synthesis.operators.facets import Call, Drawn, NeedsOrder, facets_of, register, register_class
from rlflow.synthesis.operators.native import NativeKind
from rlflow.synthesis.operators.unary import float_attrs, integer_function, leaky, operand_type
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw

_LARGEST_POWER = 4


def _truncated(a: Array, b: Array) -> Array:
    """The quotient rounded toward zero; that by zero is arbitrary. (Numpy rounds down.)"""
    safe = np.where(b == 0, b.dtype.type(1), b)
    down = a // safe
    q = down + ((down * safe != a) & ((a < 0) != (safe < 0))).astype(down.dtype)
    return np.where(b == 0, integer_function(field.key_of("x/0"), a).astype(q.dtype), q)


def _fold(c: Call, step: Callable[[Array, Array], Array]) -> Array:
    return functools.reduce(step, (c.arg(k) for k in range(1, len(c.inputs))), c.arg(0))


def _total(c: Call) -> Array:
    c.no_arithmetic_of_truths()
    return _fold(c, c.domain.add if c.is_float() else np.add)


def _sum(c: Call) -> Array:
    return _total(c)


def _mean(c: Call) -> Array:
    if not c.is_float():
        raise Unsupported("Mean of integers")
    return c.domain.div(_total(c), c.domain.constant(len(c.inputs)))


def _max_min(c: Call) -> Array:
    largest = c.op == "Max"
    if not c.is_float():
        c.no_arithmetic_of_truths()
        return c.whole(_fold(c.of_numbers(), np.maximum if largest else np.minimum))
    if not isinstance(c.domain, Ordered):
        raise NeedsOrder(c.op)
    domain = c.domain
    return _fold(c, lambda a, b: domain.extreme(a, b, largest))


def _where(c: Call) -> Array:
    return np.where(c.arg(0).astype(bool), c.arg(1), c.arg(2))


def by_flags(c: Call) -> Array:
    """A broadcasting operator: what its facet says of integers, of floats, of an order; else a keyed function."""
    facets, a, b = facets_of(c.op), c.arg(0), c.arg(1)
    if not c.is_float():
        c.no_arithmetic_of_truths()
        if facets.on_integers is not None:
            whole = c.of_numbers()
            return c.whole(np.asarray(facets.on_integers(whole.arg(0), whole.arg(1))))
        b = b if not c.is_float(1) else c.domain.integer(0, b)
        return integer_function(c.key(), a, b)
    if facets.exactly is not None:
        return facets.exactly(c.domain, a, b)
    b = b if c.is_float(1) else c.domain.from_integers(b)
    if facets.compares is not None:
        if c.domain.ordered:
            return np.asarray(np.frompyfunc(facets.compares, 2, 1)(a, b), dtype=bool)
        return c.domain.predicate(c.key(), a, b)
    return c.domain.function(c.key(), a, b)


def _of_elements(c: Call) -> Array:
    """An added operator of three and more operands, of which nothing is known: a keyed function of their elements."""
    return c.domain.function(c.key(), *(c.arg(k) for k in range(len(c.inputs))))


def _prelu(c: Call) -> Array:
    if not c.is_float():
        return by_flags(c)
    a, b = c.arg(0), c.arg(1)
    b = b if c.is_float(1) else c.domain.from_integers(b)
    return leaky(a, b) if c.domain.ordered else c.domain.function(c.key(), a, b, zero=True)


def _power(d: Domain, x: Array, exponent: Fraction) -> Array:
    """x to a whole or half-whole power: products and quotients of x and Sqrt(x)."""
    size, out = abs(exponent), d.constant(1)
    for _ in range(int(size)):
        out = d.mul(out, x)
    if size.denominator == 2:
        out = d.mul(out, function_of(d, "Sqrt", x))
    return out if exponent >= 0 else d.div(d.constant(1), out)


def _pow(c: Call) -> Array:
    """Over the field, exponents that are multiples of 1/2 up to 4 mean what they mean; of others nothing is known."""
    out = by_flags(c)
    if not c.is_float() or not isinstance(c.domain, Field):
        return out
    d = c.domain
    x, y = np.broadcast_arrays(c.arg(0), c.arg(1) if c.is_float(1) else d.from_integers(c.arg(1)))
    for twice in range(-2 * _LARGEST_POWER, 2 * _LARGEST_POWER + 1):
        at = y == d.constant(Fraction(twice, 2))
        if np.any(at):
            out = np.where(at, _power(d, x, Fraction(twice, 2)), out)
    return out


def _draw_by_flags(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = float_attrs(d, term, op)
    inputs = _broadcast(d, term, want._replace(dtype=operand_type(d, op, want.dtype)))
    return inputs, attrs


def _broadcast(d: Draw, term: Term, want: Want) -> list[int]:
    """Operands of broadcasting shapes; known ones first, the others fitted to the first."""
    kids, out = term.children, {}
    order = sorted(range(len(kids)), key=lambda k: not d.is_known(kids[k]))
    base: tuple[int, ...] | None = None
    for k in order:
        if base is None:
            wish = want.shape
            if wish is not None and d.rng.random() < 0.3:
                wish = None
            out[k] = d.child(kids[k], Want(shape=wish, rank=want.rank, least_rank=want.least_rank, dtype=want.dtype))
            base = d.shape(out[k])
            dtype = d.dtype_of(out[k])
        else:
            shape = base if kids[k].kind == "op" else d.partner(base)
            out[k] = d.child(kids[k], Want(shape=shape, dtype=dtype))
    return [out[k] for k in range(len(kids))]


def _draw_where(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    c, a, b = term.children
    x = d.child(a, Want(shape=want.shape, least_rank=want.least_rank, dtype=want.dtype))
    y = d.child(b, Want(shape=d.partner(d.shape(x)), dtype=d.dtype_of(x)))
    wide = max(d.shape(x), d.shape(y), key=len)
    return [d.child(c, Want(shape=d.partner(wide), dtype=9)), x, y], {}


def _draw_variadic(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    if all(c.kind != "seq" for c in term.children):
        return _broadcast(d, term, want), {}
    base = want.shape or d.dims(d.rank())
    out: list[int] = []
    for c in term.children:
        out += d.spread(c, Want(shape=base)) if c.kind == "seq" else [d.child(c, Want(shape=base))]
    return out, {}


def _draw_prelu(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    inputs, attrs = _draw_by_flags(d, term, op, want)
    if len(d.shape(inputs[1])) > len(d.shape(inputs[0])):
        raise GiveUp  # ONNX broadcasts the slope one way
    return inputs, attrs


def _native(op: str, commutative: bool) -> Callable[[object], NativeKind]:
    return lambda a: NativeKind(op, 2, [], commutative=commutative)


register_class("binary", meaning=by_flags, draw=_draw_by_flags)
register_class("pointwise", meaning=_of_elements, draw=_draw_by_flags)
register(
    "Add",
    exactly=lambda d, a, b: d.add(a, b),
    on_integers=np.add,
    known="always",
    degree=degrees.total,
    for_integers=True,
    native=_native("Add", True),
)
register(
    "Sub",
    exactly=lambda d, a, b: d.sub(a, b),
    on_integers=np.subtract,
    known="always",
    degree=degrees.total,
    for_integers=True,
    native=_native("Sub", False),
)
register(
    "Mul",
    exactly=lambda d, a, b: d.mul(a, b),
    on_integers=np.multiply,
    known="always",
    degree=degrees.product,
    for_integers=True,
    native=_native("Mul", True),
)
register(
    "Div",
    exactly=lambda d, a, b: d.div(a, b),
    on_integers=_truncated,
    known="always",
    degree=degrees.quotient,
    for_integers=True,
    native=_native("Div", False),
)
register("Mod", for_integers=True)
register(
    "Equal",
    exactly=lambda d, a, b: np.asarray(a == b, dtype=bool),
    on_integers=np.equal,
    known="always",
    for_integers=True,
)
register("Greater", compares=lambda a, b: a > b, on_integers=np.greater, known="ordered", for_integers=True)
register("Less", compares=lambda a, b: a < b, on_integers=np.less, known="ordered", for_integers=True)
register("GreaterOrEqual", compares=lambda a, b: a >= b, on_integers=np.greater_equal, known="ordered")
register("LessOrEqual", compares=lambda a, b: a <= b, on_integers=np.less_equal, known="ordered")
register("And", on_integers=np.logical_and, floats=False)
register("Or", on_integers=np.logical_or, floats=False)
register("Xor", on_integers=np.logical_xor, floats=False)
register("BitwiseAnd", on_integers=np.bitwise_and, floats=False, for_integers=True)
register("BitwiseOr", on_integers=np.bitwise_or, floats=False, for_integers=True)
register("BitwiseXor", on_integers=np.bitwise_xor, floats=False)
register("BitShift", floats=False)
register("Pow", meaning=_pow)
register("PRelu", meaning=_prelu, draw=_draw_prelu, known="ordered", integers=False)
register("Sum", meaning=_sum, draw=_draw_variadic, degree=degrees.total, one_term=True, pointwise=True)
register("Mean", meaning=_mean, draw=_draw_variadic, degree=degrees.total, one_term=True, pointwise=True)
for _name in ("Max", "Min"):
    register(_name, meaning=_max_min, draw=_draw_variadic, one_term=True, pointwise=True, native=_native(_name, True))
register("Where", meaning=_where, draw=_draw_where, one_term=True, pointwise=True)
