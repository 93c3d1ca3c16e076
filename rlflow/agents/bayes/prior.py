"""What a region may take before anything was timed here: an estimate, and how wrong such estimates are.

Three levels, the first that knows something: regions of the same operators and about the same size
(:mod:`rlflow.price.interpolate`); the roofline times the median ratio of regions of the same operators; the roofline
times that of their kind. How wrong each level is, is learnt by leaving a region out at a time. Without any timed region
there is the roofline alone, and nearly anything may be so: that is the untrained double.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import ModelError
from rlflow.price.interpolate import Interpolation, TimedRegion

#: Roofline of what nothing is known about (60 Gflop/s, 12 GB/s, 2 us a region).
_FLOPS_PER_MS, _BYTES_PER_MS, _OVERHEAD_MS = 60e6, 12e6, 0.002
#: Relative spread of a roofline by itself, and the limits of what is learnt about the other levels.
UNKNOWN, _LEAST, _MOST = 0.7, 0.05, 0.7
#: From the median of absolute deviations to the standard deviation of a normal distribution.
_NORMAL = 1.4826
#: Fewer residuals say nothing about a level.
_FEW = 8
_FIELDS = ("region", "operators", "flops", "bytes", "ms")


class Guess(NamedTuple):
    """Milliseconds; and, as parts of these, the standard deviations of what regions of the same operators have in
    common (``shared``), and of what is the region's ``own``.
    """

    ms: float
    shared: float
    own: float


class Prior:
    """Guesses from timed regions of other models."""

    def __init__(self, timed: Iterable[TimedRegion] = ()) -> None:
        known = [one for one in timed if one.ms > 0]
        self._like = Interpolation(known)
        self._errors = self._like.errors()
        self._groups: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in known:
            self._groups[one.kind, one.operators].append(math.log(one.ms / roofline(one.flops, one.bytes)))
        self._kinds: dict[str, list[float]] = defaultdict(list)
        for (kind, _), ratios in self._groups.items():
            self._kinds[kind].append(statistics.median(ratios))
        self._within = _spread([off for ratios in self._groups.values() for off in _left_out(ratios)])
        self._between = _spread([off for ratios in self._kinds.values() for off in _left_out(ratios)])

    def __len__(self) -> int:
        return len(self._like)

    @classmethod
    def read(cls, path: Path | str) -> Prior:
        """From a file of JSON lines, one a timed region (``region``, ``operators``, ``flops``, ``bytes``, ``ms``);
        other lines are passed over.

        Raises :class:`ModelError` for a file that cannot be read, or holds no timed region.
        """
        try:
            rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
            prior = cls(timed_of(rows))
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise ModelError(f"The timed regions of {path} cannot be read: {error}") from error
        if not len(prior):
            raise ModelError(f"{path} holds no timed region; expected JSON lines with {', '.join(_FIELDS)}.")
        return prior

    def guess(self, kind: str, operators: str, flops: float, size: float) -> Guess:
        """Of a region of ``flops`` float operations and ``size`` bytes across its border."""
        base = roofline(flops, size)
        group, likes = self._groups.get((kind, operators), []), self._kinds.get(kind, [])
        found = self._like.estimate(kind, operators, flops, size)
        if found is not None:
            error = min(max(_NORMAL * self._errors[kind, operators], _LEAST), _MOST)
            return Guess(found.ms, error / 2, error)
        if group:
            return Guess(base * math.exp(statistics.median(group)), self._within / len(group) ** 0.5, self._within)
        if likes:
            return Guess(base * math.exp(statistics.median(likes)), self._between, self._within)
        return Guess(base, UNKNOWN, UNKNOWN)


def timed_of(rows: Iterable[dict[str, Any]]) -> list[TimedRegion]:
    """The timed regions among rows of JSON."""
    return [
        TimedRegion(str(row["region"]), str(row["operators"]), float(row["flops"]), float(row["bytes"]), row["ms"])
        for row in rows
        if row.get("ms") and "operators" in row
    ]


def roofline(flops: float, size: float) -> float:
    """Milliseconds of so many float operations and bytes."""
    return max(flops / _FLOPS_PER_MS, size / _BYTES_PER_MS) + _OVERHEAD_MS


def _left_out(values: Sequence[float]) -> list[float]:
    """How far each value is from the median of the others."""
    if len(values) < 2:
        return []
    return [one - statistics.median([*values[:i], *values[i + 1 :]]) for i, one in enumerate(values)]


def _spread(residuals: Sequence[float]) -> float:
    if len(residuals) < _FEW:
        return _MOST
    return min(max(_NORMAL * float(np.median(np.abs(residuals))), _LEAST), _MOST)
