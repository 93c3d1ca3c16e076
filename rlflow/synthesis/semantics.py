"""Exact meaning of operators over a domain: the driver, and the pointwise operators.

:class:`Evaluator` walks a core graph and gives every value an exact array. Values of float types are elements of the
domain (see :mod:`domains`);
integers are ``int64`` arrays, bools are ``bool`` arrays. The shape that each operator yields here is compared with
the one the core inferred, so
that the core's shape rules are checked on the way.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from rlflow import _core
from rlflow.errors import ProofError
from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Ordered, Unsupported
from rlflow.synthesis.integers import edges_of, limits, wrapped

FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20})
BOOL = 9
# Rounding to a narrower float type loses information; this order says which types hold which exactly.
_FLOAT_HOLDS: dict[int, set[int]] = {11: {1, 10, 16, 11}, 1: {1, 10, 16}, 10: {10}, 16: {16}}


class NeedsOrder(Exception):  # noqa: N818 - a question to the prover, not an error
    """The operator means something only over an ordered domain."""


class InferenceMismatch(ProofError):  # noqa: N818 - it says what happened
    """The core inferred another shape than the operator yields."""


@dataclass
class Call:
    """One node being evaluated: attributes, operand arrays (``None``: absent), their element types, and what the core
    inferred."""

    op: str
    attrs: dict[str, Any]
    inputs: list[Array | None]
    dtypes: list[int]
    out_dtypes: list[int]
    out_shapes: list[list[Any] | None]
    domain: Domain
    widened_from: int = 0  # element type that holds operand 0 exactly, where a widening Cast made it

    def key(self, *more: object) -> int:
        """A key that covers the operator, its attributes and ``more``."""
        return field.key_of(self.op, sorted(self.attrs.items()), *more)

    def present(self, k: int) -> bool:
        return k < len(self.inputs) and self.inputs[k] is not None

    def arg(self, k: int) -> Array:
        a = self.inputs[k] if k < len(self.inputs) else None
        if a is None:
            raise ProofError(f"{self.op}: operand {k} is absent, the evaluator needs it")
        return a

    def is_float(self, k: int = 0) -> bool:
        return self.dtypes[k] in FLOATS


Meaning = Callable[[Call], "Array | list[Array]"]
MEANINGS: dict[str, Meaning] = {}


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Registers the meaning of operators."""

    def register(f: Meaning) -> Meaning:
        for name in names:
            MEANINGS[name] = f
        return f

    return register


@functools.cache
def flags_of(op: str) -> frozenset[str]:
    """The operator table's flags of an operator."""
    return frozenset(_core.op_row(op)["flags"])


@functools.cache
def _load() -> None:
    import rlflow.synthesis.semantics_linear
    import rlflow.synthesis.semantics_movement  # noqa: F401 - both register meanings


