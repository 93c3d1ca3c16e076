"""Where a stretch is cut into steps: between windows that would compute much twice, and only there."""

from __future__ import annotations

from itertools import combinations

import pytest

from rlflow.footprint import Along, Flow, FlowJob, Sliding
from rlflow.footprint.stepping import Stepping


def chain(*kernels: int, height: int = 64, flops: float = 1e9, width: int = 8) -> Flow:
    """Windows of such heights, one behind the other."""
    shapes = {f"v{place}": (1, 8, height, width) for place in range(len(kernels) + 1)}
    jobs = tuple(
        FlowJob((f"v{k}",), (f"v{k + 1}",), k, Along() if size == 1 else Sliding(size, begin=size // 2), flops=flops)
        for k, size in enumerate(kernels)
    )
    return Flow(jobs, shapes, dict.fromkeys(shapes, 4), frozenset({"v0"}), (f"v{len(kernels)}",))


def test_nothing_is_cut_where_nothing_is_computed_twice() -> None:
    assert Stepping(chain(3, 1, 1, 1)).cuts(0, 3, 8) == ()


def test_dear_windows_are_cut_from_one_another() -> None:
    assert Stepping(chain(3, 3, 3)).cuts(0, 2, 8) == (0, 1)


def test_cheap_windows_stay_together() -> None:
    assert Stepping(chain(3, 3, 3, flops=1e3)).cuts(0, 2, 8) == ()


@pytest.mark.parametrize("bands", [2, 5, 9])
@pytest.mark.parametrize("flops", [2e6, 2e7, 2e8])
def test_no_other_cuts_cost_less(bands: int, flops: float) -> None:
    kernels = (3, 1, 5, 1, 3, 7)
    stepping = Stepping(chain(*kernels, flops=flops))

    def cost(cuts: tuple[int, ...]) -> float:
        starts, ends = (0, *(cut + 1 for cut in cuts)), (*cuts, len(kernels) - 1)
        return sum(stepping._cost(0, start, end, bands) for start, end in zip(starts, ends, strict=True))

    every = [cuts for size in range(len(kernels)) for cuts in combinations(range(len(kernels) - 1), size)]
    assert cost(stepping.cuts(0, len(kernels) - 1, bands)) == pytest.approx(min(map(cost, every)))
