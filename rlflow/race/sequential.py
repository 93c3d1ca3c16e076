"""When a growing sample of block ratios says that a candidate is faster: a test that may be looked at several times.

A block's ratio is the natural logarithm of the baseline's time over the candidate's. Processes, sessions and orders of
loading are drawn anew for every block, so that two equally fast models are exchangeable in it: the ratio is as likely
to be ``r`` as ``-r``, whatever its spread, its tails, or what else ran. That is all that is assumed.

**The error over all looks.** It is looked at the counts of ``LOOKS`` and nowhere else, each time by the exact
signed-rank test over all blocks so far, at the level ``share * alpha``. The shares add up to one, so a candidate that
is no faster is claimed at *any* look with probability alpha at most (Bonferroni over looks). This holds

* whatever decides between two looks whether to go on (time, the width of an interval, a hopeless estimate): ending
  early only takes looks away, and blocks after the last look are not looked at;
* over several runs: a comparison that was left undecided is kept with *all* of its blocks, whichever way they point,
  and the next run goes on with the same sequence at the looks that are left. It is one experiment with one alpha.

The corrected p value is the smallest over the looks of ``p / share``; it is at most alpha where a claim is made, and
only there. At alpha = 0.01 the first look has 2/256: of eight blocks all show the gain, or all but the one that shows
the least. A look after seven would need them all, for the same share: one that is off by a neighbour's burst would then
cost five blocks more. Exactly 0.8 % of equals are called faster, because ranks are discrete and looks overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlflow.price.student import student_tail
from rlflow.price.timing import hodges_lehmann, signed_rank_p, standard_error

#: Blocks after which it is looked whether a gain is clear, and the share of the level that each look has.
LOOKS = {8: 0.79, 12: 0.075, 16: 0.05, 22: 0.04, 30: 0.025, 42: 0.02}
#: Fewer blocks than this claim nothing, and after so many a comparison is decided either way.
LEAST_BLOCKS, MOST_BLOCKS = min(LOOKS), max(LOOKS)
#: After so many blocks it is looked whether a loss is clear already.
CLEAR_BLOCKS = 5
#: After so many whether the interval leaves any gain that is worth having (natural logarithm).
NARROW_BLOCKS, WORTHWHILE = 8, 0.005
#: Level of a clear loss. Giving up wrongly claims nothing.
LOSS = 0.025


def corrected_p(ratios: Sequence[float] | np.ndarray) -> float:
    """One-sided p value of "not faster at all", corrected for all looks; 1 before the first."""
    found = [signed_rank_p(ratios[:blocks]) / share for blocks, share in LOOKS.items() if blocks <= len(ratios)]
    return min([1.0, *found])


def is_hopeless(ratios: Sequence[float] | np.ndarray) -> bool:
    """Whether going on is pointless where there is no claim: the candidate is clearly slower, or its gain is not worth
    having, or there is no look left.
    """
    count = len(ratios)
    if count >= MOST_BLOCKS:
        return True
    if count < CLEAR_BLOCKS:
        return False
    error = standard_error(ratios)
    if error > 0.0 and student_tail(-float(np.mean(ratios)) / error, count - 1) < LOSS:
        return True
    return count >= NARROW_BLOCKS and hodges_lehmann(ratios).high < WORTHWHILE


def next_look(blocks: int) -> int | None:
    """The number of blocks at which it is looked next, ``None`` where that was the last."""
    return next((look for look in LOOKS if look > blocks), None)


def half_interval(low: float, high: float) -> float:
    """Half the width of an interval of ratios, as a natural logarithm; infinite where an end is."""
    return math.log(high / low) / 2.0 if low > 0.0 and math.isfinite(high) else math.inf
