"""Where real-valued tensors live while a rule is checked.

*Field*: residues mod 2^61 - 1 (see :mod:`field`); pointwise functions are arbitrary, there is no order.
*Ordered*: exact rationals (``int`` and ``fractions.Fraction`` in object arrays); Max, Min, Relu and the like mean what
they mean, other pointwise functions are keyed and, where the operator table says so, monotone; a rule that needs an
order is checked here.

Integer and boolean tensors are numpy integers (wrapping) and bools in both.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from rlflow.synthesis import field

Array = np.ndarray[Any, Any]
Exact = int | Fraction


class Unsupported(Exception):  # noqa: N818 - a statement about the evaluator, not an error of the caller
    """The evaluator has no exact meaning for this operator or mode here; the sample says nothing."""


class OfNothing(Unsupported):
    """The result is no number (an infinity, 0 / 0) because there is nothing that it is made of. In a source this says
    nothing; a target must not have it where the source is a number."""


class Domain(ABC):
    """Arithmetic on real-valued tensors; arrays broadcast as numpy's do."""

    name: str
    ordered: bool

    @abstractmethod
    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Random elements."""

    def booleans(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Random bools."""
        return rng.integers(0, 2, size=shape).astype(bool)

    @abstractmethod
    def constant(self, value: float | int | Fraction) -> Array:
        """A rank-0 array holding the exact value of a finite number."""

    @abstractmethod
    def constants(self, values: list[float] | list[int], shape: tuple[int, ...]) -> Array:
        """An array of exact numbers, row-major."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...]) -> Array: ...

    @abstractmethod
    def add(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def sub(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def mul(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def div(self, a: Array, b: Array) -> Array: ...

    @abstractmethod
    def total(self, a: Array, axis: tuple[int, ...]) -> Array:
        """Sum over axes, which go."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Numpy's matmul of operands of rank two or more."""
        return self.total(self.mul(a[..., :, :, None], b[..., None, :, :]), (max(a.ndim, b.ndim) - 1,))

    @abstractmethod
    def function(self, key: int, *arguments: Array, zero: bool = False) -> Array:
        """A keyed arbitrary function of its arguments; with ``zero`` it maps (0, ...) to 0."""

    @abstractmethod
    def rows(self, key: int, rows: Array) -> Array:
        """A keyed arbitrary function of each row (last axis) and the position in it; same shape."""

    @abstractmethod
    def predicate(self, key: int, *arguments: Array) -> Array:
        """A keyed arbitrary predicate; bools."""

    def unary(
        self, key: int, a: Array, *, zero: bool, monotone: bool, symmetry: str = "", positive: bool = False
    ) -> Array:
        """A keyed pointwise operator; ``key`` covers its attributes and extra operands. ``zero``: it maps 0 to 0;
        ``monotone``, ``positive``: where there is an order; ``symmetry``: see :meth:`symmetric`."""
        return self.symmetric(symmetry, a, lambda b: self.function(key, b, zero=zero))

    def symmetric(self, symmetry: str, a: Array, f: Callable[[Array], Array]) -> Array:
        """``f`` made odd, f(-x) = -f(x), "even", f(-x) = f(x), or "point"-symmetric, f(-x) = 1 - f(x): f(a) - f(-a),
        f(a) + f(-a), or 1/2 + f(a) - f(-a). That is all that is known of such an operator beside its flags."""
        if not symmetry:
            return f(a)
        b = f(self.sub(self.zeros(()), a))
        if symmetry == "even":
            return self.add(f(a), b)
        odd = self.sub(f(a), b)
        return odd if symmetry == "odd" else self.add(self.constant(Fraction(1, 2)), odd)

    def integer(self, key: int, a: Array) -> Array:
        """A keyed arbitrary function to 64-bit integers, small ones and 0 among them."""
        words = np.asarray(field.oracle(key, self.words(a)))
        large = (words >> np.uint64(1)).astype(np.int64)
        return np.where(words & np.uint64(1), large, large % 5 - 2)

    @abstractmethod
    def words(self, a: Array) -> Array:
        """A 64-bit word for each element, equal for equal elements."""

    @abstractmethod
    def from_integers(self, a: Array) -> Array:
        """Integers or bools as elements."""


