"""Exact elements that remember what they are made of, and what was asked of them.

A :class:`Element` is a polynomial in the variables of a :class:`Walk` (elements of inputs and constants, values of
arbitrary functions), which has a value at the walk's point. Comparing two forms answers for the point, and notes the
answer as a constraint: all points that satisfy the constraints of a walk take the same way through a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from rlflow.synthesis.domains import Array, Ordered, Unsupported
from rlflow.synthesis.field import key_of
from rlflow.synthesis.polyhedra import Constraint, Point, Polynomial, evaluate

MOST_CHOICES = 48  # on one way; a graph with more is too large for cases
MOST_TERMS = 64  # of a polynomial


class TooManyCases(Exception):  # noqa: N818 - becomes an answer
    """The graph asks more than is worth following."""


@dataclass
class Walk:
    """One evaluation of both sides at a point. ``point`` gains the values of variables as they appear."""

    point: Point
    path: list[Constraint] = field(default_factory=list)
    answers: dict[tuple[Any, str], bool] = field(default_factory=dict)
    applied: dict[int, list[tuple[tuple[Any, ...], Any]]] = field(default_factory=dict)
    loose: bool = False  # whether some variables are tied by more than the constraints say

    def variable(self, name: str) -> Element:
        """The variable of that name; where the point does not say, its value is arbitrary."""
        if name not in self.point:
            word = key_of("variable", name)
            self.point[name] = Fraction(word % 23 - 11, 1 + word // 23 % 3)
        return Element({(name,): Fraction(1)}, self)

    def is_zero(self, polynomial: Polynomial) -> bool:
        """Whether a polynomial is zero at the point, noted as p < 0, -p < 0, or p = 0 with p's last factor positive."""
        flip = _flip(polynomial)
        key = _items(polynomial, flip)
        below, not_above = self.answers.get((key, "<")), self.answers.get((key, "<="))
        if below or not_above is False:
            return False
        if not_above and below is False:
            return True
        value = evaluate(polynomial, self.point)
        turn = flip if value == 0 else -1 if value > 0 else 1
        self.note(_scaled(polynomial, Fraction(turn)), "<" if value else "=", equality=True)
        upright = value * flip
        self.answers[key, "<"], self.answers[key, "<="] = upright < 0, upright <= 0
        return value == 0

    def below(self, polynomial: Polynomial, *, strictly: bool) -> bool:
        """Whether a polynomial is less than zero (or not greater) at the point, noted."""
        if _flip(polynomial) < 0:  # p < 0 is not (-p <= 0)
            return not self._below(_scaled(polynomial, Fraction(-1)), "<=" if strictly else "<")
        return self._below(polynomial, "<" if strictly else "<=")

    def _below(self, polynomial: Polynomial, relation: str) -> bool:
        key = _items(polynomial, 1)
        known = self.answers.get((key, relation))
        if known is not None:
            return known
        if relation == "<=" and self.answers.get((key, "<")):
            return True
        if relation == "<" and self.answers.get((key, "<=")) is False:
            return False
        value = evaluate(polynomial, self.point)
        answer = value < 0 if relation == "<" else value <= 0
        turned = _scaled(polynomial, Fraction(-1))
        self.note(polynomial if answer else turned, relation if answer else "<=" if relation == "<" else "<")
        self.answers[key, relation] = answer
        return answer

    def note(self, polynomial: Polynomial, relation: str, *, fact: bool = False, equality: bool = False) -> None:
        """Adds a constraint. Raises TooManyCases."""
        self.path.append(Constraint(tuple(sorted(polynomial.items())), relation, fact, equality))
        if len(self.path) > MOST_CHOICES:
            raise TooManyCases(f"more than {MOST_CHOICES} comparisons")


def _items(polynomial: Polynomial, factor: int) -> tuple[Any, ...]:
    items = sorted(polynomial.items())
    lead = abs(items[-1][1]) if items else 1
    return tuple((m, factor * c / lead) for m, c in items)


def _flip(polynomial: Polynomial) -> int:
    return 1 if sorted(polynomial.items())[-1][1] > 0 else -1


def _scaled(polynomial: Polynomial, factor: Fraction) -> Polynomial:
    return {m: c * factor for m, c in polynomial.items()} if factor else {}


class Element:
    """An element. Mixes with integers and fractions."""

    __slots__ = ("polynomial", "walk")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, polynomial: Polynomial, walk: Walk) -> None:
        self.polynomial, self.walk = polynomial, walk
        if len(polynomial) > MOST_TERMS:
            raise TooManyCases(f"polynomials of more than {MOST_TERMS} terms")

    def _sum(self, other: Any, factor: int) -> Element:
        out = dict(self.polynomial)
        for m, c in polynomial_of(other).items():
            out[m] = out.get(m, Fraction(0)) + factor * c
        return Element({m: c for m, c in out.items() if c}, self.walk)

    def __add__(self, other: Any) -> Element:
        return self._sum(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Element:
        return self._sum(other, -1)

    def __neg__(self) -> Element:
        return Element(_scaled(self.polynomial, Fraction(-1)), self.walk)

    def __rsub__(self, other: Any) -> Element:
        return -self + other

    def __mul__(self, other: Any) -> Element:
        out: Polynomial = {}
        for m, c in self.polynomial.items():
            for n, d in polynomial_of(other).items():
                product = tuple(sorted(m + n))
                out[product] = out.get(product, Fraction(0)) + c * d
        return Element({m: c for m, c in out.items() if c}, self.walk)

    __rmul__ = __mul__

    def __abs__(self) -> Element:
        return self if self >= 0 else -self

    def _below(self, other: Any, factor: int, *, strictly: bool) -> bool:
        """Whether this is below the other (or, with the factor -1, above it)."""
        if not isinstance(other, (Element, int, Fraction)):
            return factor < 0  # what a pool finds beyond the border is less than anything
        gap = _scaled(self._sum(other, -1).polynomial, Fraction(factor))
        if not any(gap):
            value = gap.get((), Fraction(0))
            return value < 0 if strictly else value <= 0
        return self.walk.below(gap, strictly=strictly)

    def __lt__(self, other: Any) -> bool:
        return self._below(other, 1, strictly=True)

    def __le__(self, other: Any) -> bool:
        return self._below(other, 1, strictly=False)

    def __gt__(self, other: Any) -> bool:
        return self._below(other, -1, strictly=True)

    def __ge__(self, other: Any) -> bool:
        return self._below(other, -1, strictly=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Element, int, Fraction)):
            return False
        gap = self._sum(other, -1).polynomial
        return self.walk.is_zero(gap) if any(gap) else not gap

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0


