"""Sizes of open dimensions: how they are read, and what is guessed where nobody gave them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlflow.equivalence import sizes
from rlflow.equivalence.sizes import LADDER, Extent
from rlflow.errors import UsageError
from rlflow.runtime import TensorInfo

IMAGE = TensorInfo("x", "float32", (None, 3, "H", "W"))
MASK = TensorInfo("mask", "float32", ("H", "W"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (8, Extent(8, 8, 8)),
        ("8", Extent(8, 8, 8)),
        ("1..8..64", Extent(1, 8, 64)),
        ((1, 8, 64), Extent(1, 8, 64)),
    ],
)
def test_an_extent_is_one_size_or_three(given: Any, expected: Extent) -> None:
    assert Extent.of(given, "The size of N") == expected


@pytest.mark.parametrize("given", ["", "0", "8..1..64", "1..64", "1..2..3..4", "many", "1..x..3", None, -1])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"The size of N is .*; expected a size above zero, such as 8, or the least"):
        Extent.of(given, "The size of N")


def test_the_ends_are_where_they_differ_from_the_usual() -> None:
    extents = {"N": Extent(1, 8, 8), "C": Extent(3, 3, 3)}
    assert sizes.usual(extents) == {"N": 8, "C": 3}
    assert sizes.ends(extents) == {"least": {"N": 1, "C": 3}}


def test_unnamed_dimensions_are_known_by_their_place() -> None:
    first = next(sizes.guesses([IMAGE, MASK], {"W": 5}))
    assert first.values == {"x.0": 1, "W": 5, "H": 224}
    assert first.guessed == ("x.0", "H")
    assert first.note == (
        "Measured with x.0=1, H=224, because nothing else was said; "
        "give --dim x.0=… --dim H=…, or inputs with --input-data."
    )


def test_what_leads_no_input_is_guessed_first() -> None:
    """A batch of one is likely where an image of one pixel is not."""
    found = [one.values for one in sizes.guesses([TensorInfo("x", "float32", ("N", 3, "H"))], {})]
    assert found[:2] == [{"N": 1, "H": 1}, {"N": 1, "H": 2}]
    assert found[len(LADDER) : len(LADDER) + 2] == [{"N": 2, "H": 2}, {"N": 8, "H": 8}]
    assert len(found) == len({tuple(one.values()) for one in found})


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("N", 3, "H", "W"), {"N": 1, "H": 224, "W": 224}),
        (("N", "H", "W", 3), {"N": 1, "H": 224, "W": 224}),
        (("N", "heads", "past", 64), {"N": 1, "heads": 1, "past": 224}),
        (("N", 3, "D", "H", "W"), {"N": 1, "D": 224, "H": 224, "W": 224}),
        (("N", "tokens", 64), {"N": 1, "tokens": 1}),
    ],
)
def test_an_image_is_not_guessed_to_have_one_pixel(shape: tuple[str | int, ...], expected: dict[str, int]) -> None:
    """An image of one pixel runs too, but its prices say nothing of real images."""
    assert next(sizes.guesses([TensorInfo("x", "float32", shape)], {})).values == expected


def test_nothing_open_is_nothing_guessed() -> None:
    found = list(sizes.guesses([IMAGE], {"x.0": 2, "H": 3, "W": 4}))
    assert len(found) == 1
    assert (found[0].note, found[0].blame) == (None, "")


def test_given_arrays_show_sizes() -> None:
    assert sizes.shown([IMAGE], {"x": np.zeros((2, 3, 5, 7))}, {"W": 7}) == {"x.0": 2, "H": 5, "W": 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4x3x8x8", {"x.0": Extent(4, 4, 4), "H": Extent(8, 8, 8)}),
        ("1x3x8x8,4x3x8x8,8x3x64x64", {"x.0": Extent(1, 4, 8), "H": Extent(8, 8, 64)}),
    ],
)
def test_shapes_give_sizes_by_place(text: str, expected: dict[str, Extent]) -> None:
    assert sizes.of_shapes({"x": text}, {"x": ["x.0", 3, "H", "H"]}) == expected


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        ({"y": "4"}, "no input 'y'; its inputs are x"),
        ({"x": "4x3"}, "expected one shape of 4 numbers, or three"),
        ({"x": "4x3x8x8,4x3x8x8"}, "expected one shape of 4 numbers, or three"),
        ({"x": "4x5x8x8"}, "Dimension 1 of the shape of 'x' is 5, where 3 is known"),
        ({"x": "4x3x8x9"}, "Dimension 3 of the shape of 'x', H, is 9, where 8 is known"),
        ({"x": "4x3xax8"}, "expected numbers, as in 4x128"),
        ({"x": "8x3x8x8,4x3x8x8,1x3x8x8"}, "Dimension 0 of the shape of 'x' is"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        sizes.of_shapes(shapes, {"x": ["x.0", 3, "H", "H"]})
