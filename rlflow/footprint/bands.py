"""A stretch of a flow in bands of rows: each band computes some rows of what the stretch hands on, and what these need.

The rows that a band needs are found backwards, from what is handed on to what is read: a value that several operators
read is computed where any of them needs it. An operator that needs fewer rows of a value than the band has gets a cut.

A stretch may have several *steps*: each hands its pieces to the next, so that no value between them is ever there as a
whole. The pieces of such a value cover its rows once, from the top. A piece ends where the same band of the later steps
stops reading; what they read above it lies in earlier pieces. So no row of it is computed twice.

A step may also *cross* all rows: the mean of each channel, and what is made of means alone, such as the gates of a
squeeze-and-excitation block. All bands of the steps before it come first. The mean of the whole is that of the pieces'
means, weighed by their rows, so that the pieces need not be joined for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import NamedTuple

from rlflow.footprint.flow import BLOCK, Cut, Flow, FlowJob, Layout
from rlflow.footprint.rowmaps import Share


class Stretch(NamedTuple):
    """The jobs ``first`` to ``last`` inclusive, in so many ``bands``. ``uneven``: no two bands have as many rows, so
    that the runtime gives no value the buffer of another band's, which would then live on in between. ``cuts``: the
    last jobs of all steps but the last. ``hidden``: the runtime does not learn the shapes of the bands before it runs
    them, so it gives none the buffer of another. ``rates``: into how many each step parts every band (empty: 1 each).
    ``veils``: with ``hidden``, it does not learn the shapes of what is made of the result either.
    """

    first: int
    last: int
    bands: int
    uneven: bool = False
    cuts: tuple[int, ...] = ()
    hidden: bool = False
    rates: tuple[int, ...] = ()
    veils: bool = False

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The first and the last job of each step."""
        return list(zip((self.first, *(cut + 1 for cut in self.cuts)), (*self.cuts, self.last), strict=True))


class Bands(NamedTuple):
    """A stretch in bands. ``sizes``: of the values that are new; ``hidden``: those whose shapes the runtime does not
    learn, and with :attr:`Stretch.veils` what the stretch hands on.
    """

    jobs: Sequence[FlowJob]
    sizes: ValueSizes
    hidden: set[str]


def bands_of(flow: Flow, stretch: Stretch) -> Bands | None:
    """One stretch in bands; ``None`` where it cannot be."""
    banded = _Banded(flow, stretch)
    jobs = banded.jobs()
    return None if jobs is None else Bands(jobs, banded.sizes, banded.hidden)


def in_bands(flow: Flow, stretches: Iterable[Stretch]) -> Flow | None:
    """The flow with these stretches, which do not overlap, in bands; ``None`` where one of them cannot be."""
    jobs: list[FlowJob] = []
    sizes = ValueSizes(dict(flow.shapes), dict(flow.widths), dict(flow.axes))
    hidden = set(flow.hidden)
    place = 0
    for stretch in sorted(stretches):
        found = bands_of(flow, stretch)
        if found is None:
            return None
        jobs += _veiled(flow.jobs[place : stretch.first], hidden)
        jobs += found.jobs
        hidden |= found.hidden
        sizes.shapes.update(found.sizes.shapes)
        sizes.widths.update(found.sizes.widths)
        sizes.axes.update(found.sizes.axes)
        place = stretch.last + 1
    jobs += _veiled(flow.jobs[place:], hidden)
    return replace(flow, jobs=tuple(jobs), hidden=frozenset(hidden), **sizes._asdict())


def _veiled(jobs: Sequence[FlowJob], hidden: set[str]) -> Sequence[FlowJob]:
    """The jobs; ``hidden`` receives what is made of hidden values."""
    for job in jobs:
        if not hidden.isdisjoint(job.inputs):
            hidden.update(job.outputs)
    return jobs


def taken_whole(flow: Flow, stretch: Stretch) -> bool:
    """Whether some band takes a value whole of which the bands of the same stretch make the rows."""
    made: set[str] = set()
    for job in flow.jobs[stretch.first : stretch.last + 1]:
        if job.crosses:
            continue
        if any(job.inputs[place] in made for place in job.whole):
            return True
        made.update(job.outputs)
    return False


