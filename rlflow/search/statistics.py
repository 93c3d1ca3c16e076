"""What a search did, rule by rule: what was offered, what was tried, what paid, what is on the winning trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.result import TraceStep

#: Opened graphs that the landscape keeps; of more than twice as many every second one is dropped.
_LANDSCAPE = 500


class RuleCounts(NamedTuple):
    """``matched``: candidates that the strategy was offered (one that stays open counts at every graph). ``tried``:
    opened. ``gained``: opened, and cheaper than the graph before. ``accepted``: opened, and cheaper than all graphs
    before. ``winning``: on the winning trace.
    """

    rule: str
    matched: int
    tried: int
    gained: int
    accepted: int
    winning: int


@dataclass
class Statistics:
    """Collects while a search runs: ``problem.observer = statistics``.

    ``duplicates``: opened graphs that had been opened before. ``known``: candidates whose graph had been opened before,
    which a strategy sees from their digests. ``depths``: opened graphs by number of rewrites. ``landscape``: depth and
    cost in ms of an even sample of the opened graphs.
    """

    rule_names: Sequence[str]
    matched: np.ndarray = field(init=False)
    tried: Counter[int] = field(default_factory=Counter)
    gained: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)
    depths: Counter[int] = field(default_factory=Counter)
    duplicates: int = 0
    known: int = 0
    landscape: list[tuple[int, float]] = field(default_factory=list)
    _stride: int = 1
    _opened: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.matched = np.zeros(len(self.rule_names), dtype=np.int64)

    def enumerated(self, table: MoveTable) -> None:
        """Count the candidates of a node."""
        self.matched += np.bincount(table.rule.astype(np.int64), minlength=len(self.matched))
        self.known += sum(digest in self._opened for digest in table.digests)

    def opened(self, parent: SearchNode, child: SearchNode, rule: int, is_best: bool) -> None:
        """Count an opened graph."""
        self.tried[rule] += 1
        self.gained[rule] += child.cost < parent.cost * (1 - 1e-9)
        self.accepted[rule] += is_best
        self.duplicates += child.digest in self._opened
        self._opened.add(child.digest)
        if self.tried.total() % self._stride == 0:
            self.landscape.append((child.depth, child.cost))
            if len(self.landscape) > 2 * _LANDSCAPE:
                self.landscape, self._stride = self.landscape[1::2], 2 * self._stride
        self.depths[child.depth] += 1

    def rules(self, trace: Iterable[TraceStep] | None) -> list[RuleCounts]:
        """The rules that were offered at all, those on the winning trace first, then by how often they were tried."""
        winning = Counter(step.rule for step in trace or ())
        rows = [
            RuleCounts(
                name, int(self.matched[k]), self.tried[k], self.gained[k], self.accepted[k], winning.get(name, 0)
            )
            for k, name in enumerate(self.rule_names)
        ]
        shown = [row for row in rows if row.matched or row.tried or row.winning]
        return sorted(shown, key=lambda row: (-row.winning, -row.tried, -row.matched, row.rule))

    def to_dict(self, trace: Iterable[TraceStep] | None = None) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "rules": [row._asdict() for row in self.rules(trace)],
            "opened": self.tried.total(),
            "duplicates": self.duplicates,
            "known_candidates": self.known,
            "depths": {str(depth): count for depth, count in sorted(self.depths.items())},
            "landscape": [{"depth": depth, "cost_ms": cost} for depth, cost in self.landscape],
        }
