"""A rule as a picture: source and target as trees of text for a terminal, and as graphs for a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

from rlflow.report.graph_drawing import DrawnNode, svg
from rlflow.report.page_parts import document
from rlflow.report.rule_words import condition_in_words, facts
from rlflow.synthesis.terms import Term, read_term

if TYPE_CHECKING:
    from rlflow.rewrite import Rule

__all__ = ["drawings", "rule_page", "rule_section", "rule_trees", "side_by_side"]

_LETTERS = 24
_WORD = re.compile(r"\w+")


def _terms(rule: Rule) -> tuple[list[Term], list[Term], dict[str, Term]]:
    """The roots of both sides, and the terms that have a name."""
    named = {name: read_term(text) for name, text in rule.let if name.startswith("?")}
    return [read_term(one) for one in rule.source], [read_term(one) for one in rule.target], named


# --- text -------------------------------------------------------------------------------------------------------------


def rule_trees(rule: Rule) -> tuple[list[str], list[str]]:
    """Source and target, a tree for each root: an operator, and below it its operands in their order.

    What stands in several places is written once, with a letter before it, and then by that letter.
    """
    source, target, named = _terms(rule)
    known = facts(rule.where)
    texts = (*rule.source, *rule.target, *(part for pair in rule.let for part in pair))
    taken = {word for text in texts for word in _WORD.findall(text)}
    sides = []
    for roots in (source, target):
        tree = _Tree(roots, named, known, taken)
        sides.append(tree.lines)
        known = {}  # said of the source, and not again of the target
    return sides[0], sides[1]


def side_by_side(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Two blocks of lines beside each other where they fit into ``width`` columns, else one below the other."""
    wide = max(map(len, left), default=0)
    if wide + 8 + max(map(len, right), default=0) > width:
        return [*left, "=>", *right]
    middle = (len(left) - 1) // 2 if len(left) < len(right) else (len(right) - 1) // 2
    lines = []
    for place, (one, other) in enumerate(zip_longest(left, right, fillvalue="")):
        lines.append(f"{one:<{wide}}   {'=>' if place == middle else '  '}   {other}".rstrip())
    return lines


class _Tree:
    """The lines of one side of a rule."""

    def __init__(
        self, roots: Sequence[Term], named: Mapping[str, Term], known: Mapping[str, str], taken: set[str]
    ) -> None:
        self._named, self._known = named, dict(known)
        counts: Counter[str] = Counter()
        for root in roots:
            self._count(root, counts)
        free = (letter for letter in "abcdefghijklmnopqrstuvw" if letter not in taken)
        self._letters = {text: next(free, "z") for text, count in counts.items() if count > 1}
        self._drawn: set[str] = set()
        self.lines: list[str] = []
        for root in roots:
            self._add(root, "", "")

    def _count(self, term: Term, counts: Counter[str]) -> None:
        if term.kind != "op" or not term.children:
            return
        counts[_text(term)] += 1
        if counts[_text(term)] == 1:
            for child in term.children:
                self._count(child, counts)

    def _add(self, term: Term, first: str, further: str) -> None:
        """``first`` stands before this line, ``further`` before those below it."""
        below: Sequence[Term] = term.children
        label = ""
        if term.kind == "op" and (letter := self._letters.get(_text(term))):
            if letter in self._drawn:
                self.lines.append(f"{first}{letter}{_picked(term)}")
                return
            self._drawn.add(letter)
            label = f"{letter} = "
        elif term.name in self._named and term.name not in self._drawn:
            self._drawn.add(term.name)
            label, term = f"{term.name[1:]} = ", self._named[term.name]
            below = term.children
        self.lines.append(f"{first}{label}{self._said(term)}")
        for child in below:
            last = child is below[-1]
            self._add(child, f"{further}{'└─ ' if last else '├─ '}", f"{further}{'   ' if last else '│  '}")

    def _said(self, term: Term) -> str:
        if term.kind == "absent":
            return "(none)"
        if term.kind == "op":
            return f"{'each ' if term.star else ''}{_operator(term)}{_attributes(term)}{_picked(term)}"
        fact = self._known.pop(term.name, "")
        return f"{_variable(term)}{f'  ({fact})' if fact else ''}"


def _text(term: Term) -> str:
    """The same for equal terms, whichever of their outputs is meant."""
    if term.kind != "op":
        return f"{term.kind} {term.name}"
    return f"{_operator(term)}{_attributes(term)}({' '.join(_text(one) + _picked(one) for one in term.children)})"


def _variable(term: Term) -> str:
    return f"{term.name[1:]}{'…' if term.kind == 'seq' else ''}"