class Evaluator:
    """Evaluates graphs over one domain. Constants of equal digest get equal values, in every graph it sees.

    ``seed`` decides the values of inputs and of constants without a payload; in some of them stand values ``near``
    the boundaries of a statement, and the edge values of integer types.
    """

    def __init__(self, domain: Domain, seed: int, near: Sequence[float] = ()) -> None:
        _load()
        self.domain = domain
        self.seed = seed
        self.near = near
        self._constants: dict[tuple[str, int], Array] = {}

    def _rng(self, *parts: object) -> np.random.Generator:
        return np.random.default_rng(field.key_of(self.seed, *parts))

    def _random(self, rng: np.random.Generator, dtype: int, shape: tuple[int, ...]) -> Array:
        if dtype in FLOATS:
            return self._with_near(rng, self.domain.random(rng, shape))
        if dtype == BOOL:
            return self.domain.booleans(rng, shape)
        plain = rng.integers(-9, 10, size=shape, dtype=np.int64)
        pool = [*edges_of(dtype), *(int(v) for v in self.near if v == int(v) and abs(v) < 2**63)]
        if not pool or rng.random() < 0.4:
            return wrapped(plain, dtype)
        return wrapped(np.where(rng.random(shape) < 0.5, rng.choice(np.array(pool, np.int64), shape), plain), dtype)

    def _with_near(self, rng: np.random.Generator, values: Array) -> Array:
        """The values with some at and beside the boundaries, every other time."""
        if not self.near or rng.random() < 0.5:
            return values
        out = values.reshape(-1).copy()
        at = rng.random(out.shape) < 0.4
        out[at] = rng.choice(_elements(type(self.domain), tuple(self.near)), int(at.sum()))
        return out.reshape(values.shape)

    def inputs(self, graph: _core.Graph, indices: dict[int, int]) -> dict[int, Array]:
        """Random arrays for the graph inputs, by ordinal. ``indices``: ordinal of an integer input used as index ->
        number of rows."""
        feeds: dict[int, Array] = {}
        for k, n in enumerate(graph.inputs()):
            v = graph.node_outputs(n)[0]
            shape = tuple(graph.shape(v) or ())
            if k in indices:
                feeds[k] = self._rng("input", k).integers(0, indices[k], size=shape, dtype=np.int64)
            else:
                feeds[k] = self._random(self._rng("input", k), graph.dtype(v), shape)
        return feeds

    def _constant(self, graph: _core.Graph, n: int) -> Array:
        v = graph.node_outputs(n)[0]
        dtype, shape = graph.dtype(v), tuple(graph.shape(v) or ())
        key = (graph.const_digest(n), dtype)
        if key not in self._constants:
            values = graph.const_values(n)
            if values is None:
                array = self._random(self._rng("constant", key[0]), dtype, shape)
            elif dtype in FLOATS:
                rounded = [_rounded(dtype, x) for x in values]
                if not all(map(math.isfinite, rounded)):
                    raise Unsupported("a constant that is not finite in its type")
                array = self.domain.constants(rounded, shape)
            else:
                array = np.array(values, dtype=bool if dtype == BOOL else np.int64).reshape(shape)
            self._constants[key] = array
        return self._constants[key]

    def run(self, graph: _core.Graph, feeds: dict[int, Array]) -> list[Array]:
        """The graph's outputs. Raises :class:`Unsupported`, :class:`NeedsOrder` or :class:`InferenceMismatch`."""
        with np.errstate(over="ignore"):  # 64-bit words wrap on purpose
            return self._run(graph, feeds)

    def _run(self, graph: _core.Graph, feeds: dict[int, Array]) -> list[Array]:
        values: dict[int, Array] = {}
        self._widened: dict[int, int] = {}
        ordinal = {n: k for k, n in enumerate(graph.inputs())}
        for n in graph.order():
            outs = graph.node_outputs(n)
            if n in ordinal:
                values[outs[0]] = feeds[ordinal[n]]
            elif graph.op(n) == "Constant":
                values[outs[0]] = self._constant(graph, n)
            else:
                for v, array in zip(outs, self._call(graph, n, outs, values), strict=False):
                    values[v] = array
        return [values[v] for v in graph.outputs()]

    def _call(self, graph: _core.Graph, n: int, outs: list[int], values: dict[int, Array]) -> list[Array]:
        operands = graph.node_inputs(n)
        call = Call(
            graph.op(n),
            {
                name: _rounded(1, a) if isinstance(a, float) else a for name, a in graph.attrs(n).items()
            },  # ONNX stores them so
            [None if v < 0 else values[v] for v in operands],
            [0 if v < 0 else graph.dtype(v) for v in operands],
            [graph.dtype(v) for v in outs],
            [graph.shape(v) for v in outs],
            self.domain,
        )
        if call.op == "Cast":
            call.widened_from = self._widened.get(operands[0], 0)
            if call.dtypes[0] in _FLOAT_HOLDS.get(call.out_dtypes[0], ()):
                self._widened[outs[0]] = call.widened_from or call.dtypes[0]
        result = apply(call)
        for k, array in enumerate(result[: len(outs)]):
            _compare_shape(call, k, array)
        return [wrapped(a, t) if a.dtype == np.int64 else a for a, t in itertools.zip_longest(result, call.out_dtypes)]


