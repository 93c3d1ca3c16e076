"""All small graphs in which a rule may fire: extents 1 and 2, ranks from low to high, a few values of each attribute.

The sampler builds a graph by choices; here the choices are not drawn but counted through, like the digits of an
odometer. What is ill-typed ends its branch early.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlflow.errors import GraphError
from rlflow.rewrite import Rule
from rlflow.synthesis.hints import SamplingHints, make_hints
from rlflow.synthesis.operators import class_members, facets_of
from rlflow.synthesis.sampling import Draw, Sample
from rlflow.synthesis.terms import Term
from rlflow.synthesis.trial import Trial
from rlflow.synthesis.want import ANY, GiveUp, Want

T = TypeVar("T")
EXTENTS = (1, 2)
HIGHEST_RANK = 4
MOST_DRAWS, MOST_CHECKS = 700, 80  # of each rank
_REPRESENTATIVES = 2  # of an operator class: its members differ in their keys only


@dataclass(frozen=True)
class Small:
    """What was enumerated: ``graphs`` in which the rule fired and both sides agreed; ``rank``: all whose inputs have at
    most this rank were counted through (-1: none)."""

    graphs: int = 0
    rank: int = -1


class _Odometer:
    def __init__(self) -> None:
        self.digits: list[list[int]] = []  # value, number of values
        self.at = 0

    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise GiveUp
        if self.at == len(self.digits):
            self.digits.append([0, len(options)])
        self.at += 1
        return options[self.digits[self.at - 1][0]]

    def next(self) -> bool:
        """The next combination; False after the last. Digits beyond those that were read are forgotten."""
        del self.digits[self.at :]
        self.at = 0
        while self.digits:
            self.digits[-1][0] += 1
            if self.digits[-1][0] < self.digits[-1][1]:
                return True
            self.digits.pop()
        return False


class _Counted(Draw):
    """A draw whose choices come from an odometer."""

    def __init__(self, hints: SamplingHints, odometer: _Odometer, rank: int, parameters: frozenset[int]) -> None:
        """``parameters``: see :func:`_parameters`."""
        super().__init__(hints, random.Random(0), largest=max(EXTENTS))
        self.odometer, self.highest = odometer, rank
        self.hint, self.obey, self.dtype, self.strayed = None, True, 1, False
        self.reached = 0
        self._parameters = parameters
        self.parameters = False  # whether the operand that is built next is a parameter of such an operator

    def _shapes(self, name: str) -> list[tuple[int, ...]]:
        ranks = [r for r in self.hints.ranks.get(name, range(self.highest + 1)) if r <= self.highest]
        # The highest rank first: it is the one that this pass is about.
        return [shape for r in sorted(ranks, reverse=True) for shape in _shapes_of(r)]

    def is_parameter(self, term: Term) -> bool:
        """Whether a term stands for weights, a bias or a statistic of a window or a normalisation."""
        return id(term) in self._parameters

    def kernel(self, n: int) -> list[int]:
        return self.odometer.pick([[e] * n for e in EXTENTS])

    def _fixed(self, want: Want) -> list[tuple[int, ...]]:
        """The shapes that the parameters of a window or a normalisation can have: the rest is ill-typed."""
        shape = want.shape
        if not self.parameters or shape is None:
            return []
        return [shape] if len(shape) == 1 else [(e, *shape[1:]) for e in EXTENTS]

    def fresh(self, name: str, want: Want) -> int:
        dtype = want.dtype if want.dtype is not None else self.dtype
        if want.index_below is not None:
            shape = self.odometer.pick([(), (1,), (2,)])
        else:
            equal = [self.shape(self.values[n]) for n in self.hints.same.get(name, ()) if n in self.values]
            shape = self.odometer.pick(equal[:1] or self._fixed(want) or self._shapes(name))
        self.reached = max(self.reached, len(shape))
        if name in self.hints.elements:
            return self.constant(name, dtype, shape, value=self.hints.elements[name])
        if name in self.hints.constants:
            return self.constant(name, dtype, shape, want.index_below)
        v = self.input(dtype, shape)
        if want.index_below is not None:
            self.index_inputs[self.inputs - 1] = max(1, want.index_below)
        return v

    def spread(self, term: Term, want: Want, least: int = 1) -> list[int]:
        if self.local is None and term.name not in self.members:
            count = self.odometer.pick(range(least, max(EXTENTS) + 1))
            self.members[term.name] = [self.fresh(term.name, want) for _ in range(count)]
        return super().spread(term, want, least)

    def attr(self, term: Term, op: str, name: str, drawn: Any) -> Any:
        return super().attr(term, op, name, lambda: self.odometer.pick(self._domain(name, drawn)))

    def _hinted_attr(self, name: str, drawn: Any) -> Any:
        return drawn()

    def _rest_attr(self, rest: str, name: str, drawn: Any) -> Any:
        bound = self.rests.setdefault(rest, {})
        if name not in bound:
            fixed = self.hints.rest_attributes.get((rest, name))
            value = drawn()
            if fixed and fixed[0] is not None:
                value = (
                    [fixed[0]] * len(value) if isinstance(value, list) and not isinstance(fixed[0], list) else fixed[0]
                )
            bound[name] = value
        return bound[name]

    def _domain(self, name: str, drawn: Callable[[], Any]) -> list[Any]:
        """The values that are tried for an attribute: all that matter of the well-known ones, else a few drawn ones."""
        first = _tried(drawn)
        n = len(first) if isinstance(first, list) else 0
        if name == "perm":
            return [list(p) for p in itertools.permutations(range(n))]
        if name in ("strides", "dilations"):
            return [[1] * n, [2] * n]
        if name == "pads" and n:
            return [[0] * n, [1] * n, [1] + [0] * (n - 1)]
        if name == "axis":
            return list(range(self.highest))
        if name == "group":
            return [1, 2]
        if first in (0, 1) and not isinstance(first, float):
            return [0, 1]
        values = [first]
        for _ in range(8):
            value = _tried(drawn)
            if value not in values:
                values.append(value)
        return sorted(values[:4], key=repr)

    def _operator(self, term: Term, want: Want) -> tuple[str, dict[str, Any] | None, list[int]]:
        if not term.op_var or term.op_var in self.ops:
            return super()._operator(term, want)
        members = class_members(term.op_class, self.dtype)
        op = self.odometer.pick(members if isinstance(term.op_class, list) else members[:_REPRESENTATIVES])
        if not term.carries:
            self.ops[term.op_var] = (op, {}, [])
        return op, None, []

    def node(self, term: Term, want: Want = ANY) -> int:
        picked = term.output
        if isinstance(picked, str) and picked not in self.attrs:
            self.attrs[picked] = self.odometer.pick([0, 1])
        before, self.parameters = self.parameters, False
        try:
            return super().node(term, want)
        finally:
            self.parameters = before

    def child(self, term: Term, want: Want = ANY) -> int:
        before, self.parameters = self.parameters, want.shape is not None and self.is_parameter(term)
        try:
            return super().child(term, want)
        finally:
            self.parameters = before

    def sample(self) -> Sample:
        roots: list[int] = []
        for root in self.hints.roots:
            roots += self._star(root) if root.star else [self.node(root)]
        outputs = list(dict.fromkeys(roots))
        for first in list(outputs):
            outputs += [v for v in self._other_outputs(first) if v not in outputs]
        return Sample(self.builder.finish(outputs), self.index_inputs, wild=True)


@functools.cache
def _shapes_of(rank: int) -> list[tuple[int, ...]]:
    return list(itertools.product(EXTENTS, repeat=rank))


def _parameters(hints: SamplingHints) -> frozenset[int]:
    """Identities of the terms that stand for weights or statistics."""
    terms = (t for root in hints.roots for t in root.walk())
    return frozenset(id(child) for t in terms if facets_of(t.op).parameters for child in t.children[1:])


def _tried(drawn: Callable[[], Any]) -> Any:
    """A drawn value; what cannot be drawn in ten tries does not fit the operands."""
    for _ in range(9):
        try:
            return drawn()
        except (GiveUp, ArithmeticError, LookupError, TypeError, ValueError):
            continue
    return drawn()


def _strict(rule: Rule) -> SamplingHints:
    """Hints from the conditions that every graph must meet: keeping to it loses nothing."""
    plain = [w for w in rule.where if " or " not in w and "not " not in w and "if(" not in w]
    return make_hints(rule.source, plain, {}, ())


def small_graphs(rule: Rule, rank: int) -> Iterator[Sample | None]:
    """The graphs whose inputs have at most this rank, one of them exactly; ``None`` for what came to nothing."""
    hints, odometer = _strict(rule), _Odometer()
    parameters = _parameters(hints)
    while True:
        draw = _Counted(hints, odometer, rank, parameters)
        try:
            sample = draw.sample()
        except (GiveUp, GraphError, ArithmeticError, LookupError, TypeError, ValueError):
            yield None
        else:
            yield sample if draw.reached == rank else None
        if not odometer.next():
            return


def enumerate_small(trial: Trial) -> Small:
    """Lets the trial judge all small graphs, from low ranks to high, as far as the bounds on work go."""
    before, complete = trial.fired, -1
    for rank in range(HIGHEST_RANK + 1):
        if _one_rank(trial, rank) and complete == rank - 1:
            complete = rank
        if trial.failures or trial.needs_order:
            break
    graphs = trial.fired - before
    return Small(graphs, complete if graphs else -1)


def _one_rank(trial: Trial, rank: int) -> bool:
    """Judges the graphs of one rank; whether that were all."""
    before = trial.fired
    for draws, sample in enumerate(small_graphs(trial.rule, rank)):
        if draws >= MOST_DRAWS or trial.fired - before >= MOST_CHECKS or trial.failures:
            return False
        trial.tries += 1
        if sample is not None:
            trial.judge(sample)
    return True
