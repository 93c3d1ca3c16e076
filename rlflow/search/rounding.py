"""The tolerance of a search: which candidates keep the rounding error within it (``rlflow.rewrite.tolerance``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.search.macros import WithMacros
from rlflow.search.result import Visited

if TYPE_CHECKING:
    from rlflow.rewrite.tolerance import RoundingBudget, Tolerance
    from rlflow.search.node import SearchNode


class Rounding:
    """What the steps of a trace may add to the rounding error. ``tolerance``: ``None`` where nothing bounds them;
    ``names``: the rules, by number. ``refused``: names of rules whose step would have gone beyond it somewhere.

    A graph that no path leads to, such as an e-graph's, has no steps to add up. There a rule may be used as often as it
    fits where its growth alone is within the tolerance, and nowhere else.
    """

    def __init__(self, tolerance: Tolerance | None, names: Sequence[str]) -> None:
        self.tolerance, self._names = tolerance, list(names)
        self._budget: RoundingBudget | None = None
        self._shares = self._alone = np.empty(0)
        self.refused: set[str] = set()

    def begin(self, graph: Any) -> None:
        """The search starts from ``graph``, whose own rounding error the tolerance is about."""
        tolerance = self.tolerance
        if tolerance is None or all(tolerance.growth(name) <= 1.0 for name in self._names):
            return
        self._budget = budget = tolerance.on(graph)
        self._shares = np.array([budget.share(name) for name in self._names])
        self._alone = np.array([tolerance.growth(name) <= tolerance.limit for name in self._names])

    def within(self, node: SearchNode, raw: Any, index: np.ndarray) -> np.ndarray:
        """Which of the moves ``index`` of ``node`` keep within the tolerance; ``raw``: all of its moves."""
        if self._budget is None:
            return np.ones(len(index), dtype=bool)
        rules = np.asarray(raw.rule)[index]
        if node.traced:
            added = self._shares[rules]
            for k, macro in _macros(raw, index):
                added[k] = sum(map(self._budget.share, (rule for rule, _ in macro.applied.steps)))
            fits = self._budget.allows(self._spent(node) + added)
            self.refused.update(self._names[rule] for rule in {*rules[~fits].tolist()})
        else:
            fits = self._alone[rules]
            for k, macro in _macros(raw, index):
                fits[k] = all(self._fits_alone(rule) for rule, _ in macro.applied.steps)
        return np.asarray(fits)

    def keeps(self, found: SearchNode | Visited) -> bool:
        """Whether a graph that was reached is within the tolerance."""
        if self._budget is None:
            return True
        if isinstance(found, Visited):
            return bool(self._budget.allows(self._budget.spent(step.rule for step in found.trace or ())))
        return not found.traced or bool(self._budget.allows(self._spent(found)))

    def pathless(self, ruleset: Any) -> Any:
        """The rules for graphs that no path leads to."""
        from rlflow.rewrite import RuleSet

        if self._budget is None or self._alone.all():
            return ruleset
        return RuleSet([rule for rule, fits in zip(ruleset.rules, self._alone, strict=True) if fits])

    def _fits_alone(self, rule: str) -> bool:
        assert self.tolerance is not None
        return self.tolerance.growth(rule) <= self.tolerance.limit

    def _spent(self, node: SearchNode) -> float:
        assert self._budget is not None
        return self._budget.spent(_rules(node))


def _rules(node: SearchNode) -> Iterator[str]:
    """The rules of the steps that led to a node, the last one first."""
    link = node.link
    while link is not None:
        yield link.step.rule
        link = link.before


def _macros(raw: Any, index: np.ndarray) -> Iterator[tuple[int, Any]]:
    """The macros among the moves ``index``, each with its place there."""
    if isinstance(raw, WithMacros):
        for k in np.flatnonzero(index >= len(raw.singles)).tolist():
            yield k, raw.macros[int(index[k]) - len(raw.singles)]