@functools.lru_cache(maxsize=64)
def _elements(domain: type[Domain], values: tuple[float, ...]) -> Array:
    """Numbers as elements of a domain."""
    return domain().constants(list(values), (len(values),))


def _rounded(dtype: int, value: float) -> float:
    """The value as an element of the type holds it."""
    if dtype == 1:
        return float(np.float32(value))
    return float(np.float16(value)) if dtype == 10 else float(value)


def _compare_shape(call: Call, k: int, array: Array) -> None:
    inferred = call.out_shapes[k]
    if inferred is None:
        return
    same = len(inferred) == array.ndim and all(
        not isinstance(d, int) or d == e for d, e in zip(inferred, array.shape, strict=True)
    )
    if not same:
        operands = [None if a is None else a.shape for a in call.inputs]
        raise InferenceMismatch(
            f"{call.op}{call.attrs} on shapes {operands} yields {list(array.shape)}, the operator table says {inferred}"
        )


def apply(call: Call) -> list[Array]:
    """Evaluates one node; see :class:`Evaluator`."""
    f = MEANINGS.get(call.op)
    if f is None:
        if "unary" in flags_of(call.op):
            f = _unary
        elif "binary" in flags_of(call.op):
            f = _binary
        else:
            raise Unsupported(f"the evaluator has no meaning for {call.op}")
    result = f(call)
    return result if isinstance(result, list) else [result]


_MEANT = frozenset(("Neg", "Identity", "Reciprocal", "Not", "Cast"))  # pointwise operators that mean what they mean


def arbitrary_operators(parent: _core.Graph, child: _core.Graph | None, domain: Domain) -> list[str]:
    """Names of the pointwise operators of both graphs of which the domain knows no more than flags and symmetries."""
    known = set(_MEANT) | set(_EXACT)
    if domain.ordered:
        known |= {"Relu", "Abs", "Clip", "PRelu", "LeakyRelu"} | set(_COMPARISONS)
    graphs = [g for g in (parent, child) if g is not None]
    names = {g.op(n) for g in graphs for n in g.order() if {"unary", "binary"} & flags_of(g.op(n))}
    return sorted(names - known)


# ---- pointwise ------------------------------------------------------------------------------------------------------


def _integer_function(key: int, *arguments: Array) -> Array:
    words = np.asarray(field.oracle(key, *(np.asarray(a).astype(np.int64).astype(np.uint64) for a in arguments)))
    return (words >> np.uint64(1)).astype(np.int64) % 1000


_INTEGER_UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Relu": lambda a: np.maximum(a, 0),
    "Sign": np.sign,
}


def _unary(c: Call) -> Array:
    flags = flags_of(c.op)
    x = c.arg(0)
    if c.is_float():
        if c.out_dtypes[0] == BOOL:
            return c.domain.predicate(c.key(), x)
        if c.op == "LeakyRelu" and c.domain.ordered:
            return _leaky(x, c.domain.constant(c.attrs["alpha"]))
        return c.domain.unary(c.op, c.key(), x, zero="zero_preserving" in flags, monotone="monotone" in flags)
    if c.op == "Not":
        return ~x
    if c.op in _INTEGER_UNARY:
        return np.asarray(_INTEGER_UNARY[c.op](x))
    out = _integer_function(c.key(), x)
    out = np.where(x == 0, 0, out) if "zero_preserving" in flags else out
    return out.astype(bool) if c.out_dtypes[0] == BOOL else out


def _leaky(a: Array, slope: Array) -> Array:
    return np.asarray(np.frompyfunc(lambda x, s: x if x >= 0 else s * x, 2, 1)(a, slope), dtype=object)


@meaning("Identity")
def _identity(c: Call) -> Array:
    return c.arg(0)


@meaning("Neg")
def _neg(c: Call) -> Array:
    x = c.arg(0)
    return c.domain.sub(c.domain.zeros(()), x) if c.is_float() else np.negative(x)


@meaning("Reciprocal")
def _reciprocal(c: Call) -> Array:
    return c.domain.div(c.domain.constant(1), c.arg(0))


