"""Prices of regions that nobody measured, from those that somebody did: for ranking, never for deciding.

Regions of one kind and with the same operators differ in size. Over the logarithms of their work (float operations) and
of their traffic (bytes across the border), the logarithm of the time is nearly linear, so it is fitted by ridge
regression; what the line leaves over (a cache that is too small, a shape that fills no vector) is taken from the
nearest measured regions, weighted by inverse squared distance (Shepard 1968). Nothing is estimated far from everything
that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

#: Fewer measured regions of a kind say nothing about another one.
FEWEST = 6
#: Factor in work and traffic beyond which the nearest measured region is too far away.
FARTHEST = 4.0
_NEIGHBOURS = 5
_RIDGE = 1e-3
_NEAR = 1e-3  # squared distance in natural logarithms that counts as the same size


class TimedRegion(NamedTuple):
    """One measured region: what it is, its float operations and bytes, and its milliseconds."""

    kind: str
    operators: str
    flops: float
    bytes: float
    ms: float


class Estimate(NamedTuple):
    """Milliseconds, the number of measured regions that they follow from, and the median relative error that such
    estimates make on those (each left out in turn).
    """

    ms: float
    samples: int
    error: float


class Interpolation:
    """Estimates from a growing set of measured regions."""

    def __init__(self, samples: Iterable[TimedRegion] = ()) -> None:
        self._groups: dict[tuple[str, str], list[TimedRegion]] = {}
        self._fits: dict[tuple[str, str], _Fit] = {}
        for sample in samples:
            self.add(sample)

    def add(self, sample: TimedRegion) -> None:
        """Learn from one more region; times of zero and unknown sizes are passed over."""
        if sample.ms > 0 and sample.operators and (sample.flops > 0 or sample.bytes > 0):
            key = (sample.kind, sample.operators)
            self._groups.setdefault(key, []).append(sample)
            self._fits.pop(key, None)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def estimate(self, kind: str, operators: str, flops: float, size: float) -> Estimate | None:
        """The time of a region of ``flops`` operations and ``size`` bytes; ``None`` where too little like it was
        measured.
        """
        key = (kind, operators)
        group = self._groups.get(key, [])
        if len(group) < FEWEST:
            return None
        fit = self._fits.get(key) or self._fits.setdefault(key, _Fit(group))
        return fit.at(_place(flops, size))

    def errors(self) -> Mapping[tuple[str, str], float]:
        """Median relative error of estimates by kind and operators, each measured region left out in turn."""
        found = {}
        for key, group in self._groups.items():
            if len(group) >= FEWEST:
                found[key] = (self._fits.get(key) or self._fits.setdefault(key, _Fit(group))).error
        return found


class _Fit:
    """A line through one group, and what it leaves over."""

    def __init__(self, group: list[TimedRegion]) -> None:
        self.places = np.array([_place(sample.flops, sample.bytes) for sample in group])
        self.times = np.log([sample.ms for sample in group])
        self._error: float | None = None

    @property
    def error(self) -> float:
        if self._error is None:
            self._error = self._left_out()
        return self._error

    def at(self, place: np.ndarray) -> Estimate | None:
        distances = np.abs(self.places - place).max(axis=1)
        if distances.min() > math.log(FARTHEST):
            return None
        return Estimate(math.exp(_predicted(self.places, self.times, place)), len(self.times), self.error)

    def _left_out(self) -> float:
        """Median relative error over at most 100 of the samples, evenly spread."""
        chosen = np.unique(np.linspace(0, len(self.times) - 1, 100).astype(int))
        errors = []
        for index in chosen:
            rest = np.arange(len(self.times)) != index
            guess = _predicted(self.places[rest], self.times[rest], self.places[index])
            errors.append(abs(math.expm1(guess - self.times[index])))
        return float(np.median(errors))


def _place(flops: float, size: float) -> np.ndarray:
    return np.log(np.array([flops + 1.0, size + 1.0]))


def _predicted(places: np.ndarray, times: np.ndarray, place: np.ndarray) -> float:
    """Logarithm of the time at ``place``: the ridge line, corrected by the nearest neighbours' residuals."""
    middle, level = places.mean(axis=0), times.mean()
    centred = places - middle
    normal = centred.T @ centred + _RIDGE * len(times) * np.eye(2)
    slope = np.linalg.solve(normal, centred.T @ (times - level))
    residuals = times - level - centred @ slope
    squared = ((places - place) ** 2).sum(axis=1)
    nearest = np.argsort(squared, kind="stable")[:_NEIGHBOURS]
    weights = 1.0 / (squared[nearest] + _NEAR)
    return float(level + (place - middle) @ slope + (weights @ residuals[nearest]) / weights.sum())
