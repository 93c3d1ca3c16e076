"""The core's needs of flows in bands, against the same rules in Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow._core import FlowPart, FlowPeak
from rlflow.errors import UsageError
from rlflow.footprint import Along, Flow, FlowJob, Sliding, Stretch, footprint, in_bands, squeeze
from rlflow.footprint.banded_peaks import BandedNeeds, BandedPeaks
from rlflow.footprint.flow import Layout
from rlflow.footprint.layout import blocked_values, with_copies
from rlflow.footprint.squeeze import Squeeze

SHAPES = ((1, 1, 32, 8), (1, 16, 32, 8), (1, 20, 32, 8), (1, 16, 32, 4))


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Random jobs, each of one or two earlier values: convolutions, sums, views, halves and what needs whole values."""
    jobs: list[FlowJob] = []
    shapes = {"x": SHAPES[1], "z": SHAPES[1]}
    for number in range(draw(st.integers(3, 12))):
        last = f"v{number - 1}" if number else "x"
        given_ = [last, draw(st.sampled_from(sorted(shapes)))][: draw(st.integers(1, 2))]
        made = f"v{number}"
        shapes[made] = draw(st.sampled_from((shapes[last], *SHAPES)))
        kind = draw(st.sampled_from(("convolution", "sum", "view", "half", "table", "whole")))
        reads = tuple(given_) if kind in ("sum", "whole") else (last,)
        one = FlowJob(reads, (made,), number, flops=draw(st.sampled_from((1e3, 1e7))))
        if kind == "convolution":
            size = draw(st.sampled_from((1, 3)))
            rows = Sliding(size, begin=size // 2)
            layout = draw(st.sampled_from((Layout.PLAIN, Layout.BLOCKED, Layout.MAKES)))
            one = replace(one, rows=rows, convolves=True, layout=layout, workspace=draw(st.sampled_from((0, 700))))
        elif kind == "sum":
            fuses = draw(st.booleans())
            one = replace(one, rows=Along(), fuses=fuses, layout=Layout.KEEPS, reuses=((0, 0), (1, 0)))
        elif kind == "view":
            one = replace(one, reuses=((0, 0),), alias=True)
        elif kind == "half":
            one = replace(one, rows=Along(), halves=True, reuses=((0, 0),))
        elif kind == "table" and len(given_) == 2:
            one = replace(one, inputs=tuple(given_), rows=Along(), whole=frozenset({1}), layout=Layout.KEEPS)
        jobs.append(one)
    widths = dict.fromkeys(shapes, 4) | {made: draw(st.sampled_from((4, 8))) for made in list(shapes)[2:]}
    outputs = tuple(dict.fromkeys([f"v{len(jobs) - 1}", draw(st.sampled_from(sorted(shapes)[:-2]))]))
    flow = Flow(tuple(jobs), shapes, widths, frozenset({"x", "z"}), outputs, hides=draw(st.booleans()), pools=True)
    return replace(flow, blocked=blocked_values(flow))


@st.composite
def stretches_of(draw: st.DrawFn, flow: Flow) -> tuple[Stretch, ...]:
    """Stretches that do not overlap; some cannot be in bands."""
    found, place = [], 0
    while place < len(flow.jobs) and draw(st.booleans()):
        first = draw(st.integers(place, len(flow.jobs) - 1))
        last = draw(st.integers(first, len(flow.jobs) - 1))
        cuts = tuple(draw(st.lists(st.integers(first, last - 1), max_size=1))) if last > first else ()
        hidden = flow.hides and draw(st.booleans())
        bands = draw(st.sampled_from((2, 3, 4)))
        found.append(Stretch(first, last, bands, False, cuts, hidden, (), hidden and draw(st.booleans())))
        place = last + 1
    return tuple(found)


def by_rules(flow: Flow, stretches: tuple[Stretch, ...]) -> BandedNeeds | None:
    """The oracle."""
    banded = in_bands(flow, stretches)
    if banded is None:
        return None
    whole = with_copies(banded)
    needs = footprint(whole)
    moving = (job for job in whole.jobs if job.cut is not None or job.joins or job.copies or job.pools)
    nodes = [job.node for job in (*whole.jobs[needs.at :: -1], *whole.jobs[needs.at :]) if job.node >= 0]
    moved = sum(whole.bytes(job.outputs[0]) for job in moving)
    return BandedNeeds(needs.peak, needs.live, nodes[0] if nodes else -1, whole.flops, moved, len(whole.jobs))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_core_and_the_rules_agree(data: st.DataObject) -> None:
    flow = data.draw(flows())
    native = BandedPeaks(flow)
    for _ in range(3):
        stretches = data.draw(stretches_of(flow))
        expected, found = by_rules(flow, stretches), native.of(stretches)
        if expected is None or found is None:
            assert expected is None and found is None
        else:
            assert found._replace(flops=0.0) == expected._replace(flops=0.0)
            assert found.flops == pytest.approx(expected.flops, rel=1e-12)


def funnel(rng: random.Random) -> Flow:
    """Convolutions and residual sums on ever fewer rows, with a value that hides and one that is read late."""
    sizes = {
        "x": (1, 3, 64, 64),
        "a": (1, 16, 64, 64),
        "b": (1, 24, 32, 32),
        "c": (1, 24, 32, 32),
        "d": (1, 24, 32, 32),
    }
    sizes |= {"e": (1, 24, 32, 32), "f": (1, 8, 1, 1)}
    blocked = [rng.choice((Layout.BLOCKED, Layout.MAKES)) for _ in range(3)]
    window = Sliding(3, begin=1)
    jobs = (
        FlowJob(("x",), ("a",), 0, window, convolves=True, flops=1e7, layout=Layout.MAKES),
        FlowJob(("a",), ("b",), 1, Sliding(2, 2), convolves=True, flops=1e7, layout=blocked[0]),
        FlowJob(("b",), ("c",), 2, window, convolves=True, flops=1e7, layout=blocked[1]),
        FlowJob(("c",), ("d",), 3, window, convolves=True, flops=1e7, layout=blocked[2]),
        FlowJob(("d", "b"), ("e",), 4, Along(), reuses=((0, 0), (1, 0)), fuses=True, layout=Layout.KEEPS),
        FlowJob(("e", "x"), ("f",), 5, flops=1e4),
    )
    flow = Flow(jobs, sizes, dict.fromkeys(sizes, 4), frozenset({"x"}), ("f",), hides=True, pools=True)
    return replace(flow, blocked=blocked_values(flow))


@pytest.mark.parametrize("seed", range(4))
def test_all_that_a_search_tries_is_as_the_rules_say(seed: int) -> None:
    flow = funnel(random.Random(seed))
    search = Squeeze(flow, 1.6, 60.0)
    search.run()
    designs = list(dict.fromkeys(search.seen.values()))
    assert len(designs) > 10
    native = BandedPeaks(flow)
    for design in random.Random(seed).sample(designs, min(len(designs), 40)):
        expected, found = by_rules(flow, design.stretches), native.of(design.stretches)
        assert expected is not None and found is not None
        assert found._replace(flops=0.0) == expected._replace(flops=0.0)
        assert (design.peak, design.live) == (expected.peak, expected.live)


def test_a_wider_beam_only_adds_to_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    flow, least = funnel(random.Random(0)), []
    for beams in ((2,), (2, 8)):
        monkeypatch.setattr(squeeze, "BEAMS", beams)
        search = Squeeze(flow, 1.3, 60.0)
        least.append((search.run()[0].peak, len(search.seen)))
    assert least[1][0] <= least[0][0] and least[1][1] > least[0][1]


ARRAYS = {
    "outer": 0, "input_begin": [0, 1], "input": [0], "output_begin": [0, 1], "output": [1], "reuse_begin": [0, 0],
    "reuse_input": [], "reuse_output": [], "bits": [0], "layout": [0], "node": [0], "flops": [1.0], "workspace": [0],
    "bytes": [4, 300], "filled_bytes": [4, 300], "shape": [0, 1], "filled_shape": [0, 1], "kind": [0, 1],
    "filled_kind": [0, 1], "hidden": [0, 0], "scalar": [0, 0], "veiled": [],
}  # fmt: skip


def test_one_job_by_hand() -> None:
    peak = FlowPeak(FlowPart(**ARRAYS), [0], [1], 256)
    assert peak.needs([]) == (512, 512, 0, 1.0, 0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_begin", [0, 2]),
        ("input", [2]),
        ("output_begin", [0]),
        ("reuse_begin", [0, 1]),
        ("reuse_output", [0]),
        ("layout", [4]),
        ("flops", []),
        ("kind", [0]),
        ("scalar", []),
        ("veiled", [0]),
        ("outer", -1),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match="does not fit the rest"):
        FlowPart(**{**ARRAYS, name: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda one: FlowPeak(one, [2], [1], 256),
        lambda one: FlowPeak(one, [0], [-1], 256),
        lambda one: FlowPeak(one, [0], [1], 0),
        lambda one: FlowPeak(one, [0], [1], 256).needs([(0, 0, one)]),
        lambda one: FlowPeak(one, [0], [1], 256).needs([(0, 1, FlowPart(**{**ARRAYS, "outer": 2}))]),
        lambda one: FlowPeak(one, [0], [1], 256).needs([(0, 0, FlowPart(**{**ARRAYS, "outer": 2}))] * 2),
    ],
)
def test_parts_that_do_not_fit_are_refused(make: Callable[[FlowPart], object]) -> None:
    with pytest.raises(UsageError, match="does not fit the rest"):
        make(FlowPart(**ARRAYS))


def test_stretches_that_overlap_are_refused() -> None:
    with pytest.raises(UsageError, match="does not fit the rest"):
        BandedPeaks(funnel(random.Random(0))).of([Stretch(0, 2, 2), Stretch(1, 3, 2)])
