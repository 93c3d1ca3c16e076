"""Tables and verdicts of the bench: who is level with the best search without learning, who is ahead of its doubles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from results import heading

Row = dict[str, Any]
#: A gain counts as another where it differs by this part of it, and by so many percentage points.
PART, POINTS = 1e-3, 5e-3
#: Two-sided 95 % quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
HALF_NAMES = {
    "unseen": "families that no agent saw",
    "fresh": "families that nobody looked into",
    "training": "families to train on",
    "further": "further families to train on",
}


class Gain(NamedTuple):
    """Mean gain over the seeds in %, and the half-width of its 95 % interval (0 where nothing was drawn)."""

    mean: float
    half: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Gain:
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean)
        quantile = STUDENT.get(len(values) - 1, 1.96)
        return cls(mean, quantile * statistics.stdev(values) / math.sqrt(len(values)))

    def slack(self) -> float:
        """Differences up to this are none."""
        return max(PART * abs(self.mean), POINTS)

    def ahead(self, other: Gain) -> bool:
        """Whether it is larger by more than nothing, and the intervals are apart."""
        return self.mean - self.half > other.mean + other.half and self.mean > other.mean + other.slack()

    def level(self, other: Gain) -> bool:
        """Whether it is as large, or larger."""
        return self.mean >= other.mean - other.slack()

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.half:.2f}" if self.half >= POINTS else "")


def gains(rows: Sequence[Row], budget: str, half: str) -> dict[str, dict[str, Gain]]:
    """By family, then by entrant."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["kind"] == "search" and row["budget"] == budget and row["half"] == half:
            found.setdefault(row["family"], {}).setdefault(row["name"], []).append(row["gain"])
    return {family: {name: Gain.of(values) for name, values in mine.items()} for family, mine in found.items()}


def verdict(mine: dict[str, dict[str, Gain]], name: str, others: Sequence[str]) -> tuple[int, int, int]:
    """(families where it is level with the best of ``others``, where it is ahead of that one, families where it and one
    of them were run).
    """
    run = [(one, [one[other] for other in others if other in one]) for one in mine.values() if name in one]
    both = [(one[name], max(beside)) for one, beside in run if beside]
    return sum(a.level(b) for a, b in both), sum(a.ahead(b) for a, b in both), len(both)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """All tables, a line at a time."""
    order = {row["name"]: row for row in rows if row["kind"] == "search"}
    for half in dict.fromkeys(row["half"] for row in rows):
        for budget in dict.fromkeys(row["budget"] for row in rows if row["half"] == half):
            yield from _of_budget(rows, order, budget, half)


def _of_budget(rows: Sequence[Row], order: dict[str, Row], budget: str, half: str) -> Iterator[str]:
    mine = gains(rows, budget, half)
    order = {name: row for name, row in order.items() if any(name in one for one in mine.values())}
    without = [name for name, row in order.items() if row["role"] == "without"]
    learned = [name for name, row in order.items() if row["role"] == "learned"]
    yield ""
    yield f"**{HALF_NAMES[half]}, {budget}: gain in %**"
    yield from heading("strategy", *mine, "mean")
    for name in order:
        cells = [str(one[name]) if name in one else "" for one in mine.values()]
        mean = statistics.fmean(one[name].mean for one in mine.values() if name in one)
        yield f"| {name} | {' | '.join(cells)} | {mean:.3f} |"
    yield from heading("learned", "level with the best without learning", "ahead of it", "level with its double",
                       "ahead of its double")  # fmt: skip
    for name in learned:
        level, ahead, count = verdict(mine, name, without)
        doubles = [other for other, row in order.items() if row["of"] == name and other.endswith("untrained")]
        both = verdict(mine, name, doubles)
        yield f"| {name} | {level} of {count} | {ahead} of {count} | {both[0]} of {both[2]} | {both[1]} of {both[2]} |"
