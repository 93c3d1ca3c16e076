"""ONNX Runtime's blocked layout (NCHWc): which values lie in it, and the copies between it and the plain one.

Where its processor kernels can, the runtime lets convolutions and what follows them work on tensors whose channels lie
in blocks, filled up to whole blocks. What cannot gets a plain copy, and a convolution behind that a blocked one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from rlflow.footprint.flow import BLOCK, Flow, FlowJob, Layout


def blocked_values(flow: Flow) -> frozenset[str]:
    """The values that will lie in blocks."""
    return frozenset(_Laid(flow).blocked)


def with_copies(flow: Flow) -> Flow:
    """The flow with the copies between the layouts, and the sizes that values have in theirs."""
    laid = _Laid(flow)
    jobs = tuple(job for job in laid.jobs if job is not None)
    return replace(flow, jobs=jobs, shapes=laid.shapes, widths=laid.widths, hidden=frozenset(laid.hidden))


class _Laid:
    def __init__(self, flow: Flow) -> None:
        self.jobs: list[FlowJob | None] = []  # None: it became part of a later one
        self.shapes, self.widths = dict(flow.shapes), dict(flow.widths)
        self.blocked: set[str] = set()
        self.hidden = set(flow.hidden)
        self._plain = flow.shapes
        self._copies: dict[tuple[str, bool], str] = {}
        self._outputs = set(flow.outputs)
        self._readers = Counter(value for job in flow.jobs for value in job.inputs)
        self._makers: dict[str, int] = {}  # the places of convolutions that nothing was added to
        self._halves = _halves(flow)
        for job in flow.jobs:
            self._add(job)

    def _add(self, job: FlowJob) -> None:
        if not self._halves.isdisjoint(job.outputs):
            return
        if not self._halves.isdisjoint(job.inputs):
            job = job.changed(inputs=tuple(value for value in job.inputs if value not in self._halves))
        here = job.inputs[:1] if job.layout is not Layout.KEEPS else job.inputs
        keeps = job.layout is Layout.KEEPS and all(value in self.blocked for value in here) and not job.whole
        reads = keeps or job.layout is Layout.BLOCKED
        makes = (reads or job.layout is Layout.MAKES) and not self._outputs.intersection(job.outputs)
        inputs = tuple(self._as(value, reads and value in here) for value in job.inputs)
        job = job if inputs == job.inputs else job.changed(inputs=inputs)
        if makes:
            self._block(job.outputs)
        if job.convolves:
            self._makers[job.outputs[0]] = len(self.jobs)
        self.jobs.append(self._added(job))

    def _added(self, job: FlowJob) -> FlowJob:
        """A sum as the convolution that it becomes part of; other jobs as they are."""
        if not job.fuses or len(job.inputs) != 2 or len({self.shapes[value] for value in job.inputs}) > 1:
            return job
        for value, other in (job.inputs, job.inputs[::-1]):
            place = self._makers.get(value, -1)
            made = self.jobs[place] if place >= 0 else None
            if made is None or value == other or self._readers[value] > 1 or value in self._outputs:
                continue
            self.jobs[place] = None
            inputs, reuses = (*made.inputs, other), ((len(made.inputs), 0),)
            return made.changed(inputs=inputs, outputs=job.outputs, reuses=reuses, flops=made.flops + job.flops)
        return job

    def _block(self, values: Iterable[str]) -> None:
        for value in values:
            self.blocked.add(value)
            self.shapes[value] = filled(self.shapes[value])

    def _as(self, value: str, blocked: bool) -> str:
        """The value in that layout; a copy is made where it lies in the other one."""
        if (value in self.blocked) == blocked:
            return value
        name = self._copies.get((value, blocked))
        if name is None:
            name = self._copies[value, blocked] = f"{value}#{'blocked' if blocked else 'plain'}"
            self.shapes[name] = filled(self._plain[value]) if blocked else self._plain[value]
            self.widths[name] = self.widths[value]
            if value in self.hidden:
                self.hidden.add(name)
            self.jobs.append(FlowJob((value,), (name,), copies=True))
        return name


def _halves(flow: Flow) -> set[str]:
    """What is computed in one kernel with the product that reads it: never there."""
    found = {job.outputs[0]: job.inputs[0] for job in flow.jobs if job.halves}
    readers = {value: job for job in flow.jobs for value in job.inputs if value in found}
    return {value for value, given in found.items() if value in readers and given in readers[value].inputs}


def filled(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose channels fill whole blocks."""
    return (shape[0], -(-shape[1] // BLOCK) * BLOCK, *shape[2:]) if len(shape) > 1 else shape
