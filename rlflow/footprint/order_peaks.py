"""The peaks of many orders of one flow, by the core: the rules of :func:`rlflow.footprint.footprint`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlflow._core import OrderPeak
from rlflow.footprint.flow import Flow
from rlflow.footprint.lifetimes import aligned, kind_of, may_take_over, reads_of

__all__ = ["order_peak"]


def order_peak(flow: Flow) -> OrderPeak:
    """``peak(order)`` is ``footprint(flow with its jobs in that order).peak``; ``order(levels)`` is the order in which
    of the jobs that are ready the one of the highest level goes first. Raises UsageError for jobs that wait for each
    other in a cycle.
    """
    uses = reads_of(flow)
    number = {value: place for place, value in enumerate(uses)}
    made = [value for job in flow.jobs for value in job.outputs]
    kinds: dict[tuple[tuple[int, ...], int] | None, int] = {None: -1}
    kind = [kinds.setdefault(kind_of(flow, value), len(kinds) - 1) for value in uses]
    size = dict.fromkeys(uses, 0) | {value: aligned(flow.bytes(value)) for value in made}
    taken = [list(may_take_over(flow, job, place)) for job in flow.jobs for place in range(len(job.outputs))]
    kept = set(flow.outputs)
    return OrderPeak(
        jobs=len(flow.jobs),
        values=len(uses),
        input_begin=_begins(job.inputs for job in flow.jobs),
        input=[number[value] for job in flow.jobs for value in job.inputs],
        output_begin=_begins(job.outputs for job in flow.jobs),
        output=[number[value] for value in made],
        candidate_begin=_begins(taken),
        candidate=[number[value] for ones in taken for value in ones],
        alias=[job.alias for job in flow.jobs],
        workspace=[job.workspace for job in flow.jobs],
        bytes=list(size.values()),
        kind=kind,
        kept=[value in kept for value in uses],
        uses=list(uses.values()),
    )


def _begins(rows: Iterable[Sequence[str]]) -> np.ndarray:
    """Where each row begins when all are one after the other, and the end."""
    return np.cumsum([0, *(len(row) for row in rows)])
