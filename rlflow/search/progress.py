"""Progress events: what a search tells, about five times a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlflow.search.budget import BudgetMeter

PROGRESS_SECONDS = 0.2


class Progress(NamedTuple):
    """What a progress callback is told."""

    seconds: float
    seconds_left: float | None
    fraction: float
    candidates: int
    expansions: int
    measurements: int
    cost_before_ms: float
    best_ms: float


class ProgressEvents:
    """Tells ``listener`` (``None``: nobody) how far a search is."""

    def __init__(self, meter: BudgetMeter, listener: Callable[[Progress], None] | None) -> None:
        self._meter, self.listener = meter, listener
        self._last = float("-inf")

    def tell(self, cost_before_ms: Callable[[], float], best_ms: Callable[[], float], last: bool = False) -> None:
        """Report where it is time for it; the ``last`` event is always told."""
        if self.listener is None:
            return
        meter, seconds = self._meter, self._meter.seconds
        if not last and seconds - self._last < PROGRESS_SECONDS:
            return
        self._last = seconds
        counts = (meter.candidates, meter.expansions, meter.measurements)
        self.listener(Progress(seconds, meter.seconds_left(), meter.fraction(), *counts, cost_before_ms(), best_ms()))
