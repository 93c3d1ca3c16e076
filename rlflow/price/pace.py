"""How fast the machine was while something was timed, and what it would have taken at the machine's best pace.

A machine that others share is slower for some seconds or minutes, and not by one factor: what computes takes 2 to 6 %
longer or shorter from one tenth of a second to the next, what reads memory 15 to 40 %. So two things are timed beside
every sample of a region that takes long: a convolution that stays in the near caches (``computing``) and a walk through
memory, which clears the caches anyway (``walking``). A region's time is split between the two by least absolute
deviations, neither part below nothing, and its price is what both parts take at the machine's best pace: the lowest
decile of all that was timed beside the regions of a first graph, kept in the price database, so that prices of other
hours stand on one footing.

Of 27 samples of each of 19 models, taken over half a minute on such a machine, the standard deviation fell from 2.9 to
1.3 % (convolution), 2.9 to 1.9 % (product), 13 to 7 % (depthwise convolution), 5.5 to 4.7 % (product with one row). The
convolution alone left the depthwise one at 12 %, the walk alone took the first one to 7.5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rlflow.graph import Graph, GraphBuilder
from rlflow.runtime import Measurement

#: Percentile of the references' times that counts as the machine's best: single samples are luckier than a region is.
BEST = 10.0
_PASSES = 12
#: Residuals below this part of a sample weigh the same: as least squares near the middle.
_SMALLEST = 0.02
_FLOAT = 1
#: The reference convolution, 3x3: about 120 million operations, a millisecond on one core, and less memory than a
#: second-level cache holds.
_CHANNELS, _EXTENT = 64, 40
_DIGEST = 0x9B0BF << 64


class Pace(NamedTuple):
    """Milliseconds of the two references: a convolution, and a walk through memory."""

    computing_ms: float
    walking_ms: float


def reference() -> Graph:
    """The convolution that is timed beside every sample."""
    builder = GraphBuilder()
    value = builder.input("x", _FLOAT, [1, _CHANNELS, _EXTENT, _EXTENT])
    weight = builder.constant(_FLOAT, [_CHANNELS, _CHANNELS, 3, 3], f"{_DIGEST:032x}", None, None)
    how = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1], "group": 1}
    return builder.finish([builder.add("Conv", how, [value, weight])])


def pace_of(measurements: Iterable[Measurement]) -> Pace | None:
    """The best pace while these were timed; ``None`` where nothing was timed beside any."""
    rows = [row[1:] for one in measurements for row in one.beside]
    return Pace(*(float(value) for value in np.percentile(rows, BEST, axis=0))) if rows else None


def at_pace(one: Measurement, pace: Pace | None) -> Measurement:
    """What this took, at that pace; as it was where nothing was timed beside it. The spread is that of the samples
    after the pace of each is taken out.
    """
    if pace is None or not one.beside:
        return one
    took, shares = _relative(one.beside, pace)
    parts = split(shares / took[:, None])
    low, high = np.percentile(took / (shares @ parts), [25, 75])
    ms = float(parts.sum())
    return one._replace(ms=ms, spread_ms=ms * float(high - low))


def residuals(rows: Sequence[Sequence[tuple[float, float, float]]]) -> list[float]:
    """By how much each session was off (logarithm of the median over its samples) what the pace of its samples and the
    split over all sessions say; sessions of ``(own, computing, walking)`` milliseconds.
    """
    together = [row for session in rows for row in session]
    took, shares = _relative(together, Pace(1.0, 1.0))
    off = np.log(took / (shares @ split(shares / took[:, None])))
    ends = np.cumsum([len(session) for session in rows])[:-1]
    return [float(np.median(part)) for part in np.split(off, ends)]


def split(inputs: np.ndarray) -> np.ndarray:
    """The two parts, none below nothing, whose sum over the columns of ``inputs`` (float64 ``[samples, 2]``, each in
    units of the sample's own time) is closest to 1: least absolute deviations by reweighted least squares.
    """
    weights = np.ones(len(inputs))
    found = np.zeros(2)
    for _ in range(_PASSES):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(inputs * root[:, None], root, rcond=None)[0]
        if found.min() < 0.0:
            # The best point of a quadrant's edge: one part is nothing, the other the best by itself.
            along, square = weights @ inputs, weights @ inputs**2
            best = int(np.argmax(along**2 / square))
            found = np.zeros(2)
            found[best] = along[best] / square[best]
        weights = 1.0 / np.maximum(np.abs(inputs @ found - 1.0), _SMALLEST)
    return found


def _relative(rows: Sequence[tuple[float, float, float]], pace: Pace) -> tuple[np.ndarray, np.ndarray]:
    """The samples' own times, and the references beside them in units of the usual ones."""
    table = np.maximum(np.asarray(rows, dtype=float), 1e-9)
    return table[:, 0], table[:, 1:] / np.asarray(pace)
