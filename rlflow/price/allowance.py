"""How long measuring may take: in full while that fits, then in haste, then not at all.

A price in full takes up to seven sessions that agree. Where the regions that wait would take longer than the time
given, by what they compute or by the rate so far, the others get a few short sessions each, the dearest first; if
there is time left then, they are timed in full after all. What is left over when the time is spent has no price; the
caller estimates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

#: Regions timed in one round trip; a request to stop is looked at in between.
BATCH = 8
#: A round trip should not take longer than this where time is short (seconds).
ROUND_TRIP = 1.0
#: Nor longer than this by what they compute, where they are timed in full: a search that has no time left waits for it.
FULL_TRIP = 2.0
#: Seconds that a region takes in full at least: the first guess, before there is a rate.
FULL_SECONDS = 0.15
#: Samples of a region in haste, instead of nine in each of several sessions.
HASTY_REPEATS = 3
#: Sessions of a region in full at least: one that says how long it takes, and two that agree.
FULL_SESSIONS = 3


class PricingProgress(NamedTuple):
    """What is told while regions are timed: ``done`` of ``total``, after so many ``seconds``; ``seconds_left`` by the
    rate so far, at most what the time given allows (``None`` before the first).
    """

    done: int
    total: int
    seconds: float
    seconds_left: float | None

    @property
    def rate(self) -> float:
        """Regions a second."""
        return self.done / max(self.seconds, 1e-9)


class Allowance:
    """The time for ``total`` regions: ``seconds``, or any where it is ``None``. ``hasty``: in haste from the start;
    ``each``: seconds that one took before; ``least``: those that all of them take in full, at least.
    """

    def __init__(
        self,
        seconds: float | None,
        total: int,
        *,
        hasty: bool = False,
        each: float | None = None,
        least: float = 0.0,
        tell: Callable[[PricingProgress], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds, self.total, self.done = seconds, total, 0
        self.hasty = hasty or (seconds is not None and max(least, total * FULL_SECONDS) > seconds)
        self._tell, self._clock, self._began = tell, clock, clock()
        self._each = each

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left; infinitely many where none were given."""
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    def over(self) -> bool:
        """Whether the time is spent."""
        return self.left <= 0.0

    def batch(self) -> int:
        """How many regions to time next: few where time is short and they take long."""
        if self.seconds is None and (self._each is None or not self.hasty):
            return BATCH
        if self._each is None:
            return 2
        return max(1, min(BATCH, int(min(ROUND_TRIP, max(self.left, 0.0)) / max(self._each, 1e-9))))

    @property
    def each(self) -> float | None:
        """Seconds that a region took of late, as they are timed now."""
        return self._each

    def took(self, count: int, seconds: float) -> None:
        """``count`` regions took so many ``seconds``; decides whether the others have to be timed in haste."""
        self.done += count
        self._each = seconds / max(count, 1)
        if self._tell is not None:
            self._tell(PricingProgress(self.done, self.total, self.elapsed, self._left()))
        if self.hasty or self.seconds is None:
            return
        self.hasty = self.elapsed + self._each * (self.total - self.done) > self.seconds
        self._each = None if self.hasty else self._each  # in haste they take less

    def _left(self) -> float | None:
        if self.done == 0:
            return None
        by_rate = (self._each or 0.0) * (self.total - self.done)
        return min(by_rate, max(self.left, 0.0))
