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
    _twice: dict[tuple[int, int, int], float] = field(default_factory=dict)

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

    def cuts(self, first: int, last: int, bands: int) -> tuple[int, ...]:
        """The last jobs of all steps but the last one."""
        ends = [place for place in range(first, last) if self._narrow[place]] + [last]
        best: dict[int, tuple[float, int]] = {first - 1: (0.0, first)}
        for end in ends:
            starts = [place + 1 for place in best if end - place <= LONGEST or place == first - 1]
            best[end] = min((best[start - 1][0] + self._cost(first, start, end, bands), start) for start in starts)
        cuts: list[int] = []
        while best[last][1] > first and math.isfinite(best[last][0]):
            last = best[last][1] - 1
            cuts.append(last)
        return tuple(reversed(cuts))

    def _cost(self, first: int, start: int, end: int, bands: int) -> float:
        """Of a step: what it computes twice, and the copies of what earlier steps hand it."""
        read = {value for job in self.flow.jobs[start : end + 1] for value in job.inputs}
        handed = [value for value in read if first <= self._maker.get(value, -1) < start]
        copied = COPIES * COPY * sum(map(self.flow.bytes, handed)) + CALLS * CALL * bands * len(handed)
        return copied + self._computed_twice(start, end, bands)

    def _computed_twice(self, start: int, end: int, bands: int) -> float:
        key = (start, end, bands)
        if key not in self._twice:
            self._twice[key] = self._of_a_band(start, end, bands)
        return self._twice[key]

    def _of_a_band(self, start: int, end: int, bands: int) -> float:
        """What all bands compute twice, as if all were like the one in the middle."""
        step, middle, wanted = BandStep(self.flow, start, end), bands // 2, {}
        for value in step.made:
            if self._last.get(value, -1) <= end:
                continue
            height = self.flow.height(value)
            wanted[value] = Cut(height * middle // bands, height * (middle + 1) // bands)
        shared = step.shared({value: rows for value, rows in wanted.items() if rows.first < rows.end})
        if shared is None:
            return math.inf
        extra = 0.0
        for job in step.jobs:
            rows = shared.need.get(job.outputs[0])
            if rows is not None:
                extra += job.flops * (bands * (rows.end - rows.first) / self.flow.height(job.outputs[0]) - 1.0)
        return max(extra, 0.0)
