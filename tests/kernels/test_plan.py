"""A plan is data that anybody may have edited: what is not just right is refused with the reason."""

from __future__ import annotations

import json

import pytest

from rlflow.errors import ModelError
from rlflow.kernels import Choice, KernelPlan

PLAN = KernelPlan("1.31.1", 8, 1, 1.5, (Choice("a_nchwc", (64, 24), "winograd-4x4", 2.25),))


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
        (edited(version=2), "its version is 2"),
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
        (with_choice(channels=[64]), "not two numbers"),
        (with_choice(channels=[64, 10**12]), "the field 'channels'"),
        (with_choice(channels=[64, 1.5]), "the field 'channels'"),
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
    assert choice.fits((64, 32))  # 24 channels where a block has 16
    assert not choice.fits((64, 64))
