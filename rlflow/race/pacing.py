"""How long a comparison goes on: the seconds of the next block, and whether there is time for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlflow.price.timing import speedup
from rlflow.race.sequential import CLEAR_BLOCKS, LEAST_BLOCKS, MOST_BLOCKS, claim_ahead, half_interval
from rlflow.race.track import Terms, Track

#: What the blocks that a claim needs may take where they need more than the time given: so many times that, and so many
#: seconds at least. Then it ends without a claim.
OVERRUN, OVERRUN_SECONDS = 3.0, 90.0
#: So few of the blocks that a claim needs are timed whatever they take, where those before say that it will be made:
#: else they were in vain.
LAST_BLOCKS = 2
#: A candidate that seems faster, but is not decided when the time is over, gets so many times as long.
LONGER = 2.0
#: A claim is made, and half of its interval (natural logarithm) is wider than this: the figure gets more blocks.
SHARP = 0.03


@dataclass(frozen=True)
class RaceClock:
    """The time of a comparison on a ``track``, after blocks of the log ratios ``values``."""

    track: Track
    terms: Terms

    def seconds(self, values: Sequence[float], usual: float) -> float:
        """Seconds for the next block: fewer than usual where the time is short for those that a claim needs."""
        more, longer = self._more(values), self.terms.for_least
        if not self.track.lacks(more):
            return usual
        if longer is None:
            return 0.0
        hasty = len(values) < LEAST_BLOCKS or self.track.fits(more, longer)
        return max(0.0, self.track.part_of(longer, more)) if hasty else usual

    def is_over(self, values: Sequence[float], fresh: int) -> bool:
        """Whether the time is spent, after ``fresh`` blocks of this run. That a candidate seems slower may end it, and
        makes no claim likelier.
        """
        spent, seconds, bounded = self.track.elapsed(), self.terms.seconds, self.terms.at_most is not None
        if self.is_short(values):
            return True
        if len(values) < LEAST_BLOCKS:
            return not bounded and spent >= max(OVERRUN * seconds, OVERRUN_SECONDS)
        if spent < seconds or fresh < CLEAR_BLOCKS:
            return False
        return float(np.median(values)) <= 0.0 or (not bounded and spent >= LONGER * seconds)

    def may_sharpen(self, values: Sequence[float]) -> bool:
        """Whether the interval of a claim is wide, and the time reaches for one more block. Such blocks change the
        figure and not the claim, whose p value is that of the looks before.
        """
        found = speedup(values)
        wide = half_interval(found.low, found.high) > SHARP and len(values) < MOST_BLOCKS
        return wide and self.track.elapsed() < LONGER * self.terms.seconds and not self.track.lacks(1)

    def is_short(self, values: Sequence[float]) -> bool:
        """Whether the time that a comparison may take is too short for another block; the rest of those that a claim
        needs may take longer, if they all fit into that.
        """
        more = self._more(values)
        if self._is_nearly_there(values):
            return False
        return self.track.lacks(1) and (more == 0 or self.track.is_short(more, self.terms.for_least))

    def _is_nearly_there(self, values: Sequence[float]) -> bool:
        """Whether ``LAST_BLOCKS`` or fewer are missing, and of the others at most one shows no gain. What a claim needs
        to be right is untouched: there is no look before the last of them.
        """
        missing, against = LEAST_BLOCKS - len(values), sum(value <= 0.0 for value in values)
        return self.terms.for_least is not None and 0 < missing <= LAST_BLOCKS and against <= 1

    def _more(self, values: Sequence[float]) -> int:
        """How many blocks a claim needs yet: the least, or those to the look that it is on its way to, if these may
        take longer; else 0.
        """
        if len(values) < LEAST_BLOCKS:
            return LEAST_BLOCKS - len(values)
        ahead = None if self.terms.for_least is None else claim_ahead(values, self.terms.alpha)
        return 0 if ahead is None else ahead - len(values)
