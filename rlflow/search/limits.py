"""When a search has to end: its budget is spent, somebody asks for the end, or its patience is over."""

from __future__ import annotations

from rlflow.search.budget import BudgetMeter, StopReason
from rlflow.search.interrupt import StopToken
from rlflow.search.patience import Patience


class SearchStopped(Exception):  # noqa: N818 - control flow, not an error
    """The budget is spent or the user asked for the end; carries the :class:`StopReason`."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
        super().__init__(str(reason))


class Limits:
    """The three that may end a search: ``meter`` counts and keeps the clock, ``stop`` is the user's, ``patience``
    (``None``: endless) looks at what the search gains.
    """

    def __init__(self, meter: BudgetMeter, stop: StopToken | None = None, patience: Patience | None = None) -> None:
        self.meter, self.stop, self.patience = meter, stop or StopToken(), patience

    def reached(self) -> StopReason | None:
        """Why the search has to end now, or ``None``."""
        if self.stop.stopped:
            return StopReason.INTERRUPTED
        over = self.patience is not None and self.patience.is_over(self.meter.expansions)
        return StopReason.CONVERGED if over else self.meter.spent()

    def check(self) -> None:
        """Raises :class:`SearchStopped` where the search has to end now."""
        reason = self.reached()
        if reason is not None:
            raise SearchStopped(reason)

    def gained(self, cost: float) -> None:
        """A graph of ``cost`` was found, cheaper than all before."""
        if self.patience is not None:
            self.patience.told(cost, self.meter.expansions)

    def idle(self) -> int | None:
        """Where patience ended the search: the expansions since the last worthwhile gain. Else ``None``."""
        if self.patience is None or self.meter.spent() is not None or self.stop.stopped:
            return None
        over = self.patience.is_over(self.meter.expansions)
        return self.meter.expansions - self.patience.last_gain if over else None
