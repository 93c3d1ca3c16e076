"""How much memory a flow needs in ONNX Runtime: its planner's rules, value by value.

The runtime decides once, for a fixed order, which output takes over which buffer:

* a view (Reshape, Squeeze, ...) shares its input's buffer;
* an output that may be computed in place takes over an input of the same shape and width that nobody reads later;
* else it takes the buffer that was freed last among those of the same shape and width;
* else it gets a buffer of its own.

A buffer lives from its first value to the last reader of its last one, *also in between*. After one run the runtime
knows all sizes, and lays the buffers out in one block: each takes the smallest gap that holds it, else the block grows.
From then on a run takes that block, the outputs, and what an operator needs while it runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlflow.footprint.flow import Flow, FlowJob

#: Buffers begin at multiples of so many bytes.
ALIGNMENT = 256


class Buffer(NamedTuple):
    """``size`` bytes at ``offset`` of the block, from the job ``first`` to the job ``last`` inclusive."""

    value: str
    size: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class Footprint:
    """Bytes. ``block``: what the runtime lays the buffers out in. ``live``: the most bytes of live buffers, after which
    job (``at``), and which (``holders``). ``outputs``: of the model's outputs. ``peak``: all that a run takes.
    ``fresh``: the bytes of the buffers that each job gets; ``buffers``: their places.
    """

    block: int
    live: int
    at: int
    holders: tuple[str, ...]
    outputs: int
    peak: int
    fresh: tuple[int, ...]
    buffers: tuple[Buffer, ...]


def footprint(flow: Flow) -> Footprint:
    """What a flow needs, by the rules above."""
    owner, last = _buffers(flow)
    starts: dict[int, list[str]] = defaultdict(list)
    ends: dict[int, list[str]] = defaultdict(list)
    for value, place in owner.items():
        if value == place.value:
            starts[place.made].append(value)
            if place.value in last:
                ends[last[place.value]].append(value)
    return _laid_out(flow, starts, ends)


class _Home(NamedTuple):
    """The buffer of a value: that of the value that it was made for, by the job ``made``."""

    value: str
    made: int


def _buffers(flow: Flow) -> tuple[dict[str, _Home], dict[str, int]]:
    """The buffer of each computed value, and the last job that reads each buffer (absent: nobody does)."""
    home: dict[str, _Home] = {}
    uses = reads_of(flow)
    last: dict[str, int] = {}
    free: dict[tuple[Any, int], list[str]] = {}  # by shape and width; the one that was freed last comes last
    outputs = set(flow.outputs)
    for number, job in enumerate(flow.jobs):
        for place, value in enumerate(job.outputs):
            if value in outputs:
                continue
            found = _in_place(flow, job, place, home, uses) or _freed(flow, value, free)
            if found is None:
                home[value] = _Home(value, number)
                continue
            home[value] = home[found] if found in home else _Home(found, -1)
            uses[home[value].value] += uses[value]
        for value in (*job.inputs, *job.outputs):
            buffer = home[value].value if value in home else value
            if value in job.inputs:
                last[buffer] = number
            uses[buffer] -= 1
            if uses[buffer] == 0 and value in home and _is_sized(flow, buffer):
                free.setdefault((flow.shapes[buffer], flow.widths[buffer]), []).append(buffer)
    return {value: place for value, place in home.items() if place.made >= 0}, last


def reads_of(flow: Flow) -> Counter[str]:
    """How often each value is read or made; what the caller owns once more, so that it is never taken over."""
    uses: Counter[str] = Counter()
    for job in flow.jobs:
        uses.update(job.inputs)
        uses.update(job.outputs)
    uses.update(flow.inputs)
    uses.update(flow.outputs)
    return uses


def _in_place(
    flow: Flow, job: FlowJob, place: int, home: Mapping[str, _Home], uses: Mapping[str, int]
) -> str | None:
    """The input whose buffer an output takes over."""
    for given in may_take_over(flow, job, place):
        if job.alias or uses[home[given].value if given in home else given] == 1:
            return given
    return None


def may_take_over(flow: Flow, job: FlowJob, place: int) -> Iterator[str]:
    """The inputs whose buffer an output may take over, if nobody else needs it; with ``job.alias`` in any case."""
    value = job.outputs[place]
    for source, target in job.reuses:
        if target == place and source < len(job.inputs):
            given = job.inputs[source]
            fused = job.fuses and flow.shapes.get(given) == flow.shapes.get(value)
            if job.alias or fused or _same_size(flow, given, value):
                yield given


def _freed(flow: Flow, value: str, free: Mapping[tuple[Any, int], list[str]]) -> str | None:
    """The buffer that a value takes over: that which was freed last among those of its shape and width."""
    kind = kind_of(flow, value)
    found = None if kind is None else free.get(kind)
    return found.pop() if found else None


def kind_of(flow: Flow, value: str) -> tuple[tuple[int, ...], int] | None:
    """Shape and width; buffers follow each other where these are the same, and the runtime knows them in time."""
    return (flow.shapes[value], flow.widths[value]) if flow.shapes.get(value) and _is_sized(flow, value) else None


def _is_sized(flow: Flow, value: str) -> bool:
    """Whether the runtime knows the size of a value before it runs."""
    return value in flow.shapes and value not in flow.hidden


def _same_size(flow: Flow, one: str, other: str) -> bool:
    known = _is_sized(flow, one) and _is_sized(flow, other)
    return known and flow.shapes[one] == flow.shapes[other] and flow.widths[one] == flow.widths[other]


def _laid_out(flow: Flow, starts: Mapping[int, list[str]], ends: Mapping[int, list[str]]) -> Footprint:
    block = _Block()
    outputs = set(flow.outputs)
    given = live = most = at = peak_above = 0
    holders: tuple[str, ...] = ()
    fresh = []
    for number, job in enumerate(flow.jobs):
        got = 0
        for value in starts.get(number, ()):
            size = aligned(flow.bytes(value))
            block.take(value, size, number)
            live, got = live + size, got + size
        given += sum(aligned(flow.bytes(value)) for value in job.outputs if value in outputs)
        fresh.append(got)
        peak_above = max(peak_above, given + job.workspace)
        if live + given + job.workspace > most:
            most, at, holders = live + given + job.workspace, number, tuple(block.held)
        for value in ends.get(number, ()):
            live -= block.give(value, number)
    buffers = block.all(len(flow.jobs) - 1)
    return Footprint(block.size, most, at, holders, given, block.size + peak_above, tuple(fresh), buffers)


def aligned(size: int) -> int:
    """``size`` bytes, rounded up to where the next buffer may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Block:
    """Buffers side by side: each takes the gap that fits it best, of which the room up to the end of the block so far
    is one; else it makes the block longer.
    """

    def __init__(self) -> None:
        self.size = 0
        self.held: dict[str, Buffer] = {}
        self._in_order: list[Buffer] = []
        self._done: list[Buffer] = []

    def take(self, value: str, size: int, now: int) -> None:
        index, waste, offset, end = -1, None, 0, 0
        for place, one in enumerate(self._in_order):
            gap = one.offset - end
            if gap >= size and (waste is None or gap - size < waste):
                index, waste, offset = place, gap - size, end
            end = one.offset + one.size
        behind = self.size - end - size  # what would be left up to the end of the block
        if waste is None or 0 <= behind < waste:
            index, offset = len(self._in_order), end
        buffer = Buffer(value, size, offset, now, now)
        self.held[value] = buffer
        self._in_order.insert(index, buffer)
        self.size = max(self.size, offset + size)

    def give(self, value: str, now: int) -> int:
        buffer = self.held.pop(value)
        self._in_order.remove(buffer)
        self._done.append(buffer._replace(last=now))
        return buffer.size

    def all(self, end: int) -> tuple[Buffer, ...]:
        """All buffers so far; those that nobody reads stay to the end."""
        kept = [one._replace(last=end) for one in self.held.values()]
        return tuple(sorted([*self._done, *kept], key=lambda one: (one.first, one.offset)))
