"""Pointwise operators of one operand. Those that nothing is said about here follow from the flags of their rows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.ops.numbers import meant
from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Field, Ordered, Unsupported
from rlflow.synthesis.integers import U64, limits, unsigned, wrapped
from rlflow.synthesis.operators import degrees, exponentials, not_numbers, signs
from rlflow.synthesis.operators.exact import applied, function_of
from rlflow.synthesis.operators.facets import (
    BOOL,
    FLOAT_HOLDS,
    FLOATS,
    Call,
    Drawn,
    default_of,
    facets_of,
    flags_of,
    register,
    register_class,
    row,
)
from rlflow.synthesis.operators.native import NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def integer_function(key: int, *arguments: Array) -> Array:
    words = np.asarray(field.oracle(key, *(np.asarray(a).astype(np.int64).astype(np.uint64) for a in arguments)))
    return (words >> np.uint64(1)).astype(np.int64) % 1000


def leaky(a: Array, slope: Array) -> Array:
    return np.asarray(np.frompyfunc(lambda x, s: x if x >= 0 else s * x, 2, 1)(a, slope), dtype=object)


def _identity(c: Call) -> Array:
    return c.arg(0)


def _neg(c: Call) -> Array:
    x = c.arg(0)
    c.no_arithmetic_of_truths()
    return c.domain.sub(c.domain.zeros(()), x) if c.is_float() else np.negative(x)


def _reciprocal(c: Call) -> Array:
    return c.domain.div(c.domain.constant(1), c.arg(0))


def _clip(c: Call) -> Array:
    bounds = [c.inputs[k] if c.present(k) else None for k in (1, 2)]
    if not c.is_float() or not isinstance(c.domain, Ordered):
        if not c.is_float():
            c.no_arithmetic_of_truths()
            low, high = (None if b is None else unsigned(b, c.dtypes[0]) for b in bounds)
            clipped = np.clip(unsigned(c.arg(0), c.dtypes[0]), low, high) if c.present(1) or c.present(2) else c.arg(0)
            return c.whole(np.asarray(clipped))
        given = [b.reshape(()) for b in bounds if b is not None]
        return c.domain.function(c.key([b is None for b in bounds]), c.arg(0), *given)
    x = c.arg(0)
    for bound, largest in zip(bounds, (True, False), strict=True):
        x = x if bound is None else c.domain.extreme(x, bound.reshape(()), largest)
    return x


def _cast(c: Call) -> Array:
    x, source, target = c.arg(0), c.dtypes[0], c.out_dtypes[0]
    if source == target:
        return x
    if source in FLOATS:
        if target in FLOATS:
            held = {source, c.widened_from} & FLOAT_HOLDS.get(target, set())
            return x if held else c.domain.function(c.key(), x, zero=True)
        return np.asarray(x != 0, dtype=bool) if target == BOOL else _to_integer(c, x)
    if target in FLOATS:
        x = unsigned(x, source)
        x = x.astype(object) if x.dtype == np.uint64 else x
        if target in (1, 11):
            return c.domain.from_integers(_representable(x, target))
        exact = c.domain.from_integers(x)
        return exact if source == BOOL else c.domain.function(c.key(), exact, zero=True)
    return x.astype(bool) if target == BOOL else wrapped(x.astype(np.int64), target)


def _representable(x: Array, dtype: int) -> Array:
    """Whole numbers rounded to what the float type holds (all up to 2^24, or up to 2^53), as Python's integers."""
    kind = np.float32 if dtype == 1 else np.float64
    limit = 2**24 if dtype == 1 else 2**53
    if x.dtype == bool or not np.any((x > limit) | (x < -limit)):
        return x
    return np.frompyfunc(lambda v: int(kind(int(v))), 1, 1)(x)


def _to_integer(c: Call, x: Array) -> Array:
    """Rounded toward zero; an arbitrary integer where the type does not hold that, or without an order."""
    ends = limits(c.out_dtypes[0])
    if not isinstance(c.domain, Ordered) or ends is None:
        return c.domain.integer(c.key(), x)
    if not all(isinstance(v, (int, Fraction)) for v in x.flat):
        raise Unsupported("integers made of reals, by cases")
    low, high = ends
    kind = np.uint64 if c.out_dtypes[0] == U64 else np.int64
    anything = c.domain.integer(c.key(), x).astype(kind)
    whole = [int(v) if low <= int(v) <= high else int(a) for v, a in zip(x.flat, anything.flat, strict=True)]
    return c.whole(np.array(whole, kind).reshape(x.shape))


