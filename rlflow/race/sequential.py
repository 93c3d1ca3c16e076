"""When a growing sample of block ratios says that a candidate is faster: a test that may be looked at several times.

A block's ratio is the natural logarithm of the baseline's time over the candidate's. Processes, sessions and orders of
loading are drawn anew for every block, so that two equally fast models are exchangeable in it: the ratio is as likely
to be ``r`` as ``-r``, whatever its spread, its tails, or what else ran. That is all that is assumed.

**The looks.** It is looked at the counts of ``LOOKS`` and nowhere else. The first look is the exact signed-rank test:
eight blocks that all show the gain, or all but the one that shows the least, are a claim. Where one shows a large loss,
because a neighbour spoilt it, ranks would need fourteen blocks more to make up for it. So the next looks only count:
of 12 blocks one may show no gain, of 18 two, of 24 three, of 30 five, however large. The last look is by ranks again,
which small gains without outliers pass first.

**The error over all looks.** Every pattern of signs is equally likely where nothing is gained, whatever the sizes of
the ratios, so that the patterns which are claimed by some look can be counted (:func:`error`): 0.984 % of them, and
1 % with what the last look may add. This holds

* whatever decides between two looks whether to go on (time, the width of an interval, a hopeless estimate): ending
  early only takes looks away, and blocks after the last look are not looked at;
* over several runs: a comparison that was left undecided is kept with *all* of its blocks, whichever way they point,
  and the next run goes on with the same sequence at the looks that are left. It is one experiment with one alpha.

A look's p value over its share says how low the level could be for a claim there. The corrected p value is the error
over all looks at the least such level (on p values after sequential tests: Jennison and Turnbull 2000, section 8.4).
It is at most alpha where a claim is made, and only there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlflow.price.student import student_tail
from rlflow.price.timing import hodges_lehmann, signed_rank_p, standard_error


def sign_p(ratios: Sequence[float] | np.ndarray) -> float:
    """One-sided p value of the sign test: how likely so few of the ratios are not above 0 if as many are expected on
    either side.
    """
    return _few(len(ratios), int(np.sum(np.asarray(ratios) <= 0.0)))


def _few(count: int, most: int) -> float:
    """How likely at most so many of ``count`` fair coins fall on one side."""
    return sum(math.comb(count, k) for k in range(most + 1)) / 2.0**count


class Look(NamedTuple):
    """A test, from ratios to its p value, and the part of the level that it has."""

    test: Callable[[Sequence[float] | np.ndarray], float]
    share: float


#: What is looked at after so many blocks. The shares may add up to more than one, because who passes one look mostly
#: passes the next: what counts is :func:`error`.
LOOKS = {
    8: Look(signed_rank_p, 0.79),
    12: Look(sign_p, 0.318),
    18: Look(sign_p, 0.0657),
    24: Look(sign_p, 0.0139),
    30: Look(sign_p, 0.0163),
    42: Look(signed_rank_p, 0.01645),
}
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
    seen = [look.test(ratios[:blocks]) / look.share for blocks, look in LOOKS.items() if blocks <= len(ratios)]
    return error(min(seen)) if seen else 1.0


def error(level: float) -> float:
    """How likely it is, where nothing is gained, that some look's p value is at most its share of ``level``: counted
    for blocks of different sizes, with what the last look may add to it.
    """
    (first, by_ranks), *counted, (_, last) = LOOKS.items()
    passed = [_most(blocks, look.share * level) for blocks, look in counted]
    ranked = math.floor(by_ranks.share * level * 2**first * (1.0 + 1e-12))
    return min(1.0, _claimed(min(ranked, 2**first), tuple(passed)) + last.share * level)


def _most(blocks: int, level: float) -> int:
    """Of so many blocks at most this many may show no gain at the ``level``; -1 where all must and it is no claim."""
    return next((k - 1 for k in range(blocks + 1) if _few(blocks, k) > level * (1.0 + 1e-12)), blocks)


@functools.lru_cache(maxsize=256)
def _claimed(ranked: int, passed: tuple[int, ...]) -> float:
    """The part of all patterns of signs that the first look claims, which are at most ``ranked``, those against it of
    the smallest rank sums; or one of the looks that count, where at most ``passed`` of the blocks show no gain.
    """
    (first, _), *counted, _ = LOOKS.items()
    sums = Counter({(0, 0): 1})  # patterns by how many are against it, and their rank sum
    for rank in range(1, first + 1):
        sums.update({(against + 1, total + rank): ways for (against, total), ways in list(sums.items())})
    by_sum = Counter[int]()
    for (_, total), ways in sums.items():
        by_sum[total] += ways
    reached = itertools.accumulate(by_sum[total] for total in range(max(by_sum) + 1))
    claimed_sums = sum(ways <= ranked for ways in reached)  # rank sums below this are a claim
    alive = Counter[int]()
    for (against, total), ways in sums.items():
        if total >= claimed_sums:
            alive[against] += ways
    likely = {against: ways / 2.0**first for against, ways in alive.items()}
    found, blocks = 1.0 - sum(likely.values()), first
    for (count, _), most in zip(counted, passed, strict=True):
        for _ in range(count - blocks):
            likely = {k: (likely.get(k, 0.0) + likely.get(k - 1, 0.0)) / 2.0 for k in range(max(likely, default=0) + 2)}
        found, blocks = found + sum(part for k, part in likely.items() if k <= most), count
        likely = {k: part for k, part in likely.items() if k > most}
    return found


def claim_ahead(ratios: Sequence[float] | np.ndarray, alpha: float) -> int | None:
    """After how many blocks there would be a claim if all further ones were like the middle of those so far; ``None``
    where there would be none.
    """
    if not len(ratios):
        return None
    middle = float(np.median(ratios))
    for blocks in LOOKS:
        if blocks > len(ratios) and corrected_p([*ratios, *[middle] * (blocks - len(ratios))]) <= alpha:
            return blocks
    return None


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
