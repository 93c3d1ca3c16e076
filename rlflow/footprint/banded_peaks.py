"""What one flow needs with any of its stretches in bands, by the core: the rules of :func:`rlflow.footprint.footprint`
on what :func:`rlflow.footprint.layout.with_copies` makes of :func:`rlflow.footprint.in_bands`.

A search asks this many thousand times, each time with one new stretch beside some that it knows. So a stretch is put in
bands once, and kept as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from rlflow._core import FlowPart, FlowPeak
from rlflow.footprint.bands import Stretch, ValueSizes, bands_of
from rlflow.footprint.flow import Flow, FlowJob
from rlflow.footprint.layout import filled
from rlflow.footprint.lifetimes import ALIGNMENT

__all__ = ["BandedNeeds", "BandedPeaks"]

#: Stretches that are kept as arrays.
KEPT = 1024
#: As the core names them, a bit each: what a job is.
ALIAS, FUSES, HALVES, CONVOLVES, WHOLE, MOVES = (1 << place for place in range(6))


class BandedNeeds(NamedTuple):
    """``peak`` and ``live``: bytes, as in :class:`rlflow.footprint.Footprint`; ``node``: of the job at which most is
    alive, or of the nearest one that has a node. ``flops``, ``moved`` (bytes) and ``jobs`` make the work.
    """

    peak: int
    live: int
    node: int
    flops: float
    moved: int
    jobs: int


class BandedPeaks:
    """The needs of one flow. Raises UsageError for stretches that overlap."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._shapes: dict[tuple[int, ...], int] = {}
        self._kinds: dict[tuple[tuple[int, ...], int], int] = {}
        owned = (*flow.inputs, *flow.outputs, *(value for job in flow.jobs for value in (*job.inputs, *job.outputs)))
        self._values = {value: place for place, value in enumerate(dict.fromkeys(owned))}
        sizes = ValueSizes(dict(flow.shapes), dict(flow.widths), {})
        whole = self._part(flow.jobs, self._values, sizes, flow.hidden, outer=0)
        given, taken = ([self._values[value] for value in values] for values in (flow.inputs, flow.outputs))
        self._peak = FlowPeak(whole, given, taken, ALIGNMENT)
        self._banded = lru_cache(KEPT)(self._in_bands)

    def of(self, stretches: Iterable[Stretch]) -> BandedNeeds | None:
        """With these stretches in bands; ``None`` where one of them cannot be."""
        changes = []
        for stretch in sorted(stretches):
            part = self._banded(stretch)
            if part is None:
                return None
            changes.append((stretch.first, stretch.last, part))
        return BandedNeeds(*self._peak.needs(changes))

    def _in_bands(self, stretch: Stretch) -> FlowPart | None:
        found = bands_of(self._flow, stretch)
        if found is None:
            return None
        outer = len(self._values)
        values = self._values | {value: outer + place for place, value in enumerate(found.sizes.shapes)}
        return self._part(found.jobs, values, found.sizes, found.hidden, outer)

    def _part(
        self, jobs: Sequence[FlowJob], values: dict[str, int], sizes: ValueSizes, hidden: Iterable[str], outer: int
    ) -> FlowPart:
        own = self._values if outer == 0 else sizes.shapes
        plain = [sizes.shapes.get(value) for value in own]
        wide = [None if shape is None else filled(shape) for shape in plain]
        widths = [sizes.widths.get(value, 1) for value in own]
        unknown = set(hidden)
        return FlowPart(
            outer=outer,
            input_begin=_begins([job.inputs for job in jobs]),
            input=[values[value] for job in jobs for value in job.inputs],
            output_begin=_begins([job.outputs for job in jobs]),
            output=[values[value] for job in jobs for value in job.outputs],
            reuse_begin=_begins([job.reuses for job in jobs]),
            reuse_input=[source for job in jobs for source, _ in job.reuses],
            reuse_output=[target for job in jobs for _, target in job.reuses],
            bits=[_bits(job) for job in jobs],
            layout=[job.layout.value for job in jobs],
            node=[job.node for job in jobs],
            flops=[job.flops for job in jobs],
            workspace=[job.workspace for job in jobs],
            bytes=_bytes(plain, widths),
            filled_bytes=_bytes(wide, widths),
            shape=[self._shape(shape) for shape in plain],
            filled_shape=[self._shape(shape) for shape in wide],
            kind=[self._kind(shape, width) for shape, width in zip(plain, widths, strict=True)],
            filled_kind=[self._kind(shape, width) for shape, width in zip(wide, widths, strict=True)],
            hidden=[value in unknown for value in own],
            scalar=[not shape for shape in plain],
            veiled=[values[value] for value in unknown if outer and values[value] < outer],
        )

    def _shape(self, shape: tuple[int, ...] | None) -> int:
        """Its number; -1: it is not known."""
        return -1 if shape is None else self._shapes.setdefault(shape, len(self._shapes))

    def _kind(self, shape: tuple[int, ...] | None, width: int) -> int:
        """The number of a shape and width; -1: it is not known."""
        return -1 if shape is None else self._kinds.setdefault((shape, width), len(self._kinds))


def _bits(job: FlowJob) -> int:
    moves = job.cut is not None or job.joins or job.copies or job.pools
    return (
        ALIAS * job.alias
        | FUSES * job.fuses
        | HALVES * job.halves
        | CONVOLVES * job.convolves
        | WHOLE * bool(job.whole)
        | MOVES * moves
    )


def _bytes(shapes: Sequence[tuple[int, ...] | None], widths: Sequence[int]) -> list[int]:
    return [0 if shape is None else prod(shape) * width for shape, width in zip(shapes, widths, strict=True)]


def _begins(rows: Sequence[Sequence[object]]) -> list[int]:
    """Where each row begins when all are one after the other, and the end."""
    return list(accumulate(map(len, rows), initial=0))
