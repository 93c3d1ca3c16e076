"""What the comparison's figures mean for what is written."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from rlflow.pipeline import racing


@pytest.mark.parametrize(
    ("ratios", "faster"),
    [
        ([], False),  # it was not timed beside
        ([0.1] * 4, False),  # slower in each block, and timed no more
        ([-0.1] * 3, True),
        ([-0.1] * 8, True),
        ([0.01, -0.02, 0.02, -0.01, 0.01, -0.01, 0.02, -0.02], False),  # equal
        ([-0.1] * 7 + [0.02], True),
        ([-0.02, 0.03, 0.02, 0.04], False),
    ],
)
def test_the_original_is_faster_by_blocks_that_both_were_in(ratios: Sequence[float], faster: bool) -> None:
    decision = SimpleNamespace(beside={"original": tuple(ratios)} if ratios else {})
    assert racing._original_is_faster(decision) is faster
