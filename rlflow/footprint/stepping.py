"""Where a stretch in bands is cut into steps, so that as little as possible is computed twice or copied.

Without a cut, each band computes again what its windows read beyond its own rows, the more the more windows stand one
behind the other. At a cut the pieces are copied instead. The best cuts follow from a dynamic programme over the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlflow.footprint.bands import hull
from rlflow.footprint.flow import Cut, Flow

#: What copying a byte, and calling a kernel, cost beside one operation of a product: about as on a core that
#: multiplies 60e9 numbers and copies 15e9 bytes a second and needs 5 microseconds a call.
COPY, CALL = 4.0, 3e5
#: A piece that is handed on leaves the blocked layout, is gathered with a part of the one before, and goes back.
COPIES, CALLS = 3, 4
#: Steps have at most so many jobs; a cut is where at most so many values go from one side to the other.
LONGEST, MOST_HANDED = 32, 2


@dataclass
class Stepping:
    """The best cuts for stretches of one flow."""

    flow: Flow
    _steps: dict[tuple[int, int], _StepsTo] = field(default_factory=dict)
    _best: dict[tuple[int, int, int], dict[int, tuple[float, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs = self.flow.jobs
        self.maker = {value: place for place, job in enumerate(jobs) for value in job.outputs}
        self.last = {value: place for place, job in enumerate(jobs) for value in job.inputs}
        self.last |= dict.fromkeys(self.flow.outputs, len(jobs))
        crossing = [0] * (len(jobs) + 1)
        for value, place in self.maker.items():
            for between in range(place, self.last.get(value, place)):
                crossing[between] += 1
        self._narrow = [count <= MOST_HANDED for count in crossing]

    def crossings(self, first: int, last: int) -> tuple[int, ...]:
        """The cuts that a stretch has in any case: before and behind the jobs that need all rows."""
        jobs = self.flow.jobs
        return tuple(place for place in range(first, last) if jobs[place].crosses != jobs[place + 1].crosses)

    def cuts(self, first: int, last: int, bands: int) -> tuple[int, ...]:
        """The last jobs of all steps but the last one."""
        given = self.crossings(first, last)
        parts = zip((first, *(cut + 1 for cut in given)), (*given, last), strict=True)
        inner = [self._within(first, *part, bands) for part in parts if not self.flow.jobs[part[0]].crosses]
        return tuple(sorted({*given, *(cut for cuts in inner for cut in cuts)}))

    def _within(self, stretch: int, first: int, last: int, bands: int) -> list[int]:
        """Cuts among jobs that rows go through, of a stretch that begins with the job ``stretch``."""
        best = self._best.setdefault((stretch, first, bands), {first - 1: (0.0, first)})
        for end in range(max(best) + 1, last):
            if self._narrow[end]:
                best[end] = self._cheapest(best, stretch, first, end, bands)
        cost, start = self._cheapest(best, stretch, first, last, bands)
        cuts: list[int] = []
        while start > first and math.isfinite(cost):
            cuts.append(start - 1)
            cost, start = best[start - 1]
        return cuts

    def _cheapest(
        self, best: Mapping[int, tuple[float, int]], stretch: int, first: int, end: int, bands: int
    ) -> tuple[float, int]:
        """The cost up to the job ``end``, if a step ends there, and where that step begins."""
        places = (place for place in best if place < end and (end - place <= LONGEST or place == first - 1))
        return min((best[place][0] + self._cost(stretch, place + 1, end, bands), place + 1) for place in places)

    def _cost(self, first: int, start: int, end: int, bands: int) -> float:
        """Of a step: what it computes twice, and the copies of what earlier steps hand it."""
        twice, handed = self.beginning(start, end, bands)
        for maker, copies in handed:
            if maker >= first:
                twice += copies
        return twice

    def beginning(self, start: int, end: int, bands: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """What the step from the job ``start`` to ``end`` computes twice (infinite: it cannot be in bands). Then of
        each value made before of which it needs more rows than one band's: which job made it, and what copies cost.
        """
        step = self._steps.get((end, bands))
        if step is None:
            step = self._steps[end, bands] = _StepsTo(self, end, bands)
        return step.beginning(start)


class _StepsTo:
    """Steps that end with the job ``end``, as all bands compute them if all are like the one in the middle."""

    def __init__(self, stepping: Stepping, end: int, bands: int) -> None:
        self._stepping, self._end, self._bands = stepping, end, bands
        self._found: list[tuple[float, tuple[tuple[int, float], ...]]] = []  # from the shortest step on
        self._need: dict[str, Cut] = {}  # of what is made before
        self._extra = 0.0

    def beginning(self, start: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """As :meth:`Stepping.beginning`."""
        while len(self._found) <= self._end - start:
            able = not self._found or math.isfinite(self._found[-1][0])
            if able and self._add(self._end - len(self._found)):
                self._found.append((max(self._extra, 0.0), tuple(self._handed())))
            else:
                self._found.append((math.inf, ()))
        return self._found[self._end - start]

    def _add(self, place: int) -> bool:
        """One more job at the beginning; whether it can be in bands."""
        flow, bands, need = self._stepping.flow, self._bands, self._need
        job = flow.jobs[place]
        asked = [need.pop(value) for value in job.outputs if value in need]
        asked += [rows for rows in map(self._own, filter(self._is_handed_on, job.outputs)) if rows.first < rows.end]
        if not asked:
            return True
        rows = hull(asked)
        banded = [value for place, value in enumerate(job.inputs) if place not in job.whole]
        share = job.rows.share(*rows, flow.height(banded[0])) if job.rows is not None and banded else None
        if share is None or share.first >= share.end:
            return False
        self._extra += job.flops * (bands * (rows.end - rows.first) / flow.height(job.outputs[0]) - 1.0)
        for value in banded:
            need[value] = hull([need.get(value, share), share])
        return True

    def _is_handed_on(self, value: str) -> bool:
        return self._stepping.last.get(value, -1) > self._end

    def _own(self, value: str) -> Cut:
        """The rows of a value that are the middle band's."""
        height, middle = self._stepping.flow.height(value), self._bands // 2
        return Cut(height * middle // self._bands, height * (middle + 1) // self._bands)

    def _handed(self) -> Iterator[tuple[int, float]]:
        flow = self._stepping.flow
        for value, rows in self._need.items():
            own = self._own(value)
            if rows.end - rows.first > own.end - own.first:
                maker = self._stepping.maker.get(value, -1)
                yield maker, COPIES * COPY * flow.bytes(value) + CALLS * CALL * self._bands
