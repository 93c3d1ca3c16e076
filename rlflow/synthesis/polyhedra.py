"""Points of polyhedra over the rationals, by elimination of one variable after the other (Fourier and Motzkin).

A constraint is a polynomial (monomial -> coefficient) and a relation to zero. Where a monomial is a product, it is
taken for a variable of its own, which loses nothing where no point exists; a point is believed only if it satisfies the
constraints as they were given.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Monomial = tuple[str, ...]  # names of variables in order, each as often as its power; () is 1
Polynomial = dict[Monomial, Fraction]
Point = dict[str, Fraction]

MOST_CONSTRAINTS = 600
_FIXINGS = 3  # ways to make products linear that are tried


@dataclass(frozen=True)
class Constraint:
    """``polynomial`` is "<", "<=" or "=" zero. A ``fact`` holds by itself; the others are answers on a way.
    ``equality``: asked was whether it is zero, so that there are three answers and not two."""

    polynomial: tuple[tuple[Monomial, Fraction], ...]
    relation: str
    fact: bool = False
    equality: bool = False

    def holds(self, point: Point) -> bool:
        """Whether it holds at a point, which gives 0 to the variables that it does not name."""
        value = evaluate(dict(self.polynomial), point)
        return value < 0 if self.relation == "<" else value <= 0 if self.relation == "<=" else value == 0


class TooLarge(Exception):  # noqa: N818 - becomes an answer
    """More constraints than are worth it."""


def evaluate(polynomial: Polynomial, point: Point) -> Fraction:
    """The value of a polynomial."""
    total = Fraction(0)
    for monomial, factor in polynomial.items():
        for name in monomial:
            factor = factor * point.get(name, Fraction(0))
        total += factor
    return total


def point_in(constraints: Sequence[Constraint], here: Point) -> Point | None:
    """A point that satisfies all constraints, ``None`` where there is none. ``here``: values that are a good guess.
    Raises TooLarge where that cannot be said."""
    plain = [(dict(c.polynomial), c.relation) for c in constraints]
    found = _linear(plain)
    if found is None:
        return None
    names = {name for p, _ in plain for m in p for name in m}
    point = {name: found.get((name,), here.get(name, Fraction(0))) for name in sorted(names)}
    if all(c.holds(point) for c in constraints):
        return point
    for seed in range(_FIXINGS):
        point = _with_factors_fixed(plain, here, random.Random(seed)) or {}
        if point and all(c.holds(point) for c in constraints):
            return point
    raise TooLarge("products")


def _with_factors_fixed(plain: list[tuple[Polynomial, str]], here: Point, rng: random.Random) -> Point | None:
    """A point of the constraints with some variables as they are here, so that no product of others is left."""
    monomials = [m for p, _ in plain for m in p if len(m) > 1]
    names = sorted({name for p, _ in plain for m in p for name in m})
    rng.shuffle(names)
    free: set[str] = set()
    for name in names:
        if all(sum(other in free or other == name for other in m) < 2 for m in monomials):
            free.add(name)
    fixed = {name: here.get(name, Fraction(rng.randint(-3, 3))) for name in names if name not in free}
    found = _linear([(_partly(p, fixed), relation) for p, relation in plain])
    if found is None:
        return None
    return {**fixed, **{name: found.get((name,), here.get(name, Fraction(0))) for name in free}}


def _partly(polynomial: Polynomial, fixed: Point) -> Polynomial:
    out: Polynomial = {}
    for monomial, factor in polynomial.items():
        rest = tuple(name for name in monomial if name not in fixed)
        for name in monomial:
            factor = factor * fixed.get(name, 1)
        out[rest] = out.get(rest, Fraction(0)) + factor
    return {m: c for m, c in out.items() if c}


_Row = tuple[Polynomial, str]


def _linear(rows: Iterable[_Row]) -> dict[Monomial, Fraction] | None:
    """A point of linear constraints whose variables are the monomials."""
    rows = [(p, r) for p, r in rows]
    steps: list[tuple[Monomial, list[_Row]]] = []
    while True:
        rows = _reduced(rows)
        if any(not _constant_holds(p, r) for p, r in rows if _is_constant(p)):
            return None
        rows = [(p, r) for p, r in rows if not _is_constant(p)]
        if not rows:
            return _walk_back(steps)
        if len(rows) > MOST_CONSTRAINTS:
            raise TooLarge("constraints")
        variable = _cheapest(rows)
        steps.append((variable, [row for row in rows if variable in row[0]]))
        rows = _without(rows, variable)


def _reduced(rows: list[_Row]) -> list[_Row]:
    """Each constraint once, scaled to a first coefficient of 1 or -1."""
    kept: dict[tuple[tuple[tuple[Monomial, Fraction], ...], str], _Row] = {}
    for polynomial, relation in rows:
        items = sorted(polynomial.items())
        lead = abs(next((c for m, c in items if m), Fraction(1)))
        scaled = {m: c / lead for m, c in items}
        kept[tuple(scaled.items()), relation] = (scaled, relation)
    return list(kept.values())


def _is_constant(polynomial: Polynomial) -> bool:
    return not any(polynomial)


def _constant_holds(polynomial: Polynomial, relation: str) -> bool:
    value = polynomial.get((), Fraction(0))
    return value < 0 if relation == "<" else value <= 0 if relation == "<=" else value == 0


def _cheapest(rows: list[_Row]) -> Monomial:
    """The variable whose elimination makes the fewest constraints; equations first."""
    cost: dict[Monomial, list[int]] = {}
    for polynomial, relation in rows:
        for m, c in polynomial.items():
            if m:
                count = cost.setdefault(m, [0, 0, 0])
                count[0 if relation == "=" else 1 if c > 0 else 2] += 1
    return min(sorted(cost), key=lambda m: -1 if cost[m][0] else cost[m][1] * cost[m][2] - cost[m][1] - cost[m][2])


def _without(rows: list[_Row], variable: Monomial) -> list[_Row]:
    out = [row for row in rows if variable not in row[0]]
    mine = [row for row in rows if variable in row[0]]
    pivot = next((row for row in mine if row[1] == "="), None)
    if pivot is not None:
        others = [row for row in mine if row is not pivot]
        return out + [(_combined(p, pivot[0], -p[variable] / pivot[0][variable]), r) for p, r in others]
    above = [row for row in mine if row[0][variable] > 0]
    below = [row for row in mine if row[0][variable] < 0]
    if len(above) * len(below) + len(out) > MOST_CONSTRAINTS:
        raise TooLarge("constraints")
    for p, r in above:
        for q, s in below:
            out.append((_combined(p, q, p[variable] / -q[variable]), "<" if "<" in (r, s) else "<="))
    return out


def _combined(p: Polynomial, q: Polynomial, factor: Fraction) -> Polynomial:
    """p + factor * q."""
    out = dict(p)
    for m, c in q.items():
        out[m] = out.get(m, Fraction(0)) + factor * c
    return {m: c for m, c in out.items() if c}


def _walk_back(steps: list[tuple[Monomial, list[_Row]]]) -> dict[Monomial, Fraction]:
    """Values for the eliminated variables, the last one first."""
    values: dict[Monomial, Fraction] = {(): Fraction(1)}
    for variable, rows in reversed(steps):
        low: tuple[Fraction, bool] | None = None  # bound, and whether it is excluded
        high: tuple[Fraction, bool] | None = None
        for polynomial, relation in rows:
            c = polynomial[variable]
            for m in polynomial:
                values.setdefault(m, Fraction(0)) if m != variable else None
            bound = -sum((k * values[m] for m, k in polynomial.items() if m != variable), Fraction(0)) / c
            strict = relation == "<"
            if relation == "=":
                low = high = (bound, False)
                break
            if c > 0 and (high is None or (bound, not strict) < (high[0], not high[1])):
                high = (bound, strict)
            elif c < 0 and (low is None or (bound, strict) > low):
                low = (bound, strict)
        values[variable] = _between(low, high)
    return values


def _between(low: tuple[Fraction, bool] | None, high: tuple[Fraction, bool] | None) -> Fraction:
    if low is None and high is None:
        return Fraction(0)
    if low is None and high is not None:
        return high[0] - 1
    if high is None and low is not None:
        return low[0] + 1
    assert low is not None and high is not None
    return (low[0] + high[0]) / 2
