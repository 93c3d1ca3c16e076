"""A price, where it holds, and the columns that both are kept in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlflow.price.traits import Traits

KEY = ("signature", "device", "runtime", "version", "threads", "level")
VALUES = (
    "ms", "spread_ms", "samples", "refusal", "measured_at", "clock", "kind", "operators", "flops", "bytes", "traits",
)  # fmt: skip
COLUMNS = (*KEY, *VALUES)


@dataclass(frozen=True)
class PriceContext:
    """Where prices hold: change any field and they must be measured anew."""

    device: str
    runtime: str
    version: str
    threads: int = 1
    level: str = "all"

    @classmethod
    def of(cls, description: Mapping[str, Any], level: str) -> PriceContext:
        """From what :meth:`rlflow.runtime.Worker.describe` returns."""
        runtime = description["runtime"]
        if description["provider"] != "CPUExecutionProvider":
            runtime = f"{runtime}/{description['provider']}"
        return cls(description["device"], runtime, description["version"], int(description["threads"]), level)

    @property
    def row(self) -> tuple[str, str, str, int, str]:
        """Its columns."""
        return self.device, self.runtime, self.version, self.threads, self.level


@dataclass(frozen=True)
class Price:
    """Median milliseconds, interquartile range and number of samples; or, with ``ms`` ``None``, the sentence of the
    runtime's refusal.

    ``clock`` says which clock it was and in which state; ``kind``, ``operators``, ``flops``, ``bytes`` and ``traits``
    (the text of :class:`rlflow.price.traits.Traits`) what was measured. Older versions wrote less, which is empty.
    """

    ms: float | None
    spread_ms: float | None = None
    samples: int = 0
    refusal: str | None = None
    measured_at: str = ""
    clock: str = ""
    kind: str = ""
    operators: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    traits: str = ""

    @property
    def sound(self) -> bool:
        """Whether all fields are of their kinds and the numbers possible."""
        texts = (self.measured_at, self.clock, self.kind, self.operators)
        numbers = (self.ms, self.spread_ms, self.samples, self.flops, self.bytes)
        refused = isinstance(self.refusal, str) if self.ms is None else True
        described = all(isinstance(text, str) for text in texts) and sound_traits(self.traits)
        return refused and described and all(map(sound_number, numbers))

    def row(self, now: str) -> tuple[Any, ...]:
        """Its columns; measured ``now``, unless it says when."""
        values = [getattr(self, name) for name in VALUES]
        values[VALUES.index("measured_at")] = self.measured_at or now
        return tuple(values)


class ContextSummary(NamedTuple):
    """What is known about one place: number of prices, of refusals among them, dates, and median relative spread."""

    context: PriceContext
    prices: int
    refusals: int
    oldest: str
    newest: str
    relative_spread: float | None


def sound_key(values: Sequence[Any]) -> bool:
    """Whether device, runtime, version, threads and level are of their kinds."""
    *texts, threads, level = values
    return isinstance(threads, int) and all(isinstance(text, str) for text in (*texts, level))


def sound_number(value: Any) -> bool:
    """Whether a duration, or the absence of one, is possible."""
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0)


def sound_traits(value: Any) -> bool:
    """Whether it is a text of traits, or the empty one."""
    try:
        return value == "" or (isinstance(value, str) and bool(Traits.parse(value)))
    except ValueError:
        return False
