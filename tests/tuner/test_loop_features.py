"""What loops touch, against counting; and that programs of one space are told apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rlflow.frontends.generated_sites import CONVOLUTION, PRODUCT
from rlflow.tuner import Sketch, Space, Steps, TensorProgram, Tile, TunedSubgraph, loop_features

Index = tuple[int, ...]
#: Of the loops' counters: the elements of each tensor that one step of them touches.
Elements = Callable[..., tuple[Index, ...]]


def gemm(i: int, j: int, k: int) -> tuple[Index, ...]:
    return (i, k), (k, j), (i, j)


def convolution(stride: int, share: int, members: int) -> Elements:
    def touched(n: int, h: int, w: int, o: int, r: int, q: int, c: int) -> tuple[Index, ...]:
        return (n, h * stride + r, w * stride + q, o // share * members + c), (r, q, c, o), (n, h, w, o)

    return touched


def depthwise(stride: int) -> Elements:
    def touched(n: int, h: int, w: int, c: int, r: int, q: int) -> tuple[Index, ...]:
        return (n, h * stride + r, w * stride + q, c), (r, q, c), (n, h, w, c)

    return touched


def plain_site(n: int, o: int, y: int, z: int, i: int, r: int, q: int) -> tuple[Index, ...]:
    return (n, o // 2 * 2 + i, y + r, z + q), (o, i, r, q), (n, o, y, z)


def blocked_site(n: int, o: int, y: int, z: int, c: int, r: int, q: int) -> tuple[Index, ...]:
    return (n, o, 2 * y + r, 2 * z + q, c), (o, r, q, c), (n, o, y, z, c)


#: channels, members, height, width, groups, strides, dilations, padding, bias, activation, block
PLAIN = (4, 1, 8, 8, 8, 8, 2, 3, 3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)
BLOCKED = (4, 1, 32, 9, 9, 32, 1, 3, 3, 32, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 16)
CASES = {
    "a product": ("gemm", (8, 8, 8), gemm, (3, 4, 5)),
    "a convolution": ("conv2d", (1, 8, 8, 4, 8, 3, 1, 1), convolution(1, 8, 4), (1, 3, 2, 4, 3, 2, 3)),
    "one of stride 2": ("conv2d", (1, 8, 8, 4, 8, 3, 2, 1), convolution(2, 8, 4), (1, 3, 2, 4, 3, 3, 3)),
    "with groups": ("grouped", (1, 8, 8, 8, 8, 3, 1, 1, 1, 4), convolution(1, 2, 2), (1, 2, 2, 4, 3, 1, 2)),
    "depthwise": ("depthwise", (1, 8, 8, 16, 3, 2, 1), depthwise(2), (1, 2, 4, 8, 3, 3)),
    "a site of plain tensors": (CONVOLUTION, PLAIN, plain_site, (1, 4, 2, 3, 2, 3, 3)),
    "a site of blocked tensors": (CONVOLUTION, BLOCKED, blocked_site, (1, 2, 3, 2, 16, 3, 3)),
    "a product of few rows": (PRODUCT, (2, 2, 8, 8, 8, 0), gemm, (2, 4, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_touch_so_many_elements(name: str) -> None:
    family, sizes, elements, inside = CASES[name]
    touched = loop_features.touched_by(family, sizes)
    assert touched is not None
    steps = [elements(*counters) for counters in itertools.product(*map(range, inside))]
    counted = [len(set(one)) for one in zip(*steps, strict=True)]
    assert [float(one[0]) for one in touched(np.array([inside], dtype=np.float64))] == counted


SKETCH = Sketch(
    "sketch 0",
    (Tile("loop0", 64, 4, 64), Tile("loop1", 64, 4, 64), Tile("loop2", 64, 2, 64, True)),
    (Steps("unroll3", "unroll", (0, 16, 64, 512)),),
)


def subgraph(family: str = "gemm", sketches: Sequence[Sketch] = (SKETCH, SKETCH)) -> TunedSubgraph:
    return TunedSubgraph("64 cubed", Space(tuple(sketches)), 2.0 * 64**3, 1.0, family, (64, 64, 64))


def program(*values: int, sketch: int = 0) -> TensorProgram:
    return TensorProgram(sketch, values)


def test_what_is_moved_falls_when_a_tile_fits_into_the_cache() -> None:
    """64 KB of numbers, of which the first-level cache holds half: whole rows are read again for each row of outputs,
    tiles of 16x16 are not.
    """
    rows = program(64, 1, 1, 1, 1, 1, 1, 64, 1, 64, 0)
    tiles = program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0)
    sizes = np.array([one.values for one in (rows, tiles)])
    touched = loop_features.touched_by("gemm", (64, 64, 64))
    assert touched is not None
    figures = loop_features.loop_figures(SKETCH, sizes, touched)
    assert figures.shape == (2, loop_features.COUNT)
    moved = figures[:, 25]  # 15 of bytes, 10 of what overflows, then those of the first-level cache
    assert moved[1] < moved[0] - 0.5


def test_s2_and_s3_are_one_nest_where_nothing_is_summed_between_them() -> None:
    """The figures of the innermost loops: a vector of 16 neighbours, as S2 has them, or S3."""
    touched = loop_features.touched_by("gemm", (64, 64, 64))
    assert touched is not None
    outer = program(4, 1, 16, 1, 4, 1, 16, 1, 64, 1, 0)  # R1 is 1
    inner = program(4, 1, 1, 16, 4, 1, 1, 16, 64, 1, 0)
    between = program(4, 1, 16, 1, 4, 1, 16, 1, 16, 4, 0)  # four steps of the sum are between S2 and S3
    figures = loop_features.loop_figures(SKETCH, np.array([one.values for one in (outer, inner, between)]), touched)
    full, neighbours = figures[:, 29], figures[:, 40]
    assert full.tolist() == [1.0, 1.0, 1 / 16]
    assert neighbours.tolist() == [1.0, 1.0, 1.0]
    assert figures[0, 37] == figures[1, 37] == 8.0  # 256 results at a time


WINDOWS = Sketch(
    "sketch 0",
    (
        Tile("loop0", 1, 4), Tile("loop1", 8, 4), Tile("loop2", 8, 4), Tile("loop3", 16, 4),
        Tile("loop4", 3, 2, 0, True), Tile("loop5", 3, 2, 0, True),
    ),
    (Steps("at6", "compute_at", tuple(range(-2, 8))),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("depth", "elements", "times"),
    [
        (-2, 1, 9 * 8 * 8 * 16 / 1600),  # where it is read, for each tap
        (-1, 10 * 10 * 16, 1.0),  # all at once
        (1, 3 * 10 * 16, 8 * 3 * 10 * 16 / 1600),  # for each row of outputs
        (2, 3 * 3 * 16, 64 * 3 * 3 * 16 / 1600),  # for each pixel
        (7, 3 * 3 * 4, 64 * 4 * 3 * 3 * 4 / 1600),  # for each pixel and four channels
    ],
)
def test_what_is_computed_on_the_way(depth: int, elements: int, times: float) -> None:
    row = (1, 1, 1, 1, 8, 1, 1, 1, 8, 1, 1, 1, 1, 4, 1, 4, 3, 1, 3, 1, depth + 2)
    assert WINDOWS.holds(row)
    touched = loop_features.touched_by("depthwise", (1, 8, 8, 16, 3, 1, 1))
    assert touched is not None
    made, often, beyond = loop_features.loop_figures(WINDOWS, np.array([row]), touched)[0, -3:]
    assert made == pytest.approx(np.log2(4 * elements))
    assert often == pytest.approx(np.log2(times))
    assert beyond == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0), program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 3)),
        (program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0), program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0, sketch=1)),
        (program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0), program(4, 1, 4, 4, 4, 1, 2, 8, 4, 16, 0)),
        (program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0), program(4, 1, 4, 4, 4, 1, 1, 16, 1, 64, 0)),
    ],
    ids=["unrolling", "sketch", "vector", "sums"],
)
def test_programs_are_told_apart(one: TensorProgram, other: TensorProgram) -> None:
    found = loop_features.features(subgraph(), [one, other])
    assert np.isfinite(found).all()
    assert (found[0] != found[1]).any()


def test_other_families_and_tilings_have_the_features_of_their_space() -> None:
    some = program(4, 1, 4, 4, 4, 1, 1, 16, 4, 16, 0)
    unknown = subgraph("softmax")
    assert (loop_features.features(unknown, [some]) == unknown.space.features([some])).all()
    odd = subgraph(sketches=(Sketch("sketch 0", (Tile("loop0", 8, 3, 8),)),))
    eight = program(2, 2, 2)
    assert (loop_features.features(odd, [eight]) == odd.space.features([eight])).all()
