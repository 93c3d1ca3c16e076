"""Tensat's rule files: s-expressions (``converted.txt``, two lines a rule in ``converted_multi.txt``) and its infix
equations (``single_rules.txt``, ``taso_rules.txt``, two equations a rule in ``multi_rules.txt``).

Reading is lenient (blank lines, comments after ``#`` or ``;``), writing is exact: the rules of TASO's ``.pb`` printed
by :func:`tensat_text` are Tensat's own files byte for byte.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from rlflow.errors import RuleError
from rlflow.synthesis.importers.foreign import BY_NAME, OUTPUT, VARIABLE, ForeignRule, ForeignTerm, variable

_VARIABLE = re.compile(r"input_\d+")
#: Infix words, longest first where one begins another: nothing separates one equation from the next.
_WORD = re.compile(r"input_\d+|Imatmul|Iewmul|-?\d+|[A-Za-z_]\w*")
_BLANK = re.compile(r"(?:\s+|[#;][^\n]*)*")
_LONGEST_NUMBER, _LONGEST_WORD, _DEEPEST = 40, 200, 100
_NUMBER = re.compile(r"-?\d+(_\d+)*(?=[\s,()])")
_NAME = re.compile(r"[A-Za-z_]\w*")
_BOUND = re.compile(r"\?[^\s()=]+")
_CONSTANTS = ("Imatmul", "Iewmul")


class _Text:
    """A cursor over a file's text."""

    def __init__(self, text: str, file: str | None) -> None:
        self.text, self.file, self.at = text, file, 0

    def fail(self, reason: str) -> RuleError:
        line = self.text.count("\n", 0, self.at) + 1
        near = self.text[self.at : self.at + 30].split("\n")[0]
        return RuleError(f"{reason}, at {near!r}" if near else f"{reason}, at the end", self.file, line)

    def skip(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def take(self, text: str) -> bool:
        self.skip()
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def expect(self, text: str, where: str) -> None:
        if not self.take(text):
            raise self.fail(f"expected {text!r} {where}")

    def word(self, pattern: re.Pattern[str]) -> str:
        self.skip()
        found = pattern.match(self.text, self.at)
        if not found:
            raise self.fail("expected an operator, a variable or a number")
        if len(found.group()) > _LONGEST_WORD:  # no sentence that names it is longer than it can be read
            raise self.fail(f"a name of {len(found.group())} characters; at most {_LONGEST_WORD} are read")
        self.at = found.end()
        return found.group()

    def at_end(self) -> bool:
        self.skip()
        return self.at >= len(self.text)


def read_tensat(text: str, *, multi: bool = False, file: str | None = None) -> list[ForeignRule]:
    """The rules of a Tensat file, of either form (told apart by the first character). ``multi``: two lines, or
    equations, make one rule. Raises RuleError with the line where the text does not parse."""
    cursor = _Text(text, file)
    infix = not cursor.take("(")
    cursor.at = 0
    sign, read = ("==", _infix) if infix else ("=>", _prefix)
    pairs: list[tuple[ForeignTerm, ForeignTerm]] = []
    levels = itertools.accumulate(1 if character == "(" else -1 for character in text if character in "()")
    if max(levels, default=0) > _DEEPEST:
        raise RuleError(f"its terms are nested more than {_DEEPEST} deep", file)
    while not cursor.at_end():
        left = read(cursor)
        cursor.expect(sign, "between the two sides of a rule")
        pairs.append((left, read(cursor)))
    if not pairs:
        raise RuleError("the file has no rules", file)
    kind = "equation" if infix else "rule"
    if not multi:
        return [ForeignRule(k, f"Tensat {kind} #{k}", (s,), (t,), numbered=infix) for k, (s, t) in enumerate(pairs)]
    if len(pairs) % 2:
        raise RuleError(f"a file of two-pattern rules has an even number of lines; this has {len(pairs)}", file)
    return [
        ForeignRule(k, f"Tensat multi {kind} #{k}", (a[0], b[0]), (a[1], b[1]), numbered=infix)
        for k, (a, b) in enumerate(zip(pairs[::2], pairs[1::2], strict=True))
    ]


def _prefix(cursor: _Text) -> ForeignTerm:
    if cursor.take("("):
        name = cursor.word(_NAME)
        arguments: list[ForeignTerm | int] = []
        while not cursor.take(")"):
            if cursor.at_end():
                raise cursor.fail(f"the operator {name} is not closed")
            arguments.append(_atom(cursor, _prefix))
        return _operator(cursor, name, arguments)
    word = cursor.word(_BOUND)
    return variable(word[1:])


def _infix(cursor: _Text) -> ForeignTerm:
    name = cursor.word(_WORD)
    if _VARIABLE.fullmatch(name):
        return variable(name)
    arguments: list[ForeignTerm | int] = []
    if name not in _CONSTANTS:
        cursor.expect("(", f"after the operator {name}")
        while True:
            arguments.append(_atom(cursor, _infix))
            if cursor.take(")"):
                break
            cursor.expect(",", f"between the operands of {name}")
    return _operator(cursor, name, arguments)


def _atom(cursor: _Text, term: Callable[[_Text], ForeignTerm]) -> ForeignTerm | int:
    """A parameter (a number, or a transposition such as 1_0_2), or an operand."""
    cursor.skip()
    found = _NUMBER.match(cursor.text, cursor.at)
    if not found:
        return term(cursor)
    if len(found.group()) > _LONGEST_NUMBER:
        raise cursor.fail(f"a number of {len(found.group())} characters")
    cursor.at = found.end()
    return _permutation(found.group()) if "_" in found.group() else int(found.group())


def _permutation(text: str) -> int:
    """TASO's number of a permutation: its digits in base n, the first the most significant."""
    digits = [int(d) for d in text.split("_")]
    number = 0
    for digit in digits:
        number = number * len(digits) + digit
    return number


def _operator(cursor: _Text, name: str, arguments: Sequence[ForeignTerm | int]) -> ForeignTerm:
    numbers = [a for a in arguments if isinstance(a, int)]
    operands = tuple(a for a in arguments if isinstance(a, ForeignTerm))
    projection = re.fullmatch(r"split_(\d)", name)
    if projection:  # (split_0 (split 1 x)), or split_0(1, x) in the equations
        whole = operands[0] if not numbers else ForeignTerm("split", (("axis", numbers[0]),), operands)
        if len(operands) != 1 or whole.op != "split":
            raise cursor.fail(f"{name} takes a split")
        return ForeignTerm(OUTPUT, (("index", int(projection.group(1))),), (whole,))
    row = BY_NAME.get(re.sub(r"^concat\d$", "concat", name))
    if row is None or not row.token:
        raise cursor.fail(f"{name!r} is no operator of Tensat's that is known here")
    wanted = row.operands if row.operands >= 0 else len(operands)
    if len(operands) != wanted or (row.operands < 0 and not operands) or len(numbers) > len(row.parameters):
        raise cursor.fail(f"{name} has {len(operands)} operands and {len(numbers)} numbers")
    return ForeignTerm(row.name, tuple(zip(row.parameters, numbers, strict=False)), operands)


# ---- writing


def tensat_text(rules: Iterable[ForeignRule]) -> tuple[str, str]:
    """The rules in Tensat's s-expressions: those with one output, and those with two. No newline at the end, as in
    its files. Raises RuleError for a rule that Tensat's language cannot say."""
    single: list[str] = []
    multi: list[str] = []
    for rule in rules:
        if rule.unreadable or len(rule.sources) > 2:
            raise RuleError(f"{rule.origin} cannot be written for Tensat: {rule.unreadable or 'it has more outputs'}")
        lines = [f"{_written(s)}=>{_written(t)}" for s, t in zip(rule.sources, rule.targets, strict=True)]
        (single if len(lines) == 1 else multi).extend(lines)
    return "\n".join(single), "\n".join(multi)


def _written(term: ForeignTerm) -> str:
    if term.op == VARIABLE:
        return f"?{term.name}"
    if term.op == OUTPUT:
        return f"(split_{term.number('index')} {_written(term.operands[0])})"
    row = BY_NAME[term.op]
    if not row.token:
        raise RuleError(f"Tensat has no operator {term.op}")
    token = f"concat{len(term.operands)}" if term.op == "concat" and len(term.operands) > 2 else row.token
    numbers = [str(term.number(name)) for name in row.parameters]
    return "(" + " ".join([token, *numbers, *map(_written, term.operands)]) + ")"