def polynomial_of(value: Any) -> Polynomial:
    """The polynomial of an element of either kind."""
    if isinstance(value, Element):
        return value.polynomial
    return {(): Fraction(value)} if value else {}


class Cases(Ordered):
    """Rationals as forms of one walk. Functions without a meaning here are arbitrary, monotone ones arbitrary and
    monotone; integers, and bools that are inputs, are what they are drawn to be."""

    def __init__(self, walk: Walk) -> None:
        self.walk, self.made = walk, 0

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        out = np.empty(int(np.prod(shape)), dtype=object)
        for k in range(len(out)):
            self.made += 1
            out[k] = self.walk.variable(f"v{self.made}")
        return out.reshape(shape)

    def booleans(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Bools that are drawn, as choices: each is whether a variable is positive."""
        return np.asarray(self.each(lambda x: x > 0, self.random(rng, shape)), dtype=bool)

    def div(self, a: Array, b: Array) -> Array:
        return self.each(self._quotient, a, b)

    def _quotient(self, x: Any, y: Any) -> Any:
        polynomial = polynomial_of(y)
        if not any(polynomial):
            value = polynomial.get((), Fraction(0))
            return x * (1 / value) if value else x * Fraction(7, 5)
        self.walk.loose = True
        return x * self._applied(key_of("reciprocal"), (y,))

    def function(self, key: int, *arguments: Array, zero: bool = False) -> Array:
        def value(*xs: Any) -> Any:
            return 0 if zero and xs[0] == 0 else self._applied(key, xs)

        return self.each(value, *arguments)

    def _applied(self, key: int, arguments: tuple[Any, ...]) -> Any:
        """An arbitrary function's value: equal arguments give equal ones."""
        known = self.walk.applied.setdefault(key, [])
        for others, result in known:
            if all(a == b for a, b in zip(arguments, others, strict=True)):
                return result
        result = self.walk.variable(f"f{key % 10**6}({_shown(arguments)})")
        known.append((arguments, result))
        return result

    def unary(
        self, key: int, a: Array, *, zero: bool, monotone: bool, symmetry: str = "", positive: bool = False
    ) -> Array:
        if positive:  # and non-decreasing
            return self._monotone(key, a, False, floor=Fraction(1, 3))
        return super().unary(key, a, zero=zero, monotone=monotone, symmetry=symmetry)

    def _monotone(self, key: int, a: Array, zero: bool, floor: Fraction | None = None) -> Array:
        def value(x: Any) -> Any:
            known = self.walk.applied.setdefault(key, [((0,), 0)] if zero else [])
            for others, result in known:
                if x == others[0]:
                    return result
            below = [result for others, result in known if others[0] < x] + ([] if floor is None else [floor])
            above = [result for others, result in known if others[0] > x]
            result = self._between(f"m{key % 10**6}({_shown((x,))})", below, above)
            known.append(((x,), result))
            return result

        return self.each(value, a)

    def _between(self, name: str, below: list[Any], above: list[Any]) -> Element:
        """A variable that lies between others, as facts; a value of the point's that does not is moved there."""
        least = max((evaluate(polynomial_of(b), self.walk.point) for b in below), default=None)
        most = min((evaluate(polynomial_of(b), self.walk.point) for b in above), default=None)
        result = self.walk.variable(name)
        value = self.walk.point[name]
        value = value if least is None else max(value, least)
        self.walk.point[name] = value if most is None else min(value, most)
        for other in below:
            self.walk.note(polynomial_of(-result + other), "<=", fact=True)
        for other in above:
            self.walk.note(polynomial_of(result - other), "<=", fact=True)
        return result

    def rows(self, key: int, rows: Array) -> Array:
        out = np.empty(rows.shape, dtype=object)
        for index in np.ndindex(rows.shape[:-1]):
            for k in range(rows.shape[-1]):
                out[(*index, k)] = self._applied(key_of(key, k), tuple(rows[index]))
        return out

    def predicate(self, key: int, *arguments: Array) -> Array:
        return np.asarray(self.each(lambda *xs: self._applied(key, xs) > 0, *arguments), dtype=bool)

    def words(self, a: Array) -> Array:
        if any(isinstance(v, Element) for v in a.flat):
            raise Unsupported("integers made of reals, by cases")
        return super().words(a)


def _shown(arguments: tuple[Any, ...]) -> str:
    return ",".join(str(sorted((m, str(c)) for m, c in polynomial_of(a).items())) for a in arguments)
