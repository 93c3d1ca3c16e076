"""CMA-ES: minimises a function of real numbers by nothing but the order of its values.

The (μ/μ_w, λ) strategy of Hansen's tutorial (arXiv:1604.00772): candidates are drawn from a normal distribution;
its mean goes towards the better half of them, its covariance learns the steps that led there, and its step size the
length of the path. The numbers of equations 41 and 45 to 58 are the tutorial's, as two other implementations quote them
(cmaes of CyberAgent, and one by the tutorial's pages 28 to 32); the rest is named by its part of the algorithm. The
separable form (Ros and Hansen 2008) learns variances alone, in time and memory that grow with the parameters and not
with their square.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlflow.errors import UsageError

#: Fewest candidates a generation; with fewer there is nothing to recombine.
LEAST = 4
#: Of the largest eigenvalue, the least that another one counts as: rounding makes some of them negative.
_FLOOR = 1e-20
#: Where every candidate is worth the same, the step size grows up to so many times the first one.
_LARGEST_STEP = 10.0


@dataclass(frozen=True)
class Rates:
    """The strategy's parameters, by the defaults of the tutorial's table 1.

    ``weights`` [population]: of the candidates, best first; the first ``parents`` are positive and sum to 1.
    ``mu_eff``: how many candidates the mean is made of, in effect. ``c_sigma``, ``d_sigma``: cumulation and damping of
    the step size. ``c_c``: cumulation of the covariance's path. ``c_1``, ``c_mu``: rates of the two updates of the
    covariance, from the path and from the candidates.
    """

    weights: np.ndarray
    parents: int
    mu_eff: float
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float

    @classmethod
    def of(cls, size: int, population: int, separable: bool = False) -> Rates:
        """For ``size`` parameters. ``separable``: the covariance's rates are (size + 2) / 3 times as high, and no
        candidate has a negative weight, as in Ros and Hansen's algorithm.
        """
        raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))  # eq. 49
        parents = population // 2
        mu_eff = _effective(raw[:parents])
        c_sigma = (mu_eff + 2) / (size + mu_eff + 5)  # eq. 55
        d_sigma = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (size + 1)) - 1) + c_sigma
        c_c = (4 + mu_eff / size) / (size + 4 + 2 * mu_eff / size)  # eq. 56
        faster = (size + 2) / 3 if separable else 1.0
        c_1 = faster * 2 / ((size + 1.3) ** 2 + mu_eff)  # eq. 57
        c_mu = faster * 2 * (0.25 + mu_eff + 1 / mu_eff - 2) / ((size + 2) ** 2 + mu_eff)  # eq. 58; 1/4: pycma
        c_mu = min(1 - c_1, c_mu)
        weights = np.maximum(raw, 0.0)
        weights[parents:] = 0.0
        weights /= weights.sum()
        if not separable:
            bad = np.minimum(raw, 0.0)
            most = min(
                1 + c_1 / c_mu,  # eq. 50
                1 + 2 * _effective(raw[parents:]) / (mu_eff + 2),  # eq. 51
                (1 - c_1 - c_mu) / (size * c_mu),  # eq. 52
            )
            weights += bad * (most / -bad.sum())  # eq. 53
        return cls(weights, parents, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu)


def _effective(weights: np.ndarray) -> float:
    """The variance effective selection mass."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def usual_population(size: int) -> int:
    """Candidates a generation for ``size`` parameters, eq. 48."""
    return 4 + math.floor(3 * math.log(size))


