"""What a comparison found, and what may be said of it: no strategy is called better without proof."""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

#: Costs that differ by less than this part are equal.
_EQUAL = 1e-6
ALPHA = 0.05


class Difference(NamedTuple):
    """How much cheaper or faster ``better`` is than ``worse``: the ratio, above 1, with its 95 % interval.

    ``measure``: ``cost`` (the cost model's figure, over seeds) or ``time`` (end to end, over blocks). ``significant``
    is False where nothing may be said; then the order of the two means nothing.
    """

    model: str
    measure: str
    better: str
    worse: str
    ratio: float
    low: float
    high: float
    significant: bool


@dataclass
class Comparison:
    """``runs``: a row a search. ``timings``: a row a model, ``log_ms`` [blocks] of each distinct winner, by digest, and
    of the ``baseline``. ``differences``: what may be said, and what not. ``interrupted``: Ctrl-C left
    searches out.
    """

    strategies: Sequence[str]
    runs: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, Any]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    interrupted: bool = False

    def summary(self) -> list[dict[str, Any]]:
        """A row a model and strategy: means over seeds with the half-widths of their 95 % intervals."""
        rows = []
        for model, strategy in itertools.product(self.models, self.strategies):
            runs = runs_of(self.runs, model, strategy)
            if not runs:
                continue
            costs = [run["cost_after_ms"] / run["cost_before_ms"] for run in runs]
            rows.append(
                {
                    "model": model,
                    "strategy": strategy,
                    "seeds": len(runs),
                    "cost_before_ms": runs[0]["cost_before_ms"],
                    "relative_cost": statistics.fmean(costs),
                    "relative_cost_ci": half_width(costs),
                    "seconds": statistics.fmean(run["seconds"] for run in runs),
                    "expansions": statistics.fmean(run["expansions"] for run in runs),
                    "measurements": statistics.fmean(run["measurements"] for run in runs),
                    **self._speedup(model, runs),
                }
            )
        return rows

    def _speedup(self, model: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        timing = next((row for row in self.timings if row["model"] == model), None)
        if timing is None:
            return {"speedup": None, "speedup_ci95": None}
        from rlflow.price.timing import speedup

        found = speedup(np.array(timing["log_ms"]["baseline"]) - _of_strategy(timing, runs))
        return {"speedup": found.value, "speedup_ci95": [found.low, found.high]}

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(run["model"] for run in self.runs))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "summary": self.summary(),
            "differences": [difference._asdict() for difference in self.differences],
            "runs": self.runs,
            "timings": self.timings,
            "interrupted": self.interrupted,
        }

    def csv(self) -> str:
        """A line a search, without traces and curves."""
        columns = ["model", "strategy", "seed", "cost_before_ms", "cost_after_ms", "digest", "stop_reason", "seconds"]
        columns += ["candidates", "expansions", "measurements"]
        stream = io.StringIO()
        writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.runs)
        return stream.getvalue()


def differences(found: Comparison) -> list[Difference]:
    """Every pair of strategies on every model: by cost, and by time where there are timings.

    Differences of time are tested by the signed-rank test over blocks, those of cost by Student's t over seeds (equal
    for all seeds: no randomness, no test), corrected for the number of pairs of one model (Holm 1979; Bonferroni).
    """
    rows = []
    for model in found.models:
        timing = next((row for row in found.timings if row["model"] == model), None)
        pairs = list(itertools.combinations(found.strategies, 2))
        rows += [_by_cost(model, *pair, found.runs, ALPHA / len(pairs)) for pair in pairs]
        if timing is not None and len(timing["log_ms"]["baseline"]) > 1:
            rows += _by_time(model, pairs, found.runs, timing)
    return rows


def _by_cost(model: str, one: str, other: str, runs: Sequence[Mapping[str, Any]], alpha: float) -> Difference:
    costs = [{run["seed"]: run["cost_after_ms"] for run in runs_of(runs, model, spec)} for spec in (one, other)]
    seeds = sorted(costs[0].keys() & costs[1].keys())
    ratios = np.array([math.log(costs[1][seed] / costs[0][seed]) for seed in seeds])  # above 0: `one` is cheaper
    centre, spread = float(ratios.mean()), _half_width_at(ratios, alpha)
    certain = len(ratios) > 1 and abs(centre) > _EQUAL and abs(centre) > spread
    return _ordered(model, "cost", one, other, centre, centre - spread, centre + spread, certain)


def _by_time(
    model: str, pairs: Sequence[tuple[str, str]], runs: Sequence[Mapping[str, Any]], timing: Mapping[str, Any]
) -> list[Difference]:
    from rlflow.price.timing import hodges_lehmann, signed_rank_p

    tested = []
    for one, other in pairs:
        log_ms = [_of_strategy(timing, runs_of(runs, model, spec)) for spec in (one, other)]
        ratios = log_ms[1] - log_ms[0]
        p = min(1.0, 2 * min(signed_rank_p(ratios), signed_rank_p(-ratios)))
        tested.append((p, one, other, hodges_lehmann(ratios)))
    rows, passing = [], True
    for place, (p, one, other, centre) in enumerate(sorted(tested, key=lambda row: row[0])):
        passing = passing and p < ALPHA / (len(pairs) - place)
        rows.append(_ordered(model, "time", one, other, centre.value, centre.low, centre.high, passing))
    return rows


def _ordered(
    model: str, measure: str, one: str, other: str, centre: float, low: float, high: float, certain: bool
) -> Difference:
    if centre < 0:
        one, other, centre, low, high = other, one, -centre, -high, -low
    return Difference(model, measure, one, other, _exp(centre), _exp(low), _exp(high), certain)


def _exp(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))


def _of_strategy(timing: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Mean over the seeds of the log time of what they found, by block; where nothing was found, the model's own."""
    log_ms = timing["log_ms"]
    return np.mean([log_ms.get(run["digest"], log_ms["baseline"]) for run in runs], axis=0)


def runs_of(runs: Sequence[Mapping[str, Any]], model: str, strategy: str) -> list[Mapping[str, Any]]:
    return [run for run in runs if run["model"] == model and run["strategy"] == strategy]


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of a mean (Student's t); ``None`` for less than two values."""
    return None if len(values) < 2 else _half_width_at(np.array(values), ALPHA)


def _half_width_at(values: np.ndarray, alpha: float) -> float:
    """Half of the interval of a mean at level ``alpha``."""
    if len(values) < 2:
        return math.inf
    from rlflow.price.student import student_quantile

    deviation = float(values.std(ddof=1))
    if deviation <= 1e-12:
        return 0.0
    return student_quantile(len(values) - 1, alpha) * deviation / math.sqrt(len(values))
