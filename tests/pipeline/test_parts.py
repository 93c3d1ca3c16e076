"""Who gets which part of a budget of seconds, and how long each stage took."""

from __future__ import annotations

import pytest

from rlflow.pipeline import Stages
from rlflow.pipeline.parts import ModelTimes, Parts


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


SMALL, LARGE = ModelTimes(0.1, 0.01), ModelTimes(3.0, 0.5)


@pytest.mark.parametrize(
    ("budget", "pace", "priced", "search", "race", "most"),
    [
        # what pricing leaves over goes to the search; the comparison has a third of the budget, 20 s at most
        (60.0, SMALL, 10.0, 29.3, 20.0, 49.3),
        (15.0, SMALL, 4.0, 4.7, 5.6, 10.3),
        (600.0, SMALL, 10.0, 569.3, 20.0, 589.3),
        # a model that takes long to load and to run needs more for its comparison, but not all of the budget
        (60.0, LARGE, 10.0, 14.0, 24.0, 38.0),
        (600.0, LARGE, 10.0, 474.0, 93.0, 567.0),
        # a pricing that took too long leaves the search its least
        (30.0, SMALL, 25.0, 6.0, 4.3, 4.3),
    ],
)
def test_each_stage_has_its_part(
    budget: float, pace: ModelTimes, priced: float, search: float, race: float, most: float
) -> None:
    clock = Clock()
    parts = Parts(budget, clock=clock)
    parts.begin()
    clock.now += priced
    parts.plan(pace, models=2)
    assert parts.searching() == pytest.approx(search, abs=0.1)
    assert parts.timing()[:2] == pytest.approx((race, most), abs=0.1)  # the search took no time
    assert parts.given.keys() == {"searching", "timing"}


def test_the_parts_are_the_budget() -> None:
    clock = Clock()
    parts = Parts(60.0, clock=clock)
    parts.begin()
    clock.now += parts.pricing() or 0.0
    parts.plan(LARGE, models=2)
    clock.now += parts.searching() or 0.0
    clock.now += parts.timing()[1] or 0.0
    parts.verifying()
    clock.now += parts.given["verifying"]
    assert clock.now - 5.0 == pytest.approx(60.0, abs=0.1)


def test_what_a_machine_is_like_is_learnt_within_the_part_of_pricing() -> None:
    clock = Clock()
    parts = Parts(60.0, clock=clock)
    parts.begin()
    clock.now += 6.0
    assert parts.pricing() == pytest.approx(12.0)
    clock.now += 30.0
    assert parts.pricing() == pytest.approx(9.0)  # half of it is for the regions, whatever the machine took
    assert [Parts(seconds).learning for seconds in (None, 10.0, 60.0, 600.0)] == [None, 0.0, 12.0, 90.0]


def test_a_budget_of_counts_has_no_deadline() -> None:
    parts = Parts(None)
    parts.begin()
    parts.plan(LARGE, models=2)
    assert (parts.pricing(), parts.searching(), parts.timing()) == (None, None, (10.0, None, None, 0.0))
    assert not parts.given


@pytest.mark.parametrize("budget", [None, 60.0])
def test_the_seconds_that_a_user_gives_the_comparison_are_its_own(budget: float | None) -> None:
    parts = Parts(budget, race_seconds=100.0)
    parts.begin()
    parts.plan(SMALL, models=2)
    assert parts.timing() == (100.0, None, None, 0.0)


def test_kernels_have_a_part_of_the_budget() -> None:
    clock = Clock()
    plain, parts = Parts(60.0, clock=clock), Parts(60.0, clock=clock, kernels=True)
    for one in (plain, parts):
        one.begin()
        one.plan(SMALL, models=2)
    assert parts.searching() == pytest.approx((plain.searching() or 0.0) - 18.0)
    clock.now += 30.0
    assert parts.timing().at_most == pytest.approx((plain.timing().at_most or 0.0) - 18.0)
    assert parts.verifying() == pytest.approx(12.0)
    clock.now += 8.0
    assert parts.kernels() == pytest.approx((22.0, 30.0, 33.0, 0.0))
    clock.now += 28.0  # too late already, but not for nothing: it may end after the budget
    assert parts.kernels() == pytest.approx((2.0, 2.0, 5.0, 0.0))
    clock.now += 6.0
    assert (parts.kernels() or ())[:2] == (0.0, 0.0)
    assert Parts(None, kernels=True).kernels() is None
    own = Parts(60.0, race_seconds=100.0, clock=clock, kernels=True)
    own.begin()
    clock.now += 90.0
    assert (own.kernels() or ())[:2] == pytest.approx((9.0, 109.0))


def test_what_the_kernels_give_up_goes_to_the_comparison() -> None:
    clock = Clock()
    plain, parts = Parts(60.0, clock=clock), Parts(60.0, clock=clock, kernels=True)
    parts.drop_kernels()
    for one in (plain, parts):
        one.begin()
        one.plan(SMALL, models=2)
    clock.now += 30.0
    assert parts.timing() == plain.timing()
    clock.now += 25.0
    assert parts.kernels() == pytest.approx((5.0, 13.0, 16.0, 0.0))


@pytest.mark.parametrize(
    ("budget", "pace", "alone"),
    [
        (60.0, SMALL, False),
        (60.0, ModelTimes(0.25, 0.1), False),  # as ResNet-50 on a free core
        (60.0, ModelTimes(0.5, 0.36), True),  # as BERT-base
        (180.0, ModelTimes(0.5, 0.36), False),
        (180.0, LARGE, True),
        (None, LARGE, False),
    ],
)
def test_kernels_have_all_of_the_time_where_it_does_not_reach_for_both(
    budget: float | None, pace: ModelTimes, alone: bool
) -> None:
    parts = Parts(budget, kernels=True)
    assert parts.leaves_kernels_alone(pace) is alone
    assert parts.pace == pace


def test_a_clock_that_runs_is_not_started_again() -> None:
    clock = Clock()
    parts = Parts(60.0, clock=clock)
    parts.begin()
    clock.now += 10.0
    parts.begin()
    assert parts.left == 50.0


def test_a_search_that_uses_all_its_time_leaves_some_for_advice() -> None:
    clock = Clock()
    plain, parts = Parts(60.0, clock=clock), Parts(60.0, clock=clock)
    for one, advice in ((plain, 0.0), (parts, 3.0)):
        one.begin()
        one.plan(SMALL, models=2, advice=advice)
    assert parts.searching() == pytest.approx((plain.searching() or 0.0) - 3.0)
    clock.now += plain.searching() or 0.0
    assert plain.spare == pytest.approx(0.0, abs=0.1)
    clock.now -= 3.0
    assert parts.spare == pytest.approx(3.0, abs=0.1)


def test_no_clock_no_comparison() -> None:
    clock = Clock()
    parts = Parts(10.0, clock=clock)
    parts.begin()
    parts.plan(ModelTimes(), models=0)
    assert parts.searching() == pytest.approx(10.0)


def test_stages_add_up() -> None:
    now, told = iter([0.0, 1.0, 3.0, 6.0, 10.0]), []
    stages = Stages(told.append, lambda: next(now))
    for stage in ("loading", "searching", "loading"):
        stages(stage, f"{stage} now")
    assert stages.seconds() == {"starting": 1.0, "loading": 2.0 + 4.0, "searching": 3.0}
    assert told == ["loading now", "searching now", "loading now"]
