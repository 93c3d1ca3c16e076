"""What earlier final comparisons found, kept in the ledger; and when it still counts.

A comparison is kept, whichever way it went: the block ratios, what the baseline took, when, and how much time it was
given, under the two models' contents, their inputs, and the place.

One that was left *undecided* (the time was over, or Ctrl-C came) is gone on with: the next comparison of the same two
models adds blocks to the same sequence, at the looks that are left (:mod:`rlflow.race.sequential`). All of its blocks
are kept, wherever they point, so that it is one experiment in several sittings, whose error is alpha over all of them.
Only what a machine was too noisy for (``TOO_WIDE``; the width says nothing about the sign) is not kept; the next
comparison is an experiment of its own then.

One that was *decided* is asked whether it is still true: the next comparison of the same two models takes a few fresh
blocks and asks whether they *contradict* what is kept. If they do, it is thrown away and a full comparison follows, on
samples of its own. If not, the verdict is repeated.

Why that makes no false claim likelier. A decided "no gain" is never tested again together with fresh blocks, and a
kept claim can only be withdrawn: to be repeated it has to survive the check, and the old and the fresh blocks together
have to be significant still. A verdict in force was therefore reached by one experiment, which claims with probability
alpha at most. What is left is which verdicts survive. Let a wrong claim be thrown away with probability c in a run, a
right "no gain" with probability n, and each replaced by a full comparison; from run to run the share of wrong claims
then goes from alpha to alpha n / (alpha n + (1 - alpha) c), which is less where n is below c. A claim is repeated only
if all of three fresh blocks show a gain, or four of five, which they do by chance in less than a quarter of the cases,
whatever their distribution, if it is symmetric: c is 25/32 at least. And n is the 2.5 % at which fresh blocks are
faster than recorded. Only where the machine is too noisy for the verdict to be kept n is 1, and the share of wrong
claims 1.3 alpha at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlflow.ledger import Kind, Ledger, key
from rlflow.price.student import student_tail

if TYPE_CHECKING:
    from rlflow.price.database import PriceContext

#: Changes where blocks are formed or looked at in another way, so that no old comparison is read by a new rule.
PROTOCOL = 3
#: Fresh blocks that a kept verdict is checked by, and the part of a comparison's time that they should take. Of a claim
#: one of them may show no gain, if further ones do.
CHECK_BLOCKS, CHECK_SHARE = 3, 0.22
CHECK_MORE = 2
#: Level, on either side, at which fresh blocks contradict the kept ones.
CONTRADICTION = 0.025
#: The baseline may take so many times as long as it did, or as little; beyond that the machine is another one.
MACHINE_DRIFT = 1.25
#: An interval wider than this on either side (natural logarithm) is of blocks that would only spoil further ones.
TOO_WIDE = 0.10
#: Block ratios are not taken to be better known than this (natural logarithm).
FINEST = 0.001


@dataclass(frozen=True)
class Evidence:
    """One comparison: ``ratios`` are natural logarithms of baseline by candidate, one a block; ``rounds`` and
    ``baseline_ms`` are of all blocks; ``seconds`` is what it was given; ``taken_at`` an ISO date in UTC. ``decided``:
    whether it came to a claim or to none that is worth going on for; else the next comparison adds blocks to it.
    """

    ratios: tuple[float, ...]
    claimed: bool
    p_value: float
    baseline_ms: float
    rounds: int
    seconds: float
    taken_at: str
    decided: bool = True

    @property
    def day(self) -> str:
        """The date without the time."""
        return self.taken_at[:10]

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Evidence:
        """What ``asdict`` gave; raises an error for anything else, and for what cannot be."""
        found = cls(**{**plain, "ratios": tuple(map(float, plain["ratios"]))})
        numbers = [*found.ratios, found.p_value, found.baseline_ms, found.seconds]
        flags = isinstance(found.claimed, bool) and isinstance(found.decided, bool)
        if len(found.ratios) < 2 or not all(map(math.isfinite, numbers)) or not found.baseline_ms > 0:
            raise ValueError("a figure in it cannot be that of a comparison")
        if not flags or not isinstance(found.taken_at, str):
            raise ValueError("its verdict or its date cannot be read")
        return found


#: Finished comparisons of whole models, of use on this machine only.
COMPARISONS = Kind("comparisons", PROTOCOL, asdict, Evidence.of_plain)


def more_checks(known: Evidence, fresh: Sequence[float]) -> bool:
    """Whether another fresh block is needed before it can be said if they contradict what is kept."""
    if len(fresh) < CHECK_BLOCKS:
        return True
    return known.claimed and _without_gain(fresh) == 1 and len(fresh) < CHECK_BLOCKS + CHECK_MORE


def _without_gain(fresh: Sequence[float]) -> int:
    return sum(ratio <= 0.0 for ratio in fresh)


def contradiction(known: Evidence, fresh: Sequence[float], baseline_ms: float) -> str | None:
    """Why fresh blocks, and what the baseline took in them, do not go with what is kept; ``None`` where they do.

    The clause continues "it was thrown away, because …".
    """
    drift = baseline_ms / known.baseline_ms
    if not 1.0 / MACHINE_DRIFT <= drift <= MACHINE_DRIFT:
        return f"the original takes {drift:.2f} times as long as it did then"
    now, then = float(np.mean(fresh)), float(np.mean(known.ratios))
    figures = f"fresh blocks say {math.exp(now):.3f} times as fast, where {math.exp(then):.3f} was found then"
    slow = _without_gain(fresh)
    if known.claimed and slow > (len(fresh) > CHECK_BLOCKS):
        return f"{slow} of {len(fresh)} fresh blocks show no gain ({math.exp(then):.3f} times as fast was found then)"
    beyond = student_tail(abs(now - then) / _error(known.ratios, fresh), len(known.ratios) + len(fresh) - 2)
    # That a candidate without a claim is slower than it was changes nothing.
    return figures if beyond < CONTRADICTION and (known.claimed or now > max(then, 0.0)) else None


def _error(one: Sequence[float], two: Sequence[float]) -> float:
    """Standard error of the difference of two means of one spread (Student's two-sample test)."""
    freedom = len(one) + len(two) - 2
    squares = sum(float(np.sum((np.asarray(part) - np.mean(part)) ** 2)) for part in (one, two))
    return max(math.sqrt(squares / freedom), FINEST) * math.sqrt(1.0 / len(one) + 1.0 / len(two))


class Memory(Protocol):
    """Kept comparisons, by candidate; :class:`Archive` keeps them in the ledger."""

    def recall(self, candidate: str) -> Evidence | None: ...

    def keep(self, candidate: str, found: Evidence) -> None: ...

    def forget(self, candidate: str) -> None: ...


class ComparisonStore:
    """Kept comparisons of one baseline in one place; ``identity`` names a candidate together with everything that its
    comparison depends on (contents of both models, inputs). ``fresh``: nothing is recalled.
    """

    def __init__(
        self, place: PriceContext, identity: Callable[[str], str], fresh: bool = False, folder: Path | None = None
    ) -> None:
        self._place, self._identity = place, identity
        self._ledger = Ledger(COMPARISONS, folder, fresh)

    def recall(self, candidate: str) -> Evidence | None:
        """What is known about a candidate."""
        return self._ledger.recall(self._key(candidate))

    def keep(self, candidate: str, found: Evidence) -> None:
        """In place of what was known."""
        self._ledger.keep(self._key(candidate), found, found.taken_at, **vars(self._place))

    def forget(self, candidate: str) -> None:
        """Throw away what was known."""
        self._ledger.forget(self._key(candidate))

    def _key(self, candidate: str) -> str:
        return key(self._place, self._identity(candidate))


def plain(known: Evidence, used: bool, sentence: str) -> dict[str, Any]:
    """What a report says about kept evidence."""
    return {
        "used": used,
        "sentence": sentence,
        "taken_at": known.taken_at,
        "claimed": known.claimed,
        "blocks": len(known.ratios),
        "rounds": known.rounds,
        "baseline_ms": known.baseline_ms,
        "speedup": math.exp(float(np.mean(known.ratios))),
    }