@meaning("Clip")
def _clip(c: Call) -> Array:
    bounds = [c.inputs[k] if c.present(k) else None for k in (1, 2)]
    if not c.is_float() or not isinstance(c.domain, Ordered):
        if not c.is_float():
            return np.clip(c.arg(0), bounds[0], bounds[1]) if any(b is not None for b in bounds) else c.arg(0)
        given = [b.reshape(()) for b in bounds if b is not None]
        return c.domain.function(c.key([b is None for b in bounds]), c.arg(0), *given)
    x = c.arg(0)
    for bound, largest in zip(bounds, (True, False), strict=True):
        x = x if bound is None else c.domain.extreme(x, bound.reshape(()), largest)
    return x


@meaning("Cast")
def _cast(c: Call) -> Array:
    x, source, target = c.arg(0), c.dtypes[0], c.out_dtypes[0]
    if source == target:
        return x
    if source in FLOATS:
        if target in FLOATS:
            held = {source, c.widened_from} & _FLOAT_HOLDS.get(target, set())
            return x if held else c.domain.function(c.key(), x, zero=True)
        return np.asarray(x != 0, dtype=bool) if target == BOOL else _to_integer(c, x)
    if target in FLOATS:
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
    anything = c.domain.integer(c.key(), x)
    whole = [int(v) if low <= int(v) <= high else int(a) for v, a in zip(x.flat, anything.flat, strict=True)]
    return np.array(whole, np.int64).reshape(x.shape)


_EXACT: dict[str, Callable[[Domain, Array, Array], Array]] = {
    "Add": lambda d, a, b: d.add(a, b),
    "Sub": lambda d, a, b: d.sub(a, b),
    "Mul": lambda d, a, b: d.mul(a, b),
    "Div": lambda d, a, b: d.div(a, b),
    "Equal": lambda d, a, b: np.asarray(a == b, dtype=bool),
}


def _truncated(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b)
    q = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
    return np.where(b == 0, _integer_function(field.key_of("x/0"), a), q)


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Greater": lambda a, b: a > b,
    "Less": lambda a, b: a < b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "LessOrEqual": lambda a, b: a <= b,
}


def _binary(c: Call) -> Array:
    a, b = c.arg(0), c.arg(1)
    if not c.is_float():
        if c.op in _INTEGER:
            return np.asarray(_INTEGER[c.op](a, b))
        b = b if not c.is_float(1) else c.domain.integer(0, b)
        return _integer_function(c.key(), a, b)
    if c.op in _EXACT:
        return _EXACT[c.op](c.domain, a, b)
    b = b if c.is_float(1) else c.domain.from_integers(b)
    if c.op in _COMPARISONS:
        if c.domain.ordered:
            return np.asarray(np.frompyfunc(_COMPARISONS[c.op], 2, 1)(a, b), dtype=bool)
        return c.domain.predicate(c.key(), a, b)
    if c.op == "PRelu" and c.domain.ordered:
        return _leaky(a, b)
    return c.domain.function(c.key(), a, b, zero=c.op == "PRelu")


def _fold(c: Call, step: Callable[[Array, Array], Array]) -> Array:
    return functools.reduce(step, (c.arg(k) for k in range(1, len(c.inputs))), c.arg(0))


def _total(c: Call) -> Array:
    return _fold(c, c.domain.add if c.is_float() else np.add)


@meaning("Sum")
def _sum(c: Call) -> Array:
    return _total(c)


@meaning("Mean")
def _mean(c: Call) -> Array:
    if not c.is_float():
        raise Unsupported("Mean of integers")
    return c.domain.div(_total(c), c.domain.constant(len(c.inputs)))


@meaning("Max", "Min")
def _max_min(c: Call) -> Array:
    largest = c.op == "Max"
    if not c.is_float():
        return _fold(c, np.maximum if largest else np.minimum)
    if not isinstance(c.domain, Ordered):
        raise NeedsOrder(c.op)
    domain = c.domain
    return _fold(c, lambda a, b: domain.extreme(a, b, largest))


@meaning("Where")
def _where(c: Call) -> Array:
    return np.where(c.arg(0).astype(bool), c.arg(1), c.arg(2))
