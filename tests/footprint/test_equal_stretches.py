"""Blocks of a network that repeat: which stretches are copies, and that all are put in bands together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlflow.footprint import Along, Flow, FlowJob, Stretch
from rlflow.footprint.equal_stretches import EqualStretches
from rlflow.footprint.squeeze import Squeeze

NARROW, WIDE = (1, 1, 32, 8), (1, 1, 32, 64)


def blocks(count: int) -> Flow:
    """In each: a wide value of a narrow one, an activation, a narrow one again, added to what the block began with."""
    jobs: list[FlowJob] = []
    shapes = {"x": NARROW}
    last = "x"
    for block in range(count):
        wide, active, narrow, end = (f"{name}{block}" for name in ("wide", "active", "narrow", "end"))
        jobs += [
            FlowJob((last,), (wide,), 4 * block, Along(), flops=3e8),
            FlowJob((wide,), (active,), 4 * block + 1, Along(), flops=2e6),
            FlowJob((active,), (narrow,), 4 * block + 2, Along(), flops=3e8),
            FlowJob((last, narrow), (end,), 4 * block + 3, Along(), flops=3e5),
        ]
        shapes |= {wide: WIDE, active: WIDE, narrow: NARROW, end: NARROW}
        last = end
    return Flow(tuple(jobs), shapes, dict.fromkeys(shapes, 4), frozenset({"x"}), (last,), hides=True)


def changed(flow: Flow, place: int, **changes: object) -> Flow:
    jobs = list(flow.jobs)
    jobs[place] = replace(jobs[place], **changes)
    return replace(flow, jobs=tuple(jobs))


def firsts(flow: Flow, first: int, last: int) -> list[int]:
    found = EqualStretches(flow).of(Stretch(first, last, 2, cuts=(first,), veils=True))
    assert all(one.last - one.first == last - first and one.cuts == (one.first,) and one.veils for one in found)
    return [one.first for one in found]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 2, [0, 4, 8]),
        (4, 6, [0, 4, 8]),
        (1, 1, [1, 5, 9]),
        (1, 6, [1]),  # the other copy would overlap
        (0, 11, [0]),
    ],
)
def test_copies_do_not_overlap(first: int, last: int, expected: list[int]) -> None:
    assert firsts(blocks(3), first, last) == expected


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (5, {"flops": 5e6}),
        (5, {"rows": None}),
        (6, {"inputs": ("wide1",)}),
        (5, {"fuses": True}),
        (9, {"inputs": ("wide2", "active1"), "whole": frozenset({1})}),  # a later job reads of the second block
    ],
)
def test_a_block_that_differs_is_no_copy(place: int, changes: dict[str, object]) -> None:
    assert 4 not in firsts(changed(blocks(3), place, **changes), 0, 2)


def test_equal_blocks_are_put_in_bands_together() -> None:
    flow = blocks(6)
    smallest = Squeeze(flow, 2.0, 20.0).run()[0]
    covered = {place for one in smallest.stretches for place in range(one.first, one.last + 1)}
    assert all(4 * block + 1 in covered for block in range(6))
    assert smallest.peak < flow.bytes("wide0")
