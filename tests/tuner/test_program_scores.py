"""Learned scores of programs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from rlflow.errors import UsageError
from rlflow.tuner.program_scores import (
    COST_MODELS,
    LOWEST,
    MOST_KEPT,
    KernelRidge,
    latest_and_best,
    levels_of,
    make_cost_model,
)
from tests.tuner import toys

NAMES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name != "kernel-ridge" and importlib.util.find_spec("lightgbm") is None,
            reason="LightGBM is not installed: pip install 'rlflow[tuner]'",
        ),
    )
    for name in COST_MODELS
]


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    programs = toys.SPACE.random(rng, count)
    seconds = np.array([toys.seconds_of(toys.SPACE, one) for one in programs])
    return toys.SPACE.features(programs), levels_of(seconds)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("name", NAMES)
def test_it_ranks_programs_that_it_never_saw(name: str) -> None:
    model = make_cost_model(name)
    model.fit(*data(200, 0))
    features, scores = data(400, 1)
    assert rank_correlation(model.predict(features), scores) > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_it_predicts_the_same_again(name: str) -> None:
    predictions = []
    for _ in range(2):
        model = make_cost_model(name)
        model.fit(*data(60, 0))
        predictions.append(model.predict(data(50, 1)[0]))
    assert (predictions[0] == predictions[1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_before_it_learnt_everything_is_alike(name: str) -> None:
    model = make_cost_model(name)
    assert model.predict(np.ones((3, 2))).tolist() == [0.0, 0.0, 0.0]
    assert model.spread(np.ones((3, 2)), np.ones((0, 2))).tolist() == [0.0, 0.0, 0.0]


def test_constant_features_and_equal_scores_are_no_trouble() -> None:
    model = KernelRidge()
    model.fit(np.ones((4, 3)), np.full(4, 0.25))
    assert model.predict(np.ones((2, 3))) == pytest.approx([0.25, 0.25])


def test_a_kernel_ridge_keeps_the_best_and_the_latest() -> None:
    count = MOST_KEPT + 300
    scores = np.full(count, 0.1)
    scores[:3] = 1.0, 0.9, 0.8  # the best are the oldest
    features, kept = latest_and_best(np.arange(count, dtype=np.float64)[:, None], scores)
    assert len(kept) == MOST_KEPT
    assert features[:3, 0].tolist() == [0, 1, 2]
    assert features[-200:, 0].tolist() == list(range(count - 200, count))
    few = np.ones((5, 1)), np.ones(5)
    assert latest_and_best(*few) == few


def test_a_spread_is_wide_far_away_and_narrows_beside_what_will_be_measured() -> None:
    """As that of a Gaussian process: by hand for two points, one of which is far from everything."""
    model = KernelRidge((1.0,), (1e-3,))
    known = np.array([[-1.0], [1.0]])
    model.fit(known, np.array([0.0, -1.0]))
    none = np.ones((0, 1))
    near, far = model.spread(np.array([[1.0], [50.0]]), none)
    target = np.array([0.5, -0.5])
    kernel = np.exp(-np.array([[0.0, 4.0], [4.0, 0.0]]) / 2)
    variance = target @ np.linalg.inv(kernel + 1e-3 * np.eye(2)) @ target / 2
    assert far == pytest.approx(np.sqrt(variance))
    assert near == pytest.approx(np.sqrt(variance * 1e-3), rel=0.05)
    beside = model.spread(np.array([[50.0], [-50.0]]), np.array([[50.0]]))
    assert beside[0] < 0.05 * far
    assert beside[1] == pytest.approx(far)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([2.0, 1.0, 4.0], [np.log(0.5), 0.0, np.log(0.25)]),
        ([np.inf, 3.0], [LOWEST, 0.0]),
        ([np.inf, np.inf], [LOWEST, LOWEST]),
        ([1e9, 1.0], [LOWEST, 0.0]),
    ],
)
def test_levels_are_logarithms_of_rates_relative_to_the_best(seconds, expected) -> None:
    assert levels_of(np.array(seconds)) == pytest.approx(expected)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="kernel-ridge, trees"):
        make_cost_model("tea-leaves")
