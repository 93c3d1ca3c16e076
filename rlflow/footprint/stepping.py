"""Where a stretch in bands is cut into steps, so that as little as possible is computed twice or copied.

Without a cut, each band computes again what its windows read beyond its own rows, the more the more windows stand one
behind the other. At a cut the pieces are copied instead. The best cuts follow from a dynamic programme over the jobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rlflow.footprint.bands import BandStep
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
    _bands: dict[tuple[int, int, int], tuple[float, tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs = self.flow.jobs
        self._maker = {value: place for place, job in enumerate(jobs) for value in job.outputs}
        self._last = {value: place for place, job in enumerate(jobs) for value in job.inputs}
        self._last |= dict.fromkeys(self.flow.outputs, len(jobs))
        crossing = [0] * (len(jobs) + 1)
        for value, place in self._maker.items():
            for between in range(place, self._last.get(value, place)):
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
        ends = [place for place in range(first, last) if self._narrow[place]] + [last]
        best: dict[int, tuple[float, int]] = {first - 1: (0.0, first)}
        for end in ends:
            starts = [place + 1 for place in best if end - place <= LONGEST or place == first - 1]
            best[end] = min((best[start - 1][0] + self._cost(stretch, start, end, bands), start) for start in starts)
        cuts: list[int] = []
        while best[last][1] > first and math.isfinite(best[last][0]):
            last = best[last][1] - 1
            cuts.append(last)
        return cuts

    def _cost(self, first: int, start: int, end: int, bands: int) -> float:
        """Of a step: what it computes twice, and the copies of what earlier steps hand it."""
        twice, wider = self._of_a_band(start, end, bands)
        handed = [value for value in wider if first <= self._maker.get(value, -1) < start]
        return twice + COPIES * COPY * sum(map(self.flow.bytes, handed)) + CALLS * CALL * bands * len(handed)

    def _of_a_band(self, start: int, end: int, bands: int) -> tuple[float, tuple[str, ...]]:
        """What all bands compute twice, as if all were like the one in the middle, and the values made before of which
        it needs more rows than one band's.
        """
        key = (start, end, bands)
        if key not in self._bands:
            self._bands[key] = self._looked_at(start, end, bands)
        return self._bands[key]

    def _looked_at(self, start: int, end: int, bands: int) -> tuple[float, tuple[str, ...]]:
        step, middle, wanted = BandStep(self.flow, start, end), bands // 2, {}
        for value in step.made:
            if self._last.get(value, -1) <= end:
                continue
            height = self.flow.height(value)
            wanted[value] = Cut(height * middle // bands, height * (middle + 1) // bands)
        shared = step.shared({value: rows for value, rows in wanted.items() if rows.first < rows.end})
        if shared is None:
            return math.inf, ()
        extra, wider = 0.0, []
        for job in step.jobs:
            rows = shared.need.get(job.outputs[0])
            if rows is not None:
                extra += job.flops * (bands * (rows.end - rows.first) / self.flow.height(job.outputs[0]) - 1.0)
        for value, rows in shared.need.items():
            height = self.flow.height(value)
            even = height * (middle + 1) // bands - height * middle // bands
            if value not in step.made and rows.end - rows.first > even:
                wider.append(value)
        return max(extra, 0.0), tuple(wider)
