"""Conditions that may be what a statement lacks: candidates from the closed vocabulary of ``docs/rules.md``.

Each is about variables that the source terms bind. Nothing here decides anything: what does not compile, or does not
tell true instances from false ones, is dropped by :mod:`repair`. The order is the order of preference among equals.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlflow import _core
from rlflow.synthesis.terms import Term, read_term

#: Attributes of windows as they are when a window moves by one and covers nothing beyond the border.
_NEUTRAL: dict[str, tuple[str, ...]] = {
    "group": ("1",),
    "strides": ("1",),
    "dilations": ("1",),
    "pads": ("0",),
    "kernel_shape": ("1", "3"),
    "ceil_mode": ("0",),
    "count_include_pad": ("0", "1"),
    "output_padding": ("0",),
    "keepdims": ("0", "1"),
    "allowzero": ("0",),
    "transA": ("0", "1"),
    "transB": ("0", "1"),
    "alpha": ("1.0",),
    "beta": ("1.0",),
    "mode": ('"nearest"', '"constant"', '"linear"'),
    "value": ("0.0",),
}


@dataclass
class BoundNames:
    """What the source terms bind. ``attributes``: attribute variable -> (operator, attribute); ``rests``: ``..?a`` ->
    operator."""

    values: list[str] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    attributes: dict[str, tuple[str, str]] = field(default_factory=dict)
    rests: dict[str, str] = field(default_factory=dict)
    roots: int = 1
    windows: set[str] = field(default_factory=set)


def names_of(source: Sequence[str]) -> BoundNames:
    """Reads the source terms."""
    names = BoundNames(roots=len(source))
    for text in source:
        for term in read_term(text).walk():
            _note(names, term)
    return names


def _note(names: BoundNames, term: Term) -> None:
    if term.kind == "var" and term.name not in names.values:
        names.values.append(term.name)
    if term.kind == "seq" and term.name not in names.sequences:
        names.sequences.append(term.name)
    if term.kind != "op":
        return
    if term.rest:
        names.rests.setdefault(term.rest, term.op)
    for name, value in term.attrs.items():
        if value.startswith("?") and value[1:].isidentifier():
            names.attributes.setdefault(value, (term.op, name))
    if term.op in ("Conv", "ConvTranspose"):
        names.windows.update(child.name for child in term.children[1:2] if child.kind == "var")


def candidates(source: Sequence[str], where: Sequence[str] = ()) -> list[str]:
    """Candidate conditions, each once, without those that ``where`` has."""
    names = names_of(source)
    found = itertools.chain(
        _of_rests(names),
        _of_pairs(names),
        _of_ranks(names),
        _of_extents(names),
        _of_attributes(names),
        _of_values(names),
        _of_sequences(names),
    )
    return [atom for atom in dict.fromkeys(found) if atom not in where]


@functools.cache
def _attributes(op: str) -> tuple[str, ...]:
    return tuple(_core.op_row(op)["attributes"]) if op in _core.op_names() else ()


def _of_rests(names: BoundNames) -> Iterator[str]:
    for rest, op in names.rests.items():
        for name in _attributes(op):
            for value in _NEUTRAL.get(name, ()):
                yield f'attr({rest}, "{name}") == {value}'
    for (a, op), (b, other) in itertools.combinations(names.rests.items(), 2):
        for name in _attributes(op) if op == other else ():
            yield f'attr({a}, "{name}") == attr({b}, "{name}")'


def _whole(names: BoundNames) -> list[str]:
    return [*names.values, *(["$0"] if names.roots == 1 else [])]


def _of_pairs(names: BoundNames) -> Iterator[str]:
    for a, b in itertools.combinations(_whole(names), 2):
        yield f"same_shape({a}, {b})"
    for a, b in itertools.combinations(_whole(names), 2):
        yield f"broadcast(shape({a}), shape({b})) == shape({b})"
        yield f"broadcast(shape({a}), shape({b})) == shape({a})"


def _of_ranks(names: BoundNames) -> Iterator[str]:
    for a, b in itertools.combinations(_whole(names), 2):
        yield f"rank({a}) == rank({b})"
        yield f"rank({a}) <= rank({b})"
        yield f"rank({b}) <= rank({a})"
    for a in _whole(names):
        yield from (f"rank({a}) >= {k}" for k in (1, 2, 3))
        yield from (f"rank({a}) == {k}" for k in (0, 1, 2, 3, 4))


def _of_extents(names: BoundNames) -> Iterator[str]:
    for a, b in itertools.combinations(names.values, 2):
        yield from (f"dim({a}, {i}) == dim({b}, {i})" for i in (0, 1, -1, -2))
        yield from (f"dim({a}, {i}) == dim({b}, {j})" for i, j in ((0, 1), (1, 0), (-1, -2), (-2, -1)))
        yield from (f"erase(shape({a}), {i}) == erase(shape({b}), {i})" for i in (0, 1, -1))
        if {a, b} <= names.windows:
            yield f"shape({a})[2:rank({a})] == shape({b})[2:rank({b})]"
            yield f"shape({a})[1:rank({a})] == shape({b})[1:rank({b})]"
    for a in names.values:
        yield f"numel({a}) == 1"
        yield from (f"dim({a}, {i}) == 1" for i in (0, 1, -1, -2))
        if a in names.windows:
            yield f"shape({a})[2:rank({a})] == 1"


def _of_attributes(names: BoundNames) -> Iterator[str]:
    lists: dict[str, bool] = {v: _is_list(op, name) for v, (op, name) in names.attributes.items()}
    for variable, (_, name) in names.attributes.items():
        yield from (f"{variable} == {value}" for value in _NEUTRAL.get(name, ()))
        if name == "perm":
            yield f"perm_is_swap({variable})"
            yield f"{variable} == inverse({variable})"
        if name == "axis":
            yield from (f"{variable} == {k}" for k in (0, 1))
            yield from (f"{variable} == rank({a}) - 1" for a in names.values)
            yield from (f"rank({a}) == rank({b})" for a, b in itertools.combinations(names.values, 2))
            yield from (f"{variable} < rank({a}) - 2" for a in names.values)
            yield from (f"dim({a}, {variable}) == dim({b}, {variable})" for a, b in _pairs(names.values))
            yield from (
                f"erase(shape({a}), {variable}) == erase(shape({b}), {variable})" for a, b in _pairs(names.values)
            )
    for a, b in itertools.combinations(lists, 2):
        yield from _of_two(a, b, lists[a], lists[b])


def _pairs(values: Sequence[str]) -> Iterator[tuple[str, str]]:
    return itertools.combinations(values, 2)


def _of_two(a: str, b: str, first: bool, second: bool) -> Iterator[str]:
    if first == second:
        yield from (f"{a} == {b}", f"{a} != {b}")
    if first and second:
        yield from (f"{a} == inverse({b})", f"compose({a}, {b}) == compose({b}, {a})")
        yield from (f"compose({a}, {b}) == iota(len({a}))", f"not any({a} in {b})")
    elif first:
        yield from (f"not {b} in {a}", f"{b} in {a}")
    elif second:
        yield from (f"not {a} in {b}", f"{a} in {b}")
    else:
        yield from (f"{a} < {b}", f"{b} < {a}")


@functools.cache
def _is_list(op: str, name: str) -> bool:
    default: Any = _core.op_row(op)["defaults"].get(name) if op in _core.op_names() else None
    return name in _LISTS or isinstance(default, list)


_LISTS = frozenset(
    (
        "axes",
        "perm",
        "split",
        "starts",
        "ends",
        "steps",
        "shape",
        "pads",
        "strides",
        "dilations",
        "kernel_shape",
        "repeats",
        "output_padding",
        "sizes",
    )
)


def _of_values(names: BoundNames) -> Iterator[str]:
    for a in names.values:
        yield f"is_float({a})"
        yield f"constant({a})"
        yield f"uniform({a})"
        yield f"min_of({a}) >= 0"
        yield f"min_of({a}) > 0"
        yield f"max_of({a}) <= 0"
    for a, b in itertools.combinations(names.values, 2):
        yield f"same_type({a}, {b})"
        yield f"independent({a}, {b})"


def _of_sequences(names: BoundNames) -> Iterator[str]:
    for s in names.sequences:
        yield f"same_shape({s}...)"
        yield from (f"rank({s}...) == {k}" for k in (1, 2, 3, 4))
        yield from (f"all_equal(dims({s}..., {i}))" for i in (0, 1, -1))
        yield f"constant({s}...)"
        yield f"len({s}) == 2"