def by_flags(c: Call) -> Array:
    """A pointwise operator of which no more is known than flags and symmetry; on integers what its facet says."""
    x = c.arg(0)
    if c.is_float():
        return c.domain.predicate(c.key(), x) if c.out_dtypes[0] == BOOL else applied(c.domain, c.op, c.key(), x)
    c.no_arithmetic_of_truths()
    known = facets_of(c.op).on_integers
    if known is not None:
        return c.whole(np.asarray(known(unsigned(x, c.dtypes[0]))))
    out = integer_function(c.key(), x)
    out = np.where(x == 0, 0, out) if "zero_preserving" in flags_of(c.op) else out
    return out.astype(bool) if c.out_dtypes[0] == BOOL else out


def _is_nan(c: Call) -> Array:
    if c.is_float() and isinstance(c.domain, Field):
        return not_numbers.is_nan(c.domain, c.arg(0))
    return by_flags(c)


def _leaky_relu(c: Call) -> Array:
    if c.is_float() and c.domain.ordered:
        return leaky(c.arg(0), c.domain.constant(c.attrs["alpha"]))
    return by_flags(c)


def _swish(c: Call) -> Array:
    """x · Sigmoid(alpha · x), whatever Sigmoid is."""
    if not c.is_float():
        return by_flags(c)
    x, d = c.arg(0), c.domain
    return d.mul(x, function_of(d, "Sigmoid", d.mul(x, d.constant(c.attrs["alpha"]))))


def _ramp(d: Ordered, x: Array, slope: Fraction, height: Fraction) -> Array:
    """min(1, max(0, slope · x + height))."""
    line = d.add(d.mul(d.constant(slope), x), d.constant(height))
    return d.extreme(d.extreme(line, d.constant(0), True), d.constant(1), False)


def _hard_sigmoid(c: Call) -> Array:
    """A ramp where there is an order, with the numbers that its attributes stand for."""
    if c.is_float() and isinstance(c.domain, Ordered):
        return _ramp(c.domain, c.arg(0), meant(c.attrs["alpha"]), meant(c.attrs["beta"]))
    return by_flags(c)


def _hard_swish(c: Call) -> Array:
    """x · HardSigmoid(x) with alpha 1/6 and beta 1/2, whatever HardSigmoid is where there is no order."""
    if not c.is_float():
        return by_flags(c)
    x, d = c.arg(0), c.domain
    if isinstance(d, Ordered):
        return d.mul(x, _ramp(d, x, Fraction(1, 6), Fraction(1, 2)))
    key = field.key_of("HardSigmoid", [("alpha", float(np.float32(1 / 6))), ("beta", 0.5)])
    return d.mul(x, applied(d, "HardSigmoid", key, x))


def _gelu_by_tanh(c: Call) -> Array:
    """x / 2 · (1 + Tanh(k (x + c x³))), k = sqrt(2 / π) and c = 0.044715 as float32 holds them."""
    x, d = c.arg(0), c.domain
    k, cubic = (d.constant(float(np.float32(number))) for number in (math.sqrt(2 / math.pi), 0.044715))
    inner = d.mul(k, d.add(x, d.mul(cubic, d.mul(x, d.mul(x, x)))))
    gate = d.add(d.constant(1), function_of(d, "Tanh", inner))
    return d.mul(d.mul(d.constant(0.5), x), gate)


def _gelu(c: Call) -> Array:
    by_tanh = c.is_float() and c.attrs["approximate"] == "tanh" and not isinstance(c.domain, Ordered)
    return _gelu_by_tanh(c) if by_tanh else by_flags(c)


def _fast_gelu(c: Call) -> Array:
    return by_flags(c) if isinstance(c.domain, Ordered) or not c.is_float() else _gelu_by_tanh(c)


#: Attributes that are one of few.
_ONE_OF: dict[str, list[Any]] = {
    "approximate": ["none", "tanh"],
    "detect_negative": [0, 1],
    "detect_positive": [0, 1],
    "direction": ["LEFT", "RIGHT"],
    "round_mode": ["up"] * 7 + ["down"],  # this and the next are about float8, and not in every opset
    "saturate": [1] * 7 + [0],
}


