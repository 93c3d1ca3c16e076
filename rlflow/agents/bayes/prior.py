"""What a region may take before it was timed: an estimate from regions that were, and how wrong it is.

The logarithm of a region's time over its roofline is a Gaussian process (Rasmussen and Williams 2006, chapter 2), one
for each operator that has the work. Two regions are alike in that operator, in all of their operators, in how these
are applied (:mod:`rlflow.price.traits`), and in size; the more alike, the more one says about the other. So a
transposition is known from transpositions, better from those of the same axes, best from those of about the same size,
and what nobody timed anything like is uncertain by as much. Without any timed region there is the roofline alone, and
nearly anything may be so: that is the untrained double.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import ModelError
from rlflow.price import Price
from rlflow.price.traits import CONVOLUTION, MATRIX, SIZES, Traits, traits_by_name

#: Roofline of what nothing is known about (60 Gflop/s, 12 GB/s, 2 us a region).
_FLOPS_PER_MS, _BYTES_PER_MS, _OVERHEAD_MS = 60e6, 12e6, 0.002
#: Standard deviation of the logarithm of a time over its roofline where nothing like it was timed.
UNKNOWN = 0.7
#: Examples of a process: inverting the covariance of so many takes half a second.
MOST = 1500
_FIELDS = ("region", "operators", "flops", "bytes", "ms")


class Example(NamedTuple):
    """A timed region: its kind, its operators joined by spaces, float operations, bytes across its border, and
    milliseconds.
    """

    kind: str
    operators: str
    flops: float
    bytes: float
    traits: Traits
    ms: float


class Guess(NamedTuple):
    """Milliseconds; and, as parts of these, the standard deviations of what regions of the same operators have in
    common (``shared``), and of what is the region's ``own``.
    """

    ms: float
    shared: float
    own: float

    @classmethod
    def of(cls, ms: float, spread: float) -> Guess:
        """``spread``: of both together, as a part of ``ms``."""
        return cls(ms, spread * math.sqrt(_SHARED), spread * math.sqrt(1.0 - _SHARED))


class Prior:
    """Guesses from timed regions."""

    def __init__(self, timed: Iterable[Example] = ()) -> None:
        known: defaultdict[str, list[Example]] = defaultdict(list)
        for one in timed:
            if one.ms > 0:
                known[_class(one.traits.main)].append(one)
        self._processes = {name: _Process(_spread(_merged(examples))) for name, examples in known.items()}
        self._usual = statistics.median([one.level for one in self._processes.values()] or [0.0])

    def __len__(self) -> int:
        return sum(map(len, self._processes.values()))

    @classmethod
    def of_prices(cls, prices: Iterable[Price]) -> Prior:
        """From what the price database keeps; prices without a region's operators are passed over."""
        return cls(
            Example(one.kind, one.operators, one.flops, one.bytes, _traits_of(one), one.ms)
            for one in prices
            if one.ms and one.operators
        )

    @classmethod
    def read(cls, path: Path | str) -> Prior:
        """From a file of JSON lines, one a timed region (``region``, ``operators``, ``flops``, ``bytes``, ``ms``, and
        ``traits``: main operator, detail, sizes); other lines are passed over.

        Raises :class:`ModelError` for a file that cannot be read, or holds no timed region.
        """
        try:
            rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
            prior = cls(examples_of(rows))
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise ModelError(f"The timed regions of {path} cannot be read: {error}") from error
        if not len(prior):
            raise ModelError(f"{path} holds no timed region; expected JSON lines with {', '.join(_FIELDS)}.")
        return prior

    def guess(self, kind: str, operators: str, flops: float, size: float, traits: Traits | None = None) -> Guess:
        """Of a region of ``flops`` float operations and ``size`` bytes across its border."""
        base = roofline(flops, size)
        asked = Example(kind, operators, flops, size, traits or traits_by_name(operators), base)
        process = self._processes.get(_class(asked.traits.main))
        if process is None:
            return Guess(base * math.exp(self._usual), UNKNOWN, UNKNOWN)
        level, spread = process.predict(asked)
        return Guess.of(base * math.exp(level), spread)


def examples_of(rows: Iterable[dict[str, Any]]) -> list[Example]:
    """The timed regions among rows of JSON."""
    return [
        Example(str(row["region"]), str(row["operators"]), float(row["flops"]), float(row["bytes"]), _traits(row),
                float(row["ms"]))
        for row in rows
        if row.get("ms") and "operators" in row
    ]  # fmt: skip


def _traits_of(price: Price) -> Traits:
    return Traits.parse(price.traits) if price.traits else traits_by_name(price.operators)


def roofline(flops: float, size: float) -> float:
    """Milliseconds of so many float operations and bytes."""
    return max(flops / _FLOPS_PER_MS, size / _BYTES_PER_MS) + _OVERHEAD_MS


