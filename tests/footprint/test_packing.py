"""Offsets of buffers against enumeration, on instances that are known to fit, and on those of minimalloc."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow.errors import UsageError
from rlflow.footprint import footprint
from rlflow.footprint.lifetimes import Buffer
from rlflow.footprint.packing import arena_of, offsets_within
from rlflow.placement.sketches import drawn_sketch

MINIMALLOC = Path(__file__).resolve().parents[3] / "shared" / "data" / "minimalloc"
Spans = list[tuple[int, int, int]]  # begin, end, size


def fits(spans: Spans, offsets: np.ndarray, capacity: int) -> bool:
    inside = all(at >= 0 and at + size <= capacity for at, (_, _, size) in zip(offsets, spans, strict=True))
    placed = list(zip(offsets.tolist(), spans, strict=True))
    return inside and all(
        one[1] <= other[0] or other[1] <= one[0] or a + one[2] <= b or b + other[2] <= a
        for (a, one), (b, other) in itertools.combinations(placed, 2)
    )


def pack(spans: Spans, capacity: int, **options: int):
    return offsets_within(*([one[k] for one in spans] for k in range(3)), capacity, **options)


def least(spans: Spans) -> int:
    """The smallest block, by trying all orders in which buffers sink to the floor."""
    best = sum(size for _, _, size in spans)
    for order in itertools.permutations(spans):
        placed: list[tuple[int, int, int, int]] = []
        for begin, end, size in order:
            at = max((top for b, e, _, top in placed if b < end and begin < e), default=0)
            placed.append((begin, end, size, at + size))
        best = min(best, max(top for *_, top in placed))
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=6))
def test_the_smallest_block_is_what_enumeration_finds(rows: list[tuple[int, int, int]]) -> None:
    spans = [(begin, begin + life, size) for begin, life, size in rows]
    smallest = least(spans)
    found, _ = pack(spans, smallest)
    assert found is not None
    assert fits(spans, found, smallest)
    none, certain = pack(spans, smallest - 1)
    assert none is None
    assert certain


def cut(rng: np.random.Generator, begin: int, end: int, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
    """A rectangle of time and memory, cut into buffers that fill it."""
    if depth == 0 or (end - begin < 2 and high - low < 2):
        return [(begin, end, high - low)]
    if high - low < 2 or (end - begin > 1 and rng.random() < 0.5):
        at = int(rng.integers(begin + 1, end))
        return cut(rng, begin, at, low, high, depth - 1) + cut(rng, at, end, low, high, depth - 1)
    at = int(rng.integers(low + 1, high))
    return cut(rng, begin, end, low, at, depth - 1) + cut(rng, begin, end, at, high, depth - 1)


@pytest.mark.parametrize("seed", range(6))
def test_buffers_that_fill_a_block_are_packed(seed: int) -> None:
    """No byte is free at any time: the stand-in for minimalloc's instances."""
    rng = np.random.default_rng(seed)
    spans = cut(rng, 0, 64, 0, 1 << 16, 5)
    order = rng.permutation(len(spans))
    spans = [spans[k] for k in order]
    found, _ = pack(spans, 1 << 16)
    assert found is not None
    assert fits(spans, found, 1 << 16)


@pytest.mark.skipif(not MINIMALLOC.is_dir(), reason="minimalloc's instances are not here: ../shared/data/minimalloc")
@pytest.mark.parametrize("name", "BDF")
def test_minimallocs_quick_instances_are_packed(name: str) -> None:
    """The others take seconds: reproduce/go has all."""
    path = next(MINIMALLOC.glob(f"{name}.*.csv"))
    capacity = int(path.name.split(".")[1])
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").split()[1:]]
    spans = [(int(row[1]), int(row[2]), int(row[3])) for row in rows]
    found, _ = pack(spans, capacity)
    assert found is not None
    assert fits(spans, found, capacity)


@pytest.mark.parametrize("family", ["inception", "nasnet", "gnmt"])
def test_an_arena_is_no_larger_than_the_runtimes_block_and_no_smaller_than_what_is_alive(family: str) -> None:
    needs = footprint(drawn_sketch(family, 80, np.random.default_rng(1)).flow())
    arena = arena_of(needs.buffers)
    assert arena.bound <= arena.size <= needs.block
    spans = [(one.first, one.last + 1, one.size) for one in arena.buffers]
    assert fits(spans, np.array([one.offset for one in arena.buffers]), arena.size)
    assert [one._replace(offset=0) for one in arena.buffers] == [one._replace(offset=0) for one in needs.buffers]


def test_an_arena_by_hand_that_the_runtime_lays_out_worse() -> None:
    buffers = [Buffer("a", 256, 0, 0, 1), Buffer("b", 512, 256, 0, 3), Buffer("c", 512, 768, 2, 3)]
    arena = arena_of(buffers)
    assert (arena.size, arena.bound) == (1024, 1024)
    assert arena_of([]).size == 0


@pytest.mark.parametrize(
    ("spans", "capacity", "part"), [([(0, 0, 4)], 8, "no size, or no lifetime"), ([(0, 1, 4)], -1, "below 0")]
)
def test_bad_buffers_are_refused(spans: Spans, capacity: int, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        pack(spans, capacity)
    with pytest.raises(UsageError, match="1 begins, 2 ends"):
        offsets_within([0], [1, 2], [3], 4)
