"""Spaces of programs: splits, edits, masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow.errors import UsageError
from rlflow.tuner.spaces import GROUPS, NOWHERE, Sketch, Space, Steps, TensorProgram, Tile
from tests.tuner.toys import FLAT, GEMM, NOTHING_OPEN, SPACE

EXTENTS = st.sampled_from([1, 2, 7, 12, 30, 64, 77, 96])


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    tiles = [
        Tile(f"t{at}", extent, parts, innermost=draw(st.sampled_from([0, extent])))
        for at, (extent, parts) in enumerate(draw(st.lists(st.tuples(EXTENTS, st.integers(1, 4)), max_size=3)))
    ]
    kinds = draw(st.lists(st.tuples(st.sampled_from(GROUPS), st.integers(1, 4)), max_size=3))
    steps = [Steps(f"s{at}", group, tuple(range(count))) for at, (group, count) in enumerate(kinds)]
    return Sketch("drawn", tuple(tiles), tuple(steps))


def splits(extent: int, parts: int) -> int:
    """How many ordered factorisations there are: for a prime to the power e, choose where its e copies go."""
    found, prime = 1, 2
    while extent > 1:
        power = 0
        while extent % prime == 0:
            extent, power = extent // prime, power + 1
        found *= math.comb(power + parts - 1, parts - 1)
        prime += 1
    return found


@pytest.mark.parametrize(("extent", "parts"), [(1, 3), (7, 2), (12, 3), (64, 4), (77, 4), (360, 2), (512, 1)])
def test_a_tile_has_every_split_once(extent: int, parts: int) -> None:
    options = Tile("i", extent, parts).options
    assert len(options) == splits(extent, parts) == len({tuple(row) for row in options.tolist()})
    assert (options.prod(axis=1) == extent).all()


def test_the_innermost_part_is_limited() -> None:
    options = Tile("i", 48, 3, innermost=16).options
    assert options[:, -1].max() == 16
    assert len(options) == sum(row[-1] <= 16 for row in Tile("i", 48, 3).options.tolist())


@settings(max_examples=150, deadline=None)
@given(sketches(), st.integers(0, 2**32 - 1))
def test_legal_edits_keep_products_and_stay_in_the_space(sketch: Sketch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = sketch.random(rng, 8)
    for _ in range(4):
        legal = sketch.legal(values)
        chosen = np.array(
            [
                [rng.choice(np.flatnonzero(row & (sketch.moves.group == group))) for group in range(len(GROUPS))]
                for row in legal
            ]
        )
        values = sketch.moved(values, chosen)
        for row in values.tolist():
            assert sketch.holds(row)
            for tile, begin in zip(sketch.tiles, sketch.begins, strict=True):
                assert math.prod(row[begin : begin + tile.parts]) == tile.extent


@settings(max_examples=60, deadline=None)
@given(sketches(), st.integers(0, 2**32 - 1))
def test_an_edit_is_legal_exactly_where_its_result_is_in_the_space(sketch: Sketch, seed: int) -> None:
    row = sketch.random(np.random.default_rng(seed), 1)[0].tolist()
    legal = sketch.legal(np.array([row]))[0]
    for move, allowed in enumerate(legal.tolist()):
        source, target, step = (int(column[move]) for column in sketch.moves[1:])
        after = list(row)
        if source == NOWHERE:
            assert allowed
            continue
        if step:
            after[source] += step
        else:
            prime = next((p for p in range(2, row[source] + 1) if row[source] % p == 0), None)
            if prime is None:
                assert not allowed
                continue
            after[source], after[target] = after[source] // prime, after[target] * prime
        assert allowed == sketch.holds(after)


def test_a_sketch_masks_what_it_lacks() -> None:
    groups = FLAT.moves.group.tolist()
    assert [groups.count(number) for number in range(len(GROUPS))] == [1 + 2 + 2, 1, 3, 1]
    assert NOTHING_OPEN.moves.group.tolist() == [0, 1, 2, 3]
    assert NOTHING_OPEN.legal(np.zeros((2, 0), dtype=np.int64)).all()


def test_edits_back_and_forth_arrive_where_they_began() -> None:
    row = np.array([[2, 1, 6, 4, 2, 2, 6, 1, 1, 0]])
    moves = list(zip(*(column.tolist() for column in GEMM.moves), strict=True))
    there = [moves.index((0, 0, 1, 0)), moves.index((1, 9, 9, 1)), 0, moves.index((3, 8, 8, -1))]
    there[2] = GEMM.moves.group.tolist().index(2)
    after = GEMM.moved(row, np.array([there]))
    assert after.tolist() == [[1, 2, 6, 4, 2, 2, 6, 1, 0, 1]]
    back = [moves.index((0, 1, 0, 0)), moves.index((1, 9, 9, -1)), there[2], moves.index((3, 8, 8, 1))]
    assert GEMM.moved(after, np.array([back])).tolist() == row.tolist()


def test_programs_are_listed_once_and_held() -> None:
    programs = list(SPACE.programs())
    assert len(programs) == SPACE.size == len(set(programs))
    assert all(SPACE.holds(one) for one in programs[::97])
    assert list(Space((NOTHING_OPEN,)).programs()) == [TensorProgram(0, ())]


@pytest.mark.parametrize(
    ("sketch", "values"),
    [
        (2, (1,)),
        (1, (48, 1, 12)),
        (1, (47, 1, 12, 1, 0)),
        (1, (48, 1, 12, 1, 3)),
        (-1, (48, 1, 12, 1, 0)),
        (1, (-48, -1, 12, 1, 0)),
        (0, (1, 1, 12, 4, 2, 2, 6, 1, 0, 0)),
    ],
)
def test_what_is_no_program_is_not_held(sketch: int, values: tuple[int, ...]) -> None:
    assert not SPACE.holds(TensorProgram(sketch, values))


def test_random_programs_are_uniform() -> None:
    rows = FLAT.random(np.random.default_rng(0), 6000)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == FLAT.size == 10 * 6 * 3
    expected = 6000 / FLAT.size
    assert ((counts - expected) ** 2 / expected).sum() < 260  # chi-squared, 179 degrees of freedom: p about 1e-4


def test_features_tell_programs_apart_and_share_columns_by_name() -> None:
    programs = [TensorProgram(0, (2, 3, 2, 4, 2, 2, 6, 1, 1, 0)), TensorProgram(1, (6, 8, 12, 1, 2))]
    found = SPACE.features(programs)
    assert found[:, :2].tolist() == [[1, 0], [0, 1]]
    names = ["i.0", "i.1", "i.2"]
    assert found[0, 2:5].tolist() == pytest.approx([math.log2(n) for n in (2, 3, 2)])
    assert found[1, 2:5].tolist() == pytest.approx([math.log2(6), 3.0, 0.0]), names
    everything = SPACE.features(list(SPACE.programs())[::13])
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.parametrize(
    "make",
    [lambda: Tile("i", 0, 2), lambda: Tile("i", 7, 2, innermost=-1), lambda: Steps("s", "colour", (1,)),
     lambda: Steps("s", "tile", ()), lambda: Space(())],
)  # fmt: skip
def test_what_cannot_be_is_refused(make) -> None:
    with pytest.raises(UsageError):
        make()
