"""Designs of a smaller model: searched for, looked at as the runtime runs them, timed against the original."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rlflow.deployment import Export
from rlflow.errors import RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.footprint import Flow, Footprint, Stretch, footprint, in_bands
from rlflow.footprint.bands import height_of
from rlflow.footprint.recompute import recomputed
from rlflow.footprint.squeeze import Design, Squeeze
from rlflow.pipeline.context import Context
from rlflow.pipeline.loading import Loaded
from rlflow.report.shrunk import Tried, size_text
from rlflow.specs import check_number, check_seconds, check_whole

if TYPE_CHECKING:
    from rlflow.race.bound import Slowdown
    from rlflow.runtime.residence import Resident

__all__ = ["Base", "Designing", "LookedAt", "Seen", "Wish"]

_T = TypeVar("_T")

#: Designs of each front that are looked at in the runtime.
MOST_LOOKED_AT = 12
#: Sessions that are looked at of each model.
SESSIONS = 2
#: The estimate of a design's work may be so much above the bound: the clock decides, and bands are often faster.
SLACK = 0.25
#: Designs of the second search that are timed; work from which on a design's time says how the estimate is to be
#: read, and the least and the most that one of its parts may take, in parts of the clock.
MOST_CLOSER, TELLING, SLOWEST = 6, 1.08, (0.25, 4.0)
#: A design whose first look at the clock is further above the bound than ``NEAR`` is not timed again; one that is below
#: it by ``SURE`` is what the second search has to beat.
NEAR, SURE = 1.03, 1.01
#: Seconds that the first look at the clock has for each design.
LOOK = 0.4
#: Runs in which the resident memory of a fresh process is watched: the first allocates otherwise than the later ones.
RUNS = 3


@dataclass(frozen=True)
class Wish:
    """What a caller wants: at most ``memory`` bytes beside the weights (``None``: as few as can be), at most ``slower``
    times the model's own time. ``seconds``: of each search for stretches; ``race_seconds``: of each comparison by the
    clock. ``search``: the strategy that rewrites the model first (``None``: none does), ``budget``: what it may take.
    """

    memory: int | None = None
    slower: float = 1.1
    seconds: float = 20.0
    race_seconds: float = 20.0
    search: Any = "mixed"
    budget: Any = "30s"

    def __post_init__(self) -> None:
        check_seconds(self.seconds, "The time for the search")
        check_seconds(self.race_seconds, "The time for one comparison by the clock")
        check_number(self.slower, "The slowdown that is allowed", 1e6)
        if not self.slower >= 1.0:
            raise UsageError(f"The slowdown that is allowed must be 1 or more, not {self.slower:g}.")
        if self.memory is not None:
            check_whole(self.memory, "The memory, in bytes,", 1)


@dataclass(frozen=True)
class Seen:
    """A model as the runtime runs it: its jobs in their order, and what they need. ``exact``: at every node the
    runtime's allocator had given out just the bytes that its rules say, and the block is as large as they say.
    """

    flow: Flow
    needs: Footprint
    exact: bool

    @property
    def peak(self) -> int:
        """Bytes beside the weights."""
        return self.needs.peak


def size_of(seen: Seen, resident: Resident | None) -> float:
    """Bytes: the geometric mean of a model's peak by the plan and of what a process grows by, where that is known."""
    return seen.peak if resident is None else math.sqrt(seen.peak * max(resident.growth, 1))


@dataclass(frozen=True)
class Base:
    """A model that stretches are searched for in: as it came and folded, or rewritten first; then ``speedup`` says how
    many times as fast that made it. ``is_edited``: no trace of rules leads to it. ``copies``: values that it computes
    again.
    """

    export: Export
    flow: Flow
    is_edited: bool
    speedup: float | None = None
    copies: int = 0


@dataclass(frozen=True)
class LookedAt:
    """A design as the runtime runs it. ``pace``: its time over the original's, of one look at the clock;
    ``resident``: of a fresh process that runs it (``None``: not looked at, or the system does not say).
    """

    base: Base
    design: Design
    export: Export
    seen: Seen
    pace: float | None = None
    resident: Resident | None = None

    @property
    def stretches(self) -> tuple[str, ...]:
        """In words: from which value to which, in how many bands."""
        return tuple(_said(self.base.flow, stretch) for stretch in self.design.stretches)


