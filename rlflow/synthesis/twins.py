"""Attributes of two roots drawn alike, but for one: where a rule asks for equal ones and forgets one."""

from __future__ import annotations

import random
from typing import Any

_Rests = dict[str, dict[str, Any]]


class Twins:
    """Which ``..?rest`` repeats which, and the one attribute in which it does not."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.of: dict[str, str] = {}  # rest -> the rest that it repeats, or ""
        self.apart: dict[str, str] = {}

    def _original(self, rest: str, rests: _Rests) -> str:
        if rest not in self.of:
            others = [name for name, bound in rests.items() if name != rest and bound and not self.of.get(name)]
            self.of[rest] = self.rng.choice(others) if others and self.rng.random() < 0.5 else ""
            names = sorted(rests[self.of[rest]]) if self.of[rest] else []
            self.apart[rest] = self.rng.choice(names) if names and self.rng.random() < 0.7 else ""
        return self.of[rest]

    def decides(self, rest: str, name: str, rests: _Rests) -> bool:
        """Whether the attribute is a repetition (or the one that is not)."""
        original = self._original(rest, rests)
        return bool(original) and name in rests[original]

    def value(self, rest: str, name: str, rests: _Rests) -> Any:
        """The original's value; another one beside it for the attribute that is drawn apart."""
        value = rests[self.of[rest]][name]
        return self._other(value) if name == self.apart[rest] else value

    def known(self, rest: str, name: str, rests: _Rests) -> Any:
        """The attribute where it is bound, or where it is bound to be a repetition; else ``None``."""
        bound = rests.get(rest, {})
        if name not in bound and self.decides(rest, name, rests):
            bound = rests.setdefault(rest, {})
            bound[name] = self.value(rest, name, rests)
        return bound.get(name)

    def _other(self, value: Any) -> Any:
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            at = self.rng.randrange(len(value)) if self.rng.random() < 0.5 else None
            return [v + (at in (None, k)) for k, v in enumerate(value)]
        if isinstance(value, (int, float)):
            return 1 - value if value in (0, 1) and self.rng.random() < 0.5 else value + 1
        return value
