"""Stretches of a flow that repeat: blocks of a network that do the same, on values of the same sizes."""

from __future__ import annotations

from collections.abc import Iterator

from rlflow.footprint.bands import Stretch, exits
from rlflow.footprint.flow import Flow, FlowJob

__all__ = ["EqualStretches"]


class EqualStretches:
    """Finds the copies of stretches in one flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        numbers: dict[object, int] = {}
        self._kinds = [numbers.setdefault(_kind(flow, job), len(numbers)) for job in flow.jobs]
        maker = {value: place for place, job in enumerate(flow.jobs) for value in job.outputs}
        self._makers = [tuple(maker.get(value, -1) for value in job.inputs) for job in flow.jobs]

    def of(self, stretch: Stretch) -> list[Stretch]:
        """The stretch and its copies that overlap neither it nor each other, in order."""
        size, end = stretch.last - stretch.first + 1, -1
        found = []
        for first in self._places(stretch):
            overlaps = first <= end or (first != stretch.first and abs(first - stretch.first) < size)
            if not overlaps and self._is_copy(stretch, first):
                found.append(_moved(stretch, first - stretch.first))
                end = first + size - 1
        return found

    def _places(self, stretch: Stretch) -> Iterator[int]:
        """Where the same kinds of jobs stand one behind another."""
        first, size = stretch.first, stretch.last - stretch.first + 1
        asked = self._kinds[first : first + size]
        for place in range(len(self._kinds) - size + 1):
            if self._kinds[place] == asked[0] and self._kinds[place : place + size] == asked:
                yield place

    def _is_copy(self, stretch: Stretch, first: int) -> bool:
        """Whether jobs read of each other, and hand on, what those of the stretch do."""
        size = stretch.last - stretch.first + 1
        inside = (
            _within(self._makers[stretch.first + step], stretch.first) == _within(self._makers[first + step], first)
            for step in range(size)
        )
        return all(inside) and self._handed(stretch) == self._handed(_moved(stretch, first - stretch.first))

    def _handed(self, stretch: Stretch) -> list[tuple[int, int]]:
        """The places, within a stretch, of what it hands on."""
        handed = set(exits(self._flow, stretch))
        return [
            (place - stretch.first, number)
            for place in range(stretch.first, stretch.last + 1)
            for number, value in enumerate(self._flow.jobs[place].outputs)
            if value in handed
        ]


def _kind(flow: Flow, job: FlowJob) -> object:
    """What two jobs have in common that do the same."""
    sizes = tuple((flow.shapes[value], flow.widths[value], flow.axis(value)) for value in (*job.inputs, *job.outputs))
    marks = (job.convolves, job.fuses, job.halves, job.averages, job.crosses, job.alias)
    return (len(job.inputs), sizes, job.flops, job.rows, job.whole, job.layout, marks)


def _within(makers: tuple[int, ...], first: int) -> tuple[int, ...]:
    """How far behind the first job the makers stand; -1: before it."""
    return tuple(max(maker - first, -1) for maker in makers)


def _moved(stretch: Stretch, by: int) -> Stretch:
    cuts = tuple(cut + by for cut in stretch.cuts)
    return stretch._replace(first=stretch.first + by, last=stretch.last + by, cuts=cuts)
