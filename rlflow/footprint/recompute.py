"""Values that are computed again for their late readers, where keeping them in between makes the peak.

Only cheap operators come into question: a product is never computed twice. What a copy reads must be there at that
time, which may keep it for longer; so the whole flow is looked at again for each candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from rlflow.footprint.flow import Flow, FlowJob
from rlflow.footprint.layout import with_copies
from rlflow.footprint.lifetimes import Footprint, footprint

__all__ = ["Again", "again_in", "recomputed"]

#: Operations for each element of the result, up to which an operator is cheap; and copies at most.
_CHEAP, _MOST = 1.0, 48


class Again(NamedTuple):
    """The node ``node`` is computed once more, right before the first of its ``readers`` (numbers of nodes), which read
    the copy.
    """

    node: int
    readers: tuple[int, ...]


def recomputed(flow: Flow) -> list[Again]:
    """What to compute again, so that the peak gets smaller with each; none where nothing helps."""
    chosen: list[Again] = []
    looked = _looked_at(flow)
    while len(chosen) < _MOST:
        found = min(
            ((_looked_at(again_in(flow, [*chosen, one])), one) for one in _candidates(*looked)),
            key=lambda one: (one[0][1].peak, one[0][1].live),
            default=None,
        )
        if found is None or (found[0][1].peak, found[0][1].live) >= (looked[1].peak, looked[1].live):
            break
        looked = found[0]
        chosen.append(found[1])
    return chosen


def again_in(flow: Flow, copies: Sequence[Again]) -> Flow:
    """The flow with these copies, each before the first who reads it. The views through which they read, so that the
    runtime does not join them to the first, have no buffers and are left out.
    """
    jobs = list(flow.jobs)
    shapes, widths, axes = dict(flow.shapes), dict(flow.widths), dict(flow.axes)
    for number, copy in enumerate(copies):
        original = next(job for job in jobs if job.node == copy.node)
        value, made = original.outputs[0], f"{original.outputs[0]}/again{number}"
        shapes[made], widths[made] = shapes[value], widths[value]
        axes.update({made: axes[value]} if value in axes else {})
        first = min(place for place, job in enumerate(jobs) if job.node in copy.readers)
        for place, job in enumerate(jobs):
            if job.node in copy.readers:
                jobs[place] = job.changed(inputs=tuple(made if one == value else one for one in job.inputs))
        jobs.insert(first, original.changed(outputs=(made,), fuses=False, halves=False))
    return replace(flow, jobs=tuple(jobs), shapes=shapes, widths=widths, axes=axes)


def _looked_at(flow: Flow) -> tuple[Flow, Footprint]:
    laid = with_copies(flow)
    return laid, footprint(laid)


def _candidates(flow: Flow, needs: Footprint) -> Iterator[Again]:
    """Copies of cheap values that live across the peak, for those who read them behind it."""
    makers = {value: place for place, job in enumerate(flow.jobs) for value in job.outputs}
    readers: dict[str, list[int]] = {}
    for place, job in enumerate(flow.jobs):
        for value in job.inputs:
            readers.setdefault(value, []).append(place)
    for value, place in makers.items():
        late = [one for one in readers.get(value, ()) if one > needs.at]
        if not late or place >= needs.at or not _is_cheap(flow, flow.jobs[place]):
            continue
        if value in flow.outputs or "/again" in value or any(flow.jobs[one].node < 0 for one in late):
            continue
        if needs.at in readers[value]:
            continue
        yield Again(flow.jobs[place].node, tuple(flow.jobs[one].node for one in dict.fromkeys(late)))


def _is_cheap(flow: Flow, job: FlowJob) -> bool:
    """Whether a job is one of a single result that takes few operations, and none that something else is part of."""
    if job.node < 0 or len(job.outputs) != 1 or job.convolves or job.halves or job.alias or not job.inputs:
        return False
    return job.flops <= _CHEAP * prod(flow.shapes[job.outputs[0]])
