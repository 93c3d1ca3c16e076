"""Slices of outputs against the noise that is in them, on arrays alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlflow.equivalence.slices import excess

EPS = np.float32(2.0**-23)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def noisy(array: np.ndarray, units: float = 1.0, seed: int = 1) -> np.ndarray:
    """Every element moved by about ``units`` roundings of its own."""
    return array * (1 + np.float32(units) * EPS * normal(*array.shape, seed=seed))


def changed(array: np.ndarray, at: object, by: object) -> np.ndarray:
    copy = array.copy()
    copy[at] = by
    return copy


CHANNELS = normal(1, 8, 6, 6) * np.float32([1, 1, 1e-4, 1, 1e-6, 1, 1, 1]).reshape(1, 8, 1, 1)
VARIANTS = [[noisy(CHANNELS, seed=seed)] for seed in (2, 3, 4)]


@pytest.mark.parametrize(
    ("what", "other", "words"),
    [
        ("nothing", CHANNELS, None),
        ("noise of the same size", noisy(CHANNELS, seed=9), None),
        ("three times the noise", noisy(CHANNELS, 3.0, seed=9), None),
        ("a small channel off", changed(CHANNELS, (0, 2), CHANNELS[0, 2] * np.float32(1.01)), "slice 2 of axis 1"),
        ("a tiny channel zeroed", changed(CHANNELS, (0, 4), 0.0), "slice 4 of axis 1"),
        ("one element of a row", changed(CHANNELS, (0, 1, 3, 2), CHANNELS[0, 1, 3, 2] + 1e-3), "differs by 0.001"),
        ("NaN", changed(CHANNELS, (0, 0, 0, 0), np.nan), "NaN or infinite"),
    ],
)  # fmt: skip
def test_channels_of_different_scales(what: str, other: np.ndarray, words: str | None) -> None:
    found = excess([CHANNELS], [other], VARIANTS, "float32")
    assert (found is None) is (words is None), what
    assert found is None or (words or "") in found.sentence


def test_a_gain_is_seen_where_no_element_is_beyond_its_noise() -> None:
    array = normal(20, 200)
    variants = [[noisy(array, 8.0, seed=seed)] for seed in (2, 3, 4)]
    assert excess([array], [noisy(array, 8.0, seed=9)], variants, "float32") is None
    found = excess([array], [array * np.float32(1 + 4e-6)], variants, "float32")
    assert found is not None
    assert "factor" in found.sentence


def test_zeros_stay_zero_but_for_those_at_a_threshold() -> None:
    array = np.maximum(normal(64, 64), 0)
    variants = [[noisy(array, seed=2)]]
    leaky = np.where(array > 0, array, np.float32(-1e-6) * np.abs(normal(64, 64, seed=5)))
    found = excess([array], [leaky], variants, "float32")
    assert found is not None
    few = changed(array, tuple(np.argwhere(array == 0)[0]), np.float32(2e-7))
    assert excess([array], [few], variants, "float32") is None


@pytest.mark.parametrize(("steady", "caught"), [(True, True), (False, False)])
def test_integers_are_compared_where_the_original_is_steady(steady: bool, caught: bool) -> None:
    array = np.arange(10)
    variant = array if steady else changed(array, 3, 99)
    assert (excess([array], [changed(array, 3, 7)], [[variant]], "int64") is not None) is caught


@pytest.mark.parametrize(("scaled", "caught"), [(False, True), (True, False)])
def test_overflow_is_a_matter_of_order_only_at_scales_far_from_one(scaled: bool, caught: bool) -> None:
    array = changed(normal(6), 2, np.inf)
    other = changed(array, 3, np.inf)
    assert (excess([array], [other], [[array]], "float32", scaled=scaled) is not None) is caught


def test_nothing_to_compare() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert excess([empty], [empty], [], "float32") is None


@pytest.mark.parametrize(
    ("what", "other", "passes"),
    [
        ("the same", CHANNELS, True),
        ("a rounding", noisy(CHANNELS, 1.0, seed=9), True),
        ("forty roundings", noisy(CHANNELS, 40.0, seed=9), False),
        ("a tiny channel zeroed", changed(CHANNELS, (0, 4), 0.0), False),
    ],
)  # fmt: skip
def test_judged_strictly_no_variant_excuses_anything(what: str, other: np.ndarray, passes: bool) -> None:
    loud = [[noisy(CHANNELS, 1000.0, seed=seed)] for seed in (2, 3)]
    assert excess([CHANNELS], [other], loud, "float32") is None or what == "a tiny channel zeroed"
    assert (excess([CHANNELS], [other], [], "float32", strictly=True) is None) is passes


def test_judged_strictly_one_zero_that_changes_is_too_many() -> None:
    array = np.maximum(normal(64, 64), 0)
    one = changed(array, tuple(np.argwhere(array == 0)[0]), np.float32(2.5e-6))
    assert excess([array], [one], [], "float32") is None
    assert excess([array], [one], [], "float32", strictly=True) is not None


ROWS = normal(64, 40)
BESIDE = normal(40)


def jumped(row: int, size: float, seed: int = 9) -> np.ndarray:
    """``ROWS`` with a rounding's noise, and one row off by about ``size``."""
    return changed(noisy(ROWS, 1.0, seed=seed), row, ROWS[row] + np.float32(size) * BESIDE)


@pytest.mark.parametrize(
    ("what", "other", "in_rows", "passes"),
    [
        ("a jump where no variant has one", jumped(40, 0.002), range(5), True),
        ("one that is much larger", jumped(40, 0.02), range(5), False),
        ("one beside calm variants", jumped(40, 0.002), (), False),
        ("one row that is noisy in all variants is no jump", jumped(40, 0.002), [2] * 5, False),
        ("all are too large, beside jumps", np.asarray(ROWS * np.float32(1.0005)), range(5), False),
    ],
)
def test_rare_jumps_of_the_original_are_allowed_everywhere(
    what: str, other: np.ndarray, in_rows: Sequence[int], passes: bool
) -> None:
    jumps = [[jumped(row, 0.002, seed)] for seed, row in enumerate(in_rows)]
    variants = jumps or [[noisy(ROWS, 1.0, seed=seed)] for seed in range(5)]
    assert (excess([ROWS], [other], variants, "float32") is None) is passes, what
