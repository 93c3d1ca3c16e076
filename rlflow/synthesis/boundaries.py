"""Where a statement may change its mind: the numbers that stand in it.

Every number in a source, a target or a condition is a boundary. Values, extents, ranks and attributes are drawn at it,
just below it and just above it, so that a rule which is true on one side only is seen on both.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlflow.errors import RuleError
from rlflow.synthesis.terms import read_term

#: Largest extent, rank and number of operands that are drawn; a statement about larger ones (but for "to the end") is
#: undecided.
MOST_EXTENT, MOST_RANK, MOST_OPERANDS = 1500, 8, 16
#: Extents beside the small ones: primes, powers of two and their neighbours, most pairs of them coprime.
LARGE_EXTENTS = (5, 5, 6, 7, 7, 8, 9, 11, 12, 13, 16, 17, 31, 33, 64, 67)
_TO_THE_END = 2**31 - 1
_NUMBER = re.compile(r"(?<![\w.?$\"])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_SUM = re.compile(rf"{_NUMBER.pattern}(?:\s*(?:\*\*|[-+*])\s*\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.]))+")
_TEXTS = re.compile(r"\"[^\"]*\"")
_ABOUT_VALUES = re.compile(r"\b(?:value|scalar|uniform|min_of|max_of|data|finite)\(")
_ABOUT_RANKS = re.compile(r"\brank\(")
_ABOUT_EXTENTS = re.compile(r"\b(?:dim|dims|shape|numel)\(")
_ABOUT_COUNTS = re.compile(r"\blen\(|\$n\b|\$i\b")
_LITERAL = re.compile(r"\bvalue=[^,}]*")
_TYPES = re.compile(r"\bto=\d+")
_HINTED_VALUE = re.compile(r"\]\s*=\s*(\S+)")


@dataclass(frozen=True)
class Boundaries:
    """``values``: numbers that a value may be compared with, each with its two neighbours; ``extents``, ``ranks`` and
    ``counts`` (of operands, of parts): likewise, those that are not drawn often anyway; ``beyond``: what cannot be
    drawn, as a reason, or nothing."""

    values: tuple[float, ...] = ()
    extents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    beyond: str = ""

    @functools.cached_property
    def integers(self) -> tuple[int, ...]:
        """The values that are whole, and the whole numbers beside the others."""
        whole = {math.floor(v) for v in self.values} | {math.ceil(v) for v in self.values}
        return tuple(sorted(w for w in whole if abs(w) < 2**63))


def boundaries_of(
    terms: Iterable[str], conditions: Iterable[str] = (), hints: Sequence[dict[str, object]] = ()
) -> Boundaries:
    """The boundaries of a statement: ``terms`` are sources, targets and definitions, ``conditions`` those of
    ``where``."""
    values: set[float] = set()
    sizes: set[float] = set()
    ranks: set[float] = set()
    counts: set[float] = set()
    for text in terms:
        counts |= {number for part in _expressions(text) if _ABOUT_COUNTS.search(part) for number in _numbers(part)}
        sizes |= set(_numbers(_TYPES.sub("", _LITERAL.sub("", text))))
        values |= set(_numbers(text))
    for clause in (c for text in conditions for c in re.split(r"\band\b|\bor\b", text)):
        found = set(_numbers(clause))
        values |= found
        counts |= found if _ABOUT_COUNTS.search(clause) else set()
        if _ABOUT_VALUES.search(clause):
            continue
        about_ranks = bool(_ABOUT_RANKS.search(clause))
        ranks |= found if about_ranks else set()
        sizes |= found if _ABOUT_EXTENTS.search(clause) or not about_ranks else set()
    for hint in hints:
        values |= {float(m) for spec in hint.values() for m in _HINTED_VALUE.findall(str(spec)) if _is_number(m)}
    return Boundaries(
        tuple(sorted({w for v in values for w in _beside(v)})),
        tuple(sorted(e for e in _whole_beside(sizes, MOST_EXTENT) if e > 4)),
        tuple(sorted(e for e in _whole_beside(ranks, MOST_RANK) if e >= 0)),
        tuple(sorted(e for e in _whole_beside(counts, MOST_OPERANDS) if e > 3)),
        _beyond(sizes, ranks, counts),
    )


def _expressions(text: str) -> list[str]:
    """The expressions in a term, or the one that a definition is."""
    if not text.lstrip().startswith(("(", "*")):
        return [text]
    try:
        return [expression for term in read_term(text).walk() for expression in term.attrs.values()]
    except RuleError:
        return [text]


def _numbers(text: str) -> Iterator[float]:
    """The numbers in an expression, and the values of sums and products that are made of numbers alone."""
    plain = _TEXTS.sub("", text)
    yield from (float(m) for m in _NUMBER.findall(plain))
    for m in _SUM.finditer(plain):
        value = _evaluated(m.group())
        if value is not None:
            yield value


def _evaluated(text: str) -> float | None:
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, OverflowError):
        return None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        a, b = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
    raise ValueError(text_of(node))


def text_of(node: ast.expr) -> str:
    """An expression as it would be written."""
    return ast.unparse(node)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _beside(v: float) -> tuple[float, ...]:
    """A number, its negation, and numbers just beside both; all exact in single precision where ``v`` is."""
    step = 2.0 ** (math.floor(math.log2(abs(v))) - 9) if v else 2.0**-9
    found = tuple(sign * (v + k * step) for sign in (1, -1) for k in (-1, 0, 1))
    return tuple(w for w in found if abs(w) < 2.0**100)


def _whole_beside(numbers: set[float], most: int) -> set[int]:
    whole = {int(v) for v in numbers if v == int(v) and 0 <= v < most}
    return {w + k for w in whole for k in (-1, 0, 1) if w + k >= 0}


def _beyond(sizes: set[float], ranks: set[float], counts: set[float]) -> str:
    far = sorted(int(v) for v in sizes if v == int(v) and MOST_EXTENT <= v < _TO_THE_END)
    if far:
        return f"it speaks of the number {far[0]}, and extents are drawn up to {MOST_EXTENT} only"
    high = sorted(int(v) for v in ranks if v >= MOST_RANK)
    if high:
        return f"it speaks of rank {high[0]}, and ranks are drawn up to {MOST_RANK} only"
    many = sorted(int(v) for v in counts if MOST_OPERANDS <= v < _TO_THE_END)
    if many:
        return f"it speaks of {many[0]} operands, and up to {MOST_OPERANDS} are drawn only"
    return ""