_ONE_OVER_ZERO = np.uint64(field.key_of("1/0") % field.PRIME)


class Field(Domain):
    """GF(2^61 - 1). ``signs``: whether what depends on a sign follows an arbitrary one, instead of being arbitrary
    itself (:mod:`rlflow.synthesis.operators.signs`).
    """

    name = "field"
    ordered = False

    def __init__(self, signs: bool = False) -> None:
        self.signs = signs

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return field.random(rng, shape)

    def constant(self, value: float | int | Fraction) -> Array:
        return np.asarray(np.uint64(field.from_fraction(value)))

    def constants(self, values: list[float] | list[int], shape: tuple[int, ...]) -> Array:
        return np.array([field.from_fraction(v) for v in values], dtype=np.uint64).reshape(shape)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, np.uint64)

    def add(self, a: Array, b: Array) -> Array:
        return field.add(a, b)

    def sub(self, a: Array, b: Array) -> Array:
        return field.sub(a, b)

    def mul(self, a: Array, b: Array) -> Array:
        return field.mul(a, b)

    def div(self, a: Array, b: Array) -> Array:
        # 1/0 is an arbitrary element: no identity may rely on it, and none may divide by 0 where the other side does
        # not.
        inverse = field.inverse(b)
        return field.mul(a, np.where(b == 0, _ONE_OVER_ZERO, inverse))

    def total(self, a: Array, axis: tuple[int, ...]) -> Array:
        return field.total(a, axis) if axis else a

    def matmul(self, a: Array, b: Array) -> Array:
        return field.matmul(a, b)

    def function(self, key: int, *arguments: Array, zero: bool = False) -> Array:
        out = field.reduce(field.oracle(key, *arguments))
        return np.where(arguments[0] == 0, np.uint64(0), out) if zero else out

    def rows(self, key: int, rows: Array) -> Array:
        state = field.row_state(key, rows)[..., None]
        return field.reduce(field.oracle(key, state, np.arange(rows.shape[-1], dtype=np.uint64)))

    def predicate(self, key: int, *arguments: Array) -> Array:
        return (field.oracle(key, *arguments) & np.uint64(1)).astype(bool)

    def words(self, a: Array) -> Array:
        return a

    def from_integers(self, a: Array) -> Array:
        if np.asarray(a).dtype == object:  # beyond 64 bits
            residues = np.frompyfunc(lambda v: int(v) % field.PRIME, 1, 1)(a)
            return np.asarray(residues).astype(np.uint64)
        signed = np.asarray(a).astype(np.int64)
        magnitude = np.abs(signed).astype(np.uint64)
        return np.where(signed < 0, np.uint64(field.PRIME) - magnitude, magnitude)


# Whole numbers are Python's integers, which are ten times as fast as fractions and print alike.
_WHOLE: list[Exact] = list(range(-12, 13))
_HALVES: list[Exact] = [Fraction(n, d) for d in (1, 2, 3) for n in range(-6, 7)]


