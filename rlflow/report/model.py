"""The report of one optimisation: plain data with a stable JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

#: Raised when a field of the JSON form changes its meaning or goes away; new fields do not count. The form is described
#: in ``report.schema.json``.
FORMAT = 1


class TimeInterval(NamedTuple):
    """Median latency in milliseconds per run, with the ends of its 95 % interval."""

    ms: float
    low: float
    high: float


class OutputFigures(NamedTuple):
    """Largest difference of one output from the original's: absolute, and relative to the tensor's largest magnitude.

    ``vacuous``: why the check proves nothing for this output, or ``None``.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    passed: bool
    vacuous: str | None = None


@dataclass(frozen=True)
class Verified:
    """The comparison of outputs; ``detail`` is the verifier's own full record."""

    passed: bool
    outputs: Sequence[OutputFigures]
    notes: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RuntimeInfo:
    """The runtime that timed and verified: ``None`` version where it was not opened."""

    name: str
    version: str | None
    threads: int


@dataclass(frozen=True)
class Report:
    """What was done to a model and what came of it. Times are milliseconds.

    ``original_ms``: the model as it came. ``baseline_ms``: the model as imported, without rewrites, which is what
    ``speedup`` compares with; ``cleanup_speedup`` is how much faster that is than the model as it came (its interval is
    known where the two were compared by themselves). All three times are ``None`` where no clock was used (an analytic
    cost model).
    ``cost_before_ms`` and ``cost_after_ms`` are the cost model's. ``measurements_before``: those of
    ``measurements`` that pricing the model took before the search. ``written``: where the result is, ``None`` if it was
    only returned. ``seconds_measuring``: the part of ``seconds_total`` in which the cost model looked up or took
    measurements; the final comparison's is ``gate["seconds"]``. ``stages``: the seconds of each stage, in their order
    (see :class:`Stages`); ``parts``: the seconds that a stage could have of a budget of seconds.
    ``rule_profile``: what each rule took, the dearest first (the fields of ``rlflow.search.RuleUse``), or ``None``
    where nobody asked. ``rounding``: what the rewrites spent of the tolerance, and which
    (:meth:`rlflow.rewrite.tolerance.RoundingBudget.bill`); ``None`` where there were none.
    ``statistics``: what every rule was good for in the search. ``peak_bytes_before``, ``peak_bytes_after``: what a
    fresh process needs at its peak to open the model from a file and run it once, beyond the runtime's own; ``None``
    where nothing was gained, or nobody could measure it. ``input``: the model's ``sha256`` and ``bytes`` as it came,
    and its ``graph``'s digest; ``environment``: see :func:`rlflow.report.surroundings.surroundings`; ``command``: the
    command line, where there was one.
    """

    model: str
    improved: bool
    reason: str
    strategy: str
    cost_model: str
    budget: str
    seed: int
    stop_reason: str
    cost_before_ms: float | None = None
    cost_after_ms: float | None = None
    original_ms: float | None = None
    baseline_ms: float | None = None
    optimized_ms: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    cleanup_speedup: float | None = None
    cleanup_ci95: tuple[float, float] | None = None
    intervals: Mapping[str, TimeInterval] = field(default_factory=dict)
    verified: Verified | None = None
    rounding: Mapping[str, Any] | None = None
    candidates: int = 0
    expansions: int = 0
    measurements: int = 0
    measurements_before: int = 0
    overweight: int = 0
    seconds: float = 0.0
    seconds_total: float = 0.0
    seconds_measuring: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    trace: Sequence[Mapping[str, Any]] | None = ()
    curve: Sequence[Mapping[str, Any]] = ()
    runtime: RuntimeInfo | None = None
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)
    bytes_before: int | None = None
    bytes_after: int | None = None
    peak_bytes_before: int | None = None
    peak_bytes_after: int | None = None
    rules: int = 0
    rule_profile: Sequence[Mapping[str, Any]] | None = None
    statistics: Mapping[str, Any] | None = None
    gate: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    written: str | None = None
    version: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None

    @property
    def gain(self) -> float:
        """How many times as fast the result is as the model as it came, by the clock, else by the cost model; 1 where
        nothing was gained.
        """
        if not self.improved:
            return 1.0
        before, after = self.original_ms, self.optimized_ms
        if before is None or after is None:
            before, after = self.cost_before_ms, self.cost_after_ms
        return before / after if before and after else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON. Numbers that are not finite become ``None``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["schema"], values["format"] = f"rlflow-report/{FORMAT}", FORMAT
        values["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        values["runtime"] = None if self.runtime is None else vars(self.runtime)
        values["verified"] = None if self.verified is None else _verified(self.verified)
        return _plain(values)


def rounding_sentence(rounding: Mapping[str, Any], most: int = 4) -> str:
    """What was spent of the tolerance, and by which rules, the dearest first."""
    rows = rounding["rules"]
    shown = [f"{row['rule']} ×{row['times']} {row['spent']:.2g}" for row in rows[:most]]
    if len(rows) > most:
        rest = sum(row["spent"] for row in rows[most:])
        shown.append(f"{len(rows) - most} other{'s' if len(rows) > most + 1 else ''} {rest:.2g}")
    by = f" ({', '.join(shown)})" if shown else ""
    spent, limit = rounding["spent"], rounding["limit"]
    return f"rounding error at most {spent:.2f} times the model's own, of {limit:g} tolerated{by}"


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of :meth:`Report.to_dict`."""
    return json.loads((Path(__file__).parent / "report.schema.json").read_text(encoding="utf-8"))


def group_trace(trace: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Rule names in the order of application; runs of one rule become one entry with their number."""
    return [(rule, len(list(steps))) for rule, steps in groupby(step["rule"] for step in trace)]


def _verified(verified: Verified) -> dict[str, Any]:
    return {
        **verified.detail,
        "passed": verified.passed,
        "outputs": [figures._asdict() for figures in verified.outputs],
        "notes": list(verified.notes),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value