def exits(flow: Flow, stretch: Stretch) -> list[str]:
    """What a stretch hands on in rows: its values that later jobs, or the caller, read."""
    jobs = (job for job in flow.jobs[stretch.first : stretch.last + 1] if not job.crosses)
    made = [value for job in jobs for value in job.outputs]
    later = {value for job in flow.jobs[stretch.last + 1 :] for value in job.inputs} | set(flow.outputs)
    return [value for value in made if value in later]


def height_of(flow: Flow, stretch: Stretch) -> int:
    """The rows that are shared out among the bands: of what the stretch hands on in rows, else of what it averages."""
    jobs = flow.jobs[stretch.first : stretch.last + 1]
    given = exits(flow, stretch) or [job.inputs[0] for job in jobs if job.averages]
    return min((flow.height(value) for value in given), default=0)


class Shared(NamedTuple):
    """What one band of a step computes of ``wanted``, the rows that it hands on: the rows of each value, and each job's
    share of its inputs.
    """

    wanted: Mapping[str, Cut]
    need: Mapping[str, Cut]
    shares: Sequence[Share | None]


class BandStep:
    """The jobs ``first`` to ``last`` inclusive."""

    def __init__(self, flow: Flow, first: int, last: int) -> None:
        self._flow = flow
        self.jobs = flow.jobs[first : last + 1]
        self.crosses = any(job.crosses for job in self.jobs)
        self.made = {value for job in self.jobs for value in job.outputs}

    def shared(self, wanted: Mapping[str, Cut]) -> Shared | None:
        """What a band that hands on ``wanted`` computes; ``None`` where it cannot."""
        need = dict(wanted)
        shares: list[Share | None] = []
        for job in reversed(self.jobs):
            asked = [need[value] for value in job.outputs if value in need]
            if not asked:
                shares.append(None)
                continue
            rows = hull(asked)
            need.update(dict.fromkeys(job.outputs, rows))
            banded = [value for place, value in enumerate(job.inputs) if place not in job.whole]
            share = job.rows.share(*rows, self._flow.height(banded[0])) if job.rows is not None and banded else None
            if share is None or share.first >= share.end:
                return None
            shares.append(share)
            for value in banded:
                need[value] = hull([need.get(value, share), share])
        return Shared(wanted, need, shares[::-1])


class ValueSizes(NamedTuple):
    """What a flow says of its values: shapes, bytes an element, the axes of rows."""

    shapes: dict[str, tuple[int, ...]]
    widths: dict[str, int]
    axes: dict[str, int]


class _Piece(NamedTuple):
    """Rows of a value, and their name."""

    rows: Cut
    name: str