def _traits(row: dict[str, Any]) -> Traits:
    told = row.get("traits")
    return traits_by_name(str(row["operators"])) if told is None else Traits.of(told)


def _class(main: str) -> str:
    """Operators that share a process."""
    return "MatMul" if main in MATRIX else "Conv" if main in CONVOLUTION else main


def _merged(examples: Sequence[Example]) -> list[Example]:
    """Those that cannot be told apart as one, with the median of their times."""
    alike: defaultdict[Example, list[float]] = defaultdict(list)
    for one in examples:
        alike[one._replace(ms=0.0)].append(one.ms)
    return [one._replace(ms=statistics.median(times)) for one, times in alike.items()]


def _spread(examples: list[Example]) -> list[Example]:
    """All of them, or MOST that are spread evenly over kinds, operators and sizes."""
    if len(examples) <= MOST:
        return examples
    examples = sorted(examples)
    return [examples[k * len(examples) // MOST] for k in range(MOST)]


# --- the process --------------------------------------------------------------------------------------------------

#: Part of a guess's variance that regions of the same operators have in common.
_SHARED = 0.2
#: Standard deviations of what regions of one process share whatever their size: all of them, those of the same main
#: operator, of the same operators, of the same detail.
_ALIKE = np.array([0.6, 0.5, 0.4, 0.4])
#: The same of what only those of about the same size share; and how far sizes reach, in natural logarithms: float
#: operations, bytes, and the traits' own.
_NEAR, _REACH = np.array([0.03, 0.15, 0.1, 0.15]), np.array([1.6, 1.6, *[3.0] * SIZES])
#: The same of those whose sizes are a third as far apart at most, with the same detail.
_CLOSE, _CLOSER = 0.1, 3.0
#: Noise of a timed region: a part of its time, and milliseconds.
_NOISE, _TICK_MS = 0.05, 0.01
#: Operations and bytes below which sizes hardly matter.
_FEW_FLOPS, _FEW_BYTES = 1e3, 1e2


class _Process:
    """One Gaussian process. ``level``: what its examples have in common, the median logarithm of a time over its
    roofline.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self._codes = [dict[str, int]() for _ in _names(examples[0])]
        self._places = np.array([_place(one) for one in examples])
        self._labels = np.array([self._numbers(one, new=True) for one in examples])
        base = np.array([roofline(one.flops, one.bytes) for one in examples])
        times = np.array([one.ms for one in examples])
        off = np.log(times / base)
        self.level = float(np.median(off))
        noise = _NOISE**2 + (_TICK_MS / np.maximum(times, base)) ** 2
        self._noise, self._off = noise, off - self.level

    def __len__(self) -> int:
        return len(self._off)

    @functools.cached_property
    def _inverse(self) -> np.ndarray:
        """Of the examples' covariance; made when a model has such a region."""
        found: np.ndarray = np.linalg.inv(self._covariance(self._labels, self._places) + np.diag(self._noise))
        return found

    @functools.cached_property
    def _weights(self) -> np.ndarray:
        found: np.ndarray = self._inverse @ self._off
        return found

    def predict(self, asked: Example) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm of its time over its roofline."""
        label, place = np.array([self._numbers(asked)]), np.array([_place(asked)])
        across = self._covariance(label, place)[0]
        own = float((_ALIKE**2).sum() + (_NEAR**2).sum() + _CLOSE**2)
        variance = own - float(across @ self._inverse @ across)
        return self.level + float(across @ self._weights), math.sqrt(max(variance, 0.0) + _NOISE**2)

    def _covariance(self, labels: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of [n, 4] labels at [n, 2 + SIZES] places with the examples: [n, examples]."""
        same = labels[:, None, :] == self._labels[None]
        far = np.zeros(same.shape[:2])
        for mine, theirs in zip(places.T, self._places.T, strict=True):  # one axis at a time needs a seventh of memory
            far += (mine[:, None] - theirs[None]) ** 2
        near, close = np.exp(-0.5 * far), np.exp(-0.5 * _CLOSER**2 * far)
        found: np.ndarray = same @ _ALIKE**2 + near * (same @ _NEAR**2) + _CLOSE**2 * close * same[:, :, -1]
        return found

    def _numbers(self, one: Example, new: bool = False) -> list[int]:
        """Its labels as numbers; -1 for what no example has."""
        return [
            codes.setdefault(name, len(codes)) if new else codes.get(name, -1)
            for codes, name in zip(self._codes, _names(one), strict=True)
        ]


def _names(one: Example) -> tuple[str, str, str, str]:
    """Labels, each finer than the one before; the first is common to all of a process."""
    group = f"{one.kind}|{one.operators}"
    return "", one.traits.main, group, f"{group}|{one.traits.detail}"


def _place(one: Example) -> np.ndarray:
    sizes = (math.log(one.flops + _FEW_FLOPS), math.log(one.bytes + _FEW_BYTES), *one.traits.sizes)
    return np.array(sizes) / _REACH
