"""What a search found, as the stages after it take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlflow import search as _search
from rlflow.search import Result, Visited

__all__ = ["Found"]

#: Graphs that the final comparison chooses among. A nominee may be priced so many times as dear as the model: prices
#: are noisy, but not that noisy.
FINALISTS, DEARER = 5, 1.1


@dataclass(frozen=True)
class Found:
    """What a search found. ``statistics``: what every rule was good for, ``None`` where an earlier search is repeated.

    ``rule_rows``: what each rule took, where that was asked for. ``setup_measurements``: those that pricing the
    model took.
    """

    result: Result
    statistics: _search.Statistics | None
    setup_measurements: int
    rule_rows: dict[str, dict[str, Any]] | None = None

    @property
    def finalists(self) -> list[Visited]:
        """The graphs that are cheaper than the model, the best first, and what the strategy nominated; at most
        ``FINALISTS``.
        """
        result = self.result
        cheaper = [one for one in (result.best, *result.runners_up) if one.cost_ms < result.cost_before_ms]
        near = [one for one in result.nominees if one.cost_ms < DEARER * result.cost_before_ms]
        return [*cheaper[:1], *near, *cheaper[1:]][:FINALISTS]
