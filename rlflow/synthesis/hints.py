"""What a rule's statement tells about graphs in which it may fire: hints for the sampler, read from its terms and
conditions.

Nothing here decides whether a rule fires (the core does); a wrong hint costs samples, never soundness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlflow.errors import RuleError
from rlflow.rewrite import Rule
from rlflow.synthesis.boundaries import Boundaries, boundaries_of
from rlflow.synthesis.element_types import DTYPES, NOT_DRAWN
from rlflow.synthesis.terms import Term, literal, mentions, read_term

_RANK = re.compile(r"\brank\(\s*(\?\w+)(?:\.\.\.)?\s*\)\s*==\s*(\d+)")
_LEN = re.compile(r"\blen\(\s*(\?\w+)\s*\)\s*==\s*(\d+)")
_REST = re.compile(r"\battr\(\s*(\?\w+)\s*,\s*\"(\w+)\"[^)]*\)\s*==\s*(-?[\d.]+|\"[^\"]*\"|\[[^\]?]*\])")
_PLAIN = re.compile(r"(?<![\w(,.])(\?\w+)\s*==\s*(-?[\d.]+|\"[^\"]*\"|\[[^\]?]*\])(?!\s*[-+*/%])")
_ELEMENT = re.compile(r"^scalar\(\s*(\?\w+)\s*\)\s*==\s*(-?\d+(?:\.\d+)?)$")
_SAME = re.compile(r"\bsame_(?:shape|type)\(([^()]*)\)")
_DIM = r"dim\(\s*(\?\w+)\s*,\s*(-?\d+)\s*\)"
_DIMS = re.compile(rf"\b{_DIM}\s*==\s*(?:{_DIM}|(\d+)(?!\s*[-+*/%\w]))")
_DTYPE = re.compile(r"\bdtype\(\s*(\?\w+)\s*\)\s*==\s*\"(\w+)\"")
_DTYPES_IN = re.compile(r"\bdtype\(\s*(\?\w+)\s*\)\s*in\s*\[([^\]]*)\]")
_TEXT = re.compile(r"\"([^\"]*)\"")
_OTHER_TYPE = re.compile(r"dt\d+")
_NAMED_TYPES = re.compile(
    r"\bdtype\([^()]*\)\s*(?:[=!]=|in)\s*(\[[^\]]*\]|\"[^\"]*\")|(\"[^\"]*\")\s*[=!]=\s*dtype\("
)


@dataclass
class SamplingHints:
    """Hints of one rule. Keys are variable names with their ``?``."""

    roots: list[Term]
    constants: set[str]
    valued: set[str]
    scalars: set[str]
    indices: set[str]
    independent: bool
    ranks: dict[str, list[int]] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    rest_attributes: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    dtypes: dict[str, list[str]] = field(default_factory=dict)
    same: dict[str, list[str]] = field(default_factory=dict)
    dims: dict[str, list[tuple[int, str | int, int]]] = field(default_factory=dict)
    elements: dict[str, float] = field(default_factory=dict)  # of constants all of whose elements are one given number
    types: set[str] = field(default_factory=set)  # all names of element types in conditions, definitions and targets
    asks_known: bool = False  # whether the target depends on known(...)
    samples: list[dict[str, Any]] = field(default_factory=list)
    boundaries: Boundaries = field(default_factory=Boundaries)

    @property
    def beyond(self) -> str:
        """Why the statement cannot be judged by drawing; nothing where it can."""
        if self.asks_known:
            return "its target depends on what is known, and what is not is known only when a model runs"
        missing = sorted(self.types - DTYPES.keys())
        if missing:
            return f'it speaks of the element type "{missing[0]}", and graphs of that type are not drawn'
        return self.boundaries.beyond


def _collect(pattern: re.Pattern[str], texts: list[str]) -> list[tuple[str, ...]]:
    return [m if isinstance(m, tuple) else (m,) for t in texts for m in pattern.findall(t)]


def hints_of(rule: Rule, more: Sequence[str] = ()) -> SamplingHints:
    """The hints of a rule, with ``more`` conditions. Raises RuleError where a source term does not parse."""
    return make_hints(rule.source, [*rule.where, *more], dict(rule.let), rule.samples, rule.target)


def make_hints(
    source: Sequence[str],
    where: Sequence[str],
    let: dict[str, str],
    samples: Sequence[dict[str, Any]],
    target: Sequence[str] = (),
) -> SamplingHints:
    """Reads a statement. Raises :class:`~rlflow.errors.RuleError` where a source term does not parse."""
    conditions = [*where, *(v for k, v in let.items() if not k.startswith("?"))]
    valued: set[str] = set()
    for function in ("uniform", "scalar", "value", "min_of", "max_of", "finite", "data"):
        valued |= mentions(conditions, function)
    hints = SamplingHints(
        roots=[read_term(s) for s in source],
        constants=mentions(conditions, "constant"),
        valued=valued,
        scalars=mentions(conditions, "is_scalar") | mentions(conditions, "scalar"),
        indices=mentions(conditions, "data"),
        independent=bool(mentions(conditions, "independent")),
        asks_known=any("known(" in text for text in _made_of(target, let)),
        samples=list(samples),
        boundaries=boundaries_of([*source, *target, *let.values()], where, samples),
    )
    for name, number in _collect(_RANK, conditions):
        hints.ranks.setdefault(name, []).append(int(number))
    for name, number in _collect(_LEN, conditions):
        hints.lengths.setdefault(name, []).append(int(number))
    for rest, name, value in _collect(_REST, conditions):
        hints.rest_attributes.setdefault((rest, name), []).append(literal(value))
    for name, value in _collect(_PLAIN, conditions):
        hints.attributes.setdefault(name, []).append(literal(value))
    for name, number in _collect(_ELEMENT, conditions):
        hints.elements[name] = float(number)
    for name, value in _collect(_DTYPE, conditions):
        hints.dtypes.setdefault(name, []).append(value)
    for name, values in _collect(_DTYPES_IN, conditions):
        hints.dtypes.setdefault(name, []).extend(_TEXT.findall(values))
    _types(hints, [*conditions, *target])
    _relations(hints, conditions)
    return hints


def _made_of(target: Sequence[str], let: dict[str, str]) -> list[str]:
    """The target's texts and the definitions that these use, at once or by another."""
    texts, left = list(target), dict(let)
    while used := [name for name in left if any(re.search(rf"(?<!\w){re.escape(name)}\b", text) for text in texts)]:
        texts += [left.pop(name) for name in used]
    return texts


