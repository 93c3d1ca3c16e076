"""Attributes of drawn nodes: bound before, literal, hinted, or drawn; now and then at a boundary of the statement."""

from __future__ import annotations

import re
from typing import Any

from rlflow.synthesis.drawn_values import ValueDraw
from rlflow.synthesis.operators import default_of
from rlflow.synthesis.terms import Term, literal

_VARIABLE = re.compile(r"\?\w+")


class AttributeDraw(ValueDraw):
    """Draws attributes; those of one name, or of one ``..?rest``, have one value."""

    def attr(self, term: Term, op: str, name: str, drawn: Any) -> Any:
        """The attribute's value: bound before, literal, hinted, or what ``drawn()`` gives."""
        if name in term.attrs:
            return self._named_attr(term.attrs[name], drawn)
        if term.rest:
            return self._rest_attr(term.rest, name, drawn)
        default = default_of(op, name)
        return drawn() if term.carries or default is None else default

    def _named_attr(self, text: str, drawn: Any) -> Any:
        if not _VARIABLE.fullmatch(text):
            value = literal(text)
            return drawn() if value is None else value
        if text not in self.attrs:
            self.attrs[text] = self._hinted_attr(text, lambda: self._beside(drawn()))
        return self.attrs[text]

    def _beside(self, value: Any) -> Any:
        """A drawn attribute; now and then at a boundary of the statement instead."""
        near = self.hints.boundaries.values
        if isinstance(value, bool) or not near or self.rng.random() > 0.12:
            return value
        if isinstance(value, float):  # the core keeps seven digits
            return self.rng.choice([v for v in near if float(f"{v:.7g}") == v])
        whole = [w for w in self.hints.boundaries.integers if abs(w) < 2000]
        if isinstance(value, int):
            return self.rng.choice(whole or [value])
        if isinstance(value, list) and value and whole and all(isinstance(v, int) for v in value):
            at = self.rng.randrange(len(value))
            return [*value[:at], self.rng.choice(whole), *value[at + 1 :]]
        return value

    def _hinted_attr(self, name: str, drawn: Any) -> Any:
        spec = self._hint_for(name)
        if spec is not None:
            return self._spelled(spec)
        known = [v for v in self.hints.attributes.get(name, []) if v is not None]
        value = drawn()
        if known and self.obey and self.rng.random() < 0.8:
            pick = self.rng.choice(known)
            if isinstance(value, list) and not isinstance(pick, list):
                return [pick] * len(value)
            return pick
        return value

    def _spelled(self, spec: Any) -> Any:
        """A hint's attribute: a value, a text "[A, B*C]" or "=G" of letters, or {"choose": [...]}."""
        if isinstance(spec, dict) and "choose" in spec:
            return self._spelled(self.rng.choice(spec["choose"]))
        if isinstance(spec, str) and spec.startswith("="):
            return self._letter(spec[1:])
        if isinstance(spec, str) and spec.startswith("["):
            return [
                int(d) if d.strip().lstrip("-").isdigit() else self._letter(d)
                for d in spec[1:-1].split(",")
                if d.strip()
            ]
        return spec

    def _rest_attr(self, rest: str, name: str, drawn: Any) -> Any:
        bound = self.rests.setdefault(rest, {})
        if name not in bound and self.twins.decides(rest, name, self.rests):
            bound[name] = self.twins.value(rest, name, self.rests)
        if name not in bound:
            hinted = self._hint_for(rest)
            if isinstance(hinted, dict) and name in hinted:
                bound[name] = self._spelled(hinted[name])
                return bound[name]
            value = self._beside(drawn())
            known = [v for v in self.hints.rest_attributes.get((rest, name), []) if v is not None]
            if known and self.obey and self.rng.random() < 0.85:
                pick = self.rng.choice(known)
                value = [pick] * len(value) if isinstance(value, list) and not isinstance(pick, list) else pick
            bound[name] = value
        return bound[name]
