"""The search for stretches that make a flow small: at each turn, one that covers the peak.

A *design* is a set of stretches in bands. From each design of the beam, stretches are tried that begin and end where
little is alive around the job at which most is alive, in so many bands. Where that job is in a stretch already, the
step that it is in is tried in more parts than the others; where the peak moves to a copy of a stretch, all copies are
tried together. The makers of buffers that are only kept at the peak are looked at in the same way. The smallest designs
go on, and the smallest of those that add little work. What was tried and is not beaten in both memory and work by
another design is the front that the caller chooses from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from typing import NamedTuple

from rlflow.footprint.banded_peaks import BandedPeaks
from rlflow.footprint.bands import Stretch, exits, height_of, in_bands, taken_whole
from rlflow.footprint.equal_stretches import EqualStretches
from rlflow.footprint.flow import Flow
from rlflow.footprint.layout import with_copies
from rlflow.footprint.lifetimes import footprint
from rlflow.footprint.stepping import CALL, COPY, Stepping

#: Numbers of bands that are tried, and those below the last that give bands of one height.
BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
#: How much finer the step at the peak may get in one turn, and places where that step is cut for it.
FINER, CUTS = (2, 3), 3
#: Parts of a step that are tried at most.
MOST_PARTS = 64
#: Beginnings and ends that are tried around a peak.
PLACES = 10
#: Designs that go on; as long as there is time, the search begins again with more.
BEAMS = (4, 8, 16, 32)
#: The share of the work that may be added, up to which a design is among the cheap half of the beam.
LITTLE = 0.4
#: Numbers of bands that are tried in vain before the next stretch is.
PATIENCE = 3
#: Uneven bands are tried up to this number; the largest of more would be much larger than the others.
MOST_UNEVEN = 8
#: A stretch that leaves so much of the peak is tried together with its copies.
STUCK = 0.99
#: A buffer that the runtime keeps for later is looked at where it has more than a sixth of the peak.
KEPT = 6
#: Turns that may go by without a smaller design: two peaks of one height need two stretches.
STALE = 2
#: Turns of the search; each adds one stretch, or makes a step of one finer.
TURNS = 14


class Design(NamedTuple):
    """``peak``: bytes as :func:`footprint` says; ``work``: estimated, in times the work of the flow as it is; ``live``:
    bytes that are alive at once, which no gaps in memory make more.
    """

    peak: int
    work: float
    stretches: tuple[Stretch, ...]
    live: int = 0


class _Found(NamedTuple):
    """A design, and the job of the flow as it is that stands where most is alive in it."""

    design: Design
    place: int


def front_of(designs: Sequence[Design]) -> list[Design]:
    """The designs that no other beats in memory and work, the smallest first."""
    found: list[Design] = []
    for one in sorted(designs, key=lambda one: (one.peak, one.work)):
        if not found or one.work < found[-1].work:
            found.append(one)
    return found


@dataclass
class Squeeze:
    """The search on one flow. ``most``: the work that a design may have, in times the flow's own; ``seconds``: after
    so many it ends with what it has; ``stop`` is asked whether to end now.
    """

    flow: Flow
    most: float = 1.15
    seconds: float = 20.0
    stop: Callable[[], bool] = lambda: False
    tried: int = 0
    seen: dict[tuple[Stretch, ...], Design] = field(default_factory=dict)

    def run(self) -> list[Design]:
        """The front, the smallest design first; the flow as it is is one of its designs."""
        self._end = time.monotonic() + self.seconds
        self._peaks, self._base = BandedPeaks(self.flow), 1.0
        self._places = {job.node: place for place, job in enumerate(self.flow.jobs)}
        self._runs = list(_runs(self.flow))
        self._alive = _alive(self.flow)
        self._stepping = Stepping(self.flow)
        self._equal = EqualStretches(self.flow)
        start = self._needs(())
        assert start is not None  # nothing is in bands
        self._base = start.design.work
        start = start._replace(design=start.design._replace(work=1.0))
        self._known: dict[tuple[Stretch, ...], _Found | None] = {(): start}
        self.seen = {(): start.design}
        for width in BEAMS:
            self._walk(start, width)
            if self._is_over():
                break
        return front_of(list(self.seen.values()))

    def _walk(self, start: _Found, width: int) -> None:
        """Turns with so many designs in the beam."""
        beam, best, stale = [start], start.design.peak, 0
        self._walked = {start.design.stretches}
        for _ in range(TURNS):
            beam = self._best([found for one in beam for found in self._turn(one)], width)
            if not beam or self._is_over():
                break
            best, stale = (beam[0].design.peak, 0) if beam[0].design.peak < best else (best, stale + 1)
            if stale > STALE:
                break

    def small(self) -> list[Design]:
        """All that was tried, the least first. The runtime computes in another order and leaves other gaps, so what is
        alive says as much as the peak.
        """
        return sorted(dict.fromkeys(self.seen.values()), key=lambda one: one.peak + one.live)

    def _best(self, fresh: Sequence[_Found], width: int) -> list[_Found]:
        """The smallest, and in the other half of the beam the smallest of those that add little work."""
        half = width // 2
        ranked = sorted(fresh, key=lambda one: (one.design.peak, one.design.live, one.design.work))
        cheap = [one for one in ranked[half:] if one.design.work <= 1.0 + LITTLE * (self.most - 1.0)][:half]
        found = [*ranked[:half], *cheap]
        return found + [one for one in ranked[half:] if one not in cheap][: width - len(found)]

    def _turn(self, found: _Found) -> Iterator[_Found]:
        """The design with one more stretch, around the peak or around what is only kept there, or with a finer one."""
        yield from self._with_one_more(found.design, self._around(found))
        yield from self._with_one_more(found.design, self._around_kept(found.design))
        for stretches in self._refined(found):
            yield from self._new(stretches)

    def _with_one_more(self, design: Design, around: Iterator[tuple[int, int]]) -> Iterator[_Found]:
        """The design with one of these stretches, in more and more bands as long as that is allowed and of use."""
        for first, last in around:
            kept = [one for one in design.stretches if one.last < first or one.first > last]
            for kind in self._kinds():
                least, idle = design.peak, 0
                for stretch in map(kind, repeat(first), repeat(last), self._numbers(first, last)):
                    stretches = tuple(sorted([*kept, stretch])) if stretch is not None else ()
                    if stretches in self._walked:
                        continue
                    found = None if idle == PATIENCE else next(self._new(stretches), None)
                    if found is None:
                        break
                    idle, least = (0, found.design.peak) if found.design.peak < least else (idle + 1, least)
                    yield found
                    if stretch is not None and found.design.peak >= STUCK * design.peak:
                        yield from self._repeated(found, stretch)
                    if stretch is not None and stretch.cuts:
                        yield from self._finer_at_once(found, stretch)

    def _new(self, stretches: tuple[Stretch, ...]) -> Iterator[_Found]:
        """The design with these stretches, if there is time for it, it is new to this walk, and it is allowed."""
        if stretches in self._walked or self._is_over():
            return
        if stretches not in self._known:
            self._known[stretches] = self._tried(stretches)
        found = self._known[stretches]
        if found is not None:
            self._walked.add(stretches)
            self.seen[stretches] = found.design
            yield found

    def _repeated(self, found: _Found, stretch: Stretch) -> Iterator[_Found]:
        """The design with all copies of its new stretch, where the peak has moved to one of these: in a network of
        equal blocks no single one makes it smaller.
        """
        if stretch.first <= found.place <= stretch.last:
            return
        copies = self._equal.of(stretch)
        if not any(one.first <= found.place <= one.last for one in copies):
            return
        taken = {place for copy in copies for place in range(copy.first, copy.last + 1)}
        kept = [one for one in found.design.stretches if taken.isdisjoint(range(one.first, one.last + 1))]
        for veils in (False, True) if stretch.hidden else (False,):
            yield from self._new(tuple(sorted([*kept, *(one._replace(veils=veils) for one in copies)])))

    def _finer_at_once(self, found: _Found, stretch: Stretch) -> Iterator[_Found]:
        """The design with the step at its peak in twice as many parts. What the step needs may hide how small the rest
        is, and the beam would drop the design before its turn.
        """
        if stretch.first <= found.place <= stretch.last:
            finer = next(self._finer(stretch, found.place), stretch)
            others = (one for one in found.design.stretches if one.first != stretch.first)
            yield from self._new(tuple(sorted([*others, finer])))

    def _numbers(self, first: int, last: int) -> list[int]:
        """Numbers of bands: bands of one height leave no gaps where one takes the place of another."""
        height = height_of(self.flow, Stretch(first, last, 1))
        return sorted({*BANDS, *(bands for bands in range(2, BANDS[-1]) if height % bands == 0)})

    def _refined(self, found: _Found) -> Iterator[tuple[Stretch, ...]]:
        """The design with the step at the peak in more parts, as it is or after another cut."""
        for stretch in found.design.stretches:
            if stretch.first <= found.place <= stretch.last:
                others = [one for one in found.design.stretches if one != stretch]
                for finer in self._finer(stretch, found.place):
                    yield tuple(sorted([*others, finer]))

    def _finer(self, stretch: Stretch, place: int) -> Iterator[Stretch]:
        steps, rates = stretch.steps, list(stretch.rates or (1,) * len(stretch.steps))
        while self.flow.jobs[place].crosses:  # the pieces that it needs are of the step before it
            place -= 1
        number = next(index for index, (_, last) in enumerate(steps) if place <= last)
        last, rate = steps[number][1], rates[number]
        cuts = _records([(self._alive[cut + 1], cut) for cut in range(place, last)])[-CUTS:]
        for factor in FINER:
            if stretch.bands * rate * factor > MOST_PARTS:
                return
            yield stretch._replace(rates=(*rates[:number], rate * factor, *rates[number + 1 :]))
            for cut in cuts:
                parts = (*rates[:number], rate * factor, rate, *rates[number + 1 :])
                yield stretch._replace(cuts=tuple(sorted([*stretch.cuts, cut])), rates=parts)

    def _kinds(self) -> Iterator[Callable[[int, int, int], Stretch | None]]:
        """Ways to put jobs in so many bands; ``None`` where one does not differ from another."""
        hides = self.flow.hides
        crossings = self._stepping.crossings
        yield lambda first, last, bands: self._in_steps(first, last, bands, hides)
        yield lambda first, last, bands: Stretch(first, last, bands, cuts=crossings(first, last), hidden=hides)
        if not hides:
            yield lambda first, last, bands: (
                Stretch(first, last, bands, True, crossings(first, last)) if bands <= MOST_UNEVEN else None
            )

    def _in_steps(self, first: int, last: int, bands: int, hidden: bool) -> Stretch | None:
        cuts = self._stepping.cuts(first, last, bands)
        return Stretch(first, last, bands, False, cuts, hidden) if cuts else None

    def _is_over(self) -> bool:
        return time.monotonic() > self._end or self.stop()

    def _tried(self, stretches: tuple[Stretch, ...]) -> _Found | None:
        """The design with these stretches. Where its peak is behind one of them, what that hands on is hidden, too, if
        that needs less: no buffer then lives on for a later value.
        """
        found = self._looked_at(stretches)
        if found is None:
            return None
        before = [one for one in stretches if one.last < found.place and one.hidden]
        if not before:
            return found
        veiled = tuple(one._replace(veils=True) if one == before[-1] else one for one in stretches)
        other = self._looked_at(veiled)
        return other if other is not None and other.design.peak < found.design.peak else found

    def _looked_at(self, stretches: tuple[Stretch, ...]) -> _Found | None:
        self.tried += 1
        found = self._needs(stretches)
        return None if found is None or found.design.work > self.most else found

    def _needs(self, stretches: tuple[Stretch, ...]) -> _Found | None:
        """A design; ``None`` where one of the stretches cannot be in bands. Work is in operations of a product."""
        needs = self._peaks.of(stretches)
        if needs is None:
            return None
        work = needs.flops + COPY * needs.moved + CALL * needs.jobs
        return _Found(Design(needs.peak, work / self._base, stretches, needs.live), self._places.get(needs.node, 0))

    def _around(self, found: _Found) -> Iterator[tuple[int, int]]:
        """First and last jobs of stretches that cover the peak: the nearer, the more may be alive there. Where no rows
        go through the job at the peak, the large values are those of the stretches before and behind it.
        """
        peak = found.place
        here = [(run, peak) for run in self._runs if run[0] <= peak <= run[1]]
        before = [(run, run[1]) for run in self._runs if run[1] < peak][-1:]
        behind = [(run, run[0]) for run in self._runs if run[0] > peak][:1]
        for run, place in here or [*before, *behind]:
            yield from self._covering(place, run, found.design.peak)

    def _around_kept(self, design: Design) -> Iterator[tuple[int, int]]:
        """The same around the makers of large buffers that are only kept."""
        for place in self._kept(design):
            for run in self._runs:
                if run[0] <= place <= run[1]:
                    yield from self._covering(place, run, design.peak)

    def _kept(self, design: Design) -> list[int]:
        """The makers of large values that nobody reads any more at the peak: the runtime keeps their buffers for later
        values of the same shape.
        """
        banded = in_bands(self.flow, design.stretches)
        assert banded is not None  # it was tried
        flow = with_copies(banded)
        needs = footprint(flow)
        large = {value for value in needs.holders if KEPT * flow.bytes(value) > needs.peak}
        for job in flow.jobs[needs.at :]:
            large.difference_update((*job.inputs, *job.outputs))
        makers = (place for place, job in enumerate(flow.jobs) if not large.isdisjoint(job.outputs))
        return [self._place(flow, place) for place in makers]

    def _covering(self, place: int, run: tuple[int, int], peak: int) -> Iterator[tuple[int, int]]:
        jobs = self.flow.jobs
        down = (start for start in range(place, run[0] - 1, -1) if not jobs[start].crosses)
        up = (end for end in range(place, run[1] + 1) if not jobs[end].crosses or jobs[end].averages)
        starts = _records([(self._alive[start], start) for start in down])
        ends = _records([(self._alive[end + 1], end) for end in up])
        for first in starts:
            for last in ends:
                whole = Stretch(first, last, 1)
                if first >= last or taken_whole(self.flow, whole):
                    continue
                if 2 * sum(self.flow.bytes(value) for value in exits(self.flow, whole)) < peak:
                    yield first, last

    def _place(self, flow: Flow, at: int) -> int:
        """The job of the flow as it is that stands where job ``at`` of one in bands does."""
        for place in (*range(at, -1, -1), *range(at, len(flow.jobs))):
            if flow.jobs[place].node >= 0:
                return self._places[flow.jobs[place].node]
        return 0


def _records(places: Sequence[tuple[int, int]]) -> list[int]:
    """The places of values below all values before, at most ``PLACES`` of them."""
    found: list[int] = []
    least = None
    for alive, place in places:
        if least is None or alive < least:
            found.append(place)
            least = alive
    return found[:PLACES]


def _runs(flow: Flow) -> Iterator[tuple[int, int]]:
    """The first and last place of each run of jobs that rows go through, or that cross from such to such; a mean may
    be the last.
    """
    for banded, run in groupby(enumerate(flow.jobs), lambda one: one[1].rows is not None or one[1].crosses):
        jobs = list(run)
        starts = [place for place, job in jobs if not job.crosses]
        ends = [place for place, job in jobs if not job.crosses or job.averages]
        if banded and starts:
            yield starts[0], ends[-1]


def _alive(flow: Flow) -> list[int]:
    """Bytes that are alive before each job, and after the last one; the caller's inputs are not counted."""
    last: dict[str, int] = {}
    for place, job in enumerate(flow.jobs):
        last.update(dict.fromkeys(job.inputs, place))
    found, alive = [0], 0
    ends: dict[int, int] = {}
    for place, job in enumerate(flow.jobs):
        for value in job.outputs:
            alive += flow.bytes(value)
            if value not in flow.outputs:
                end = last.get(value, place)
                ends[end] = ends.get(end, 0) + flow.bytes(value)
        alive -= ends.get(place, 0)
        found.append(alive)
    return found
