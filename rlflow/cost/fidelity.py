"""How well a cost model predicts the clock: figures over a model and its variants, each priced and timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlflow.errors import CostError

#: The variants' spread has to be this many times the clock's noise for their order to mean anything.
TELLING = 2.0


class Agreement(NamedTuple):
    """Predicted against measured times of several graphs.

    ``error``: median of |predicted / measured - 1|. ``scaled_error``: the same for all but the first, after the factor
    that sets the first (the original) right: what all share moves no decision. ``spearman``: rank correlation (Spearman
    1904), ``None`` where all of one side are equal. ``spread``: standard deviation of the logarithm of the measured
    times; ``noise``: that of their own errors, in the median. ``telling``: whether the spread exceeds the noise enough
    for ranks to mean anything.
    """

    graphs: int
    error: float
    scaled_error: float
    spearman: float | None
    spread: float
    noise: float
    telling: bool


def agreement(predicted: Sequence[float], measured: Sequence[float], errors: Sequence[float]) -> Agreement:
    """The figures; ``errors``: standard errors of the measured times' logarithms.

    Raises :class:`CostError` for lists of different lengths, none, or times that are not above zero.
    """
    guess, truth = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
    if not (guess.shape == truth.shape == np.shape(errors) and guess.size):
        raise CostError(
            f"Predictions are compared with as many measurements; got {guess.size} and {truth.size}, "
            f"with {len(errors)} errors of these."
        )
    if not ((guess > 0).all() and (truth > 0).all()):
        raise CostError("A predicted or measured time is zero or less, so no ratio of the two can be taken.")
    ratios = np.log(guess / truth)
    noise = float(np.median(errors))
    spread = float(np.std(np.log(truth)))
    return Agreement(
        int(guess.size),
        float(np.median(np.abs(np.expm1(ratios)))),
        float(np.median(np.abs(np.expm1(ratios[1:] - ratios[0])))) if guess.size > 1 else 0.0,
        spearman(guess, truth),
        spread,
        noise,
        bool(spread > TELLING * noise),
    )


def spearman(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float | None:
    """Correlation of mean ranks, from -1 to 1; ``None`` where one side does not vary."""
    first, second = _ranks(np.asarray(one, dtype=float)), _ranks(np.asarray(other, dtype=float))
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return None if scale == 0.0 else float((first * second).sum() / scale)


def _ranks(values: np.ndarray) -> np.ndarray:
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2.0
