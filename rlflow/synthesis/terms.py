"""Reads the terms of rules for the sampler and for those who show them.

The core parses, checks and matches rules; this reader only says what a term is made of.
It accepts what the core accepts (a rule is always compiled by the core first).
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass, field
from typing import Any

from rlflow.errors import RuleError

_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass
class Term:
    """One node of a term.

    ``kind`` is ``op``, ``var``, ``seq`` or ``absent``. For ``op``: ``op`` names the operator, or ``op_var`` the
    operator variable with the
    class ``op_class`` (a class name, a list of operators, or ``None`` where the variable was given its class before);
    ``attrs`` maps attribute
    names to expression texts; ``rest`` names the ``..?rest`` variable; ``output`` is a number, an attribute variable
    or, in a target, ``*`` for all of them.
    """

    kind: str
    name: str = ""
    op: str = ""
    op_var: str = ""
    op_class: str | list[str] | None = None
    carries: bool = False
    attrs: dict[str, str] = field(default_factory=dict)
    rest: str = ""
    children: list[Term] = field(default_factory=list)
    output: int | str = 0
    star: bool = False

    def walk(self) -> list[Term]:
        """This term and all below it, parents first."""
        return [self, *(t for c in self.children for t in c.walk())]


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, why: str) -> RuleError:
        return RuleError(f"in the term '{self.text}' at column {self.at + 1}: {why}")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, s: str) -> bool:
        self.skip()
        return self.text.startswith(s, self.at)

    def take(self, s: str) -> bool:
        if not self.peek(s):
            return False
        self.at += len(s)
        return True

    def word(self) -> str:
        self.skip()
        m = _NAME.match(self.text, self.at)
        if not m:
            raise self.fail("expected a name")
        self.at = m.end()
        return m.group()

    def term(self) -> Term:
        star = self.take("*")
        if self.take("_"):
            return Term("absent")
        if self.take("?"):
            name = "?" + self.word()
            return Term("seq" if self.take("...") else "var", name=name)
        if not self.take("("):
            raise self.fail("expected a term")
        t = self._operation()
        t.star = star
        return t

    def _operation(self) -> Term:
        t = Term("op")
        if self.take("?"):
            t.op_var = "?" + self.word()
            if self.take(":"):
                t.op_class = self._op_class()
        else:
            t.op = self.word()
        if self.at < len(self.text) and self.text[self.at] == "{":
            self._attributes(t)
        else:
            t.carries = bool(t.op_var)
        while not self.take(")"):
            if self.at >= len(self.text):
                raise self.fail("a parenthesis is not closed")
            t.children.append(self.term())
        if self.take(":"):
            t.output = "*" if self.take("*") else "?" + self.word() if self.take("?") else int(self.word())
        return t

    def _op_class(self) -> str | list[str]:
        if not self.take("{"):
            return self.word()
        names = []
        while not self.take("}"):
            names.append(self.word())
            self.take(",")
        return names

    def _attributes(self, t: Term) -> None:
        self.take("{")
        while not self.take("}"):
            if self.take(".."):
                self.take("?")
                t.rest = "?" + self.word()
            else:
                name = self.word()
                self.take("=")
                t.attrs[name] = self._expression()
            self.take(",")

    def _expression(self) -> str:
        start, depth, quoted = self.at, 0, False
        while self.at < len(self.text):
            ch = self.text[self.at]
            quoted ^= ch == '"'
            if not quoted:
                if depth == 0 and ch in ",}":
                    break
                depth += (ch in "([{") - (ch in ")]}")
            self.at += 1
        return self.text[start : self.at].strip()


def read_term(text: str) -> Term:
    """The term of one root. Raises :class:`~rlflow.errors.RuleError` where it does not parse."""
    reader = _Reader(text)
    term = reader.term()
    reader.skip()
    if reader.at != len(text):
        raise reader.fail("unexpected text after the term")
    return term


_TRUTH = {"true": True, "false": False}


def literal(text: str) -> Any:
    """The value of a literal attribute expression, or ``None`` where it is something to be computed."""
    value = _literal(text)
    return list(value) if isinstance(value, list) else value


@functools.lru_cache(maxsize=4096)
def _literal(text: str) -> Any:
    if text in _TRUTH:
        return int(_TRUTH[text])
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def mentions(where: list[str], function: str) -> set[str]:
    """Names of the variables that some condition uses as ``function(?x ...``; what stands under a ``not`` does not
    count."""
    where = [re.sub(r"\bnot \((?:[^()]|\([^()]*\))*\)", "", w) for w in where]
    pattern = re.compile(rf"(?<!not )\b{function}\(\s*(\?[A-Za-z0-9_]+)")
    return {name for w in where for name in pattern.findall(w)}
