"""Which designs of a smaller model are timed, and in which order: both figures of memory count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlflow.footprint import Flow, Footprint
from rlflow.footprint.squeeze import Design
from rlflow.pipeline.designing import Designing, LookedAt, Seen, Wish
from rlflow.runtime.residence import Resident

FLOW = Flow((), {}, {}, frozenset(), ())


def seen(peak: int) -> Seen:
    return Seen(FLOW, Footprint(peak, peak, 0, (), 0, peak, (), ()), True)


def grown(growth: int | None) -> Resident | None:
    return None if growth is None else Resident(100, 100 + growth)


class Watched(Designing):
    """Fresh processes grow by what the source says."""

    def __init__(self, memory: int | None) -> None:
        self._wish = Wish(memory=memory, slower=1.1)

    def resident(self, source: object) -> Resident | None:
        assert source is None or isinstance(source, int)
        return grown(source)


def order(*designs: tuple[int, float, int | None], memory: int | None = None, growth: int | None = 4000) -> list[int]:
    """The places of designs (peak, pace, growth) of a model that needs 2000 and makes a process grow by ``growth``."""
    looked = [
        LookedAt(None, Design(peak, 1.0, ()), SimpleNamespace(source=given), seen(peak), pace)  # type: ignore[arg-type]
        for peak, pace, given in designs
    ]
    return [place for place, _ in Watched(memory)._smallest_first(looked, seen(2000), grown(growth))]


@pytest.mark.parametrize(
    ("designs", "expected"),
    [
        (((1000, 1.0, 2000), (800, 1.0, 2000)), [1, 0]),
        (((800, 1.0, 3000), (1000, 1.0, 1000)), [1, 0]),  # a region less outweighs a fifth of the plan
        (((800, 1.2, 1000), (1000, 1.12, 1000)), [1]),  # too slow at the first look; near enough to be timed
        (((1500, 1.0, 9000), (1600, 1.0, 3500)), [1]),  # the first makes a process grow more than it spares
        (((1900, 1.0, None), (800, 1.0, None)), [1, 0]),  # nobody says what processes take: by the plan
    ],
)
def test_the_smaller_by_both_figures_comes_first(
    designs: tuple[tuple[int, float, int | None], ...], expected: list[int]
) -> None:
    assert order(*designs) == expected


def test_what_meets_the_limit_comes_first() -> None:
    designs = ((1200, 1.0, 1000), (900, 1.0, 3000), (950, 1.0, 20000))
    assert order(*designs) == [0, 1]
    assert order(*designs, memory=1000) == [1, 2, 0]
    assert order(*designs, memory=2000) == [0, 1]  # the original meets that, too


def test_without_a_figure_of_the_original_the_plan_decides() -> None:
    assert order((1500, 1.0, None), (2500, 1.0, None), growth=None) == [0]
