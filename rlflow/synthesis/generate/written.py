"""How an equation is written in the language of rules: variables, slots, terms."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlflow.synthesis.generate.graphs import Expression, Node, leaves, operators
from rlflow.synthesis.generate.vocabulary import Group, InputFamily, OperatorTemplate

_LETTERS = "xywvuzrst"
ALONG_AXIS = ("Concat", "Split")


@dataclass(frozen=True)
class StatementText:
    """``source`` => ``target`` over a group's inputs, and the texts of its terms."""

    group: Group
    source: tuple[Expression, ...]
    target: tuple[Expression, ...]

    @cached_property
    def names(self) -> dict[int, str]:
        """A rule variable for each input, named in order of first use."""
        own = [k for k in self.inputs if not self._family(k).derived]
        return {k: f"?{_LETTERS[n]}" if n < len(_LETTERS) else f"?x{n}" for n, k in enumerate(own)}

    def _derived(self, term: Any, bound: Iterable[str]) -> str:
        index = {name: k for k, (name, _) in enumerate(self.group.inputs)}
        if isinstance(term, str):
            return self.names[index[term]]
        operands = " ".join(self._derived(t, bound) for t in term[1:])
        template = {o.name: o for o in self.group.operators}.get(term[0])
        return (
            f"({template.op}{self._attributes(template, bound, False)} {operands})"
            if template
            else f"({term[0]} {operands})"
        )

    def _family(self, k: int) -> InputFamily:
        return self.group.inputs[k][1]

    @cached_property
    def inputs(self) -> list[int]:
        """Inputs in order of first use, with those that derived ones are made of."""
        index = {name: k for k, (name, _) in enumerate(self.group.inputs)}
        out: dict[int, None] = {}
        for k in leaves((*self.source, *self.target)):
            for name in derived_leaves(self._family(k).derived):
                out.setdefault(index[name])
            out.setdefault(k)
        return list(out)

    def _at_root(self, n: Node) -> bool:
        return len(self.target) == 2 and all(isinstance(t, Node) and t._replace(output=0) == n for t in self.target)

    def _operator(self, n: Node) -> OperatorTemplate:
        return self.group.operators[n.op]

    def _own(self) -> list[int]:
        bound = set(leaves(self.source))
        return [k for k in self.inputs if k in bound]

    @cached_property
    def slots(self) -> list[str]:
        """What may be bound: "axis 1", or a template's name."""
        out: dict[str, None] = {}
        for n in operators(self.source):
            o = self._operator(n)
            if o.op in ALONG_AXIS:
                out.setdefault(f"axis {o.attributes['axis']}")
            elif o.attributes:
                out.setdefault(o.base)
        return list(out)

    @cached_property
    def _varying(self) -> dict[str, list[str]]:
        """For each template, the attributes in which its variants differ here; these are never bound."""
        seen: dict[str, list[OperatorTemplate]] = {}
        for n in operators((*self.source, *self.target)):
            seen.setdefault(self._operator(n).base, []).append(self._operator(n))
        return {
            base: sorted(k for k, v in alike[0].attributes.items() if any(o.attributes.get(k) != v for o in alike))
            for base, alike in seen.items()
        }

    def _slot_variable(self, slot: str) -> str:
        return f"?{'abcdefgh'[self.slots.index(slot)]}"

    def _attributes(self, o: OperatorTemplate, bound: Iterable[str], root_split: bool) -> str:
        if o.op in ALONG_AXIS:
            slot = f"axis {o.attributes['axis']}"
            axis = self._slot_variable(slot) if slot in bound else str(o.attributes["axis"])
            if o.op == "Concat":
                return f"{{axis={axis}}}"
            sizes = f"[dim($0, {axis}), dim($1, {axis})]" if root_split else f"?s{o.attributes['axis']}"
            return f"{{axis={axis}, split={sizes}}}"
        if not o.attributes:
            return ""
        if o.base in bound:
            fixed = "".join(f"{k}={literal(o.attributes[k])}, " for k in self._varying[o.base])
            return f"{{{fixed}..{self._slot_variable(o.base)}}}"
        return "{" + ", ".join(f"{k}={literal(v)}" for k, v in sorted(o.attributes.items())) + "}"

    def _text(self, t: Expression, bound: Iterable[str], in_target: bool) -> str:
        if isinstance(t, int):
            return self._derived(self._family(t).derived, bound) if self._family(t).derived else self.names[t]
        o = self._operator(t)
        root_split = in_target and o.op == "Split" and self._at_root(t._replace(output=0))
        operands = " ".join(self._text(c, bound, in_target) for c in t.operands)
        text = f"({o.op}{self._attributes(o, bound, root_split)} {operands})"
        return f"{text}:{t.output}" if o.op == "Split" else text

    def _target(self, bound: Iterable[str]) -> list[str]:
        first = self.target[0]
        if len(self.target) == 2 and isinstance(first, Node) and self._at_root(first._replace(output=0)):
            return [self._text(first, bound, True).removesuffix(":0") + ":*"]
        return [self._text(t, bound, True) for t in self.target]


def literal(value: Any) -> str:
    """An attribute's value as rules write it."""
    return json.dumps(value)


def derived_leaves(term: Any) -> list[str]:
    """The inputs that a derived one is made of, in order."""
    if isinstance(term, str):
        return [term]
    return [name for t in term[1:] for name in derived_leaves(t)]