def _types(hints: SamplingHints, texts: list[str]) -> None:
    """The element types that a statement names. Raises RuleError for a name that is none."""
    hints.types = {t for found in _collect(_NAMED_TYPES, texts) for t in _TEXT.findall("".join(found))}
    unknown = sorted(name for name in hints.types - {*DTYPES} - NOT_DRAWN if not _OTHER_TYPE.fullmatch(name))
    if unknown:
        raise RuleError(f'"{unknown[0]}" is no element type; expected one of {", ".join(DTYPES)}')
    hints.types |= {t for text in texts for t in _TEXT.findall(text) if t in DTYPES}  # compared with a definition, say
    drawn = {name: [t for t in types if t in DTYPES] for name, types in hints.dtypes.items()}
    hints.dtypes = {name: types for name, types in drawn.items() if types}


def _relations(hints: SamplingHints, conditions: list[str]) -> None:
    """Shapes and extents that are to be equal. ``dims``: own axis, and the other variable and its axis, or a number."""
    for (inside,) in _collect(_SAME, conditions):
        names = [n for n in (part.strip().removesuffix("...") for part in inside.split(",")) if n.startswith("?")]
        for name in names:
            hints.same.setdefault(name, []).extend(other for other in names if other != name)
    for a, i, b, j, number in _collect(_DIMS, conditions):
        if number:
            hints.dims.setdefault(a, []).append((int(i), int(number), 0))
        else:
            hints.dims.setdefault(a, []).append((int(i), b, int(j)))
            hints.dims.setdefault(b, []).append((int(j), a, int(i)))
