"""Statistics of paired timings: estimates, intervals and a test that make no assumption of normality.

Pure numpy, no clock of its own.

Latencies have long right tails and drift with the machine, so everything here works on ranks of paired logarithms:
the signed-rank test (Wilcoxon 1945) and the interval that inverts it, around the Hodges-Lehmann estimate (Hodges and
Lehmann 1963; Lehmann, "Nonparametrics", chapter 4).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlflow.errors import CostError
from rlflow.price.student import student_quantile

#: Up to this many pairs the distribution of the signed-rank sum is computed exactly.
EXACT_PAIRS = 60


#: Fewer values than this have no interval by ranks at 95 %.
RANKED = 6


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval; an end is infinite where the sample is too small to bound
    it.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Speedup:
    """Time before divided by time after (above 1 is faster), its 95 % interval, and the one-sided p value of "not
    faster at all".
    """

    value: float
    low: float
    high: float
    p_value: float
    pairs: int


def signed_rank_p(differences: Sequence[float] | np.ndarray) -> float:
    """One-sided p value of the signed-rank test: how likely a sum of positive ranks this large is if the differences
    are symmetric around 0.

    Zeros are dropped, ties get their mean rank; the distribution is exact given the ties for up to ``EXACT_PAIRS``
    pairs, and normal with tie and continuity correction above. No pairs, or only zeros, give 1.
    """
    values = _finite(differences)
    values = values[values != 0.0]
    if values.size == 0:
        return 1.0
    doubled = _doubled_ranks(np.abs(values))
    observed = int(doubled[values > 0].sum())
    if values.size <= EXACT_PAIRS:
        return float(_rank_sum_distribution(tuple(np.sort(doubled).tolist()))[observed:].sum())
    mean, deviation = doubled.sum() / 2.0, math.sqrt(float((doubled.astype(float) ** 2).sum())) / 2.0
    return _normal_tail((observed - mean - 1.0) / deviation)


def standard_error(values: Sequence[float] | np.ndarray) -> float:
    """Of the mean; infinite for fewer than 2 values."""
    sample = _finite(values)
    return float(np.std(sample, ddof=1)) / math.sqrt(sample.size) if sample.size > 1 else math.inf


def hodges_lehmann(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Median of all pairwise means, with the interval that inverts the two-sided signed-rank test.

    Fewer than 6 values cannot bound a 95 % interval; its ends are then infinite.
    """
    sample = _finite(values)
    if sample.size == 0:
        raise CostError("An average of no samples was asked for; time the models first.")
    rows, columns = np.triu_indices(sample.size)
    means = np.sort((sample[rows] + sample[columns]) / 2.0)
    skip = _signed_rank_quantile(sample.size, (1.0 - confidence) / 2.0)
    if skip < 0:
        return Interval(float(np.median(means)), -math.inf, math.inf)
    return Interval(float(np.median(means)), float(means[skip]), float(means[-1 - skip]))


def median_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """The median with a distribution-free interval from order statistics (binomial with probability one half); of
    three to five values, which these cannot bound at 95 %, with Student's.
    """
    sample = np.sort(_finite(values))
    if sample.size == 0:
        raise CostError("A median of no samples was asked for; time the models first.")
    skip = _tail_count(_binomial_half(sample.size), (1.0 - confidence) / 2.0)
    middle = float(np.median(sample))
    if skip < 0 and 3 <= sample.size < RANKED:
        return _student_interval(sample, confidence, middle)
    if skip < 0:
        return Interval(middle, -math.inf, math.inf)
    return Interval(middle, float(sample[skip]), float(sample[-1 - skip]))


def log_ratios(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Paired ``log(before / after)``; durations must be positive."""
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if before.shape != after.shape:
        raise CostError(f"Paired timings need as many samples before as after; got {before.shape} and {after.shape}.")
    if before.size and (before.min() <= 0 or after.min() <= 0):
        raise CostError(
            "A duration of zero or less was measured; the clock is too coarse for this model, so sum more runs."
        )
    return np.log(before) - np.log(after)


def speedup(ratios: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Speedup:
    """Estimate, interval and significance of a speed-up from paired log ratios (see :func:`log_ratios`).

    The interval is by ranks; of three to five values, which ranks cannot bound, it is Student's.
    """
    values = _finite(ratios)
    by_ranks = not 3 <= values.size < RANKED
    centre = hodges_lehmann(values, confidence)
    centre = centre if by_ranks else _student_interval(values, confidence, centre.value)
    low, high = (math.exp(end) if end < 700 else math.inf for end in (centre.low, centre.high))
    return Speedup(math.exp(centre.value), low, high, signed_rank_p(values), int(values.size))


def _student_interval(values: np.ndarray, confidence: float, middle: float) -> Interval:
    """Around ``middle``."""
    reach = student_quantile(max(values.size - 1, 1), 1.0 - confidence) * standard_error(values)
    return Interval(middle, middle - reach, middle + reach)


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    sample = np.asarray(values, dtype=float).ravel()
    if not np.isfinite(sample).all():
        raise CostError(
            "A timing sample holds a value that is not finite, so it cannot be averaged; time the models again."
        )
    return sample


def _doubled_ranks(magnitudes: np.ndarray) -> np.ndarray:
    """Twice the mean ranks: integers also where ties share a rank."""
    ordered = np.sort(magnitudes)
    first = np.searchsorted(ordered, magnitudes, side="left")
    last = np.searchsorted(ordered, magnitudes, side="right")
    return (first + last + 1).astype(np.int64)


@functools.lru_cache(maxsize=64)
def _rank_sum_distribution(ranks: tuple[int, ...]) -> np.ndarray:
    """Probability of each sum of a subset of ``ranks`` when every rank is in or out with probability one half."""
    law = np.zeros(sum(ranks) + 1)
    law[0] = 1.0
    for rank in ranks:
        law[rank:] += law[: law.size - rank].copy()
        law *= 0.5
    return law


def _signed_rank_quantile(count: int, tail: float) -> int:
    """Number of outermost pairwise means to skip on either side, -1 where even none gives the confidence."""
    if count <= EXACT_PAIRS:
        return _tail_count(_rank_sum_distribution(tuple(range(1, count + 1))), tail)
    mean, deviation = count * (count + 1) / 4.0, math.sqrt(count * (count + 1) * (2 * count + 1) / 24.0)
    return max(-1, math.floor(mean - _normal_quantile(1.0 - tail) * deviation) - 1)


def _tail_count(law: np.ndarray, tail: float) -> int:
    """Largest k such that the first k + 1 probabilities sum to at most ``tail``; -1 where the first exceeds it."""
    return int(np.searchsorted(np.cumsum(law), tail * (1 + 1e-12), side="right")) - 1


def _binomial_half(count: int) -> np.ndarray:
    logs = np.array(
        [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    )
    return np.exp(logs - count * math.log(2.0))


def _normal_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def _normal_quantile(probability: float) -> float:
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if 1.0 - _normal_tail(middle) < probability else (low, middle)
    return (low + high) / 2.0
