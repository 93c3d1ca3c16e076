"""``measure="lazy"``: later regions of a model are priced by interpolation, where measured ones are like them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlflow.price.database import Price
from rlflow.price.interpolate import Estimate, Interpolation, TimedRegion
from rlflow.price.lookup import Lookup
from rlflow.price.partition import Job
from rlflow.price.region_prices import RegionPrices


class Estimates:
    """The estimates of one model, by signature. ``lazy`` false: there are none."""

    def __init__(self, lazy: bool, lookup: Lookup, prices: RegionPrices) -> None:
        self.lazy, self._lookup, self._prices = lazy, lookup, prices
        self.found: dict[str, Estimate] = {}
        self._interpolation: Interpolation | None = None

    def rest(self, jobs: Sequence[Job]) -> list[Job]:
        """Price by interpolation what can be; the jobs that are left. The first graph is always measured: it is on both
        sides of every comparison, and it is what estimates follow from.
        """
        if not self.lazy:
            return list(jobs)
        if self._interpolation is None:
            self._interpolation = Interpolation()
            for price in self._lookup.alike():
                self.learn(price)
            return list(jobs)
        rest = []
        for job in jobs:
            what = job.described
            guess = self._interpolation.estimate(what["kind"], what["operators"], what["flops"], what["bytes"])
            if guess is None:
                rest.append(job)
                continue
            self._prices.set(job, Price(guess.ms))
            self.found.update(dict.fromkeys(job.waiting, guess))
        return rest

    def learn(self, price: Price) -> None:
        """From a region that was measured."""
        if self._interpolation is not None and price.ms is not None and price.samples:
            self._interpolation.add(TimedRegion(price.kind, price.operators, price.flops, price.bytes, price.ms))

    def note(self, signature: str) -> str | None:
        """What a report says about a region's price, if it is an estimate."""
        guess = self.found.get(signature)
        if guess is None:
            return None
        return f"estimated from {guess.samples} measured regions like it (±{100 * guess.error:.0f} %)"

    def notes(self) -> list[str]:
        """What a report says about all of them."""
        if not self.found:
            return []
        error = 100 * float(np.median([guess.error for guess in self.found.values()]))
        count = f"{len(self.found)} regions were priced by interpolation, not by the clock"
        return [f"{count} (such estimates are off by ±{error:.0f} % in the median); only the final comparison decided."]
