"""The report of ``rlflow shrink``: what a model takes of memory before and after, how long it runs, what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rlflow.report.model import Verified

#: Raised when a field of the JSON form changes its meaning or goes away.
FORMAT = 1
#: Stretches that the text names; the JSON form has all.
MOST_SAID = 6


class MemoryUse(NamedTuple):
    """Bytes beside the weights. ``block``: where the runtime keeps values between operators; ``outputs`` of the model;
    ``workspace``: what operators take while they run, at most; ``peak``: all of it together, the sum of which the model
    of the runtime computes. ``resident``: by how much the resident memory of a fresh process grows in the runs, and
    ``total``: that memory at its peak, weights and runtime included (``None``: not measured).
    """

    block: int
    outputs: int
    workspace: int
    peak: int
    resident: int | None = None
    total: int | None = None


class Tried(NamedTuple):
    """One point of the front: peak bytes, time over the model's own (``estimated``, or by the clock), what was put in
    bands, and whether the model was rewritten before.
    """

    peak: int
    slowdown: float
    estimated: bool
    stretches: tuple[str, ...]
    rewritten: bool = False


@dataclass(frozen=True)
class ShrinkReport:
    """What was done to a model and what came of it. ``slowdown``: time after over time before, with its 95 % interval
    (``None``: not timed). ``rewritten``: how many times as fast rewriting made it, before anything was put in bands
    (``None``: it was not). ``exact``: the runtime's allocator counted at every node what the peaks are computed from.
    """

    model: str
    shrunk: bool
    reason: str
    before: MemoryUse
    after: MemoryUse
    weights: int
    slower: float
    limit: int | None
    threads: int
    slowdown: float | None = None
    slowdown_ci95: tuple[float, float] | None = None
    rewritten: float | None = None
    stretches: tuple[str, ...] = ()
    front: Sequence[Tried] = ()
    exact: bool = False
    verified: Verified | None = None
    notes: Sequence[str] = ()
    written: str | None = None
    version: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The peak before over the peak after."""
        return self.before.peak / max(self.after.peak, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        for key in ("before", "after"):
            values[key] = getattr(self, key)._asdict()
        values["front"] = [one._asdict() for one in self.front]
        return {"format": FORMAT, **values, "ratio": self.ratio}


def size_text(size: float) -> str:
    """Bytes for people: ``3.2 MB``, in units of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}" if size / scale < 1000 else f"{size / scale:.0f} {unit}"
    return f"{size:.0f} bytes"


def shrink_text(report: ShrinkReport) -> str:
    """The report as the command line prints it."""
    before, after = report.before, report.after
    lines = [
        f"{report.model}: {report.reason}",
        f"  peak beside the weights    {size_text(before.peak)} -> {size_text(after.peak)} ({report.ratio:.2f} x less)",
        f"    values between operators {size_text(before.block)} -> {size_text(after.block)}",
    ]
    if before.resident is not None and after.resident is not None:
        lines.append(
            f"  growth of a fresh process  {size_text(before.resident)} -> {size_text(after.resident)}"
            f"  ({before.resident / max(after.resident, 1):.2f} x less)"
        )
        lines.append(f"    weights and runtime too  {size_text(before.total or 0)} -> {size_text(after.total or 0)}")
    if report.slowdown is not None and report.slowdown_ci95 is not None:
        low, high = report.slowdown_ci95
        lines.append(f"  time                       {report.slowdown:.3f} times ({low:.3f} to {high:.3f})")
    counted = "the allocator counted the same at every node" if report.exact else "the allocator counted otherwise"
    lines.insert(3, f"    {counted}")
    if report.rewritten is not None:
        lines.append(f"  rewritten first            {report.rewritten:.3f} times as fast by that alone")
    lines += [f"  in bands: {stretch}" for stretch in report.stretches[:MOST_SAID]]
    if len(report.stretches) > MOST_SAID:
        lines.append(f"  and {len(report.stretches) - MOST_SAID} more stretches, which --json has")
    if len(report.front) > 1:
        lines.append("  what was found (peak, time; e: estimated):")
        marks = {True: "e", False: ""}
        lines += [f"    {size_text(one.peak):>8}  {one.slowdown:.2f}{marks[one.estimated]}" for one in report.front]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def arena_text(needs: Any, most: int = 400) -> str:
    """Where each buffer of a :class:`rlflow.footprint.Footprint` lies, and between which operators, in the smallest
    block that a search finds for them.
    """
    from rlflow.footprint.packing import arena_of

    arena = arena_of(needs.buffers)
    sizes = f"as the runtime lays it out: {size_text(needs.block)}; no plan needs less than {size_text(arena.bound)}"
    lines = [f"block of {size_text(arena.size)} ({sizes}): offset, bytes, from operator, to operator, first value"]
    rows = [f"{one.offset:>12} {one.size:>12} {one.first:>6} {one.last:>6}  {one.value}" for one in arena.buffers]
    left = [f"... and {len(rows) - most} more (--json has all)"] if len(rows) > most else []
    return "\n".join([*lines, *rows[:most], *left])
