"""What each rule took in a search, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rlflow.search.problem import Problem


class RuleUse(NamedTuple):
    """One rule over one search.

    ``tried``: places whose operators fit, where its pattern was looked at. ``matched``: matches found. ``built``:
    children built, hashed and priced. ``applied``: steps of the chosen graph's trace. ``match_ms``, ``build_ms``:
    milliseconds by the wall clock. ``file``, ``line``: where the rule is written, ``None`` where it was made in code.
    """

    rule: str
    tried: int
    matched: int
    built: int
    applied: int
    match_ms: float
    build_ms: float
    file: str | None = None
    line: int | None = None

    @property
    def ms(self) -> float:
        return self.match_ms + self.build_ms


def rule_rows(problem: Problem) -> dict[str, dict[str, Any]]:
    """What each rule took so far, by name, as ``State.profile`` of the core gives it; empty where nobody asked."""
    profile = getattr(problem.root().state, "profile", None)
    return {} if profile is None else profile()


def rule_uses(rows: Mapping[str, Mapping[str, Any]], library: Mapping[str, Any], trace: Iterable[str]) -> list[RuleUse]:
    """The rules that a search tried, the dearest first.

    ``rows`` as ``State.profile()`` gives them; ``trace``: the rules of the graph that was chosen, in order.
    """
    applied = Counter(trace)
    uses = [RuleUse(rule=name, applied=applied[name], **_place(library.get(name)), **row) for name, row in rows.items()]
    return sorted(uses, key=lambda use: (-use.ms, use.rule))


def _place(rule: Any) -> dict[str, Any]:
    return {"file": getattr(rule, "file", None), "line": getattr(rule, "line", None)}
