"""Regions timed in batches: as far as the time reaches, one time for each program, at one pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rlflow.errors import CostError, GraphError, ModelError, RuntimeCrashed, RuntimeRefused
from rlflow.price import layouts
from rlflow.price.allowance import FULL_SESSIONS, FULL_TRIP, Allowance
from rlflow.price.bench import LEVEL, Bench
from rlflow.price.database import Price
from rlflow.price.lookup import PROGRAM, Lookup
from rlflow.price.machine import Machine
from rlflow.price.partition import Job, Partition
from rlflow.price.protocol import FillReport
from rlflow.runtime import Measurement, runtime

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: The best pace of a machine is that while the regions of a first graph are timed, or for so many seconds of it.
PACE_SECONDS = 30.0
#: Sessions that the regions of a model are timed in that streams its weights from memory, of which the median counts:
#: one and the same product took 0.13 to 0.30 ms in sessions of which the two fastest agreed. (Of five, the prices of
#: two databases ranked the variants of a decoder step as alike as 0.92.)
STREAMING_SESSIONS = 7
#: Part of a stand-alone time beyond which what is beside the region is told apart by a profile.
_LARGE_PART = 0.25
_LEAST_MS = 1e-5


@dataclass
class _Timings:
    """Regions that were timed and are not priced yet: the programs that the runtime makes of them (by key), what those
    that nobody had timed took (the first region of each), and why others cannot be. ``hasty``: not to be kept.
    """

    jobs: Sequence[Job]
    programs: dict[str, str]
    took: dict[str, tuple[Job, Measurement | str]]
    refusals: dict[str, str]
    hasty: bool = False


class Rushed(NamedTuple):
    """A region that was timed in haste, with all signatures that have its price, and that price."""

    job: Job
    price: Price


class Looked(NamedTuple):
    """How many regions were looked at, how many of these had the program of another one, and how many the runtime
    refused.
    """

    done: int
    shared: int
    refused: int


class Batches:
    """Times regions and prices them. ``priced`` hears the price of each."""

    def __init__(
        self, bench: Bench, lookup: Lookup, machine: Machine, partition: Partition,
        priced: Callable[[Job, Price], None],
    ) -> None:  # fmt: skip
        self._bench, self._lookup, self._machine, self._partition = bench, lookup, machine, partition
        self._priced = priced
        #: Whether regions are timed in haste from here on.
        self.hasty = False
        #: Seconds that one of them took of late, in haste.
        self.each: float | None = None
        #: What was timed in haste, by key. It is not kept, but it is the price of every signature in this run.
        self.rushed: dict[str, Rushed] = {}
        #: The keys of what was timed in full here: other prices are of earlier runs.
        self.timed: set[str] = set()

    def measure(self, jobs: Sequence[Job], allowance: Allowance, stop: Callable[[], bool]) -> Looked:
        """Time and price ``jobs``, as far as the time reaches; ``stop`` is asked between batches."""
        done = shared = refused = 0
        started = time.perf_counter()
        pending: list[_Timings] = []  # until the pace of the machine is known
        while done < len(jobs) and not allowance.over() and not stop():
            if allowance.hasty and not self.hasty:
                refused, pending, self.hasty = refused + self._keep(pending), [], True
            begun = time.perf_counter()
            one = self._time(self._trip(jobs[done : done + allowance.batch()]), pending, allowance)
            pending.append(one)
            done, shared = done + len(one.jobs), shared + len(one.programs) - len(one.took)
            known = not self._bench.caches.paced or self._machine.pace is not None
            if known or time.perf_counter() - started >= PACE_SECONDS:
                refused, pending = refused + self._keep(pending), []
            allowance.took(len(one.jobs), time.perf_counter() - begun)
        self.each = allowance.each if self.hasty else None
        looked = Looked(done, shared, refused + self._keep(pending))
        if self.hasty and allowance.seconds is not None:
            self._in_full([job for job in jobs[:done] if job.key in self.rushed], allowance, stop)
        return looked

    def again(self, jobs: Sequence[Job], allowance: Allowance, stop: Callable[[], bool]) -> int:
        """Time ``jobs`` in full, one by one, those for which there is time; the number of them."""
        was, self.hasty, took, done = self.hasty, False, 0.0, 0
        try:
            for job in jobs:
                if allowance.left < took or allowance.over() or stop():
                    break
                if allowance.left < self.least_seconds([job]):
                    continue
                begun = time.perf_counter()
                self._keep([self._time([job], [], allowance)])
                took, done = time.perf_counter() - begun, done + 1
        finally:
            self.hasty = was
        return done

    def least_seconds(self, jobs: Iterable[Job]) -> float:
        """What timing ``jobs`` in full takes at least: by their prices in haste, or by what they compute."""
        sessions = STREAMING_SESSIONS if self._bench.caches.far else FULL_SESSIONS
        return sessions * self._bench.repeats * sum(map(self._run_seconds, jobs))

    def _trip(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The first of ``jobs``, as many as should be timed before somebody asks again whether to stop."""
        seconds = 0.0
        for count, job in enumerate([] if self.hasty else jobs):
            seconds += self.least_seconds([job])
            if count and seconds > FULL_TRIP:
                return jobs[:count]
        return jobs

    def _run_seconds(self, job: Job) -> float:
        rushed = self.rushed.get(job.key)
        ms = None if rushed is None else rushed.price.ms
        return job.run_seconds if ms is None else ms / 1e3

    def known(self, jobs: Mapping[str, Job], cached: Container[str]) -> dict[str, Price]:
        """The prices, had in haste before, of those of ``jobs`` that are not ``cached``."""
        found = {key: self.rushed[key] for key in jobs if key in self.rushed and key not in cached}
        for key, one in found.items():
            one.job.waiting.update(jobs[key].waiting)
        return {key: one.price for key, one in found.items()}

    def firm(
        self, graphs: Sequence[Graph], seconds: float, stop: Callable[[], bool], priced: Callable[[str], bool]
    ) -> FillReport:
        """Time in full what was timed in haste, or was not ``priced`` at all (by signature) because the time was over:
        first of the regions that not all of ``graphs`` have, then of all others; those on which most depends first.
        """
        apart: list[Job] = []
        for key, job in self._partition.differing(graphs).items():
            rushed = self.rushed.get(key)
            if rushed is not None and rushed.price.ms is not None:
                rushed.job.waiting.update(job.waiting)
                apart.append(rushed.job)
            elif rushed is None and not any(map(priced, job.waiting)):
                apart.append(job)
        keys = {job.key for job in apart}
        others = [one.job for key, one in self.rushed.items() if one.price.ms is not None and key not in keys]
        jobs = [job for group in (apart, others) for job in sorted(group, key=lambda job: job.worth, reverse=True)]
        started = time.perf_counter()
        done = self.again(jobs, Allowance(seconds, len(jobs)), stop)
        return FillReport(done, seconds=time.perf_counter() - started)

    def _in_full(self, jobs: Sequence[Job], allowance: Allowance, stop: Callable[[], bool]) -> None:
        """Time again in full what was timed in haste, as far as the time reaches after all: beside other programs the
        first rates say little, and one price in haste can hide a gain from the whole search.
        """
        self.again(jobs, allowance, stop)
        self.hasty = any(job.key in self.rushed for job in jobs)

    def alone(self, job: Job, allowance: Allowance) -> Price | None:
        """What ``job`` takes now, whatever is kept; ``None`` where it cannot be timed, or not in the time."""
        try:
            self._partition.prepare(job)
        except (CostError, GraphError):
            return None
        if job.model is None:
            return None
        sessions = STREAMING_SESSIONS if self._bench.caches.far else None
        found = self._bench.timed([(job.key, job.source, job.feeds)], True, sessions, over=allowance.over)[job.key]
        price = self._price(job, found)
        return None if price.ms is None or allowance.over() else price

    def settle(self, job: Job, price: Price) -> None:
        """Let this be the price of ``job``, and of its program, from now on."""
        price = replace(price, clock=self._bench.clock_state(), **job.described)
        program = self._program(job.source) or job.key
        self._priced(job, price)
        self.timed.update((job.key, program))
        self._lookup.keep({job.key: price, program: price})

    # --- timing -----------------------------------------------------------------------------------------------------

    def _time(self, jobs: Sequence[Job], before: Sequence[_Timings], allowance: Allowance) -> _Timings:
        """Time these regions, but for those whose programs are known or were timed just ``before``. What would not
        agree before the time is over is as if it had been timed in haste.
        """
        programs, refusals = self._programs(jobs)
        known = {*self._lookup.find(programs.values()), *(program for one in before for program in one.took)}
        first: dict[str, Job] = {}
        for job in jobs:
            if job.key in programs and programs[job.key] not in known:
                first.setdefault(programs[job.key], job)
        items = [(job.key, job.source, job.feeds) for job in first.values()]
        sessions = STREAMING_SESSIONS if self._bench.caches.far else None
        asked: list[bool] = []  # what was answered where times did not agree yet

        def over() -> bool:
            asked.append(allowance.over())
            return asked[-1]

        results = self._bench.timed(items, True, sessions, hasty=self.hasty, over=over)
        took = {key: (job, results[job.key]) for key, job in first.items()}
        return _Timings(jobs, programs, took, refusals, self.hasty or any(asked))

    def _programs(self, jobs: Iterable[Job]) -> tuple[dict[str, str], dict[str, str]]:
        """The keys of the programs that the runtime makes of regions, and the sentences of those that cannot stand
        alone. Neither has one whose result is known beforehand.
        """
        programs: dict[str, str] = {}
        refusals: dict[str, str] = {}
        for job in jobs:
            try:
                self._partition.prepare(job)
            except (CostError, GraphError) as error:
                refusals[job.key] = str(error)
                continue
            if job.model is not None:
                programs[job.key] = job.key if self.hasty else self._program(job.source) or job.key
        return programs, refusals

    def _program(self, model: bytes) -> str | None:
        """The key of the kernels that the runtime makes of a model; ``None`` where that cannot be told."""
        from rlflow.frontends.fingerprint import program_digest

        if not runtime(self._bench.options.runtime).shows_graph:
            return None
        try:
            return f"{PROGRAM}{program_digest(self._bench.worker.optimized(model, level=LEVEL))}"
        except (ModelError, RuntimeRefused, RuntimeCrashed):
            return None

    # --- prices -----------------------------------------------------------------------------------------------------

    def _keep(self, pending: Sequence[_Timings]) -> int:
        """Price what was timed, by region and by program; the number of regions that the runtime refused."""
        self._machine.settle_pace(found for one in pending for _, found in one.took.values())
        return sum(self._keep_one(one) for one in pending)

    def _keep_one(self, one: _Timings) -> int:
        known = self._lookup.find(one.programs.values())
        known |= {program: self._price(job, found) for program, (job, found) in one.took.items()}
        prices = {key: known[program] for key, program in one.programs.items()}
        prices |= {key: Price(None, refusal=why) for key, why in one.refusals.items()}
        clock = self._bench.clock_state()
        for job in one.jobs:
            price = prices.get(job.key) or self._folded(job)
            prices[job.key] = replace(price, clock=clock, **job.described)
            self._priced(job, prices[job.key])
        refused = sum(prices[job.key].ms is None for job in one.jobs)
        prices |= {program: prices[job.key] for program, (job, _) in one.took.items()}
        if one.hasty:
            self.rushed.update({job.key: Rushed(_bare(job), prices[job.key]) for job in one.jobs})
            self._lookup.hasty.update(key for key in prices if key in one.programs)
        else:
            for key in prices:
                self.rushed.pop(key, None)
            self.timed.update(prices)
            self._lookup.hasty.difference_update(prices)
            self._lookup.keep(prices)
        return refused

    def _folded(self, job: Job) -> Price:
        """A region whose result is known, so that the runtime computes it beforehand."""
        return Price(self._machine.calibration.dispatch * len(job.region.nodes), 0.0, 0)

    def _price(self, job: Job, result: Measurement | str) -> Price:
        if isinstance(result, str):
            return Price(None, refusal=result)
        machine, result = self._machine.calibration, self._machine.at_pace(result)
        ms = result.ms - machine.overhead + machine.dispatch
        if job.region.blocked:
            beside = layouts.alone_ms(job, self._machine, self._partition)
            # The small difference of large times says little; the runtime's profiler can tell them apart.
            by_profile = beside > _LARGE_PART * ms and not self.hasty
            share = layouts.kernel_share(job, self._bench, self._partition.pricer.block) if by_profile else None
            ms = ms - beside if share is None else ms * share
        return Price(max(ms, machine.dispatch, _LEAST_MS), result.spread_ms, result.samples)


def _bare(job: Job) -> Job:
    """A job without its model, which is made again where it is timed again."""
    return replace(job, model=None, source=b"", feeds={})
