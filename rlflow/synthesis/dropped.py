"""Attributes that a target forgets: were they drawn with more than one value?

A source binds attributes by a name or by ``..?rest``. Where the target does not hand one on to the same operator, the
rule says that its value does not matter. Samples bear that out only if it had several values in them; of some
attributes the evaluator knows one only (``is_causal`` of Attention, ``antialias`` of Resize).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rlflow import _core
from rlflow.rewrite import Rule
from rlflow.synthesis.operators.facets import row
from rlflow.synthesis.terms import Term, read_term

#: Attributes that no graph in canonical form has: axes are spelled out, and normalisations are those of inference.
_SPELLED_OUT = frozenset(
    (("Pad", "axes"), ("BatchNormalization", "momentum"), ("BatchNormalization", "training_mode"))
)
_NEVER = frozenset(("noop_with_empty_axes",))
_VARIABLE = re.compile(r"\?\w+")


@dataclass
class Dropped:
    """The attributes that a rule's target forgets, as (operator, name), and the values they had."""

    seen: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def note(self, graph: _core.Graph) -> None:
        """Remembers the values in a graph in which the rule fired."""
        if not self.seen:
            return
        for n in graph.order():
            attrs = graph.attrs(n)
            for (op, name), values in self.seen.items():
                if op == graph.op(n):
                    value = attrs.get(name)  # lists are drawn in all lengths, of which the canonical form leaves some
                    values.update((str(value), "another") if isinstance(value, list) else (str(value),))

    @property
    def problem(self) -> str:
        """What was never varied, in a sentence; nothing where all of them were."""
        for (op, name), values in self.seen.items():
            if len(values) < 2:
                return (
                    f"its target forgets the attribute {name} of {op}, and in no sample it had more than one value: "
                    "hand it on, or demand a value of it"
                )
        return ""


def dropped_by(rule: Rule, roots: Sequence[Term]) -> Dropped:
    """What a rule's target does not hand on and its conditions do not speak of."""
    let = dict(rule.let)
    made = [term for text in [*rule.target, *(v for k, v in let.items() if k.startswith("?"))] for term in _terms(text)]
    conditions = " ".join([*rule.where, *(v for k, v in let.items() if not k.startswith("?"))])
    found = {
        (term.op, name)
        for root in roots
        for term in root.walk()
        if term.op
        for name in _bound(term)
        if not _handed_on(term, name, made) and not _spoken_of(term, name, conditions)
        if name != "auto_pad" or not _asks_for_pads(term, " ".join([conditions, *rule.target]))
    }
    return Dropped({pair: set() for pair in sorted(found)})


def _terms(text: str) -> Iterator[Term]:
    text = text.strip()
    if text.startswith(("(", "*(")):
        yield from read_term(text).walk()


def _bound(term: Term) -> list[str]:
    """Attributes of a source's operator that a variable binds."""
    named = [name for name, text in term.attrs.items() if _VARIABLE.fullmatch(text)]
    others = [name for name in row(term.op)["attributes"] if name not in term.attrs and name not in _NEVER]
    return [*named, *(name for name in others if term.rest and (term.op, name) not in _SPELLED_OUT)]


def _handed_on(term: Term, name: str, made: Sequence[Term]) -> bool:
    for other in made:
        if other.op != term.op:
            continue
        text = "".join(other.attrs.get(name, "").split())
        if name in term.attrs and _mentions(text, term.attrs[name]):
            return True
        if name not in term.attrs and (other.rest == term.rest or text == f'attr({term.rest},"{name}")'):
            return True
    return False


def _spoken_of(term: Term, name: str, conditions: str) -> bool:
    if name in term.attrs:
        return _mentions(conditions, term.attrs[name])
    return f'attr({term.rest},"{name}"' in "".join(conditions.split())


def _asks_for_pads(term: Term, texts: str) -> bool:
    """Whether the rule needs pads. An auto_pad that is not resolved leaves none, and the rule does not fire."""
    return "pads" in term.attrs or f'attr({term.rest},"pads"' in "".join(texts.split())


def _mentions(text: str, variable: str) -> bool:
    return re.search(rf"{re.escape(variable)}\b", text) is not None
