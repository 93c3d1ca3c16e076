"""A stretch of a flow in bands of rows: each band computes some rows of what the stretch hands on, and what these need.

The rows that a band needs are found backwards, from what is handed on to what is read: a value that several operators
read is computed where any of them needs it. An operator that needs fewer rows of a value than the band has gets a cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from rlflow.footprint.flow import ROWS, Cut, Flow, FlowJob, Layout
from rlflow.footprint.rowmaps import Share


class Stretch(NamedTuple):
    """The jobs ``first`` to ``last`` inclusive, in so many ``bands``. ``uneven``: no two bands have as many rows, so
    that the runtime gives no value the buffer of another band's, which would then live on in between.
    """

    first: int
    last: int
    bands: int
    uneven: bool = False


def in_bands(flow: Flow, stretches: Iterable[Stretch]) -> Flow | None:
    """The flow with these stretches, which do not overlap, in bands; ``None`` where one of them cannot be."""
    jobs: list[FlowJob] = []
    shapes, widths = dict(flow.shapes), dict(flow.widths)
    place = 0
    for number, stretch in enumerate(sorted(stretches)):
        banded = _Banded(flow, stretch, number, shapes, widths)
        found = banded.jobs()
        if found is None:
            return None
        jobs += [*flow.jobs[place : stretch.first], *found]
        place = stretch.last + 1
    return replace(flow, jobs=(*jobs, *flow.jobs[place:]), shapes=shapes, widths=widths)


def exits(flow: Flow, stretch: Stretch) -> list[str]:
    """What a stretch hands on: its values that later jobs, or the caller, read."""
    made = [value for job in flow.jobs[stretch.first : stretch.last + 1] for value in job.outputs]
    later = {value for job in flow.jobs[stretch.last + 1 :] for value in job.inputs} | set(flow.outputs)
    return [value for value in made if value in later]


class _Banded:
    """The jobs of one stretch; ``shapes`` and ``widths`` receive what they make."""

    def __init__(
        self,
        flow: Flow,
        stretch: Stretch,
        number: int,
        shapes: dict[str, tuple[int, ...]],
        widths: dict[str, int],
    ) -> None:
        self._flow, self._stretch, self._number = flow, stretch, number
        self._shapes, self._widths = shapes, widths
        self._range = flow.jobs[stretch.first : stretch.last + 1]
        self._made = {value for job in self._range for value in job.outputs}
        self._exits = exits(flow, stretch)
        self._blocked = flow.blocked

    def jobs(self) -> list[FlowJob] | None:
        """All bands, one after another, and what joins them."""
        heights = {value: self._flow.height(value) for value in self._exits}
        places = _places(min(heights.values(), default=0), self._stretch.bands, self._stretch.uneven)
        if places is None:
            return None
        least = places[-1]
        pieces: dict[str, list[str]] = {value: [] for value in self._exits}
        jobs: list[FlowJob] = []
        for band in range(self._stretch.bands):
            wanted = {
                value: Cut(places[band] * height // least, places[band + 1] * height // least)
                for value, height in heights.items()
            }
            shares = self._shares(wanted)
            if shares is None:
                return None
            one = _Band(self, band, *shares)
            jobs += one.jobs()
            for value in self._exits:
                pieces[value].append(one.piece(value, wanted[value]))
            jobs += one.waiting()
        joints = (FlowJob(tuple(pieces[value]), (value,), rows=None, joins=True) for value in self._exits)
        return [*jobs, *joints]

    def cut(self, value: str, given: str, made: str, cut: Cut, has: Cut) -> FlowJob:
        """The job that takes ``cut`` of ``given``, which has the rows ``has`` of ``value``."""
        if value not in self._made or value not in self._blocked:
            return FlowJob((given,), (made,), cut=cut)
        kernel = has.end - has.first - (cut.end - cut.first) + 1
        flops = 2.0 * kernel * prod(self._shapes[made])
        return FlowJob((given,), (made,), cut=cut, crops=True, flops=flops, layout=Layout.BLOCKED)

    def _shares(self, wanted: Mapping[str, Cut]) -> tuple[dict[str, Cut], list[Share | None]] | None:
        """The rows of each value that a band computes or reads, and each job's share of its inputs."""
        need = dict(wanted)
        shares: list[Share | None] = []
        for job in reversed(self._range):
            asked = [need[value] for value in job.outputs if value in need]
            if not asked:
                shares.append(None)
                continue
            rows = _hull(asked)
            need.update(dict.fromkeys(job.outputs, rows))
            banded = [value for place, value in enumerate(job.inputs) if place not in job.whole]
            share = job.rows.share(*rows, self._flow.height(banded[0])) if job.rows is not None and banded else None
            if share is None or share.first >= share.end:
                return None
            shares.append(share)
            for value in banded:
                need[value] = _hull([need.get(value, share), share])
        return need, shares[::-1]


