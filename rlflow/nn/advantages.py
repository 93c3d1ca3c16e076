"""Advantages and returns of one episode at a time, so that nothing can leak from one into the next."""

from __future__ import annotations

import numpy as np


def advantages(
    rewards: np.ndarray, values: np.ndarray, bootstrap: float, gamma: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantages and the returns that a value function should predict (Schulman et al. 2016).

    ``rewards`` [t]; ``values`` [t]: the estimates at the states where the actions were taken. ``bootstrap``: the
    estimate at the state where the episode was cut off, and 0 where it *terminated*. Returns ``(advantages [t],
    advantages + values [t])``; with ``lam = 1`` the latter are the discounted sums of rewards.
    """
    rewards, values = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    following = np.append(values[1:], bootstrap)
    deltas = rewards + gamma * following - values
    out = np.empty_like(deltas)
    carried = 0.0
    for t in range(len(deltas) - 1, -1, -1):
        carried = out[t] = deltas[t] + gamma * lam * carried
    return out, out + values


def explained_variance(predicted: np.ndarray, actual: np.ndarray) -> float:
    """``1 - var(actual - predicted) / var(actual)``: 1 is perfect, 0 no better than the mean, or nothing varies."""
    spread = float(np.var(actual))
    return 0.0 if spread == 0 else 1.0 - float(np.var(np.asarray(actual) - np.asarray(predicted))) / spread
