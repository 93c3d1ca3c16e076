"""Ordered operators decided by cases: every way that two graphs can go, for all values at once.

Max, Min, Clip, Relu, comparisons and Where go one way or the other. A graph and its rewrite are evaluated at a point;
the answers on the way are linear constraints (see :mod:`forms`), and for all points that satisfy them both sides are
polynomials, which are equal or not. Then one answer is turned round, a point for it is looked for
(:mod:`polyhedra`), and so on until no way is left. So a configuration is not sampled: it is decided for all values of
its inputs, by exact arithmetic on fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from rlflow import _core
from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.elements import Cases, TooManyCases, Walk, polynomial_of
from rlflow.synthesis.field import key_of
from rlflow.synthesis.operators import NeedsOrder
from rlflow.synthesis.polyhedra import Constraint, Point, Polynomial, TooLarge, evaluate, point_in
from rlflow.synthesis.sampling import Sample
from rlflow.synthesis.semantics import Evaluator
from rlflow.synthesis.trial import Failure, Pair, Trial, extents_of

MOST_WAYS, MOST_CONFIGURATIONS, MOST_AT_BOUNDARIES = 70, 6, 12
Item = TypeVar("Item")


@dataclass(frozen=True)
class Decision:
    """``status``: "equal" (for all values), "unequal" (``problem`` says where, ``point`` the values of the variables)
    or "open" (``problem`` says why); ``ways``: how many were followed."""

    status: str
    problem: str = ""
    ways: int = 0
    point: tuple[tuple[str, Fraction], ...] = ()


def decide(parent: _core.Graph, child: _core.Graph, sample: Sample, seed: int) -> Decision:
    """Whether both graphs are equal for all values of their float inputs and of constants that are not given."""
    waiting: list[tuple[list[Constraint], Point]] = [([], {})]
    ways, why_open = 0, ""
    while waiting:
        prefix, point = waiting.pop()
        if ways >= MOST_WAYS:
            return Decision("open", f"more than {MOST_WAYS} cases", ways)
        ways += 1
        try:
            walk, problem = _follow(parent, child, sample, seed, point)
        except (TooManyCases, TooLarge, Unsupported, NeedsOrder) as why:
            return Decision("open", str(why), ways)
        if problem and walk.loose:
            return Decision("open", "a quotient by what is not a number", ways)
        if problem:
            return Decision("unequal", problem, ways, tuple(sorted(walk.point.items())))
        if walk.path[: len(prefix)] != prefix:
            why_open = "a case that is not where it was looked for"
            continue
        try:
            waiting += _turned(walk, len(prefix))
        except TooLarge as why:
            why_open = f"{why} in a case"
    return Decision("open" if why_open else "equal", why_open, ways)


@dataclass(frozen=True)
class Decided:
    """``count``: configurations of a trial that are decided for all values; ``reason``: why another one is not."""

    count: int = 0
    reason: str = "no graph in which it fires is small enough"


def decide_pairs(trial: Trial) -> Decided:
    """Decides the small graphs of a trial over ordered rationals; one that is false joins its failures."""
    pairs = sorted(trial.pairs.items(), key=lambda item: (item[1].size, item[0]))
    count, reason = 0, Decided.reason
    near = set(trial.hints.boundaries.extents)
    first = [item for item in pairs if near & extents_of(item[1].parent)]
    rest = [item for item in pairs if item not in first]
    for text, pair in _of_each(first, near) + _spread(rest[: (len(rest) + 1) // 2], MOST_CONFIGURATIONS):
        decision = decide(pair.parent, pair.child, pair.sample, key_of(trial.seed, text))
        if decision.status == "unequal":
            trial.failures.append(Failure("value", decision.problem, pair.parent, pair.sample, pair.child))
            return Decided(count, decision.problem)
        count += decision.status == "equal"
        reason = decision.problem or reason
    return Decided(count, reason)


def _of_each(items: list[tuple[str, Pair]], near: set[int]) -> list[tuple[str, Pair]]:
    """So many of the items: the smallest with each extent, as far as they go, and others evenly from first to last."""
    with_each = [[item for item in items if e in extents_of(item[1].parent)][:1] for e in sorted(near)]
    chosen = list(dict(item for one in with_each for item in one).items())[:MOST_AT_BOUNDARIES]
    others = [item for item in items if item not in chosen]
    return chosen + _spread(others, MOST_AT_BOUNDARIES - len(chosen))


def _spread(items: list[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly from first to last."""
    return items if len(items) <= most else [items[k * len(items) // most] for k in range(most)]


def _follow(parent: _core.Graph, child: _core.Graph, sample: Sample, seed: int, point: Point) -> tuple[Walk, str]:
    walk = Walk(dict(point))
    evaluator = Evaluator(Cases(walk), seed)
    feeds = evaluator.inputs(parent, sample.index_inputs)
    before, after = evaluator.run(parent, feeds), evaluator.run(child, feeds)
    return walk, _difference(walk, before, after)


def _difference(walk: Walk, before: Sequence[Array], after: Sequence[Array]) -> str:
    """Where the sides differ on this way, for some point of it; nothing where they are equal. The walk's point becomes
    that point. Raises TooLarge where neither can be said."""
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        if a.dtype != object and b.dtype != object:
            if (a != b).any():
                return f"output {k} differs"
            continue
        for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True):
            gap = _gap(polynomial_of(x), polynomial_of(y))
            for side in (gap, {m: -c for m, c in gap.items()}) if gap else ():
                found = point_in([*walk.path, Constraint(tuple(sorted(side.items())), "<")], walk.point)
                if found is not None:
                    walk.point.update(found)
                    here = evaluate(polynomial_of(x), walk.point), evaluate(polynomial_of(y), walk.point)
                    return f"output {k} is {here[0]} before and {here[1]} after for some values of its inputs"
    return ""


def _gap(a: Polynomial, b: Polynomial) -> Polynomial:
    out = {m: a.get(m, Fraction(0)) - b.get(m, Fraction(0)) for m in {*a, *b}}
    return {m: c for m, c in out.items() if c}


def _turned(walk: Walk, start: int) -> Iterator[tuple[list[Constraint], Point]]:
    """The ways that part from this one after ``start`` answers: a prefix with its last answer turned round, and a point
    that goes there."""
    for k in range(start, len(walk.path)):
        own = walk.path[k]
        if own.fact:
            continue
        for other in _others(own):
            prefix = [*walk.path[:k], other]
            point = point_in(prefix, walk.point)
            if point is not None:
                yield prefix, {**walk.point, **point}


def _others(own: Constraint) -> list[Constraint]:
    """The other answers: to "is it less?" one, to "is it equal?" two."""
    turned = tuple((m, -c) for m, c in own.polynomial)
    if not own.equality:
        return [Constraint(turned, "<=" if own.relation == "<" else "<")]
    if own.relation == "=":
        return [Constraint(p, "<", equality=True) for p in (own.polynomial, turned)]
    level = own.polynomial if own.polynomial[-1][1] > 0 else turned
    return [Constraint(level, "=", equality=True), Constraint(turned, "<", equality=True)]
