"""Who has the time of a model that takes too long for rewrites and kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlflow.graph import Graph
from rlflow.pipeline.kernel_wishes import kernels_alone
from rlflow.pipeline.parts import KERNELS, ModelTimes, Parts

DENSE = "x: f32[1,8,9,9] = input\nw: f32[8,8,3,3] = const\ny = Conv{kernel_shape=[3,3], pads=[1,1,1,1]}(x, w)\nreturn y"
POINTWISE = "x: f32[1,8,9,9] = input\nw: f32[8,8,1,1] = const\ny = Conv{kernel_shape=[1,1]}(x, w)\nreturn y"
FAST, SLOW = ModelTimes(0.05, 0.02), ModelTimes(0.53, 0.29)


def context(pace: ModelTimes, parts: Parts) -> Any:
    place = SimpleNamespace(with_kernels=False)
    return SimpleNamespace(
        options=SimpleNamespace(kernels=True, place=place),
        parts=parts,
        cost_model=SimpleNamespace(measures=True),
        pace=lambda loaded: pace,
    )


@pytest.mark.parametrize(
    ("text", "pace", "alone", "kept"),
    [
        (DENSE, FAST, False, True),
        (POINTWISE, FAST, False, True),
        (DENSE, SLOW, True, True),  # Winograd's algorithm gains more than any rewrite
        (POINTWISE, SLOW, False, False),  # rewrites, and nothing is set aside for the kernels
    ],
)
def test_one_of_both_has_the_time(text: str, pace: ModelTimes, alone: bool, kept: bool) -> None:
    parts = Parts(60.0, kernels=True, clock=lambda: 0.0)
    reason = kernels_alone(SimpleNamespace(graph=Graph.parse(text)), context(pace, parts))  # type: ignore[arg-type]
    assert (reason is not None) is alone
    parts.begin()
    assert parts.verifying() == pytest.approx(60.0 * (1.0 - KERNELS if kept else 1.0))