def _operator(term: Term) -> str:
    if not term.op_var:
        return term.op
    if term.op_class is None:
        return term.op_var[1:]
    kinds = term.op_class if isinstance(term.op_class, str) else " or ".join(term.op_class)
    return f"{term.op_var[1:]} (any {kinds})" if isinstance(term.op_class, str) else f"{term.op_var[1:]} ({kinds})"


def _attributes(term: Term) -> str:
    parts = [f"{name}={text.replace('?', '')}" for name, text in term.attrs.items()]
    parts += [f"…{term.rest[1:]}"] if term.rest else []
    return f"{{{', '.join(parts)}}}" if parts else ""


def _picked(term: Term) -> str:
    if term.output == "*":
        return ", each output"
    return f", output {str(term.output).lstrip('?')}" if term.output else ""


# --- graphs -----------------------------------------------------------------------------------------------------------


def drawings(rule: Rule) -> tuple[str, str]:
    """Source and target as ``<svg>`` elements, in the colours of what goes, comes and stays."""
    source, target, named = _terms(rule)
    known = facts(rule.where)
    left, right = (_Graph(roots, named, known) for roots in (source, target))
    return tuple(  # type: ignore[return-value]
        svg(side.nodes(other.texts, state), f"{title} of {rule.name}", scale=0.8)
        for side, other, state, title in ((left, right, "removed", "Source"), (right, left, "added", "Target"))
    )


class _Graph:
    """One side as a graph: equal terms are one node."""

    def __init__(self, roots: Sequence[Term], named: Mapping[str, Term], known: Mapping[str, str]) -> None:
        self._named, self._known = named, known
        self._places: dict[str, int] = {}
        self._nodes: list[tuple[DrawnNode, str]] = []
        for number, root in enumerate(roots):
            title = "result" if len(roots) == 1 else f"result {number + 1}"
            self._put(title, DrawnNode(title, "each output" if root.output == "*" else "", (self._add(root),)))
        self.texts = set(self._places)

    def nodes(self, others: set[str], state: str) -> list[DrawnNode]:
        """What the other side does not have is in ``state``."""
        return [node if text in others else node._replace(state=state) for node, text in self._nodes]

    def _put(self, text: str, node: DrawnNode) -> int:
        if text not in self._places:
            self._places[text] = len(self._nodes)
            self._nodes.append((node, text))
        return self._places[text]

    def _add(self, term: Term) -> int:
        if term.name in self._named:
            term = self._named[term.name]
        text = _text(term)
        if text in self._places and not term.output:
            return self._places[text]
        if term.kind != "op":
            says = self._known.get(term.name, "") or ("any number of values" if term.kind == "seq" else "")
            return self._put(text, DrawnNode(_variable(term) if term.name else "(none)", _short(says), ()))
        inputs = tuple(self._add(one) for one in term.children if one.kind != "absent")
        says = "one for each; " if term.star else ""
        made = self._put(text, DrawnNode(_operator(term), _short(says + _attributes(term).strip("{}")), inputs))
        if term.output in (0, "*"):
            return made
        picked = f"output {str(term.output).lstrip('?')}"
        return self._put(f"{text} {picked}", DrawnNode(picked, "", (made,)))


def _short(text: str) -> str:
    """Of attributes the first ones matter."""
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def rule_section(rule: Rule) -> str:
    """Statement and picture as a part of a page."""
    left, right = drawings(rule)
    where = "".join(
        f"<li><code>{escape(one)}</code>{f' – {escape(words)}' if (words := condition_in_words(one)) else ''}</li>"
        for one in rule.where
    )
    given = "".join(f"<li><code>{escape(name)} = {escape(text)}</code></li>" for name, text in rule.let)
    proof = "no record" if rule.proof is None else f"{rule.proof.method}; {rule.proof.scope}"
    statement = f"{chr(10).join(rule.source)}\n  =>\n{chr(10).join(rule.target)}"
    return (
        f"<p>{escape(rule.doc)}</p>"
        f'<div class="rule-picture"><figure>{left}<figcaption>Source</figcaption></figure>'
        f"<figure>{right}<figcaption>Target</figcaption></figure></div>"
        f"<pre>{escape(statement)}</pre>"
        + (f"<p>With</p><ul>{given}</ul>" if given else "")
        + (f"<p>Where</p><ul>{where}</ul>" if where else "")
        + f'<p class="dim">Proof: {escape(proof)}</p>'
    )


def rule_page(rule: Rule) -> str:
    """A page with one rule."""
    return document(f"A rule of the family {rule.family}", rule.name, False, f"<section>{rule_section(rule)}</section>")
