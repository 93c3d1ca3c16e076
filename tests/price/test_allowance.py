"""How long measuring may take: in full, in haste, not at all."""

from __future__ import annotations

import pytest

from rlflow.price.allowance import BATCH, Allowance, PricingProgress


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def spend(seconds: float | None, total: int, each: float, hasty_each: float) -> tuple[int, int, float]:
    """Regions timed in full, in haste, and the seconds that it took, where a region takes so long."""
    clock = Clock()
    allowance = Allowance(seconds, total, clock=clock)
    full = hasty = 0
    while full + hasty < total and not allowance.over():
        count = min(allowance.batch(), total - full - hasty)
        took = count * (hasty_each if allowance.hasty else each)
        full, hasty = full + count * (not allowance.hasty), hasty + count * allowance.hasty
        clock.now += took
        allowance.took(count, took)
    return full, hasty, clock.now - 10.0


@pytest.mark.parametrize(
    ("seconds", "total", "each", "hasty_each", "full", "hasty", "at_most"),
    [
        (None, 100, 3.0, 0.1, 100, 0, 300.0),  # any time
        (60.0, 100, 0.2, 0.1, 100, 0, 20.0),  # all of it fits
        (10.0, 40, 2.0, 0.1, 2, 38, 8.0),  # the first two say that it does not
        (5.0, 100, 0.2, 0.02, 0, 100, 2.1),  # that many never do
        (5.0, 100, 0.2, 0.5, 0, 10, 5.6),  # not even in haste
        (0.0, 10, 0.2, 0.1, 0, 0, 0.0),  # no time
    ],
)
def test_the_time_decides_how_regions_are_timed(
    seconds: float | None, total: int, each: float, hasty_each: float, full: int, hasty: int, at_most: float
) -> None:
    found = spend(seconds, total, each, hasty_each)
    assert found[:2] == (full, hasty)
    assert found[2] <= at_most + 1e-9


@pytest.mark.parametrize(("seconds", "least", "hasty"), [(10.0, 12.0, True), (10.0, 8.0, False), (None, 1e9, False)])
def test_what_regions_compute_says_beforehand_that_the_time_does_not_reach(
    seconds: float | None, least: float, hasty: bool
) -> None:
    assert Allowance(seconds, 2, least=least).hasty is hasty


def test_round_trips_are_short_where_time_is() -> None:
    clock = Clock()
    allowance = Allowance(20.0, 30, clock=clock)
    allowance.took(2, 0.5)
    assert allowance.batch() == 4  # of a quarter of a second each
    assert Allowance(None, 30).batch() == BATCH


def test_progress_has_count_rate_and_time_left() -> None:
    clock, told = Clock(), list[PricingProgress]()
    allowance = Allowance(20.0, 10, tell=told.append, clock=clock)
    clock.now += 2.0
    allowance.took(4, 2.0)
    assert told == [PricingProgress(4, 10, 2.0, 3.0)]
    assert told[0].rate == 2.0
