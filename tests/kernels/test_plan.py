"""A plan is data that anybody may have edited: what is not just right is refused with the reason."""

from __future__ import annotations

import json

import pytest

from rlflow.errors import ModelError, UsageError
from rlflow.kernels import ALGORITHMS, Choice, KernelPlan, spaces

PLAN = KernelPlan("1.31.1", 8, 1, 1.5, (Choice("a_nchwc", (64, 24), "winograd-4x4", 2.25, {"chunk": 24}),))


def test_a_plan_prints_and_parses() -> None:
    assert KernelPlan.parse(PLAN.text()) == PLAN


def edited(**changes) -> str:
    return json.dumps({**json.loads(PLAN.text()), **changes})


def with_choice(**changes) -> str:
    choice = {**json.loads(PLAN.text())["choices"][0], **changes}
    return edited(choices=[choice])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("[" * 5000, "no JSON"),
        ("[]", "the plan is no object"),
        ("{}", "no field 'version'"),
        (edited(version=1), "its version is 1"),
        (edited(version=True), "its version is True"),
        (edited(more=1), "unknown field 'more'"),
        (edited(block=12), "the field 'block' is 12"),
        (edited(threads=0), "the field 'threads' is 0"),
        (edited(threads="1"), "the field 'threads' is 1"),
        (edited(speedup=-1), "the field 'speedup'"),
        (edited(speedup=float("nan")), "the field 'speedup'"),
        (edited(runtime=""), "the field 'runtime'"),
        (edited(choices=[]), "not a list of 1 to 4096"),
        (edited(choices={}), "not a list of 1 to 4096"),
        (edited(choices=[1]), "a choice is no object"),
        (edited(choices=json.loads(PLAN.text())["choices"] * 2), "two of its choices"),
        (with_choice(algorithm="/etc/passwd"), "it names the algorithm '/etc/passwd'"),
        (with_choice(algorithm=["winograd-4x4"]), "it names the algorithm"),
        (with_choice(sizes=[]), "not 1 to 8 numbers"),
        (with_choice(sizes=[64, 10**12]), "the field 'sizes'"),
        (with_choice(sizes=[64, 1.5]), "the field 'sizes'"),
        (with_choice(tuning=[1]), "the field 'tuning' is no object"),
        (with_choice(tuning={"tile": 6}), "no parameter 'tile'"),
        (with_choice(tuning={"chunk": 7}), "no chunk=7"),
        (with_choice(tuning={"chunk": True}), "no chunk=True"),
        (with_choice(tuning={"chunk": [24]}), "no chunk=[24]"),
        (with_choice(node="x" * 5000), "the field 'node'"),
        (with_choice(ratio="fast"), "the field 'ratio'"),
        (with_choice(tile=6), "unknown field 'tile'"),
        (" " * (1 << 21), "characters; expected at most"),
    ],
)
def test_an_edited_plan_is_refused(text: str, why: str) -> None:
    with pytest.raises(ModelError, match="plan of kernels") as refusal:
        KernelPlan.parse(text)
    assert why in str(refusal.value)


def test_channels_fit_whatever_the_size_of_a_block() -> None:
    choice = PLAN.choices[0]
    assert choice.fits("convolution", (64, 32))  # 24 channels where a block has 16
    assert not choice.fits("convolution", (64, 64))
    assert not choice.fits("convolution", (64, 32, 1))
    assert not choice.fits("norm", (64, 24))


@pytest.mark.parametrize(
    ("algorithm", "sizes", "fits"),
    [
        ("blocked-product", (64, 48), True),
        ("blocked-product", (10, 24), False),
        ("product-strassen", (64, 48), False),
        ("product-strassen", (64, 96), True),
        ("row-product", (10, 24), True),
    ],
)
def test_a_kernel_of_whole_blocks_fits_no_other_product(algorithm: str, sizes: tuple[int, int], fits: bool) -> None:
    assert Choice("product", sizes, algorithm, 2.0).fits("product", sizes) is fits


def test_a_space_lists_its_points_the_defaults_first() -> None:
    one = ALGORITHMS["winograd-2x2"]
    points = list(one.points())
    assert points[0] == {"chunk": 0, "part": 0}
    assert len({tuple(point.items()) for point in points}) == len(points)
    assert len(points) == len(one.space["chunk"]) * len(one.space["part"])
    assert spaces()["winograd-2x2"] == one.space
    assert one.attributes({"part": 64}) == {"tile": 2, "part": 64}


@pytest.mark.parametrize("tuning", [{"tile": 4}, {"chunk": -1}, {"part": True}])
def test_a_point_outside_of_the_space_is_refused(tuning) -> None:
    with pytest.raises(UsageError, match="The kernel winograd-2x2 has no"):
        ALGORITHMS["winograd-2x2"].attributes(tuning)