def _object_array(values: list[Exact], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out.reshape(shape)


@functools.lru_cache(maxsize=4096)
def _exact(value: float | int | Fraction) -> Exact:
    exact = Fraction(value)
    return _ratio(exact.numerator, exact.denominator)


def _ratio(n: int, d: int) -> Exact:
    whole, rest = divmod(n, d)
    return Fraction(n, d) if rest else whole


class Ordered(Domain):
    """Exact rationals."""

    name = "ordered"
    ordered = True

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        pool = _WHOLE if rng.integers(0, 3) else _HALVES
        picks = rng.integers(0, len(pool), size=int(np.prod(shape)))
        return _object_array([pool[k] for k in picks], shape)

    def constant(self, value: float | int | Fraction) -> Array:
        return _object_array([_exact(value)], ())

    def constants(self, values: list[float] | list[int], shape: tuple[int, ...]) -> Array:
        return _object_array([_exact(v) for v in values], shape)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return _object_array([0] * int(np.prod(shape)), shape)

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b, dtype=object)

    def sub(self, a: Array, b: Array) -> Array:
        return np.asarray(a - b, dtype=object)

    def mul(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b, dtype=object)

    def div(self, a: Array, b: Array) -> Array:
        def divide(x: Exact, y: Exact) -> Exact:
            if not y:
                return x * Fraction(7, 5)  # see Field.div
            return _ratio(x.numerator * y.denominator, x.denominator * y.numerator)

        return self.each(divide, a, b)

    def total(self, a: Array, axis: tuple[int, ...]) -> Array:
        for k in sorted(axis, reverse=True):
            a = (
                np.asarray(np.add.reduce(a, axis=k), dtype=object)
                if a.shape[k]
                else self.zeros(a.shape[:k] + a.shape[k + 1 :])
            )
        return a

    @staticmethod
    def each(f: Any, *arrays: Array) -> Array:
        """``f`` of each element."""
        out = np.frompyfunc(f, len(arrays), 1)(*arrays)
        return np.asarray(out, dtype=object)

    @staticmethod
    def _number(word: int) -> Exact:
        if word % 7 == 0:  # now and then a large one
            return (-1) ** (word // 7 % 2) * 10 ** (word // 14 % 10)
        return _ratio(word % 23 - 11, 1 + word // 23 % 4)

    def function(self, key: int, *arguments: Array, zero: bool = False) -> Array:
        def value(*xs: Exact) -> Exact:
            return 0 if zero and xs[0] == 0 else self._number(field.key_of(key, *xs))

        return self.each(value, *arguments)

    def unary(
        self, key: int, a: Array, *, zero: bool, monotone: bool, symmetry: str = "", positive: bool = False
    ) -> Array:
        if positive:  # and non-decreasing: no more may be used
            return self.each(lambda x: x + Fraction(1, 3), self._monotone(key, a, False))
        if monotone:
            return self.symmetric(symmetry, a, lambda b: self._monotone(key, b, zero))
        return super().unary(key, a, zero=zero, monotone=monotone, symmetry=symmetry)

    def _monotone(self, key: int, a: Array, zero: bool) -> Array:
        # A sum of four ramps and steps with keyed knots: non-decreasing, neither linear nor injective.
        knots = [field.key_of(key, "knot", k) % 17 - 8 for k in range(4)]  # twice the knots
        slopes = [field.key_of(key, "slope", k) % 3 for k in range(4)]
        jumps = [field.key_of(key, "jump", k) % 2 for k in range(4)]
        ramps = list(zip(knots, slopes, jumps, strict=True))

        def doubled(p: int, q: int) -> int:
            """2 q times the value at p / q."""
            beyond = ((2 * p - t * q, s, j) for t, s, j in ramps)
            return sum([s * x + 2 * j * q for x, s, j in beyond if x > 0])

        offset = doubled(0, 1) if zero else 0

        def value(x: Exact) -> Exact:
            p, q = x.numerator, x.denominator
            return _ratio(doubled(p, q) - offset * q, 2 * q)

        return self.each(value, a)

    def rows(self, key: int, rows: Array) -> Array:
        out = np.empty(rows.shape, dtype=object)
        for index in np.ndindex(rows.shape[:-1]):
            row = tuple(map(str, rows[index]))
            for k in range(rows.shape[-1]):
                out[(*index, k)] = self._number(field.key_of(key, row, k))
        return out

    def predicate(self, key: int, *arguments: Array) -> Array:
        return self.each(lambda *xs: bool(field.key_of(key, *xs) & 1), *arguments).astype(bool)

    def words(self, a: Array) -> Array:
        return self.each(lambda x: field.key_of(x), a).astype(np.uint64)

    def from_integers(self, a: Array) -> Array:
        return self.each(int, a)

    def extreme(self, a: Array, b: Array, largest: bool) -> Array:
        """Elementwise maximum or minimum."""
        return self.each(max if largest else min, a, b)
