"""What the prover and the generator know of an operator: its *facets*, registered in one call per operator.

The files beside this one hold them by kind (products, windows, …): an operator's exact meaning, the sampler that draws
its operands and attributes, the element types it takes, its symmetry, what it does to degrees, and its form for the
native enumerator. What the flags of the operator table's row say already is derived: see :func:`register_class`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlflow.errors import ProofError
from rlflow.ops import extension, members, op_row
from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Unsupported
from rlflow.synthesis.integers import U64, unsigned
from rlflow.synthesis.operators.degrees import DegreeRule
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw

FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20})
BOOL = 9
#: Pointwise operators that ONNX defines for truth values.
OF_TRUTHS = frozenset({"And", "Or", "Xor", "Not", "Equal", "Where", "Cast", "Identity"})
#: Flags of broadcasting pointwise operators, which are arbitrary functions where nothing else is known of them.
POINTWISE = frozenset({"unary", "binary", "pointwise"})
#: Float types that variables are drawn in.
DRAWN_FLOATS = frozenset({1, 10, 11, 16})
#: Rounding to a narrower float type loses information; this order says which types hold which exactly.
FLOAT_HOLDS: dict[int, set[int]] = {11: {1, 10, 16, 11}, 1: {1, 10, 16}, 10: {10}, 16: {16}}


class NeedsOrder(Exception):  # noqa: N818 - a question to the prover, not an error
    """The operator means something only over an ordered domain."""


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

    def no_arithmetic_of_truths(self) -> None:
        """Raises Unsupported where ONNX defines no such operator of truth values, and numpy does as it likes."""
        if self.dtypes[0] == BOOL and self.op not in OF_TRUTHS:
            raise Unsupported(f"{self.op} of truth values")

    def of_numbers(self) -> Call:
        """The call with 64-bit unsigned operands as the numbers that they are, and not as signed patterns."""
        if U64 not in self.dtypes:
            return self
        pairs = zip(self.inputs, self.dtypes, strict=True)
        return replace(self, inputs=[None if a is None else unsigned(a, t) for a, t in pairs])

    @staticmethod
    def whole(a: Array) -> Array:
        """Whole numbers as arrays hold them: a 64-bit unsigned one by its signed pattern."""
        return a.view(np.int64) if a.dtype == np.uint64 else a


Meaning = Callable[[Call], "Array | list[Array]"]
Drawn = tuple[list[int], dict[str, Any]]
Sampler = Callable[["Draw", Term, str, Want], Drawn]


@dataclass(frozen=True)
class Facets:
    """One operator's facets.

    ``meaning``: exact values of one node. ``draw``: operands and attributes from the operator's domain.
    ``more_operands``: those that travel with an operator variable. ``floats``, ``integers``: whether ONNX defines it
    for such a first operand; ``for_floats``, ``for_integers``: whether a class variable may stand for it there.
    ``known``: where it is no arbitrary function. ``ordered``: a unary over exact rationals; ``in_field``: a unary over
    the prime field, ``by_sign`` where an arbitrary sign is known there too; ``on_integers``: a unary or binary on
    integer arrays; ``exactly``: a binary on elements of any domain; ``compares``: a binary on rationals.
    ``symmetry``: "odd", "even" or "point" (see :meth:`~rlflow.synthesis.domains.Domain.symmetric`); ``positive``: of a
    monotone unary. ``degree``: of the result from those of the operands; ``one_term``: no sum of several elements.
    ``pointwise``: beside those whose flags say so. ``parameters``: operands after the first are weights or statistics.
    ``native``: the enumerator's form.
    """

    meaning: Meaning | None = None
    draw: Sampler | None = None
    more_operands: Callable[[Draw, str], list[int]] | None = None
    floats: bool = True
    integers: bool = True
    for_floats: bool = True
    for_integers: bool = False
    known: Literal["", "ordered", "always"] = ""
    ordered: Callable[[Any, Array], Array] | None = None
    in_field: Callable[[Any, Array], Array] | None = None
    by_sign: Callable[[Any, Array], Array] | None = None
    on_integers: Callable[..., Array] | None = None
    exactly: Callable[[Domain, Array, Array], Array] | None = None
    compares: Callable[[Any, Any], bool] | None = None
    symmetry: str = ""
    positive: bool = False
    degree: DegreeRule | None = None
    one_term: bool = False
    pointwise: bool = False
    parameters: bool = False
    native: Callable[[Attributes], NativeKind] | None = None


_TABLE: dict[str, Facets] = {}
_CLASSES: dict[str, Facets] = {}
_NONE = Facets()


def register(*names: str, **facets: Any) -> None:
    """Registers the facets of operators. An operator is registered once."""
    for name in names:
        if name in _TABLE:
            raise ValueError(f"the operator {name} is registered twice")
        _TABLE[name] = Facets(**facets)


def register_class(flag: str, **facets: Any) -> None:
    """Registers what follows for operators whose row has a flag, where their own facets do not say it."""
    _CLASSES[flag] = Facets(**facets)


def registered() -> dict[str, Facets]:
    """The facets by operator, of those that have some of their own."""
    return dict(_TABLE)


def facets_of(op: str) -> Facets:
    """What is registered for an operator itself, here or when it was added to the table."""
    return _TABLE.get(op) or _of_extension(op)


@functools.cache
def _of_extension(op: str) -> Facets:
    added = extension(op)
    if added is None:
        return _NONE
    return Facets(meaning=added.meaning, draw=added.draw, degree=added.degree, integers=False)


@functools.cache
def row(op: str) -> dict[str, Any]:
    """The operator table's row."""
    return dict(op_row(op))


