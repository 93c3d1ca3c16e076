"""Peaks of orders by the core, beside the same rules in Python."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow._core import OrderPeak
from rlflow.errors import UsageError
from rlflow.footprint import Flow, FlowJob, footprint
from rlflow.footprint.order_peaks import order_peak
from rlflow.placement.sketches import FAMILIES, drawn_sketch

#: So few that buffers are taken over often; one is a scalar.
SHAPES = [(64,), (64,), (100,), (3, 100), (64, 40), ()]


def drawn_flow(rng: np.random.Generator) -> Flow:
    """Jobs of all that the rules look at: views, results in place and fused, values that are hidden, read twice or by
    nobody, outputs that are read, inputs that are given away, and memory while a job runs.
    """
    shapes: dict[str, tuple[int, ...]] = {"x": SHAPES[0], "y": SHAPES[3]}
    widths, jobs = {"x": 4, "y": 4}, []
    for number in range(int(rng.integers(1, 14))):
        known = list(shapes)
        inputs = tuple(known[at] for at in rng.integers(0, len(known), int(rng.integers(0, 4))))
        outputs = tuple(f"v{number}.{place}" for place in range(int(rng.choice([1, 1, 1, 2]))))
        for value in outputs:
            shapes[value] = SHAPES[int(rng.integers(len(SHAPES)))]
            widths[value] = int(rng.choice([4, 4, 8]))
        pairs = [(source, place) for source in range(4) for place in range(len(outputs)) if rng.random() < 0.5]
        alias = bool(inputs) and rng.random() < 0.15
        job = FlowJob(inputs, outputs, number, reuses=tuple(pairs), alias=alias, fuses=bool(rng.random() < 0.2),
                      workspace=int(rng.choice([0, 0, 700])))  # fmt: skip
        jobs.append(job)
    made = [value for job in jobs for value in job.outputs]
    outputs = tuple(value for value in made if rng.random() < 0.15) or (made[-1],)
    hidden = frozenset(value for value in made if rng.random() < 0.1)
    return Flow(tuple(jobs), shapes, widths, frozenset({"x", "y"}), outputs, hidden=hidden)


def by_hand(flow: Flow, level: Sequence[int]) -> list[int]:
    """Of the jobs that are ready that of the highest level, of equals the first."""
    makers = {value: number for number, job in enumerate(flow.jobs) for value in job.outputs}
    before = [{makers[value] for value in job.inputs if value in makers} for job in flow.jobs]
    found: list[int] = []
    ready = [(-level[job], job) for job, ones in enumerate(before) if not ones]
    heapq.heapify(ready)
    while ready:
        _, job = heapq.heappop(ready)
        found.append(job)
        for reader, ones in enumerate(before):
            if job in ones:
                ones.remove(job)
                if not ones:
                    heapq.heappush(ready, (-level[reader], reader))
    return found


def in_order(flow: Flow, order: Sequence[int]) -> Flow:
    return replace(flow, jobs=tuple(flow.jobs[job] for job in order))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_they_are_those_of_the_rules_in_python(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flow = drawn_flow(rng)
    native = order_peak(flow)
    levels = rng.integers(0, 4, (4, len(flow.jobs)))
    orders = [by_hand(flow, row.tolist()) for row in levels]
    assert [native.order(row).tolist() for row in levels] == orders
    peaks = [footprint(in_order(flow, order)).peak for order in orders]
    assert [native.peak(order) for order in orders] == peaks
    assert native.peaks(levels).tolist() == peaks


@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_network_they_are_the_same(family: str) -> None:
    flow = drawn_sketch(family, 90, np.random.default_rng(4)).flow()
    native, rng = order_peak(flow), np.random.default_rng(0)
    for _ in range(5):
        order = native.order(rng.integers(0, 8, len(flow.jobs)))
        assert native.peak(order) == footprint(in_order(flow, order.tolist())).peak


def chain() -> Flow:
    shapes = {"x": (64,), "a": (64,), "b": (64,)}
    jobs = (FlowJob(("x",), ("a",), 0), FlowJob(("a",), ("b",), 1))
    return Flow(jobs, shapes, dict.fromkeys(shapes, 4), frozenset({"x"}), ("b",))


@pytest.mark.parametrize(
    ("order", "part"),
    [([0], "each job once"), ([0, 0], "each job once"), ([0, 2], "each job once"), ([1, 0], "behind those")],
)
def test_what_is_no_order_is_refused(order: list[int], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        order_peak(chain()).peak(order)


def test_a_circle_and_too_few_levels_are_refused() -> None:
    jobs = (FlowJob(("b",), ("a",), 0), FlowJob(("a",), ("b",), 1))
    with pytest.raises(UsageError, match="cycle"):
        order_peak(replace(chain(), jobs=jobs))
    with pytest.raises(UsageError, match="a level for each job"):
        order_peak(chain()).order([1])


def test_no_jobs_take_nothing() -> None:
    native = order_peak(Flow((), {}, {}, frozenset(), ()))
    assert native.peak([]) == 0 and native.order([]).tolist() == []


ARRAYS = {
    "input_begin": [0, 1], "input": [0], "output_begin": [0, 1], "output": [1], "candidate_begin": [0, 1],
    "candidate": [0], "alias": [False], "workspace": [0], "bytes": [0, 256], "kind": [-1, 0], "kept": [False, False],
    "uses": [2, 1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_begin", [0]), ("input_begin", [0, 2]), ("input_begin", [1, 1]), ("input", [2]), ("output", [-1]),
        ("candidate_begin", [0, 0]), ("candidate", [7]), ("alias", []), ("workspace", [0, 0]), ("bytes", [0]),
        ("kind", [0]), ("kept", []), ("uses", [1, 1, 1]),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(name: str, value: list) -> None:
    assert OrderPeak(jobs=1, values=2, **ARRAYS).peak([0]) == 256
    with pytest.raises(UsageError, match="does not fit"):
        OrderPeak(jobs=1, values=2, **{**ARRAYS, name: value})