class CMAES:
    """``ask`` for candidates, ``tell`` what they are worth (less is better), again.

    ``mean`` [size]: of the distribution; ``sigma``: its step size. ``population``: candidates a generation; 0: the
    usual number. ``separable``: learn ``covariance`` [size] of the axes alone, not [size, size]. ``best`` [size],
    ``best_value``: of all candidates so far (before the first: the mean, infinity). The random numbers are the
    caller's, so that equal seeds and equal values give equal bytes.

    Raises :class:`UsageError` for a mean that is no vector of finite numbers, a step size that is not above 0, or fewer
    than four candidates.
    """

    def __init__(self, mean: np.ndarray, sigma: float, population: int = 0, *, separable: bool = False) -> None:
        self.mean = np.array(mean, dtype=np.float64)
        if self.mean.ndim != 1 or not len(self.mean) or not np.isfinite(self.mean).all():
            raise UsageError("CMA-ES begins at a vector of finite numbers; the one that was given is not.")
        size = len(self.mean)
        self.population = population or usual_population(size)
        if not (0 < sigma < math.inf) or self.population < LEAST:
            raise UsageError(
                f"CMA-ES was given step size {sigma:g} and {self.population} candidates a generation; expected a step "
                f"size above 0 and at least {LEAST} candidates."
            )
        self.sigma, self.first_sigma, self.separable = float(sigma), float(sigma), separable
        self.rates = Rates.of(size, self.population, separable)
        self.path_sigma, self.path_c = np.zeros(size), np.zeros(size)
        self.covariance = np.ones(size) if separable else np.eye(size)
        self.generations = self.evaluations = 0
        self.best, self.best_value = self.mean.copy(), math.inf
        self._root, self._inverse = self.covariance.copy(), self.covariance.copy()
        self._steps: np.ndarray | None = None
        self._length = math.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))  # of a standard normal vector

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.mean)

    @property
    def axis_ratio(self) -> float:
        """Longest over shortest axis of the distribution."""
        values = self.covariance if self.separable else np.linalg.eigvalsh(self.covariance)
        return math.sqrt(float(values.max() / max(values.min(), _FLOOR * values.max())))

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """A generation, [population, size]. By the symmetric root of the covariance, which does not depend on how its
        eigenvectors happen to be signed: a turned function gives a turned search.
        """
        drawn = rng.standard_normal((self.population, self.size))
        self._steps = self._times(drawn, self._root)
        return self.mean + self.sigma * self._steps

    def tell(self, values: np.ndarray) -> None:
        """What the candidates of the last ``ask`` are worth, [population]; infinity is the worst. Candidates that are
        worth the same rank in the order in which they were drawn, which says nothing of where they are.

        Where all are worth the same, the distribution stays where it is and only widens. Raises :class:`UsageError` for
        a value that is not a number, another count, or values of no generation.
        """
        values = np.asarray(values, dtype=np.float64)
        if self._steps is None or values.shape != (self.population,):
            raise UsageError(
                f"CMA-ES was told {values.size} values; expected {self.population}, one for each candidate that was "
                "asked for."
            )
        if np.isnan(values).any():
            raise UsageError(
                f"The value of candidate {int(np.isnan(values).argmax())} of generation {self.generations} is not a "
                "number; expected a number, or infinity for a candidate that cannot be used."
            )
        order = np.argsort(values, kind="stable")
        steps, self._steps = self._steps, None
        self.generations += 1
        self.evaluations += self.population
        if values[order[0]] < self.best_value:
            self.best, self.best_value = self.mean + self.sigma * steps[order[0]], float(values[order[0]])
        if values[order[0]] < values[order[-1]]:
            self._adapt(steps[order])
        if values[order[0]] == values[order[math.ceil(0.7 * self.population) - 1]]:  # flat, as in purecmaes.m
            wider = self.sigma * math.exp(0.2 + self.rates.c_sigma / self.rates.d_sigma)
            self.sigma = max(self.sigma, min(wider, _LARGEST_STEP * self.first_sigma))

    def _adapt(self, steps: np.ndarray) -> None:
        """One update of everything that a search goes on from, with ``steps`` [population, size], best first."""
        rates, size = self.rates, self.size
        step = rates.weights[: rates.parents] @ steps[: rates.parents]  # eq. 41
        self.mean += self.sigma * step  # c_m = 1, eq. 54
        keep = 1 - rates.c_sigma
        gain = math.sqrt(rates.c_sigma * (2 - rates.c_sigma) * rates.mu_eff)
        self.path_sigma = keep * self.path_sigma + gain * self._times(step, self._inverse)  # of the step size
        length = float(np.linalg.norm(self.path_sigma))
        unbiased = length / math.sqrt(1 - keep ** (2 * self.generations))
        goes_on = float(unbiased < (1.4 + 2 / (size + 1)) * self._length)  # the Heaviside function in eq. 45
        gain = math.sqrt(rates.c_c * (2 - rates.c_c) * rates.mu_eff)
        self.path_c = (1 - rates.c_c) * self.path_c + goes_on * gain * step  # eq. 45
        lost = (1 - goes_on) * rates.c_c * (2 - rates.c_c)
        keep = 1 + rates.c_1 * lost - rates.c_1 - rates.c_mu * float(rates.weights.sum())
        lengths = np.square(self._times(steps, self._inverse)).sum(1)
        weights = np.where(rates.weights >= 0, rates.weights, rates.weights * size / np.maximum(lengths, _FLOOR))
        one, many = self._spread(self.path_c[None], np.ones(1)), self._spread(steps, weights)
        self.covariance = keep * self.covariance + rates.c_1 * one + rates.c_mu * many  # eqs. 46, 47
        self.sigma *= math.exp(rates.c_sigma / rates.d_sigma * (length / self._length - 1))
        self._refresh()

    def _refresh(self) -> None:
        """The roots of the covariance; of a matrix only so often that they cost no more than the rest (purecmaes.m)."""
        if self.separable:
            self._root = np.sqrt(self.covariance)
            self._inverse = 1 / self._root
            return
        every = max(1, int(1 / (10 * self.size * (self.rates.c_1 + self.rates.c_mu))))
        if self.generations % every == 0:
            values, vectors = np.linalg.eigh(self.covariance)
            roots = np.sqrt(np.maximum(values, _FLOOR * values.max()))
            self._root, self._inverse = (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T

    def _times(self, vectors: np.ndarray, root: np.ndarray) -> np.ndarray:
        return vectors * root if self.separable else vectors @ root

    def _spread(self, vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted sum of the vectors' outer products; of their diagonals in the separable form."""
        return weights @ np.square(vectors) if self.separable else (vectors.T * weights) @ vectors

    # --- what is kept -------------------------------------------------------------------------------------------------

    _ARRAYS = ("mean", "path_sigma", "path_c", "covariance", "best", "_root", "_inverse")
    _NUMBERS = ("sigma", "first_sigma", "generations", "evaluations", "best_value")

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a search goes on from, between ``tell`` and ``ask``."""
        kept = {name.lstrip("_"): getattr(self, name).copy() for name in self._ARRAYS}
        return kept | {"numbers": np.array([getattr(self, name) for name in self._NUMBERS], dtype=np.float64)}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of :meth:`arrays`; raises :class:`UsageError` where they are of another search."""
        mine = self.arrays()
        wrong = [name for name in mine if name not in arrays or arrays[name].shape != mine[name].shape]
        if wrong:
            raise UsageError(f"What CMA-ES was to go on from lacks {wrong[0]!r}, or has another number of parameters.")
        for name in self._ARRAYS:
            setattr(self, name, np.array(arrays[name.lstrip("_")], dtype=np.float64))
        for name, value in zip(self._NUMBERS, arrays["numbers"].tolist(), strict=True):
            setattr(self, name, int(value) if name in ("generations", "evaluations") else value)
        self._steps = None