class _Banded:
    """The jobs of one stretch; ``sizes`` receives what they make. The names of its values are its own, because no other
    stretch begins where it does.
    """

    def __init__(self, flow: Flow, stretch: Stretch) -> None:
        self.flow, self.number = flow, stretch.first
        self._stretch, self.sizes = stretch, ValueSizes({}, {}, {})
        self._steps = [BandStep(flow, first, last) for first, last in stretch.steps]
        self._rates = stretch.rates or (1,) * len(self._steps)
        self._made = {value for step in self._steps if not step.crosses for value in step.made}
        self._exits = exits(flow, stretch)
        self._pieces: dict[str, list[_Piece]] = {}
        crossing = [job for step in self._steps if step.crosses for job in step.jobs]
        self._averages = [job for job in crossing if job.averages and job.inputs[0] in self._made]
        self._means: dict[str, list[str]] = {}
        self._views: dict[str, str] = {}
        self.gathered: set[str] = set()  # pieces that a band has read already
        self.hidden: set[str] = set()

    def jobs(self) -> list[FlowJob] | None:
        """All bands, one after another, and what joins them."""
        planned = None if taken_whole(self.flow, self._stretch) else self._planned()
        if planned is None:
            return None
        jobs: list[FlowJob] = []
        for crosses, phase in groupby(range(len(self._steps)), lambda number: self._steps[number].crosses):
            numbers = list(phase)
            if crosses:
                jobs += [self._crossing(job) for number in numbers for job in self._steps[number].jobs]
                continue
            for band in range(self._stretch.bands):
                for number in numbers:
                    rate = self._rates[number]
                    for part in range(band * rate, (band + 1) * rate):
                        shared = planned[number][part]
                        if shared.wanted:
                            jobs += _Band(self, self._steps[number], number, part, shared).all_jobs(self._pieces)
                            jobs += self._new_means()
        pieces = {value: tuple(one.name for one in self._pieces[value]) for value in self._exits}
        joints = [job for value in self._exits for job in self._joint(value, pieces[value])]
        if self._stretch.veils:
            self.hidden.update(value for job in joints for value in job.outputs)
        views = (FlowJob((value,), (view,), reuses=((0, 0),), alias=True) for value, view in self._views.items())
        return [*views, *jobs, *joints]

    def _crossing(self, job: FlowJob) -> FlowJob:
        """A job that needs whole values; a mean of a value in pieces is that of their means."""
        parts = self._means.get(job.outputs[0], [])
        if not parts:
            return job
        rows = (piece.rows for piece in self._pieces[job.inputs[0]])
        return FlowJob(tuple(parts), job.outputs, weighs=tuple(one.end - one.first for one in rows))

    def _new_means(self) -> Iterator[FlowJob]:
        """The means of the pieces that are new."""
        for job in self._averages:
            made, pieces = job.outputs[0], self._pieces.get(job.inputs[0], [])
            parts = self._means.setdefault(made, [])
            for piece in pieces[len(parts) :]:
                parts.append(part := f"{made}/mean{self.number}.{len(parts)}")
                self._add(part, self.flow.shapes[made], made)
                yield job.changed(inputs=(piece.name,), outputs=(part,), flops=job.flops / len(pieces), band=(0, 0))

    def _joint(self, value: str, pieces: tuple[str, ...]) -> list[FlowJob]:
        """What joins the pieces of a value that the stretch hands on."""
        if not self.is_pooled(value, self.flow.jobs[self._stretch.last + 1 :]):
            return [FlowJob(pieces, (value,), joins=True, orders=True)]
        joined = f"{value}/joined"
        self._add(joined, self.flow.shapes[value], value)
        return [FlowJob(pieces, (joined,), joins=True, orders=True), self.pool(joined, value)]

    def is_pooled(self, value: str, later: Iterable[FlowJob]) -> bool:
        """Whether a value that was joined is brought into blocks by a pool: where it would lie there without bands,
        and somebody reads it who works on blocks only if what he reads lies there already.
        """
        if not self.flow.pools or value not in self.flow.blocked or self.flow.shapes[value][1] % BLOCK:
            return False
        return any(job.layout is Layout.KEEPS and value in job.inputs and not job.whole for job in later)

    def pool(self, given: str, made: str) -> FlowJob:
        """An average pool of one pixel, which changes nothing but the layout (and the sign of a zero)."""
        flops = float(prod(self.sizes.shapes[given]))
        return FlowJob((given,), (made,), pools=True, flops=flops, layout=Layout.BLOCKED)

    def whole(self, value: str) -> str:
        """A value that is there as a whole, or the view of it whose shape is hidden."""
        if not self._stretch.hidden:
            return value
        if value not in self._views:
            self._views[value] = self.new(value, Cut(0, self.flow.height(value)), f"{value}/hidden{self.number}")
        return self._views[value]

    def handed(self, value: str, rows: Cut) -> list[_Piece]:
        """The pieces of a value of an earlier step that have some of these rows; none for one that is there whole."""
        return [one for one in self._pieces.get(value, ()) if one.rows.first < rows.end and rows.first < one.rows.end]

    def new(self, value: str, rows: Cut | Share, name: str) -> str:
        """Rows of a value get a name, a shape and a width."""
        shape, axis = self.flow.shapes[value], self.flow.axis(value)
        self._add(name, (*shape[:axis], rows.end - rows.first, *shape[axis + 1 :]), value)
        if self._stretch.hidden:
            self.hidden.add(name)
        return name

    def _add(self, name: str, shape: tuple[int, ...], like: str) -> None:
        """One more value, like one of the flow but for its shape."""
        self.sizes.shapes[name], self.sizes.widths[name] = shape, self.flow.widths[like]
        if like in self.flow.axes:
            self.sizes.axes[name] = self.flow.axes[like]

    def cut(self, given: str, made: str, cut: Cut, has: Cut, blocked: bool) -> FlowJob:
        """The job that takes ``cut`` of ``given``, which has as many rows as ``has``."""
        if not blocked:
            return FlowJob((given,), (made,), cut=cut)
        kernel = has.end - has.first - (cut.end - cut.first) + 1
        flops = 2.0 * kernel * prod(self.sizes.shapes[made])
        return FlowJob((given,), (made,), cut=cut, crops=True, convolves=True, flops=flops, layout=Layout.BLOCKED)

    # --- which rows ---------------------------------------------------------------------------------------------------

    def _planned(self) -> list[list[Shared]] | None:
        """What each part of each step computes; ``None`` where one of them cannot."""
        ends = self._last_ends()
        if ends is None:
            return None
        planned: list[list[Shared]] = []
        for step, rate in zip(reversed(self._steps), reversed(self._rates), strict=True):
            found: list[Shared] = []
            if step.crosses:
                if not all(job.crosses for job in step.jobs) or not self._averaged(step, ends):
                    return None
                planned.append(found)
                continue
            finer = {value: _parted(ends[value], rate) for value in step.made if value in ends}
            for part in range(self._stretch.bands * rate):
                shared = step.shared(_between(finer, part, step.made))
                if shared is None:
                    return None
                found.append(shared)
                band = part // rate
                for value in self._made.intersection(shared.need) - step.made:
                    asked = ends.setdefault(value, [0] * self._stretch.bands)
                    asked[band:] = [max(end, shared.need[value].end) for end in asked[band:]]
            planned.append(found)
        return planned[::-1]

    def _averaged(self, step: BandStep, ends: dict[str, list[int]]) -> bool:
        """Let the pieces of what a step averages cover all rows; whether there are enough."""
        bands = self._stretch.bands
        for value in (job.inputs[0] for job in step.jobs if job.averages and job.inputs[0] in self._made):
            places = _places(self.flow.height(value), bands, False)
            if places is None:
                return False
            ends.setdefault(value, places[1:])[-1] = places[-1]
        return True

    def _last_ends(self) -> dict[str, list[int]] | None:
        """Where the pieces of what the stretch hands on end; ``None`` where there are too few rows, or neither is
        anything handed on nor averaged.
        """
        if not self._exits and self._averages:
            return {}
        heights = {value: self.flow.height(value) for value in self._exits}
        places = _places(min(heights.values(), default=0), self._stretch.bands, self._stretch.uneven)
        if places is None:
            return None
        return {value: [place * height // places[-1] for place in places[1:]] for value, height in heights.items()}


class _Band:
    """One band of a step."""

    def __init__(self, whole: _Banded, step: BandStep, number: int, band: int, shared: Shared) -> None:
        self._whole, self._step, self._number, self._band = whole, step, number, band
        self._shared, self._need = shared, shared.need
        self._cuts: dict[tuple[str, Cut], str] = {}
        self._gathered: dict[str, str] = {}
        self._pooled: set[str] = set()
        self._waiting: list[FlowJob] = []

    def all_jobs(self, pieces: dict[str, list[_Piece]]) -> list[FlowJob]:
        """The jobs; ``pieces`` receives what they hand on."""
        found: list[FlowJob] = []
        for job, share in zip(self._step.jobs, self._shared.shares, strict=True):
            if share is not None:
                one = self._of(job, share)
                found += [*self._asked(), *one]
        for value, rows in self._shared.wanted.items():
            pieces.setdefault(value, []).append(_Piece(rows, self._piece(value, rows)))
        return [*found, *self._asked()]

    def _asked(self) -> Iterator[FlowJob]:
        """The cuts that were asked for and not handed out yet."""
        yield from self._waiting
        self._waiting = []

    def _piece(self, value: str, rows: Cut) -> str:
        """The name of these rows of a value."""
        name, has = self._there(value)
        return name if has == rows else self._cut(value, name, rows, has, self._is_blocked(value))

    def _there(self, value: str) -> tuple[str, Cut]:
        """What the band has of a value: rows of its own, of earlier steps' pieces, or the whole."""
        if value in self._step.made:
            return self._name(value), self._need[value]
        pieces = self._whole.handed(value, self._need[value])
        if not pieces:
            return self._whole.whole(value), Cut(0, self._whole.flow.height(value))
        if len(pieces) == 1:
            self._whole.gathered.add(pieces[0].name)
            return pieces[0].name, pieces[0].rows
        return self._gather(value, pieces), self._need[value]

    def _is_blocked(self, value: str) -> bool:
        """Whether what the band has of a value probably lies in the runtime's blocked layout."""
        inside = value in self._step.made or bool(self._whole.handed(value, self._need[value]))
        plain = value in self._gathered and value not in self._pooled
        return inside and not plain and value in self._whole.flow.blocked

    def _gather(self, value: str, pieces: Sequence[_Piece]) -> str:
        """The rows that the band needs, of several pieces."""
        if value not in self._gathered:
            rows, parts = self._need[value], []
            for one in pieces:
                part = Cut(max(one.rows.first, rows.first), min(one.rows.end, rows.end))
                parts.append(one.name if part == one.rows else self._cut(value, one.name, part, one.rows, False))
            name = self._gathered[value] = self._whole.new(value, rows, f"{self._name(value)}_gathered")
            fresh = [one.name for one in pieces if one.name not in self._whole.gathered]
            self._whole.gathered.update(fresh)
            self._waiting.append(FlowJob(tuple(parts), (name,), joins=True, orders=len(fresh) > 1))
            if self._whole.is_pooled(value, self._step.jobs):
                pooled = self._gathered[value] = self._whole.new(value, rows, f"{self._name(value)}_pooled")
                self._waiting.append(self._whole.pool(name, pooled))
                self._pooled.add(value)
        return self._gathered[value]

    def _cut(self, value: str, name: str, rows: Cut, has: Cut, blocked: bool) -> str:
        key = (name, rows)
        if key not in self._cuts:
            self._cuts[key] = self._whole.new(value, rows, f"{name}_{rows.first}_{rows.end}/{self._label}")
            cut = Cut(rows.first - has.first, rows.end - has.first)
            self._waiting.append(self._whole.cut(name, self._cuts[key], cut, has, blocked))
        return self._cuts[key]

    def _of(self, job: FlowJob, share: Share) -> list[FlowJob]:
        assert job.rows is not None
        rows = self._need[job.outputs[0]]
        given = tuple(
            value if place in job.whole else self._piece(value, Cut(share.first, share.end))
            for place, value in enumerate(job.inputs)
        )
        part = (rows.end - rows.first) / self._whole.flow.height(job.outputs[0])
        inside = (share.before, share.after)
        new = self._whole.new
        if not job.rows.cuts or inside == (0, 0):
            made = tuple(new(value, rows, self._name(value)) for value in job.outputs)
            band = None if job.rows.cuts else inside
            return [job.changed(inputs=given, outputs=made, flops=job.flops * part, band=band or (0, 0))]
        wide = Cut(rows.first - share.before, rows.end + share.after)
        made = tuple(new(value, wide, f"{self._name(value)}_wide") for value in job.outputs)
        cuts = [
            FlowJob(
                (one,),
                (new(value, rows, self._name(value)),),
                cut=Cut(share.before, wide.end - wide.first - share.after),
            )
            for value, one in zip(job.outputs, made, strict=True)
        ]
        return [job.changed(inputs=given, outputs=made, flops=job.flops * part, band=(0, 0)), *cuts]

    @property
    def _label(self) -> str:
        return f"{self._whole.number}.{self._band}.{self._number}"

    def _name(self, value: str) -> str:
        return f"{value}/rows{self._label}"


def _parted(ends: Sequence[int], rate: int) -> list[int]:
    """Where the parts end, if each band that ends there has ``rate`` of them."""
    begins = [0, *ends[:-1]]
    return [
        begin + (end - begin) * (part + 1) // rate
        for begin, end in zip(begins, ends, strict=True)
        for part in range(rate)
    ]


def _between(ends: Mapping[str, Sequence[int]], band: int, made: Iterable[str]) -> dict[str, Cut]:
    """The rows of each value between the ends of the band before and of this one, where there are some."""
    found = {value: Cut(ends[value][band - 1] if band else 0, ends[value][band]) for value in made if value in ends}
    return {value: rows for value, rows in sorted(found.items()) if rows.first < rows.end}


def _places(height: int, bands: int, uneven: bool) -> list[int] | None:
    """Where bands begin and the last one ends; ``None`` where there are too few rows."""
    if not uneven:
        return [height * band // bands for band in range(bands + 1)] if height >= bands else None
    least, more = divmod(height - bands * (bands - 1) // 2, bands)
    if least < 1:
        return None
    sizes = [least + band + (band >= bands - more) for band in range(bands)]
    return [sum(sizes[:band]) for band in range(bands + 1)]


def hull(parts: Sequence[Cut | Share]) -> Cut:
    """The rows from the first to the last of all parts."""
    return Cut(min(one.first for one in parts), max(one.end for one in parts))
