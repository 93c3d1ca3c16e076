"""How well a cost model predicts the clock: figures over a model and its variants, each priced and timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlflow.errors import CostError

#: The variants' spread has to be this many times the clock's noise for their order to mean anything.
TELLING = 2.0
#: And the clock has to agree so well with itself, or no price could agree with it so well.
TELLING_RANK = 0.9
#: The clock tells two graphs apart whose times differ by so many standard errors, and at least by so much (logarithm).
CLEAR_ERRORS, CLEAR_DIFFERENCE = 3.0, 0.01
_DRAWS = 200


class Agreement(NamedTuple):
    """Predicted against measured times of several graphs.

    ``error``: median of |predicted / measured - 1|. ``scaled_error``: the same for all but the first, after the factor
    that sets the first (the original) right: what all share moves no decision. ``spearman``: rank correlation (Spearman
    1904), ``None`` where all of one side are equal. ``spread``: standard deviation of the logarithm of the measured
    times; ``noise``: that of their own errors, in the median. ``telling``: whether the spread exceeds the noise enough
    for ranks to mean anything: ``TELLING`` times, and ``attainable`` is at least ``TELLING_RANK``.

    ``attainable``: the rank correlation of the measured times with themselves measured once more, which no price can
    be expected to exceed. ``pairs``: pairs of graphs that the clock tells apart (by one per cent and three standard
    errors); ``ordered``: the part of them that the price puts in the right order, ``None`` where there is none.
    """

    graphs: int
    error: float
    scaled_error: float
    spearman: float | None
    spread: float
    noise: float
    telling: bool
    attainable: float | None = None
    pairs: int = 0
    ordered: float | None = None


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
    pairs, ordered = _in_order(guess, truth, np.asarray(errors, dtype=float))
    noise = float(np.median(errors))
    spread = float(np.std(np.log(truth)))
    attainable = _attainable(truth, np.asarray(errors, dtype=float))
    return Agreement(
        int(guess.size),
        float(np.median(np.abs(np.expm1(ratios)))),
        float(np.median(np.abs(np.expm1(ratios[1:] - ratios[0])))) if guess.size > 1 else 0.0,
        spearman(guess, truth),
        spread,
        noise,
        bool(spread > TELLING * noise and (attainable or 0.0) >= TELLING_RANK),
        attainable,
        pairs,
        ordered,
    )


def _attainable(truth: np.ndarray, errors: np.ndarray) -> float | None:
    """Mean over seeded draws of the errors; a little too high, because the measured times hold errors already."""
    rng = np.random.default_rng(0)
    found = [spearman(truth, truth * np.exp(rng.normal(0.0, errors))) for _ in range(_DRAWS)]
    known = [one for one in found if one is not None]
    return float(np.mean(known)) if known else None


def _in_order(guess: np.ndarray, truth: np.ndarray, errors: np.ndarray) -> tuple[int, float | None]:
    one, other = np.triu_indices(truth.size, 1)
    difference = np.log(truth[one] / truth[other])
    width = CLEAR_ERRORS * np.hypot(errors[one], errors[other])
    clear = np.abs(difference) > np.maximum(width, CLEAR_DIFFERENCE)
    if not clear.any():
        return 0, None
    right = np.sign(difference) == np.sign(np.log(guess[one] / guess[other]))
    return int(clear.sum()), float(right[clear].mean())


def spearman(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float | None:
    """Correlation of mean ranks, from -1 to 1; ``None`` where one side does not vary."""
    first, second = _ranks(np.asarray(one, dtype=float)), _ranks(np.asarray(other, dtype=float))
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return None if scale == 0.0 else float((first * second).sum() / scale)


def _ranks(values: np.ndarray) -> np.ndarray:
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2.0
