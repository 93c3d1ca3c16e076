"""Tables of the rows that ``run.py`` writes: medians over seeds, and intervals over seeds and shapes."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import results

Row = dict[str, Any]
#: Fields that name what is compared, by the kind of a row.
WHAT = {"run": ("method", "start"), "ablation": ("variant",), "transfer": ("walk", "start", "actor")}
NEAR = 1.03
_DRAWS = 2000


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Of all kinds that there are."""
    for kind, what in WHAT.items():
        some = [row for row in rows if row["kind"] == kind]
        if some:
            yield from by_shape(some, what)
            yield from overall(some, what)
    network = [row for row in rows if row["kind"] == "network"]
    if network:
        yield from networks(network)
    live = [row for row in rows if row["kind"] == "live"]
    if live:
        yield from operators(live)
    judged = [row for row in rows if row["kind"] == "judged" and "middle_us" in row]
    if judged:
        yield from in_turn(judged, live)


def overall(rows: Sequence[Row], what: Sequence[str]) -> Iterator[str]:
    """A line for each thing that is compared: shapes whose median is near the optimum after a tenth of the space, the
    geometric mean of the distance with a 95 % interval over seeds, and trials to be near.
    """
    yield from results.heading(
        " ".join(what).capitalize(), "Shapes within 3 % after a tenth", "Over the optimum after a tenth",
        "Within 3 % after", "Within 1 % after", "CPU s", "Seeds",
    )  # fmt: skip
    for name, some in grouped(rows, what):
        near = sum(statistics.median(row["tenth"] for row in each) <= NEAR for _, each in grouped(some, ("title",)))
        mean, low, high = interval(some)
        yield (
            f"| {name} | {near} of {len({row['title'] for row in some})} | {mean:.3f} [{low:.3f}, {high:.3f}] | "
            f"{_after(some, 'near_after')} | {_after(some, 'nearer_after')} | "
            f"{statistics.median(row['cpu_seconds'] for row in some):.1f} | {len({row['seed'] for row in some})} |"
        )


def by_shape(rows: Sequence[Row], what: Sequence[str]) -> Iterator[str]:
    """Medians over seeds, a line for each shape: over the optimum after a tenth, and trials until within 3 %."""
    names = [name for name, _ in grouped(rows, what)]
    yield from results.heading("Shape", *names)
    for title, some in grouped(rows, ("title",)):
        found = dict(grouped(some, what))
        cells = [
            f"{statistics.median(row['tenth'] for row in found[name]):.3f}, {_after(found[name], 'near_after')}"
            if name in found
            else ""
            for name in names
        ]
        yield f"| {title} | {' | '.join(cells)} |"


def networks(rows: Sequence[Row]) -> Iterator[str]:
    """A network's time over the sum of its optima, medians over seeds."""
    counts = [name for name in rows[0] if name.startswith("after_")]
    yield from results.heading(
        "All shapes together", *(f"after {one.removeprefix('after_')}" for one in counts), "Seeds"
    )
    for name, some in grouped(rows, ("method",)):
        cells = [f"{statistics.median(row[count] for row in some):.3f}" for count in counts]
        yield f"| {name} | {' | '.join(cells)} | {len(some)} |"


def operators(rows: Sequence[Row]) -> Iterator[str]:
    """The best rate of each method on TVM by its own minutes' clock, and processor seconds; medians over seeds."""
    yield from results.heading("Operator", "Method", "GF/s", "Least, most", "CPU s", "Trials", "Seeds")
    for title, some in grouped(rows, ("title",)):
        for name, each in grouped(some, ("method",)):
            rates = [row["gflops"] for row in each]
            yield (
                f"| {title} | {name} | {statistics.median(rates):.1f} | {min(rates):.1f}, {max(rates):.1f} | "
                f"{statistics.median(row['cpu_seconds'] for row in each):.0f} | {each[0]['trials']} | {len(each)} |"
            )


def in_turn(rows: Sequence[Row], live: Sequence[Row]) -> Iterator[str]:
    """What each method found, timed in turn: the middle of the turns, medians over seeds. How many times as fast that
    is as what each of TVM's own searches found, and after how many processor seconds a program was as fast as that, or
    within 1 %. For TVM's searches themselves: after how many they saw the last better one.
    """
    rivals = sorted({row["method"] for row in rows if row["method"].startswith("metaschedule")})
    heads = [name for one in rivals for name in (f"Times as fast as {one}'s", "CPU s until then", "within 1 %")]
    yield from results.heading("Operator", "Method", "us, in turn", "Least, most", *heads, "Seeds")
    for title, some in grouped(rows, ("title",)):
        middles = {name: [row["middle_us"] for row in each] for name, each in grouped(some, ("method",))}
        for name, each in grouped(some, ("method",)):
            middle, found = statistics.median(middles[name]), middles[name]
            cells = [f"{middle:.1f}", f"{min(found):.1f}, {max(found):.1f}"]
            for one in rivals:
                theirs = statistics.median(middles[one]) if one in middles else float("nan")
                cells += [f"{theirs / middle:.3f}", *(_until(each, theirs * over) for over in (1.0, 1.01))]
                if one == name:
                    mine = [row["curve"] for row in live if (row["title"], row["method"]) == (title, name)]
                    cells[-2:] = [f"{statistics.median(map(_last_gain, mine)):.0f}", ""]
            yield f"| {title} | {name} | {' | '.join(cells)} | {len(each)} |"


def _until(rows: Sequence[Row], bound: float) -> str:
    """Processor seconds, the median over seeds, until a program takes no more microseconds than the bound."""
    took = [
        next((spent for _, spent, us in row.get("steps", ()) if us is not None and us <= bound), float("inf"))
        for row in rows
    ]
    found = statistics.median(took)
    return "never" if found == float("inf") else f"{found:.0f}"


def _last_gain(curve: Sequence[Sequence[float]]) -> float:
    """Processor seconds until the best that a search saw by its own clock."""
    least = min(us for _, us, _ in curve)
    return next(spent for _, us, spent in curve if us == least)


def grouped(rows: Iterable[Row], what: Sequence[str]) -> list[tuple[str, list[Row]]]:
    """Rows by what they are of, in the order of the first of each."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(str(row[one]) for one in what), []).append(row)
    return list(found.items())


def interval(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Geometric mean over shapes and seeds, and its 95 % interval: seeds of each shape are drawn again."""
    logs = [np.log([row["tenth"] for row in some]) for _, some in grouped(rows, ("title",))]
    rng = np.random.default_rng(0)
    means = [float(np.mean([one[rng.integers(0, len(one), len(one))].mean() for one in logs])) for _ in range(_DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.exp(np.mean([one.mean() for one in logs]))), float(np.exp(low)), float(np.exp(high))


def _after(rows: Sequence[Row], field: str) -> str:
    """The median of trials; a run that never came there counts as endless."""
    found = statistics.median(row[field] or float("inf") for row in rows)
    return "never" if found == float("inf") else f"{found:.0f}"
