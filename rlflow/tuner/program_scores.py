"""How fast a program will be, learnt from those that were measured: a score, 1 the best so far, 0 what cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlflow.errors import UsageError
from rlflow.registry import not_installed

#: Programs that a kernel ridge regression keeps: its cost grows with the cube of their number.
MOST_KEPT = 512
_TINY = 1e-12


class ScoreModel(Protocol):
    """``fit`` once there are measurements, ``predict`` after that."""

    def fit(self, features: np.ndarray, scores: np.ndarray) -> None:
        """Learn from features [n, f] and scores [n] in [0, 1], the latest last."""
        ...

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] Scores of features [n, f]; 0.5 of everything before the first ``fit``."""
        ...


class KernelRidge:
    """Ridge regression with a Gaussian kernel on standardised features. Width and ridge are those of a grid with the
    least leave-one-out error, which has a closed form (Rasmussen & Williams 2006, equation 5.12).
    """

    widths: Sequence[float] = (0.35, 0.7, 1.4, 2.8)
    ridges: Sequence[float] = (1e-3, 1e-2, 1e-1)

    def __init__(self) -> None:
        self._points: np.ndarray | None = None
        self._scale: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.ones(0))
        self._weights, self._mean, self._width = np.zeros(0), 0.5, 1.0

    def fit(self, features: np.ndarray, scores: np.ndarray) -> None:
        features, scores = latest_and_best(features, scores)
        spread = features.std(axis=0)
        self._scale = features.mean(axis=0), np.where(spread > _TINY, spread, 1.0)
        # The mean squared distance of two points is then 2, whatever the number of features.
        used = max(1, int((spread > _TINY).sum()))
        self._points = self._scaled(features) / np.sqrt(used)
        self._scale = self._scale[0], self._scale[1] * np.sqrt(used)
        self._mean = float(scores.mean())
        target, distances = scores - self._mean, _squared_distances(self._points, self._points)
        found: list[tuple[float, float, np.ndarray]] = []
        for width in self.widths:
            kernel = np.exp(-distances / (2 * width * width))
            for ridge in self.ridges:
                inverse = np.linalg.inv(kernel + ridge * np.eye(len(kernel)))
                weights = inverse @ target
                left_out = weights / np.diag(inverse)
                found.append((float(np.mean(left_out**2)), width, weights))
        _, self._width, self._weights = min(found, key=lambda one: one[0])

    def predict(self, features: np.ndarray) -> np.ndarray:
        if self._points is None:
            return np.full(len(features), 0.5)
        distances = _squared_distances(self._scaled(features), self._points)
        return self._mean + np.exp(-distances / (2 * self._width**2)) @ self._weights

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        return (features - self._scale[0]) / self._scale[1]


class BoostedTrees:
    """LightGBM's gradient-boosted trees (extra ``[tuner]``), with settings for some hundred measurements."""

    def __init__(self) -> None:
        reason = self.available()
        if reason is not None:
            raise UsageError(f"The cost model 'trees' cannot be used here: {reason}.")
        self._booster: Any = None

    @staticmethod
    def available() -> str | None:
        """``None``, or why it cannot be used here."""
        return not_installed("LightGBM", "lightgbm", "[tuner]")

    def fit(self, features: np.ndarray, scores: np.ndarray) -> None:
        import lightgbm

        settings = {
            "objective": "regression", "learning_rate": 0.1, "num_leaves": 15, "min_data_in_leaf": 3, "max_bin": 63,
            "lambda_l2": 0.1, "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0,
            "verbosity": -1,
        }  # fmt: skip
        data = lightgbm.Dataset(features, label=scores, params={"verbosity": -1}, free_raw_data=True)
        self._booster = lightgbm.train(settings, data, num_boost_round=80)

    def predict(self, features: np.ndarray) -> np.ndarray:
        if self._booster is None:
            return np.full(len(features), 0.5)
        return np.asarray(self._booster.predict(features, num_threads=1), dtype=np.float64)


COST_MODELS: dict[str, type[KernelRidge] | type[BoostedTrees]] = {"kernel-ridge": KernelRidge, "trees": BoostedTrees}


def make_cost_model(name: str) -> ScoreModel:
    """The cost model of that name; raises :class:`UsageError`."""
    if name not in COST_MODELS:
        raise UsageError(f"There is no cost model {name!r} for programs; there are {', '.join(COST_MODELS)}.")
    return COST_MODELS[name]()


def scores_of(seconds: np.ndarray) -> np.ndarray:
    """Rates relative to the best: the least of the times over each, 0 for what cannot run."""
    valid = np.isfinite(seconds)
    best = seconds[valid].min() if valid.any() else 1.0
    return np.where(valid, best / np.where(valid, seconds, 1.0), 0.0)


def latest_and_best(features: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most :data:`MOST_KEPT` of them, half of these the best ones."""
    if len(scores) <= MOST_KEPT:
        return features, scores
    best = np.argsort(-scores, kind="stable")[: MOST_KEPT // 2]
    others = np.setdiff1d(np.arange(len(scores)), best)[-(MOST_KEPT - len(best)) :]
    kept = np.sort(np.concatenate([best, others]))
    return features[kept], scores[kept]


def _squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    product = one @ other.T
    squares = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1)[None, :]
    return np.maximum(squares - 2 * product, 0.0)
