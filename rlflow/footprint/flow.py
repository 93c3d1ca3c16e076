"""A network as far as memory is concerned: what is done in which order, on values of which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any, NamedTuple

from rlflow.footprint.rowmaps import RowMap

#: The axis of the rows in values of the layout NCHW, and wherever nothing else is said.
ROWS = 2
#: Channels in a block on processors with 512-bit vectors; others have 8, and need a little less.
BLOCK = 16


class Layout(Enum):
    """What an operator does with the runtime's blocked layout: nothing; it reads and makes blocked values; it makes
    them of plain ones; it makes them where it reads them.
    """

    PLAIN = 0
    BLOCKED = 1
    MAKES = 2
    KEEPS = 3


class Cut(NamedTuple):
    """Rows ``[first, end)`` of a value."""

    first: int
    end: int


@dataclass(frozen=True)
class FlowJob:
    """One operator on activations; weights are not among its ``inputs``.

    ``convolves``: a convolution, in whose kernel the runtime may compute what follows. ``fuses``: it is computed in one
    kernel with what makes such an input, and never has a buffer beside that one's. ``halves``: it is computed in one
    kernel with the product of its input and its result, which alone reads that, so that the result is never there.
    ``averages``: the mean of each channel over all rows and columns. ``crosses``: such a mean, or made of these alone:
    bands need not end before it.
    ``rows``: how rows go through it, ``None`` where it needs whole values. ``whole``: places of ``inputs`` that are
    taken whole whatever rows are computed. ``reuses``: (input, output) places that may share a buffer; with ``alias``
    they do in any case. ``flops``: of the whole. ``workspace``: bytes that it takes while it runs.

    ``node``: the node of the model that it is, or is a band of; ``band`` then has the padding, or output padding, at
    either end. ``cut``: these rows of its input, and nothing else; with ``crops`` by a convolution, which can stay in
    the runtime's blocked ``layout``. ``joins``: its inputs, one below the other; it ``orders`` their computation.
    ``pools``: pixel by pixel, so that its result lies in blocks. ``copies``: into another layout. ``weighs``: its
    inputs are means over so many rows each, and its output is the mean over all.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: int = -1
    rows: RowMap | None = None
    whole: frozenset[int] = frozenset()
    reuses: tuple[tuple[int, int], ...] = ()
    alias: bool = False
    convolves: bool = False
    fuses: bool = False
    halves: bool = False
    averages: bool = False
    crosses: bool = False
    flops: float = 0.0
    workspace: int = 0
    band: tuple[int, int] | None = None
    cut: Cut | None = None
    crops: bool = False
    joins: bool = False
    orders: bool = False
    pools: bool = False
    copies: bool = False
    weighs: tuple[int, ...] = ()
    layout: Layout = Layout.PLAIN

    def changed(self, **changes: Any) -> FlowJob:
        """As :func:`dataclasses.replace`, in a quarter of the time: a search makes a hundred thousand of these."""
        made = object.__new__(FlowJob)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes)
        return made


@dataclass(frozen=True)
class Flow:
    """Jobs in the order of their execution. ``shapes`` and ``widths`` (bytes an element) of all values but weights;
    ``inputs`` and ``outputs`` of the whole; ``whole``: the job of each node, before any stretch was put in bands;
    ``blocked``: the values that the runtime will keep in its blocked layout; ``hidden``: those whose shapes it learns
    only when it runs, so that they share no buffer; ``hides``: whether shapes can be hidden from it; ``pools``: whether
    a pool brings values into blocks again, for which it has to know their channels; ``axes``: the axis of the rows of
    a value, where that is not :data:`ROWS`.
    """

    jobs: tuple[FlowJob, ...]
    shapes: Mapping[str, tuple[int, ...]]
    widths: Mapping[str, int]
    inputs: frozenset[str]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()
    whole: Mapping[int, FlowJob] = field(default_factory=dict, repr=False)
    blocked: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    hides: bool = False
    pools: bool = False
    axes: Mapping[str, int] = field(default_factory=dict, repr=False)

    def bytes(self, value: str) -> int:
        """Bytes of a value."""
        return prod(self.shapes[value]) * self.widths[value]

    def axis(self, value: str) -> int:
        """The axis of the rows of a value."""
        return self.axes.get(value, ROWS)

    def height(self, value: str) -> int:
        """Rows of a value; 0 where it has none."""
        shape, axis = self.shapes.get(value, ()), self.axis(value)
        return shape[axis] if len(shape) > axis else 0

    @property
    def flops(self) -> float:
        """Of all jobs."""
        return sum(job.flops for job in self.jobs)
