"""How fast a program will be, learnt from those that were measured.

Models learn *levels*: the natural logarithm of a program's rate, relative to the best one that was measured. So 0 is as
fast as that, and what cannot run has :data:`LOWEST`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlflow.errors import UsageError
from rlflow.registry import not_installed

#: Programs that a kernel ridge regression keeps: its cost grows with the cube of their number.
MOST_KEPT = 512
#: The level of what cannot run; slower programs than this are as bad.
LOWEST = -3.0
_TINY = 1e-12


class ScoreModel(Protocol):
    """``fit`` once there are measurements; before that every level is 0."""

    def fit(self, features: np.ndarray, levels: np.ndarray) -> None:
        """Learn from features [n, f] and levels [n], the latest last."""
        ...

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] Levels of features [n, f]."""
        ...

    def spread(self, features: np.ndarray, beside: np.ndarray) -> np.ndarray:
        """[n] How far the levels of features [n, f] may be from :meth:`predict` (a standard deviation), were features
        [m, f] ``beside`` measured too; 0 where the model does not know.
        """
        ...


class KernelRidge:
    """Ridge regression with a Gaussian kernel on standardised features. Width and ridge are those of a grid with the
    least leave-one-out error, which has a closed form (Rasmussen & Williams 2006, equation 5.12). As the mean of a
    Gaussian process it has a spread too (equation 2.26), which does not depend on what a measurement will give.
    """

    def __init__(
        self,
        widths: Sequence[float] = (0.35, 0.7, 1.4, 2.8),
        ridges: Sequence[float] = (1e-3, 1e-2, 1e-1),
        most_kept: int = MOST_KEPT,
    ) -> None:
        self.widths, self.ridges, self.most_kept = widths, ridges, most_kept
        self._points: np.ndarray | None = None
        self._scale: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.ones(0))
        self._weights, self._mean, self._width, self._ridge, self._variance = np.zeros(0), 0.0, 1.0, 1.0, 0.0

    def fit(self, features: np.ndarray, levels: np.ndarray) -> None:
        features, levels = latest_and_best(features, levels, self.most_kept)
        spread = features.std(axis=0)
        # The mean squared distance of two points is then 2, whatever the number of features.
        used = max(1, int((spread > _TINY).sum()))
        self._scale = features.mean(axis=0), np.where(spread > _TINY, spread, 1.0) * np.sqrt(used)
        self._points = self._scaled(features)
        self._mean = float(levels.mean())
        target, distances = levels - self._mean, _squared_distances(self._points, self._points)
        found: list[tuple[float, float, float, np.ndarray]] = []
        for width in self.widths:
            kernel = np.exp(-distances / (2 * width * width))
            for ridge in self.ridges:
                inverse = np.linalg.inv(kernel + ridge * np.eye(len(kernel)))
                weights = inverse @ target
                left_out = weights / np.diag(inverse)
                found.append((float(np.mean(left_out**2)), width, ridge, weights))
        _, self._width, self._ridge, self._weights = min(found, key=lambda one: one[0])
        self._variance = max(float(target @ self._weights) / len(target), 0.0)

    def predict(self, features: np.ndarray) -> np.ndarray:
        if self._points is None:
            return np.zeros(len(features))
        return self._mean + self._kernel(self._scaled(features), self._points) @ self._weights

    def spread(self, features: np.ndarray, beside: np.ndarray) -> np.ndarray:
        if self._points is None:
            return np.zeros(len(features))
        points = np.concatenate([self._points, self._scaled(beside)]) if len(beside) else self._points
        near = self._kernel(self._scaled(features), points)
        whole = self._kernel(points, points) + self._ridge * np.eye(len(points))
        explained = np.einsum("ij,ji->i", near, np.linalg.solve(whole, near.T))
        return np.sqrt(self._variance * np.maximum(1.0 - explained, 0.0))

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        return (features - self._scale[0]) / self._scale[1]

    def _kernel(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.exp(-_squared_distances(one, other) / (2 * self._width**2))


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

    def fit(self, features: np.ndarray, levels: np.ndarray) -> None:
        import lightgbm

        settings = {
            "objective": "regression", "learning_rate": 0.1, "num_leaves": 15, "min_data_in_leaf": 3, "max_bin": 63,
            "lambda_l2": 0.1, "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0,
            "verbosity": -1,
        }  # fmt: skip
        data = lightgbm.Dataset(features, label=levels, params={"verbosity": -1}, free_raw_data=True)
        self._booster = lightgbm.train(settings, data, num_boost_round=80)

    def predict(self, features: np.ndarray) -> np.ndarray:
        if self._booster is None:
            return np.zeros(len(features))
        return np.asarray(self._booster.predict(features, num_threads=1), dtype=np.float64)

    def spread(self, features: np.ndarray, beside: np.ndarray) -> np.ndarray:
        return np.zeros(len(features))


class RidgeAndTrees:
    """The mean of what both predict, with the spread of the former: ridge regression sees trends among few
    measurements, trees see thresholds among many.
    """

    def __init__(self) -> None:
        self._trees, self._ridge = BoostedTrees(), KernelRidge()

    def fit(self, features: np.ndarray, levels: np.ndarray) -> None:
        self._ridge.fit(features, levels)
        self._trees.fit(features, levels)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return (self._ridge.predict(features) + self._trees.predict(features)) / 2

    def spread(self, features: np.ndarray, beside: np.ndarray) -> np.ndarray:
        return self._ridge.spread(features, beside)


COST_MODELS: dict[str, type[KernelRidge] | type[BoostedTrees] | type[RidgeAndTrees]] = {
    "kernel-ridge": KernelRidge, "trees": BoostedTrees, "both": RidgeAndTrees,
}  # fmt: skip


def make_cost_model(name: str) -> ScoreModel:
    """The cost model of that name; raises :class:`UsageError`."""
    if name not in COST_MODELS:
        raise UsageError(f"There is no cost model {name!r} for programs; there are {', '.join(COST_MODELS)}.")
    return COST_MODELS[name]()


def levels_of(seconds: np.ndarray) -> np.ndarray:
    """[n] Logarithms of rates relative to the best, :data:`LOWEST` or more, of times [n]."""
    valid = np.isfinite(seconds)
    best = seconds[valid].min() if valid.any() else 1.0
    return np.where(valid, np.maximum(np.log(best / np.where(valid, seconds, 1.0)), LOWEST), LOWEST)


def latest_and_best(features: np.ndarray, levels: np.ndarray, most: int = MOST_KEPT) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` of them, half of these the best ones."""
    if len(levels) <= most:
        return features, levels
    best = np.argsort(-levels, kind="stable")[: most // 2]
    others = np.setdiff1d(np.arange(len(levels)), best)[-(most - len(best)) :]
    kept = np.sort(np.concatenate([best, others]))
    return features[kept], levels[kept]


def _squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    product = one @ other.T
    squares = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1)[None, :]
    return np.maximum(squares - 2 * product, 0.0)
