"""Student's t distribution, the one place that knows it (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""

from __future__ import annotations

import functools
import math


def student_tail(t: float, freedom: int) -> float:
    """Probability that Student's t with ``freedom`` degrees exceeds ``t``."""
    theta = math.atan2(abs(t), math.sqrt(freedom))
    cosine = math.cos(theta)
    term, total = (cosine, cosine) if freedom % 2 else (1.0, 1.0)
    for k in range(2 if freedom % 2 else 1, freedom - 2, 2):
        term *= cosine * cosine * k / (k + 1)
        total += term
    inside = math.sin(theta) * total  # of the probability that |t| is smaller
    if freedom % 2:
        inside = 2.0 / math.pi * (theta + (inside if freedom > 1 else 0.0))
    return 0.5 * (1.0 - inside) if t > 0 else 0.5 * (1.0 + inside)


@functools.cache
def student_quantile(freedom: int, alpha: float) -> float:
    """What Student's t exceeds, in magnitude, with probability ``alpha``; by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if 2.0 * student_tail(middle, freedom) > alpha else (low, middle)
    return high