@functools.cache
def flags_of(op: str) -> frozenset[str]:
    """The operator table's flags of an operator."""
    return frozenset(row(op)["flags"])


def default_of(op: str, name: str) -> Any:
    """The operator's default for an attribute, or ``None``."""
    return row(op)["defaults"].get(name)


@functools.cache
def derived_facet(op: str, facet: str) -> Any:
    """A facet that an operator has by a class of its row, or None."""
    found = (getattr(facets, facet) for flag, facets in _CLASSES.items() if flag in flags_of(op))
    return next(found, None)


def meaning_of(op: str) -> Meaning:
    """The exact meaning. Raises :class:`Unsupported` where there is none."""
    found = facets_of(op).meaning or derived_facet(op, "meaning")
    if found is None:
        raise Unsupported(f"the evaluator has no meaning for {op}")
    return found


def draw(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    """Operands and attributes for one node. Raises GiveUp where nothing fits."""
    found = facets_of(op).draw or derived_facet(op, "draw")
    if found is None:
        raise ProofError(f"the sampler cannot draw operands for {op}: register a sampler in rlflow/synthesis/operators")
    return found(d, term, op, want)


def extra_operands(d: Draw, op: str) -> list[int]:
    """Operands that travel with an operator variable (Clip's bounds)."""
    more = facets_of(op).more_operands
    return [] if more is None else more(d, op)


def class_members(op_class: str | list[str] | None, dtype: int) -> list[str]:
    """Operators that a class variable may stand for, for operands of this element type."""
    names = op_class if isinstance(op_class, list) else _chosen(op_class or "unary", dtype in DRAWN_FLOATS)
    if not names:
        raise GiveUp
    return list(names)


@functools.cache
def _chosen(op_class: str, floats: bool) -> tuple[str, ...]:
    pure = ((name, facets_of(name)) for name in members(op_class) if "pure" in flags_of(name))
    return tuple(name for name, of in pure if (of.floats and of.for_floats if floats else of.for_integers))


def valid_type(op: str, dtype: int) -> bool:
    """Whether ONNX defines the operator for this element type of its first operand."""
    if dtype == BOOL and POINTWISE & flags_of(op):
        return op in OF_TRUTHS
    return facets_of(op).floats if dtype in DRAWN_FLOATS else facets_of(op).integers


def native_of(op: str) -> Callable[[Attributes], NativeKind] | None:
    """The enumerator's form of an operator, or None where it has none."""
    found = facets_of(op).native
    if found is None and "unary" in flags_of(op):
        zero = int("zero_preserving" in flags_of(op))
        return lambda a: NativeKind("Unary", 1, [zero], key=field.key_of(op, []))
    return found
