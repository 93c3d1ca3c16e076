"""What the times of whole graphs say about the regions that they are made of.

A graph takes the sum of what its regions take. A region takes its guess (:mod:`.prior`) times one plus three effects:
of its kind, of its operators, and its own. The effects are independent and normal, and a graph's time is linear in
them, so what they are after some timings is normal too (Bayesian linear regression; Bishop 2006, section 3.3). One
timing says something about every graph that shares a region, or operators, with the one that was timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlflow.agents.bayes.prior import Guess, Prior
from rlflow.graph import Graph
from rlflow.price.regions import Pricer, operators
from rlflow.price.traits import traits_of

#: Standard deviation of what the regions of a kind share: how fast the machine is at that.
_KIND = 0.1
#: A region never takes less than this part of its guess.
_LEAST = 0.05

#: Milliseconds of a region by its signature.
PriceOf = Callable[[str], float]
#: Milliseconds by the number of an effect.
Effects = dict[int, float]


class Predicted(NamedTuple):
    """Mean and standard deviation of a graph's time, in milliseconds."""

    ms: float
    spread: float


class Belief:
    """``pricer`` cuts graphs into regions; ``prior`` guesses what a region takes."""

    def __init__(self, pricer: Pricer, prior: Prior) -> None:
        self._pricer, self._prior = pricer, prior
        self._numbers: dict[tuple[str, ...], int] = {}
        self._regions: dict[str, tuple[float, Effects]] = {}
        self._seen: list[tuple[float, Effects, float, float]] = []  # guess, effects, time, variance of the noise

    @property
    def signatures(self) -> list[str]:
        """Of all regions met so far."""
        return list(self._regions)

    def meet(self, graph: Graph, region: Any) -> str:
        """Note a region; its signature."""
        signature = str(region.signature)
        if signature not in self._regions:
            kind = f"{region.kind} blocked" if region.blocked else str(region.kind)
            names = " ".join(operators(graph, region))
            traits = traits_of(graph, region.nodes)
            found = self._prior.guess(kind, names, region.flops, region.bytes, traits)
            self._regions[signature] = (found.ms, self._effects(found, kind, names, signature))
        return signature

    def observe(self, graph: Graph, ms: float, noise: float) -> None:
        """A graph took ``ms``; ``noise``: standard deviation of that, in milliseconds."""
        self._seen.append((*self._parts(graph), ms, noise * noise))

    def predict(self, graph: Graph) -> Predicted:
        """What a graph will take."""
        guess, effects = self._parts(graph)
        there = self._dense([effects])[0]
        mean, variance = guess, float(there @ there)
        if self._seen:
            known, off, kernel = self._evidence()
            across = known @ there
            weights = np.linalg.solve(kernel, np.column_stack((off, across)))
            mean, variance = mean + float(across @ weights[:, 0]), variance - float(across @ weights[:, 1])
        return Predicted(mean, math.sqrt(max(variance, 0.0)))

    def mean(self) -> PriceOf:
        """The expected prices."""
        return self._prices(np.zeros(len(self._numbers)), lambda: 0.0, 0.0)

    def cautious(self, caution: float, trusted: Collection[str]) -> PriceOf:
        """The expected prices, and so many standard deviations more for what is not among the ``trusted`` regions: a
        search among very many graphs ends where the guesses are too low, unless what is uncertain costs something.
        """
        expected, known, kernel = self.mean(), np.zeros((0, 0)), np.zeros((0, 0))
        if self._seen:
            known, _, kernel = self._evidence()

        def price(signature: str) -> float:
            ms, (_, effects) = expected(signature), self._regions[signature]
            if signature in trusted:
                return ms
            met = [number for number in effects if number < known.shape[1]]
            across = known[:, met] @ np.array([effects[number] for number in met])
            variance = sum(size * size for size in effects.values()) - float(across @ np.linalg.solve(kernel, across))
            return ms + caution * math.sqrt(max(variance, 0.0))

        return price

    def sample(self, rng: np.random.Generator) -> PriceOf:
        """Prices drawn from what is believed (Thompson 1933): a draw of the prior, corrected by what was seen
        (Matheron's rule; Wilson et al. 2020).
        """
        return self._prices(rng.standard_normal(len(self._numbers)), rng.standard_normal, 1.0, rng)

    def _prices(
        self,
        effects: np.ndarray,
        fresh: Callable[[], float],
        noisy: float,
        rng: np.random.Generator | None = None,
    ) -> PriceOf:
        if self._seen:
            known, off, kernel = self._evidence()
            variance = np.array([one[3] for one in self._seen])
            noise = noisy * rng.standard_normal(len(off)) * np.sqrt(variance) if rng is not None else 0.0
            effects = effects + known.T @ np.linalg.solve(kernel, off - known @ effects - noise)
        drawn: dict[int, float] = dict(enumerate(effects.tolist()))

        def price(signature: str) -> float:
            guess, mine = self._regions[signature]
            for number in mine:
                if number not in drawn:
                    drawn[number] = fresh()
            return max(guess + sum(size * drawn[number] for number, size in mine.items()), _LEAST * guess)

        return price

    def _evidence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of what was seen: effects [t, n], time beyond the guess [t], and its covariance [t, t]."""
        known = self._dense([one[1] for one in self._seen])
        off = np.array([ms - guess for guess, _, ms, _ in self._seen])
        return known, off, known @ known.T + np.diag([one[3] for one in self._seen])

    def _parts(self, graph: Graph) -> tuple[float, Effects]:
        """The guess for a graph, and by how much each effect, in standard deviations, changes it."""
        total, effects = 0.0, Effects()
        for region in self._pricer.regions(graph):
            if region.view:
                total += region.ms or 0.0
                continue
            guess, mine = self._regions[self.meet(graph, region)]
            total += guess
            for number, size in mine.items():
                effects[number] = effects.get(number, 0.0) + size
        return total, effects

    def _effects(self, guess: Guess, kind: str, names: str, signature: str) -> Effects:
        named = {
            ("kind", kind): _KIND, ("operators", kind, names): guess.shared, ("own", signature): guess.own,
        }  # fmt: skip
        return {self._numbers.setdefault(name, len(self._numbers)): guess.ms * size for name, size in named.items()}

    def _dense(self, rows: list[Mapping[int, float]] | list[Effects]) -> np.ndarray:
        found = np.zeros((len(rows), len(self._numbers)))
        for row, effects in zip(found, rows, strict=True):
            row[list(effects)] = list(effects.values())
        return found
