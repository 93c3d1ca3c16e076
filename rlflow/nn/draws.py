"""Draws from distributions that are plain arrays."""

from __future__ import annotations

import numpy as np


def draw(probabilities: np.ndarray, uniform: float) -> int:
    """The index at which the summed ``probabilities`` pass ``uniform`` in [0, 1) times their sum."""
    sums = np.cumsum(probabilities)
    return int(min(np.searchsorted(sums, uniform * sums[-1], side="right"), len(sums) - 1))
