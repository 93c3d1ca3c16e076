"""Conditions of rules in words, as far as they are of a common form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = ["condition_in_words", "facts"]

_V = r"(\?\w+(?:\.\.\.)?|\$\d+)"
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_COMPARED = {
    "==": "is", "!=": "is not", ">=": "is at least", "<=": "is at most", ">": "is more than", "<": "is less than",
}  # fmt: skip
_SIGN = r"(==|!=|>=|<=|>|<)"


def _name(value: str) -> str:
    if value.startswith("$"):
        return "the result" if value == "$0" else f"result {int(value[1:]) + 1}"
    return f"each {value[1:-3]}" if value.endswith("...") else value[1:]


def _is(sign: str) -> str:
    return _COMPARED[sign]


_FORMS: tuple[tuple[str, Callable[..., str]], ...] = (
    (rf"not constant\({_V}\)", lambda x: f"{_name(x)} is not constant"),
    (rf"constant\({_V}\)", lambda x: f"{_name(x)} is constant"),
    (rf"is_float\({_V}\)", lambda x: f"{_name(x)} holds floating-point numbers"),
    (rf"is_scalar\({_V}\)", lambda x: f"{_name(x)} is one number"),
    (rf"uniform\({_V}\)", lambda x: f"all elements of {_name(x)} are equal"),
    (rf"finite\({_V}\)", lambda x: f"all elements of {_name(x)} are finite"),
    (rf"same_shape\({_V}, ?{_V}\)", lambda x, y: f"{_name(x)} and {_name(y)} have the same shape"),
    (rf"same_type\({_V}, ?{_V}\)", lambda x, y: f"{_name(x)} and {_name(y)} have the same type and shape"),
    (rf"dtype\({_V}\) == dtype\({_V}\)", lambda x, y: f"{_name(x)} and {_name(y)} have the same element type"),
    (rf'dtype\({_V}\) == "(\w+)"', lambda x, kind: f"the elements of {_name(x)} are {kind}"),
    (rf"independent\({_V}, ?{_V}\)", lambda x, y: f"no path leads from {_name(x)} to {_name(y)} or back"),
    (rf"rank\({_V}\) {_SIGN} {_NUMBER}", lambda x, sign, n: f"the rank of {_name(x)} {_is(sign)} {n}"),
    (rf"rank\({_V}\) {_SIGN} rank\({_V}\)",
     lambda x, sign, y: f"the rank of {_name(x)} {_is(sign)} that of {_name(y)}"),
    (rf"rank\({_V}\) == {_NUMBER} or rank\({_V}\) == {_NUMBER}",
     lambda x, n, y, m: f"the rank of {_name(x)} is {n} or that of {_name(y)} is {m}" if x != y else
     f"the rank of {_name(x)} is {n} or {m}"),
    (rf"numel\({_V}\) {_SIGN} {_NUMBER}", lambda x, sign, n: f"the number of elements of {_name(x)} {_is(sign)} {n}"),
    (rf"dim\({_V}, ?(-?\w+)\) {_SIGN} {_NUMBER}",
     lambda x, i, sign, n: f"dimension {i} of {_name(x)} {_is(sign)} {n}"),
    (rf"dim\({_V}, ?(-?\w+)\) == dim\({_V}, ?(-?\w+)\)",
     lambda x, i, y, j: f"dimension {i} of {_name(x)} is dimension {j} of {_name(y)}"),
    (rf"scalar\({_V}\) {_SIGN} {_NUMBER}", lambda x, sign, n: f"the number {_name(x)} {_is(sign)} {n}"),
    (rf"min_of\({_V}\) {_SIGN} {_NUMBER}",
     lambda x, sign, n: f"the smallest element of {_name(x)} {_is(sign)} {n}"),
    (rf"max_of\({_V}\) {_SIGN} {_NUMBER}", lambda x, sign, n: f"the largest element of {_name(x)} {_is(sign)} {n}"),
    (rf'attr\({_V}, ?"(\w+)"\) {_SIGN} (\S+)', lambda x, name, sign, n: f"the attribute {name} {_is(sign)} {n}"),
    (rf'not has_attr\({_V}, ?"(\w+)"\)', lambda x, name: f"the attribute {name} is not given"),
    (rf"len\({_V}\) {_SIGN} {_NUMBER}", lambda x, sign, n: f"the number of entries of {_name(x)} {_is(sign)} {n}"),
    (rf"{_V} {_SIGN} (\[[-\d, ]*\]|-?\d+(?:\.\d+)?)", lambda x, sign, n: f"{_name(x)} {_is(sign)} {n}"),
)  # fmt: skip
_READ = tuple((re.compile(pattern), say) for pattern, say in _FORMS)


def condition_in_words(condition: str) -> str:
    """The condition as a clause; empty where it has no common form, and the formula has to do."""
    for pattern, say in _READ:
        found = pattern.fullmatch(condition.strip())
        if found is not None:
            return say(*found.groups())
    return ""


#: What is said beside a variable in a picture, in a word or two.
_FACTS = (
    (re.compile(rf"constant\({_V}\)"), lambda _: "constant"),
    (re.compile(rf"rank\({_V}\) == (\d+)"), lambda found: f"rank {found[2]}"),
    (re.compile(rf"is_scalar\({_V}\)"), lambda _: "one number"),
    (re.compile(rf"uniform\({_V}\)"), lambda _: "all equal"),
)


def facts(where: Iterable[str]) -> dict[str, str]:
    """What the conditions say of each variable alone, in a word or two: ``{"?w": "constant, rank 2"}``."""
    found: dict[str, list[str]] = {}
    for condition in where:
        for pattern, say in _FACTS:
            match = pattern.fullmatch(condition.strip())
            if match is not None:
                found.setdefault(match[1].removesuffix("..."), []).append(say(match))
    return {name: ", ".join(parts) for name, parts in found.items()}