def float_attrs(d: Draw, term: Term, op: str) -> dict[str, Any]:
    """Attributes of a pointwise operator: floats from a few values, the rest as they are by default."""
    attrs = {}
    for name in row(op)["attributes"]:
        default = default_of(op, name)
        if isinstance(default, float):
            attrs[name] = d.attr(term, op, name, lambda v=default: d.rng.choice([v, 0.5, 1.0, 0.25]))
        elif name in _ONE_OF:
            attrs[name] = d.attr(term, op, name, lambda n=name: d.rng.choice(_ONE_OF[n]))
        elif name == "fmod":
            attrs[name] = d.attr(term, op, name, lambda: 1 if d.dtype in FLOATS else 0)
        elif name == "to":
            attrs[name] = d.attr(term, op, name, lambda: d.rng.choice([1, 10, 11, 6, 7, 9]))
    return attrs


#: Operators whose result says nothing of the type of their operands.
ASKS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf"})
_LOGICAL = frozenset({"And", "Or", "Xor", "Not"})


def operand_type(d: Draw, op: str, wanted: int | None) -> int | None:
    """The element type of operands, ``wanted`` that of the result: of comparisons any, of logic truth values."""
    if op in _LOGICAL:
        return BOOL
    if op in ASKS or op == "Cast":
        return BOOL if op == "Equal" and d.rng.random() < 0.1 else None
    return wanted


def _draw_by_flags(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = float_attrs(d, term, op)
    x = d.child(
        term.children[0],
        want._replace(dtype=operand_type(d, op, want.dtype), index_below=None),
    )
    return [x, *(d.child(c, Want(shape=(), dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


def _clip_bounds(d: Draw, op: str) -> list[int]:
    """Scalar constants that travel with an operator variable."""
    if d.rng.random() < 0.3:
        return []
    low = d.constant("", d.dtype, ()) if d.rng.random() < 0.7 else -1
    return [low, d.constant("", d.dtype, ())] if d.rng.random() < 0.6 or low < 0 else [low]


register_class("unary", meaning=by_flags, draw=_draw_by_flags)
register(
    "Abs",
    symmetry="even",
    ordered=lambda d, x: d.each(abs, x),
    by_sign=signs.magnitude,
    known="ordered",
    on_integers=np.abs,
    for_integers=True,
)
register(
    "Relu",
    ordered=lambda d, x: d.each(lambda e: max(e, 0), x),
    by_sign=signs.positive_part,
    known="ordered",
    on_integers=lambda a: np.maximum(a, 0),
    for_integers=True,
    native=lambda a: NativeKind("Relu", 1, []),
)
register("HardSigmoid", meaning=_hard_sigmoid, known="ordered")
register("HardSwish", meaning=_hard_swish, known="ordered")
register("IsNaN", meaning=_is_nan)
register("Sign", on_integers=np.sign, for_integers=True)
register(
    "Neg",
    meaning=_neg,
    known="always",
    degree=degrees.same,
    one_term=True,
    for_integers=True,
    native=lambda a: NativeKind("Neg", 1, []),
)
register("Identity", meaning=_identity, known="always", degree=degrees.same, one_term=True, for_floats=False)
register("Not", known="always", on_integers=np.invert, floats=False)
register("BitwiseNot", floats=False, for_integers=True)
register("Reciprocal", meaning=_reciprocal, known="always", degree=degrees.reciprocal, one_term=True, integers=False)
register("Clip", meaning=_clip, known="ordered", more_operands=_clip_bounds, for_integers=True)
register("Cast", meaning=_cast, known="always", degree=degrees.same, one_term=True, for_integers=True)
register("LeakyRelu", meaning=_leaky_relu, known="ordered")
register("Sqrt", positive=True, integers=False)
register("Exp", in_field=exponentials.exp, integers=False)
register("Log", in_field=exponentials.log, integers=False)
register("Gelu", meaning=_gelu, integers=False)
register("FastGelu", meaning=_fast_gelu, integers=False)
register("Sigmoid", symmetry="point", in_field=exponentials.sigmoid, integers=False)
register("Tanh", symmetry="odd", in_field=exponentials.tanh, integers=False)
register("Softplus", in_field=exponentials.softplus)
register("Mish", in_field=exponentials.mish)
register("Swish", meaning=_swish)
register("Erf", symmetry="odd", integers=False)
register("Sin", "Tan", "Asin", "Atan", "Sinh", "Asinh", "Atanh", "Softsign", symmetry="odd")
register("Cos", "Cosh", symmetry="even")
