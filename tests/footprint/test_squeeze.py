"""The search for small designs, on flows whose peak is known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from rlflow.footprint import Along, Flow, FlowJob, Sliding, footprint, in_bands, squeeze
from rlflow.footprint.squeeze import Squeeze
from rlflow.footprint.stepping import CALL, COPY


def funnel() -> Flow:
    """A large value, a pool, and two dear windows behind it."""
    sizes = {"x": (1, 3, 112, 56), "v0": (1, 64, 112, 56), "v1": (1, 64, 56, 28), "v2": (1, 64, 56, 28)}
    sizes["v3"] = (1, 16, 28, 14)
    jobs = (
        FlowJob(("x",), ("v0",), 0, Sliding(3, begin=1), flops=1e8),
        FlowJob(("v0",), ("v1",), 1, Sliding(2, 2), flops=1e5),
        FlowJob(("v1",), ("v2",), 2, Sliding(7, begin=3), flops=1e9),
        FlowJob(("v2",), ("v3",), 3, Sliding(7, 2, begin=3), flops=1e9),
    )
    return Flow(jobs, sizes, dict.fromkeys(sizes, 4), frozenset({"x"}), ("v3",), hides=True)


def work_of(flow: Flow) -> float:
    moving = (job for job in flow.jobs if job.cut is not None or job.joins or job.copies or job.pools)
    return flow.flops + COPY * sum(flow.bytes(job.outputs[0]) for job in moving) + CALL * len(flow.jobs)


def test_the_step_at_the_peak_gets_more_parts() -> None:
    flow = funnel()
    front = Squeeze(flow, 1.1, 20.0).run()
    finer = [one for one in front if any(max(stretch.rates, default=1) > 1 for stretch in one.stretches)]
    assert finer
    for design in front:
        banded = in_bands(flow, design.stretches)
        assert banded is not None
        assert footprint(banded).peak == design.peak
        assert design.work == pytest.approx(work_of(banded) / work_of(flow)) and design.work <= 1.1


def test_a_step_is_made_finer_before_the_beam_drops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squeeze, "TURNS", 1)
    front = Squeeze(funnel(), 1.1, 20.0).run()
    assert any(max(stretch.rates, default=1) > 1 for design in front for stretch in design.stretches)


def test_bands_of_one_height_are_tried() -> None:
    assert 7 in Squeeze(funnel())._numbers(0, 3) and 14 in Squeeze(funnel())._numbers(0, 3)


def test_the_front_is_sorted_and_begins_with_the_smallest() -> None:
    front = Squeeze(funnel(), 1.1, 20.0).run()
    assert [one.peak for one in front] == sorted({one.peak for one in front})
    assert [one.work for one in front] == sorted({one.work for one in front}, reverse=True)
    assert front[-1].stretches == () and front[-1].work == 1.0


def test_a_design_that_adds_little_work_stays_in_the_beam() -> None:
    """The two smallest, then the smallest of the cheap ones."""
    search = Squeeze(funnel(), 1.5)
    made = [
        squeeze._Found(squeeze.Design(peak, work, ()), 0)
        for peak, work in ((1, 1.5), (2, 1.4), (3, 1.3), (4, 1.3), (5, 1.1), (6, 1.0))
    ]
    assert [one.design.peak for one in search._best(made, 4)] == [1, 2, 5, 6]
    assert [one.design.peak for one in search._best(made[:5], 4)] == [1, 2, 5, 3]


def lasting() -> Flow:
    """A funnel, then values of which the second and the last have one shape, and those between are as large."""
    flow = funnel()
    sizes = {**flow.shapes, "a": (1, 64, 28, 28), "b": (1, 32, 28, 56), "c": (1, 64, 28, 28), "d": (1, 1, 1, 1)}
    jobs = (
        *flow.jobs,
        FlowJob(("v3",), ("a",), 4, flops=1e8),
        FlowJob(("a",), ("e",), 5, flops=1e8),
        FlowJob(("e",), ("b",), 6, flops=1e8),
        FlowJob(("b",), ("f",), 7, flops=1e8),
        FlowJob(("f",), ("c",), 8, flops=1e8),
        FlowJob(("c",), ("d",), 9, flops=1e8),
    )
    sizes |= {"e": (1, 8, 4, 4), "f": (1, 8, 4, 4)}
    return replace(flow, jobs=jobs, shapes=sizes, widths=dict.fromkeys(sizes, 4), outputs=("d",))


def test_what_a_stretch_hands_on_is_hidden_where_a_buffer_would_live_on() -> None:
    """Without a veil the buffer of ``a`` waits for ``c`` while ``b`` is there."""
    smallest = Squeeze(lasting(), 1.5, 20.0).run()[0]
    assert [one.veils for one in smallest.stretches][-1:] == [True]
    bare = in_bands(lasting(), [one._replace(veils=False) for one in smallest.stretches])
    assert bare is not None and footprint(bare).peak > smallest.peak


def test_a_buffer_that_is_only_kept_at_the_peak_is_made_smaller() -> None:
    """The scores of one block and the next: between them the runtime keeps the buffer, and something else is wide."""
    narrow, scores, wide = (1, 1, 32, 8), (1, 1, 32, 128), (1, 1, 32, 96)
    sizes = {"x": narrow, "s0": scores, "n0": narrow, "w": wide, "n1": narrow, "s1": scores, "n2": narrow}
    names = list(sizes)
    jobs = tuple(
        FlowJob((given,), (made,), number, Along() if made != "n1" else None, flops=3e8)
        for number, (given, made) in enumerate(itertools.pairwise(names))
    )
    flow = Flow(jobs, sizes, dict.fromkeys(sizes, 4), frozenset({"x"}), ("n2",), hides=True)
    needs = footprint(flow)
    assert needs.at in (2, 3) and "s0" in needs.holders and needs.peak > flow.bytes("s0") + flow.bytes("w")
    search = Squeeze(flow, 2.0, 20.0)
    smallest = search.run()[0]
    assert search._kept(squeeze.Design(needs.peak, 1.0, ())) == [0]
    assert smallest.peak < flow.bytes("s0")