class _Band:
    """One band of a stretch."""

    def __init__(self, whole: _Banded, band: int, need: Mapping[str, Cut], shares: Sequence[Share | None]) -> None:
        self._whole, self._band, self._need, self._shares = whole, band, need, shares
        self._cuts: dict[tuple[str, Cut], str] = {}
        self._waiting: list[FlowJob] = []

    def jobs(self) -> list[FlowJob]:
        """The band of each job, after the cuts that it reads."""
        found: list[FlowJob] = []
        for job, share in zip(self._whole._range, self._shares, strict=True):
            if share is None:
                continue
            one = self._of(job, share)
            found += [*self.waiting(), *one]
        return found

    def waiting(self) -> Iterator[FlowJob]:
        """The cuts that were asked for and not handed out yet."""
        yield from self._waiting
        self._waiting = []

    def piece(self, value: str, rows: Cut) -> str:
        """The name of these rows of a value."""
        flow, name = self._whole._flow, value
        if value in self._whole._made:
            name, has = self._name(value), self._need[value]
        else:
            has = Cut(0, flow.height(value))
        if (has.first, has.end) == (rows.first, rows.end):
            return name
        key = (value, Cut(rows.first, rows.end))
        if key not in self._cuts:
            self._cuts[key] = self._new(value, rows, f"{self._name(value)}_{rows.first}_{rows.end}")
            cut = Cut(rows.first - has.first, rows.end - has.first)
            self._waiting.append(self._whole.cut(value, name, self._cuts[key], cut, has))
        return self._cuts[key]

    def _of(self, job: FlowJob, share: Share) -> list[FlowJob]:
        assert job.rows is not None
        flow = self._whole._flow
        rows = self._need[job.outputs[0]]
        given = tuple(
            value if place in job.whole else self.piece(value, Cut(share.first, share.end))
            for place, value in enumerate(job.inputs)
        )
        part = (rows.end - rows.first) / flow.height(job.outputs[0])
        inside = (share.before, share.after)
        if not job.rows.cuts or inside == (0, 0):
            made = tuple(self._new(value, rows, self._name(value)) for value in job.outputs)
            band = None if job.rows.cuts else inside
            return [replace(job, inputs=given, outputs=made, flops=job.flops * part, band=band or (0, 0))]
        wide = Cut(rows.first - share.before, rows.end + share.after)
        made = tuple(self._new(value, wide, f"{self._name(value)}_wide") for value in job.outputs)
        cuts = [
            FlowJob(
                (one,),
                (self._new(value, rows, self._name(value)),),
                cut=Cut(share.before, wide.end - wide.first - share.after),
            )
            for value, one in zip(job.outputs, made, strict=True)
        ]
        return [replace(job, inputs=given, outputs=made, flops=job.flops * part, band=(0, 0)), *cuts]

    def _name(self, value: str) -> str:
        return f"{value}/rows{self._whole._number}.{self._band}"

    def _new(self, value: str, rows: Cut | Share, name: str) -> str:
        shape = self._whole._flow.shapes[value]
        self._whole._shapes[name] = (*shape[:ROWS], rows.end - rows.first, *shape[ROWS + 1 :])
        self._whole._widths[name] = self._whole._widths[value]
        return name


def _places(height: int, bands: int, uneven: bool) -> list[int] | None:
    """Where bands begin and the last one ends; ``None`` where there are too few rows."""
    if not uneven:
        return [height * band // bands for band in range(bands + 1)] if height >= bands else None
    least, more = divmod(height - bands * (bands - 1) // 2, bands)
    if least < 1:
        return None
    sizes = [least + band + (band >= bands - more) for band in range(bands)]
    return [sum(sizes[:band]) for band in range(bands + 1)]


def _hull(parts: Sequence[Cut | Share]) -> Cut:
    return Cut(min(one.first for one in parts), max(one.end for one in parts))
