"""Integer polynomials over named dimensions, in the text form that the core prints: ``64``, ``N``, ``N*64+1``, ``'batch
size'*2``.

The core reasons about dimensions; this module only has to read its answers, to compare two of them and to write one as
ONNX nodes. A polynomial is a dict from monomial (sorted names, repeated for powers) to coefficient; the empty dict is
zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rlflow.errors import GraphError

Dim = int | str | None
Poly = dict[tuple[str, ...], int]

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|'((?:[^']|'')+)'|([-+*()]))")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def quote(name: str) -> str:
    """A dimension's name as the core reads it: bare where it looks like an identifier, else in single quotes."""
    return name if _PLAIN.match(name) else "'" + name.replace("'", "''") + "'"


def unquote(text: str) -> str:
    """The reverse of :func:`quote` for a text that is one name."""
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def parse(text: int | str) -> Poly:
    """Reads an integer or an expression of ``+ - *`` and parentheses over names.

    Raises GraphError where it is something else.
    """
    if isinstance(text, int):
        return {(): text} if text else {}
    return _Parser(text).whole()


def add(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """``a + factor * b``."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + factor * coefficient
        if not total[monomial]:
            del total[monomial]
    return total


def multiply(a: Poly, b: Poly) -> Poly:
    """``a * b``."""
    total: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            total = add(total, {tuple(sorted(left + right)): x * y})
    return total


def equal(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are certainly equal; unknown ones never are."""
    if a is None or b is None:
        return False
    return a == b or (not (isinstance(a, int) and isinstance(b, int)) and parse(a) == parse(b))


def is_plain(values: Iterable[Dim]) -> bool:
    """Whether all of ``values`` are known integers."""
    return all(isinstance(value, int) for value in values)


def is_known(values: Iterable[Dim] | None) -> bool:
    """Whether all of ``values`` are integers or expressions, none unknown."""
    return values is not None and all(value is not None for value in values)


def names(dims: Iterable[Dim]) -> list[str]:
    """The names that occur in ``dims``, in order of first use, unquoted."""
    found: dict[str, None] = {}
    for dim in dims:
        if isinstance(dim, str):
            found.update(dict.fromkeys(name for monomial in parse(dim) for name in monomial))
    return list(found)


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of ``dim`` when every name has the value given.

    Raises KeyError for a name without one, GraphError for an unknown dim.
    """
    if dim is None:
        raise GraphError("While evaluating a dimension: it is not known.")
    total = 0
    for monomial, coefficient in parse(dim).items():
        for name in monomial:
            coefficient *= values[name]
        total += coefficient
    return total


def product(dims: Sequence[Dim]) -> Poly | None:
    """The product of ``dims``, or None where one is unknown."""
    total: Poly = {(): 1}
    for dim in dims:
        if dim is None:
            return None
        total = multiply(total, parse(dim))
    return total


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> Iterable[tuple[str, str]]:
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(at)
            number, bare, quoted, sign = match.groups()
            if number is not None:
                yield "number", number
            elif sign is not None:
                yield sign, sign
            else:
                yield "name", bare if bare is not None else quoted.replace("''", "'")
            at = match.end()

    def _error(self, at: int) -> GraphError:
        return GraphError(
            f"While reading the dimension '{self._text}': found something else at character {at + 1}; "
            "expected numbers, names, '+', '-', '*' and parentheses."
        )

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def whole(self) -> Poly:
        total = self._sum()
        if self._peek():
            raise self._error(len(self._text))
        return total

    def _sum(self) -> Poly:
        total = self._product()
        while self._peek() in ("+", "-"):
            sign = 1 if self._peek() == "+" else -1
            self._at += 1
            total = add(total, self._product(), sign)
        return total

    def _product(self) -> Poly:
        total = self._factor()
        while self._peek() == "*":
            self._at += 1
            total = multiply(total, self._factor())
        return total

    def _factor(self) -> Poly:
        kind = self._peek()
        if not kind:
            raise self._error(len(self._text))
        text = self._tokens[self._at][1]
        self._at += 1
        if kind == "number":
            return parse(int(text))
        if kind == "name":
            return {(text,): 1}
        if kind == "-":
            return add({}, self._factor(), -1)
        if kind == "(":
            inner = self._sum()
            if self._peek() == ")":
                self._at += 1
                return inner
        raise self._error(self._at)


def text(poly: Poly) -> Dim:
    """A polynomial as the core reads it; an int where it has no names."""
    if not any(poly):
        return poly.get((), 0)
    pieces: list[str] = []
    for monomial, coefficient in sorted(poly.items(), key=lambda item: (-len(item[0]), item[0])):
        factors = [quote(name) for name in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+" if pieces else ""
        pieces.append(sign + "*".join(factors))
    return "".join(pieces)
