"""The models of a comparison, the blocks that are timed of them, and the time that is left."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused
from rlflow.price.sampler import ROUNDS_SHARE
from rlflow.race.blocks import BadDuration, Block, by_name, check_durations, pooled, ratio, timings
from rlflow.runtime import Samples

#: A model that is timed beside the candidates is worth a comparison of its own where it takes so many times as long as
#: the baseline.
WORTH_A_RACE = 1.01
#: After so many blocks a model that was timed beside, and was slower than the candidate in each, is timed no more: what
#: it takes is better spent on blocks of the two that are compared.
BESIDE_BLOCKS = 4
#: A candidate that is so much behind the best of the first sample (natural logarithm), after one block and after more,
#: is timed no more; where that leaves one, the selection is over. Beside other programs a block of short runs errs by
#: five per cent and more: who is chosen by one such block is often not the best.
BEHIND = (0.15, 0.08)
#: What blocks in haste have of the time that they may take: the rest is for one that takes longer.
HASTY_SHARE = 0.9
#: Their rounds, at most: the middle of three is not moved by one that a neighbour spoilt.
HASTY_ROUNDS = 3


class Sampler(Protocol):
    """Times models; ``WorkerSampler`` does it for real, tests do it with known noise."""

    clock: str

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        """Interleaved timings of the named models in fresh sessions, for about ``seconds``; at least one round."""
        ...


class RaceProgress(NamedTuple):
    """What is told after each block: which part of a comparison this is (``selecting``, ``confirming`` or
    ``checking``), how many blocks of about how many are done, how many times as fast the candidate is by them
    (``None`` while several are looked at), and the seconds that are probably left.
    """

    what: str
    done: int
    total: int
    speedup: float | None
    seconds_left: float


@dataclass(frozen=True)
class Terms:
    """What a comparison may take, and what it claims.

    ``seconds`` is what the whole should take. Where a candidate seems faster and is not decided then, blocks are added
    up to ``LONGER`` times as long; the ``LEAST_BLOCKS`` that a claim needs may take up to ``OVERRUN`` times ``seconds``
    or ``OVERRUN_SECONDS`` (:mod:`rlflow.race.pacing`). ``at_most`` says instead how many seconds the whole may take in
    either case: no block is begun that would probably end later, and where the time is short for the ``LEAST_BLOCKS``
    they are of few rounds. Where these alone would end within ``for_least`` seconds they may take longer than
    ``at_most``: seven blocks of eight are worth nothing. So the last two of them are timed in any case, where those
    before show the gain. ``reserve``: seconds after ``at_most`` that are kept for a
    comparison of what is timed beside; they are taken where that is not worth one (``WORTH_A_RACE``). ``alpha``: the
    one-sided level. ``only``: nothing is to be chosen, the first candidate is confirmed or not.
    """

    seconds: float
    at_most: float | None = None
    for_least: float | None = None
    reserve: float = 0.0
    seed: int = 0
    alpha: float = 0.01
    only: bool = False


@dataclass
class Track:
    """One comparison's models, by the names that ``sampler`` knows them by. ``dropped``: why some are out; ``started``:
    when the seconds began to count; ``dearest``, ``latest``, ``least``: the seconds of the block that took the longest,
    of the last one, and of one with a single round; ``opening``: the most that one took before its rounds; ``round``:
    what a round took of late; ``reserve``: as in :class:`Terms`, and whether it is ``released`` to this comparison.
    """

    sampler: Sampler
    baseline: str
    candidates: list[str]
    beside: list[str]
    dropped: dict[str, str]
    at_most: float | None
    seed: int
    stop: Callable[[], bool]
    started: float
    reserve: float = 0.0
    dearest: float = 0.0
    latest: float = 0.0
    least: float = 0.0
    opening: float = 0.0
    round: float = 0.0
    released: bool = False
    seeds: np.random.SeedSequence = field(init=False)

    def __post_init__(self) -> None:
        self.seeds = np.random.SeedSequence(self.seed)

    def expect(self, seconds: float) -> None:
        """A block will take about so long, which opening the models and trying them took; the first one, which goes on
        with these sessions, does not show it.
        """
        self.dearest = self.least = self.opening = seconds

    @property
    def alive(self) -> list[str]:
        """All that are still timed."""
        return [self.baseline, *self.candidates, *self.beside]

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.started

    def lacks(self, blocks: int) -> bool:
        """Whether so many more blocks, as dear as the dearest, would take longer than the whole may."""
        if self.at_most is None:
            return False
        return self.elapsed() + blocks * self.dearest > self.at_most + (self.reserve if self.released else 0.0)

    def is_short(self, blocks: int, longer: float | None) -> bool:
        """Whether the time is too short for so many more blocks, even ``longer``, as many seconds as the least that a
        claim needs may take.
        """
        return self.lacks(blocks) and (longer is None or not self.fits(blocks, longer))

    def weigh_beside(self, blocks: Sequence[Block]) -> None:
        """Release the reserve, or take it back, by what the blocks so far say of the models that are timed beside."""
        if self.reserve > 0.0:
            found = timings(blocks, self.baseline, self.sampler.clock)
            slow = WORTH_A_RACE * found[self.baseline].ms
            self.released = bool(found.keys() - {self.baseline, *self.candidates}) and all(
                one.ms < slow for name, one in found.items() if name not in {self.baseline, *self.candidates}
            )

    def dismiss_beside(self, blocks: Sequence[Block], challenger: str) -> None:
        """Time no longer what was slower than the candidate in each of ``BESIDE_BLOCKS`` blocks."""
        if len(blocks) < BESIDE_BLOCKS:
            return
        clock, loaded = self.sampler.clock, len(self.beside) + 2
        self.beside = [
            name for name in self.beside if any(ratio(block, name, challenger, clock) <= 0.0 for block in blocks)
        ]
        self._shrink((len(self.beside) + 2) / loaded)

    def fits(self, blocks: int, seconds: float) -> bool:
        """Whether so many more blocks, of a single round each, end within ``seconds`` of the beginning."""
        return self.elapsed() + blocks * self.least <= seconds

    def part_of(self, seconds: float, blocks: int) -> float:
        """An even part for each of so many blocks, as a sampler is told it, where all of them have until ``seconds``
        after the beginning. Where opening takes most of a block, one round more costs little, and may be what the
        blocks lack to agree; but what opening leaves is all that the rounds may have. More than
        ``HASTY_ROUNDS`` long ones are not worth the time, nor short ones beyond what every block has.
        """
        enough = max(self.least + (HASTY_ROUNDS - 1) * self.round, (1.0 + ROUNDS_SHARE) * self.opening)
        part = min(HASTY_SHARE * (seconds - self.elapsed()) / blocks, enough)
        rounds = max(part - self.opening, 0.0)
        return part if rounds > ROUNDS_SHARE * self.opening else rounds

    def leaves_one(self, blocks: Sequence[Block]) -> bool:
        """Take out what is ``BEHIND`` in a first sample; whether that leaves one candidate, of several."""
        ratios, several, loaded = self.ratios(blocks), len(self.candidates) > 1, len(self.alive)
        least = max(ratios.values(), default=0.0) - BEHIND[min(len(blocks), len(BEHIND)) - 1]
        self.candidates = [name for name in self.candidates if ratios[name] >= least]
        self._shrink(len(self.alive) / loaded)
        return several and len(self.candidates) == 1

    def _shrink(self, share: float) -> None:
        """A block has only this share of its models from now on."""
        self.dearest, self.least, self.opening = self.dearest * share, self.least * share, self.opening * share

    def ratios(self, blocks: Sequence[Block]) -> dict[str, float]:
        """What each candidate came to in the blocks of a first sample that it was in (:func:`pooled`)."""
        others = {self.baseline, *self.beside, *self.dropped}
        names = sorted({name for block in blocks for name in block} - others)
        return {
            name: pooled([one for one in blocks if name in one], self.baseline, name, self.sampler.clock)
            for name in names
        }

    def other_orders(self, than: str) -> None:
        """Draw other orders of loading and of rounds than those of an earlier comparison, of the date ``than``."""
        self.seeds = np.random.SeedSequence([self.seed, zlib.crc32(than.encode())])

    def ratio(self, block: Block, name: str) -> float:
        """Median of the paired log ratios of a block; above 0 is faster than the baseline."""
        return ratio(block, self.baseline, name, self.sampler.clock)

    def block(self, names: list[str], seconds: float) -> dict[str, Samples]:
        """One block by model name; a candidate that brings the runtime down is dropped and the block taken again
        without it. Raises :class:`CostError` where that is the baseline.
        """
        began = time.perf_counter()
        while True:
            try:
                samples = self.sampler.block(names, int(self.seeds.spawn(1)[0].generate_state(1)[0]), seconds)
                check_durations(samples, names)
            except (RuntimeCrashed, RuntimeRefused) as error:
                culprit = error.model if isinstance(error, BadDuration) else self._culprit(names, error)
                self._drop(culprit, error)
                names = [name for name in names if name != culprit]
                continue
            self._took(time.perf_counter() - began, samples)
            return by_name(samples, names)

    def _took(self, seconds: float, samples: Samples) -> None:
        """What a block took, in all and before its rounds."""
        self.round = float(np.mean(np.sum(samples.wall_ms * np.array(samples.inner), axis=1))) / 1e3
        self.latest, self.dearest = seconds, max(self.dearest, seconds)
        self.opening = max(self.opening, seconds - len(samples.wall_ms) * self.round)
        self.least = min(seconds, self.opening + self.round)

    def _drop(self, culprit: str, error: Exception) -> None:
        if culprit == self.baseline:
            raise CostError(f"The baseline could not be timed: {error}") from error
        self.dropped[culprit] = str(error)
        self.candidates = [name for name in self.candidates if name != culprit]
        self.beside = [name for name in self.beside if name != culprit]

    def _culprit(self, names: Sequence[str], error: Exception) -> str:
        """The model that fails when it is timed alone; where none does, the last one, so that the loop above ends."""
        if len(names) == 1:
            return names[0]
        for name in names:
            try:
                self.sampler.block([name], self.seed, 0.0)
            except (RuntimeCrashed, RuntimeRefused):
                return name
        return names[-1]