class Designing:
    """Finds designs of one model. ``bases``: what they are made of."""

    def __init__(self, came: Loaded, context: Context, wish: Wish) -> None:
        self._came, self._context, self._wish = came, context, wish
        self._feeds = context.inputs(came).feeds[0]
        self.bases: list[Base] = []

    def add(self, export: Export, is_edited: bool, speedup: float | None = None) -> Base:
        """One more base, and where computing cheap values again makes its peak smaller, that as another."""
        from rlflow.frontends.flows import flow_of
        from rlflow.frontends.recomputing import with_recomputed
        from rlflow.frontends.shuffles import with_gathers

        gathering = with_gathers(export.model)
        if gathering is not None:
            export, is_edited = self._came.exports.edited(lambda: gathering), True
        flow = flow_of(export.model, self._context.inputs(self._came).sizes.values)
        self._context.notes.extend(flow.notes)
        base = Base(export, flow, is_edited, speedup)
        self.bases.append(base)
        copies = recomputed(flow)
        if copies:
            again = self._came.exports.edited(lambda: with_recomputed(export.model, flow, copies))
            sizes = self._context.inputs(self._came).sizes.values
            self.bases.append(Base(again, flow_of(again.model, sizes), True, speedup, len(copies)))
        return base

    def looked(self, original: Seen) -> list[LookedAt]:
        """What two searches find and the runtime needs less for than for the original, the smallest first. The second
        keeps to the work that, by the clock on what the first found, the bound allows.
        """
        self._context.stage("shrinking", "searching for stretches to run in bands of rows")
        designs = [(base, one) for base in self.bases for one in self._front(base, self._allowed(base))]
        found = self._paced(self._smaller(designs, original.peak))
        self._context.stage("shrinking", "searching for more with the work that the bound allows")
        closer = [(base, one) for base in self.bases for one in self._closer(base, found)]
        closer.sort(key=lambda one: one[1].peak + one[1].live)
        least = min([original.peak, *(one.seen.peak for one in found if self._is_paced(one, 1.0 / SURE))])
        smaller = self._smaller(closer, least, self._wish.seconds / 2)
        smaller.sort(key=lambda one: (one.seen.peak, one.design.work))
        lightest = itertools.accumulate((one.design.work for one in smaller), min, initial=math.inf)
        front = [one for one, work in zip(smaller, lightest, strict=False) if one.design.work < work]
        found += self._paced(_thinned(front, MOST_CLOSER))
        return sorted(found, key=lambda one: (one.seen.peak, one.design.work))

    def _smaller(
        self, designs: Sequence[tuple[Base, Design]], peak: int, seconds: float = math.inf
    ) -> list[LookedAt]:
        """The designs for which the runtime needs less than ``peak``, of those that there is time to look at; one where
        the search was stopped.
        """
        self._context.stage("looking", "looking at what the runtime makes of the smallest designs")
        found: list[LookedAt] = []
        end = time.monotonic() + seconds
        for base, design in designs:
            if time.monotonic() > end or (found and self._context.stop.stopped):
                break
            one = self._candidate(base, design)
            if one is not None and one.seen.peak < peak:
                found.append(one)
        return found

    def _allowed(self, base: Base) -> float:
        """The work that a design may have, in times its base's: for the first search more than the bound."""
        return self._wish.slower * (base.speedup or 1.0) + SLACK

    def _front(self, base: Base, most: float) -> list[Design]:
        """The front of a search, thinned out where it is long; its smallest and the flow as it is stay."""
        front = Squeeze(base.flow, most, self._wish.seconds / 2, lambda: self._context.stop.stopped).run()
        return _thinned(front, MOST_LOOKED_AT)

    def _closer(self, base: Base, found: Sequence[LookedAt]) -> list[Design]:
        """New designs with about the work that the bound allows."""
        speedup, mine = base.speedup or 1.0, [one for one in found if one.base is base]
        rates = [
            (one.pace * speedup - 1.0) / (one.design.work - 1.0)
            for one in mine
            if one.pace is not None and one.design.work > TELLING
        ]
        room = self._wish.slower * speedup - 1.0
        if room <= 0.0 or self._context.stop.stopped:
            return []
        most = 1.0 + room / min(max(statistics.median(rates or [1.0]), SLOWEST[0]), SLOWEST[1])
        squeeze = Squeeze(base.flow, most, self._wish.seconds / 2, lambda: self._context.stop.stopped)
        squeeze.run()
        known = {one.design.stretches for one in mine}
        return [one for one in squeeze.small() if one.stretches not in known]

    def _candidate(self, base: Base, design: Design) -> LookedAt | None:
        """A design as the runtime runs it; ``None`` where that refuses it."""
        from rlflow.frontends.banding import with_bands

        flow = in_bands(base.flow, design.stretches)
        assert flow is not None  # the search built it
        banded = self._came.exports.edited(lambda: with_bands(base.export.model, flow))
        export = banded if design.stretches else base.export
        try:
            return LookedAt(base, design, export, self.seen(export.source))
        except (RuntimeRefused, RuntimeCrashed) as error:
            self._context.notes.append(f"A design was left out: {error}")
            return None

    def seen(self, source: Any) -> Seen:
        """What the runtime makes of a model; of several sessions, which may order it differently, the largest."""
        from rlflow.frontends.schedule import held, schedule_of
        from rlflow.runtime.residence import trace_of

        seen = []
        for _ in range(SESSIONS):
            trace = trace_of(self._context.worker, source, self._feeds)
            flow = schedule_of(trace.graph, trace.nodes, self._feeds)
            needs, counted = footprint(flow), [one.held for one in trace.nodes]
            seen.append(Seen(flow, needs, counted == held(flow) and trace.block == needs.block))
        return max(seen, key=lambda one: one.peak)

    def _paced(self, looked: Sequence[LookedAt]) -> list[LookedAt]:
        """The candidates with one look at the clock."""
        from rlflow.race import bound

        if not looked:
            return []
        context = self._context
        context.stage("timing", "timing the smallest against the original")
        sources = {str(place): one.export.source for place, one in enumerate(looked)}
        seconds = LOOK * (len(sources) + 1)
        paces = bound.pace_of(context.worker, self._came.source, sources, self._feeds, seconds, context.options.seed)
        return [replace(one, pace=paces.get(str(place))) for place, one in enumerate(looked)]

    def _is_paced(self, one: LookedAt, margin: float) -> bool:
        """Whether a candidate's first look at the clock is within so many times the bound."""
        return one.pace is not None and one.pace <= self._wish.slower * margin

    def chosen(
        self, looked: Sequence[LookedAt], original: Seen, resident: Resident | None
    ) -> tuple[LookedAt | None, Slowdown | None, list[Tried]]:
        """The smallest candidate that is within the bound by the clock and smaller than the original, of which a fresh
        process takes ``resident``; and what is known of all.
        """
        from rlflow.race import bound

        context, wish = self._context, self._wish
        front = [self._tried(one, one.pace) for one in looked]
        for place, one in self._smallest_first(looked, original, resident):
            context.stage("timing", f"timing the design of {size_text(one.seen.peak)}")
            found = bound.within(
                context.worker, self._came.source, one.export.source, self._feeds, wish.slower,
                seconds=wish.race_seconds, seed=context.options.seed, stop=lambda: context.stop.stopped,
            )  # fmt: skip
            if found is not None:
                front[place] = self._tried(one, found.ratio)
                if found.within:
                    return one, found, front
        return None, None, front

    def _smallest_first(
        self, looked: Sequence[LookedAt], original: Seen, resident: Resident | None
    ) -> list[tuple[int, LookedAt]]:
        """The candidates near the bound, with their places. The runtime's allocator takes memory in regions of 1, 2, 4
        ... MB, so of two designs the larger by the plan may make a process grow less: both figures count alike. What
        meets ``wish.memory`` comes first; of the rest only what is smaller than the original is a candidate.
        """
        limit = math.inf if self._wish.memory is None else self._wish.memory
        found: list[tuple[bool, float, int, LookedAt]] = []
        for place, one in enumerate(looked):
            if self._is_paced(one, NEAR):
                one = replace(one, resident=self.resident(one.export.source))
                size, met = size_of(one.seen, one.resident), one.seen.peak <= limit < original.peak
                if met or size < size_of(original, resident if one.resident is not None else None):
                    found.append((one.seen.peak > limit, size, place, one))
        return [(place, one) for _, _, place, one in sorted(found, key=lambda one: one[:3])]

    def resident(self, source: Any) -> Resident | None:
        """The resident memory of a fresh process that runs a model; ``None``, with a note, where nobody says."""
        from rlflow.runtime.residence import resident_of

        try:
            return resident_of(self._context.worker, source, self._feeds, RUNS)
        except RuntimeRefused as error:
            self._context.notes.append(str(error))
            return None

    def _tried(self, one: LookedAt, pace: float | None) -> Tried:
        speedup, estimated = one.base.speedup, pace is None
        slowdown = one.design.work / (speedup or 1.0) if pace is None else pace
        return Tried(one.seen.peak, slowdown, estimated, one.stretches, speedup is not None)


def _thinned(front: Sequence[_T], most: int) -> list[_T]:
    """At most so many of them, from all parts of the front; the first stays."""
    step = max(1.0, len(front) / most)
    return [front[int(place * step)] for place in range(min(len(front), most))]


def _said(flow: Flow, stretch: Stretch) -> str:
    """A stretch in words: from which value to which, in how many bands."""
    first, last = flow.jobs[stretch.first], flow.jobs[stretch.last]
    rows, steps = height_of(flow, stretch), len(stretch.steps)
    parts = f" ({', '.join(map(str, stretch.rates))} parts of a band)" if max(stretch.rates, default=1) > 1 else ""
    return (
        f"{first.inputs[0]} to {last.outputs[0]}: {stretch.last - stretch.first + 1} operators, "
        f"{rows} rows in {stretch.bands} bands" + (f", in {steps} steps{parts}" if steps > 1 else "")
    )
