"""When a search that still has a budget may end: it has gone on for long without a gain that is worth the time.

The measure is expansions, not seconds, so that the same search ends at the same graph on a slow machine and on a fast
one, and the time that measuring takes does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlflow.errors import UsageError
from rlflow.search.budget import Budget

#: Part of the starting graph's cost that gains have to add up to before they count as one. Best costs creep down by
#: single dispatches (some 0.005 % each) for as long as a search runs; the clock cannot tell them from none.
WORTHWHILE = 1e-3
#: A search goes on for so many times as long as it took to its last gain.
FACTOR = 2.0
OFF = "off"
DEFAULT = "auto"


@dataclass
class Patience:
    """Ends a search after ``least`` expansions, or ``FACTOR`` times as many as its last worthwhile gain took, whichever
    is more.
    """

    least: int
    _start: float | None = None
    _level: float = 0.0
    _last: int = 0

    def __post_init__(self) -> None:
        if self.least < 1:
            raise UsageError(f"A patience of {self.least} expansions ends a search before it begins; give 1 or more.")

    def told(self, cost: float, expansions: int) -> None:
        """A graph of ``cost`` was found, cheaper than all before; the first one is the starting graph."""
        if self._start is None:
            self._start = self._level = cost
        elif self._level - cost >= WORTHWHILE * self._start:
            self._level, self._last = cost, expansions

    @property
    def last_gain(self) -> int:
        """Expansions that it took to the last worthwhile gain."""
        return self._last

    def is_over(self, expansions: int) -> bool:
        """Whether to end after so many expansions."""
        return expansions >= max(self.least, FACTOR * self._last)


def of(given: str | int | None, budget: Budget, usual: int | None) -> Patience | None:
    """The patience that a user means: a number of expansions, ``"off"`` (or ``None``), or ``"auto"``.

    ``auto`` is ``usual``, the strategy's own, where only seconds limit the search: who counts candidates, expansions
    or measurements has said how far to go. Raises :class:`UsageError` for anything else.
    """
    if given is None or given == OFF:
        return None
    if given == DEFAULT:
        by_the_clock = budget.candidates is None and budget.expansions is None and budget.measurements is None
        return Patience(usual) if usual is not None and by_the_clock else None
    try:
        return Patience(int(given))
    except ValueError:
        raise UsageError(
            f"The patience {given!r} cannot be read; give a number of expansions, 'auto' or 'off'."
        ) from None
