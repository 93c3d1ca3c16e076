"""Who gets which part of the seconds that were given.

The clock runs from the first price to the last output that is compared. Pricing has a part of it; what the final
comparison and the check will need is estimated from one run of the model as it came; the search has the rest. Where
kernels are asked for, measuring them has a part as well. Time that a stage leaves over goes to the ones after it. A
budget of counts limits the search alone, and nothing has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rlflow.race.sequential import LEAST_BLOCKS

#: Parts of the budget: what pricing may take, what the search gets at least, what the comparison and the check get at
#: most where they need much, and what the kernels have where they are asked for.
PRICING, SEARCH_LEAST, RACE_MOST, CHECK_MOST, KERNELS = 0.3, 0.2, 0.4, 0.2, 0.3
#: Where the kernels need more than this part, and what is left does not reach for rewrites, they have all of it.
KERNELS_ALONE = 0.4
#: Learning about a machine takes up to so many seconds, once; a shorter part of pricing does with less.
MACHINE_SECONDS = 15.0
#: The comparison should have a third of the budget, within these bounds (seconds).
RACE_BOUNDS = (2.0, 20.0)
#: Without a budget of seconds the comparison gets so many.
RACE_UNLIMITED = 10.0
#: A claim needs so many blocks of fresh sessions in a fresh process (seconds to start it), of a few runs each; one more
#: screens and chooses.
RACE_BLOCKS, RACE_RUNS, RACE_START = 10, 3, 0.3
#: The blocks that a claim needs may end after the budget: so many times it, and so many seconds, after its beginning
#: at most. The check that follows is not part of that.
LATE, LATE_SECONDS = 1.1, 5.0
#: The same for the kernels, which are measured last.
KERNELS_LATE_SECONDS = 2.0
#: Seconds that the check has, however late it is.
CHECK_LEAST = 4.0
#: Measuring the peak memory may end so much after the budget: a part of it, and seconds.
MEMORY_SHARE, MEMORY_SECONDS = 0.05, 1.0
#: What the check opens and runs, about; and that of the kernels, whose graph is run as it is deployed only.
CHECK_LOADS, CHECK_RUNS = 5, 16
KERNELS_CHECK_LOADS, KERNELS_CHECK_RUNS = 5, 10
#: Runs of each model in a block of the blocks that a claim needs, at least: some warm it up; where a run takes longer
#: than so many seconds, the first one counts.
BLOCK_RUNS, BLOCK_LONG_RUNS, LONG_RUN = 8, 2, 0.15
#: What measuring kernels opens and runs at least: the runtime's own, and one variant.
VARIANTS, VARIANT_RUNS = 2, 4


@dataclass(frozen=True)
class ModelTimes:
    """Seconds of opening the model where it will run, and of one run of it."""

    load: float = 0.0
    run: float = 0.0

    def race(self, models: int) -> float:
        """Seconds in which so many models can be compared."""
        return RACE_BLOCKS * (RACE_START + models * (self.load + RACE_RUNS * self.run))

    @property
    def check(self) -> float:
        """Seconds in which two models' outputs can be compared."""
        return CHECK_LOADS * self.load + CHECK_RUNS * self.run

    @property
    def kernels_check(self) -> float:
        """The same for a graph with kernels."""
        return KERNELS_CHECK_LOADS * self.load + KERNELS_CHECK_RUNS * self.run

    def claim(self, start: float = RACE_START) -> float:
        """Seconds of the blocks that a claim about two models needs, as short as they can be: each starts a process,
        opens both models and runs them (:func:`rlflow.runtime.loops.time_interleaved`).
        """
        runs = BLOCK_RUNS if self.run < LONG_RUN else BLOCK_LONG_RUNS
        return LEAST_BLOCKS * (start + 2.0 * (self.load + runs * self.run))

    @property
    def kernels(self) -> float:
        """Seconds in which kernels can be measured in the model, checked, and compared with it."""
        return VARIANTS * (self.load + VARIANT_RUNS * self.run) + self.kernels_check + self.claim()


class Timing(NamedTuple):
    """Seconds that the final comparison should take, may take, and may take for no more than the blocks that a claim
    needs (``None``: what it needs). ``reserve``: seconds after ``at_most`` for the clean-up, if that is compared.
    """

    seconds: float
    at_most: float | None = None
    for_least: float | None = None
    reserve: float = 0.0


