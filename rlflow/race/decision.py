"""What the final comparison found, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class ModelTiming(NamedTuple):
    """Latency of one model in milliseconds per run: median by the deciding clock, its 95 % interval, and the median
    by the wall clock. ``p99``, ``wall_p99``: of a hundred samples one is slower, by either clock; a sample of a model
    that takes less than a millisecond is the mean of as many runs as fill one.
    """

    ms: float
    low: float
    high: float
    wall_ms: float
    rounds: int
    p99: float | None = None
    wall_p99: float | None = None

    def at_pace(self, ms: float) -> ModelTiming:
        """The same where the machine is so fast that the median is ``ms``."""
        factor, p99, wall_p99 = ms / self.ms, self.p99, self.wall_p99
        return ModelTiming(
            ms,
            self.low * factor,
            self.high * factor,
            self.wall_ms * factor,
            self.rounds,
            None if p99 is None else p99 * factor,
            None if wall_p99 is None else wall_p99 * factor,
        )


@dataclass(frozen=True)
class GateDecision:
    """What the gate found. ``winner`` is the name of the accepted candidate or ``None``; ``reason`` says why, in a
    sentence.

    Speed-up, interval and p value are those of the confirmation (of ``challenger``, the candidate chosen on the first
    sample), ``None`` where nothing reached it. ``timings`` come from the confirmation, or from the first sample where
    there was no confirmation. ``beside``: of each model that was timed beside, by block, the logarithm of how many
    times as fast the challenger is (of the baseline where there is none). ``drift`` is how much slower (above 1) the
    baseline ran in the last blocks than in the first; both sides of every ratio share it. ``earlier``: the kept
    comparison that was looked at (:func:`rlflow.race.evidence.plain`); where it was used, ``blocks``, ``rounds`` and
    ``timings`` are of the fresh ones, and speed-up, interval and p value of both together.
    """

    winner: str | None
    reason: str
    clock: str
    baseline: str
    challenger: str | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    p_value: float | None = None
    timings: Mapping[str, ModelTiming] = field(default_factory=dict)
    first_sample: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    blocks: int = 0
    rounds: int = 0
    seconds: float = 0.0
    drift: float | None = None
    interrupted: bool = False
    earlier: Mapping[str, Any] | None = None
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def improved(self) -> bool:
        return self.winner is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an unbounded end of an interval is ``None``."""
        values = asdict(self) | {"improved": self.improved}
        values["timings"] = {name: timing._asdict() for name, timing in self.timings.items()}
        return _plain(values)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
