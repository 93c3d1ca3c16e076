"""Prices of earlier runs are timed again where a model mostly rests on them, before a search goes by them.

A price is timed once and kept. One in a hundred comes out wrong, by a fifth now and then: beside other programs the
pace of the machine is not always told from the region's own time. One such price hides a gain, or promises one, in
every search that follows on the machine. (One of 203 prices, of a product, was 22 % too low, and BERT gained 1.04 by it
instead of 1.09.) So the heaviest regions of a model are timed a second time, in a later run; where both times agree,
the kept one stays, and what was found by it still holds. Where they do not, a third one decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rlflow.graph import Graph
from rlflow.price.allowance import Allowance
from rlflow.price.batches import Batches
from rlflow.price.database import Price
from rlflow.price.lookup import Lookup
from rlflow.price.partition import Job, Partition

#: The regions that are timed again hold so much of the model's price.
SHARE = 0.9
#: Times whose logarithms differ by less are the same.
AGREE = 0.04


class Renewal:
    """Times kept prices again; ``batches`` times and prices regions. Each is looked at once in an object's life."""

    def __init__(self, lookup: Lookup, partition: Partition, batches: Batches) -> None:
        self._lookup, self._partition, self._batches = lookup, partition, batches
        self._seen: set[str] = set()

    def renew(self, graph: Graph, seconds: float, stop: Callable[[], bool]) -> int:
        """Make sure of the prices that most of the price of ``graph`` rests on, as far as so many ``seconds`` reach;
        the number of those that were put right.
        """
        jobs = self._kept(graph)
        known = self._lookup.find(jobs)
        allowance = Allowance(seconds, len(jobs))
        right = 0
        for key, job in jobs.items():
            if stop() or allowance.left < self._batches.least_seconds([job]):
                break
            self._seen.add(key)
            price = self._sure(job, known[key], allowance)
            if price is not None:
                self._batches.settle(job, price)
                right += 1
        return right

    def _kept(self, graph: Graph) -> Mapping[str, Job]:
        """The heaviest regions of ``graph``, by key, whose prices are of earlier runs; the heaviest first."""
        jobs, shares = self._partition.shares(graph)
        total, held, found = sum(shares.values()), 0.0, {}
        for key in sorted(jobs, key=shares.__getitem__, reverse=True):
            if held > SHARE * total:
                break
            held += shares[key]
            found[key] = jobs[key]
        known = self._lookup.find(found)
        fresh = self._seen | self._batches.timed
        return {key: job for key, job in found.items() if key not in fresh and key in known and known[key].ms}

    def _sure(self, job: Job, kept: Price, allowance: Allowance) -> Price | None:
        """What the price of ``job`` should be, ``None`` where the ``kept`` one holds."""
        second = self._batches.alone(job, allowance)
        if second is None or _agree(second, kept):
            return None
        third = self._batches.alone(job, allowance)
        if third is None:
            return None
        _, middle, _ = sorted((kept, second, third), key=_ms)
        return None if middle is kept or _agree(middle, kept) else middle


def _ms(price: Price) -> float:
    return price.ms or 0.0


def _agree(one: Price, other: Price) -> bool:
    return abs(math.log(_ms(one) / _ms(other))) < AGREE