class Parts:
    """The parts of a budget of ``seconds`` (``None``: there is none); ``race_seconds``: what the user gives the final
    comparison, whatever the budget is; ``kernels``: whether a plan of kernels is to be made. ``given`` are the parts by
    stage, for the report.
    """

    def __init__(
        self,
        seconds: float | None,
        race_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        kernels: bool = False,
    ) -> None:
        self.seconds, self._race_seconds, self._clock = seconds, race_seconds, clock
        self._kernels = KERNELS * seconds if kernels and seconds is not None else 0.0
        self.given: dict[str, float] = {}
        self._began: float | None = None
        self._search_ends = float("inf")
        self._race = self._check = self._advice = 0.0
        self.pace: ModelTimes | None = None

    def begin(self) -> None:
        """The clock starts, if it did not before; what comes earlier is not counted."""
        if self._began is None:
            self._began = self._clock()

    @property
    def left(self) -> float:
        """Seconds that are left; infinitely many where none were given."""
        began = self._clock() if self._began is None else self._began
        return float("inf") if self.seconds is None else self.seconds - (self._clock() - began)

    @property
    def learning(self) -> float | None:
        """Seconds for learning about a new machine in full, two thirds of pricing's or half: the rest is the regions'.
        None where it may take more than pricing has, any (``None``) where no seconds were given.
        """
        if self.seconds is None:
            return None
        part = PRICING * self.seconds
        return 0.0 if part < MACHINE_SECONDS else max(part / 2.0, min(part / 1.5, MACHINE_SECONDS))

    def pricing(self) -> float | None:
        """Seconds for the regions of the model, after what was learnt about the machine: half of pricing's at least."""
        if self.seconds is None:
            return None
        part = self._granted("pricing", PRICING * self.seconds)
        return max(part - (self.seconds - self.left), part / 2.0)

    def plan(self, pace: ModelTimes, models: int, advice: float = 0.0) -> None:
        """Set aside what comparing so many ``models`` (0: none) and the check of one need, and seconds for saying what
        the user might allow (``advice``).
        """
        self.pace = pace
        if self.seconds is None:
            return
        self._advice = advice
        low, high = RACE_BOUNDS
        usual = min(high, max(low, self.seconds / 3.0))
        self._race = min(max(usual, pace.race(models)), RACE_MOST * self.seconds) if models else 0.0
        if models and self._race_seconds is not None:
            self._race = self._race_seconds
        self._check = min(pace.check, CHECK_MOST * self.seconds)

    def leaves_kernels_alone(self, pace: ModelTimes) -> bool:
        """Whether the model takes so long that either kernels or rewrites can be found in the time, not both."""
        self.pace = pace
        if self.seconds is None or pace.kernels <= KERNELS_ALONE * self.seconds:
            return False
        needed = (PRICING + SEARCH_LEAST) * self.seconds + pace.claim() + pace.kernels
        return needed > LATE * self.seconds + LATE_SECONDS

    def drop_kernels(self) -> None:
        """Nothing is set aside for the kernels: they have what the other stages leave over."""
        self._kernels = 0.0

    def searching(self) -> float | None:
        """Seconds for the search."""
        if self.seconds is None:
            return None
        left = self.left - self._after - self._advice
        seconds = self._granted("searching", max(left, SEARCH_LEAST * self.seconds))
        self._search_ends = self._clock() + seconds
        return seconds

    @property
    def search_left(self) -> float:
        """Seconds of the search's part that are left."""
        return max(self._search_ends - self._clock(), 0.0)

    @property
    def spare(self) -> float:
        """Seconds after the search that no later stage has been promised."""
        return max(self.left - self._after, 0.0)

    def timing(self) -> Timing:
        """Seconds of the final comparison."""
        if self._race_seconds is not None:
            return Timing(self._granted("timing", self._race_seconds))
        if self.seconds is None:
            return Timing(RACE_UNLIMITED)
        left = self.left - self._check - self._kernels
        most = self._granted("timing", max(left, 1.0))
        late = left + (LATE - 1.0) * self.seconds + LATE_SECONDS
        return Timing(min(max(self._race, RACE_BOUNDS[0]), most), most, max(most, late))

    def verifying(self) -> float | None:
        """Seconds for the check; it has some in any case, since nothing is written without it."""
        if self.seconds is None:
            return None
        return self._granted("verifying", max(self.left - self._kernels, self._check, CHECK_LEAST))

    def kernels(self) -> Timing | None:
        """Seconds for measuring the kernels, checking their outputs and comparing whole models, which no stage follows:
        the comparison may end later, and the blocks that a claim needs still later. The first two are 0 where it is too
        late for any of it.
        """
        if self.seconds is None:
            return None
        if self._race_seconds is not None:  # the user's own, whatever the budget is
            seconds = self._granted("kernels", max(self.left, self._kernels / 2.0))
            return Timing(seconds, seconds + self._race_seconds)
        over = self.left + (LATE - 1.0) * self.seconds
        late = max(over + KERNELS_LATE_SECONDS, 0.0)
        seconds = self._granted("kernels", max(self.left, min(self._kernels / 2.0, late)))
        return Timing(seconds, max(seconds, late), max(seconds, over + LATE_SECONDS))

    def allows_memory(self) -> bool:
        """Whether there is time to open and run two models once more, each in a process of its own."""
        if self.seconds is None or self.pace is None:
            return True
        needed = 2.0 * (RACE_START + self.pace.load + self.pace.run)
        return needed <= max(self.left - self._kernels, 0.0) + MEMORY_SHARE * self.seconds + MEMORY_SECONDS

    @property
    def _after(self) -> float:
        """Seconds that are set aside for what follows the search."""
        return self._race + self._check + self._kernels

    def _granted(self, stage: str, seconds: float) -> float:
        self.given.setdefault(stage, round(seconds, 1))
        return round(seconds, 1)
