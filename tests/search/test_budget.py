from __future__ import annotations

import re
from typing import Any

import pytest

from rlflow.errors import BudgetError
from rlflow.search import Budget, BudgetMeter, StopReason


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("60s", Budget(seconds=60)),
        ("0.5s", Budget(seconds=0.5)),
        (".25s", Budget(seconds=0.25)),
        ("500c", Budget(candidates=500)),
        ("50x", Budget(expansions=50)),
        ("20meas", Budget(measurements=20)),
        ("1m", Budget(seconds=60)),
        ("0.5m", Budget(seconds=30)),
        ("1h", Budget(seconds=3600)),
        ("1h,20meas", Budget(seconds=3600, measurements=20)),
        ("60s,500c", Budget(seconds=60, candidates=500)),
        (" 3x , 2meas ", Budget(expansions=3, measurements=2)),
    ],
)
def test_budgets_are_read(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("soon", "cannot be read"),
        ("60", "write 60s"),
        ("60 s", "cannot be read"),
        ("0s", "above zero"),
        ("0c", "above zero"),
        ("-5s", "above zero"),
        ("-1x", "above zero"),
        ("2d", "unknown unit 'd'"),
        ("1.5meas", "whole number of measurements"),
        ("60s,20m", "twenty measurements are 20meas"),
        ("5min", "unknown unit 'min'"),
        ("1.5c", "whole number"),
        ("1e3c", "cannot be read"),
        ("nan", "cannot be read"),
        ("3s,4s", "limits seconds twice"),
        ("3s,", "cannot be read"),
    ],
)
def test_unreadable_budgets_are_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(BudgetError, match=says) as error:
        Budget.parse(text)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("value", [None, 60, 1.5, b"60s"])
def test_a_budget_without_a_unit_is_refused(value: object) -> None:
    with pytest.raises(BudgetError, match="no unit"):
        Budget.parse(value)  # type: ignore[arg-type]


def test_an_empty_or_infinite_budget_is_refused() -> None:
    with pytest.raises(BudgetError, match="at least one limit"):
        Budget()
    with pytest.raises(BudgetError, match="above zero"):
        Budget(seconds=float("inf"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_limit_ends_with_its_own_reason() -> None:
    clock = Clock()
    meter = BudgetMeter(Budget(10, 5, 4, 3), clock)
    meter.start()
    assert meter.spent() is None
    assert meter.seconds_left() == 10
    clock.now += 10
    assert meter.spent() is StopReason.BUDGET_SECONDS
    meter.measurements = 3
    assert meter.spent() is StopReason.BUDGET_MEASUREMENTS
    assert meter.measurements_left() == 0
    meter.leave_out(4)  # what passed was not all the search's
    assert meter.seconds_left() == 4
    assert meter.expansions_left() == 4
    meter.expansions = 4
    assert meter.expansions_left() == 0
    assert meter.spent() is StopReason.BUDGET_EXPANSIONS
    meter.candidates = 5
    assert meter.spent() is StopReason.BUDGET_CANDIDATES
    assert all(reason.is_budget == reason.value.startswith("budget") for reason in StopReason)


def test_candidates_are_granted_up_to_the_limit() -> None:
    meter = BudgetMeter(Budget(candidates=5))
    assert [meter.grant_candidates(count) for count in (3, 3, 3)] == [3, 2, 0]
    assert meter.candidates == 5
    assert meter.fraction() == 1.0


def test_a_budget_of_counts_never_reads_the_clock() -> None:
    def clock() -> float:
        raise AssertionError("the clock was read")

    meter = BudgetMeter(Budget(candidates=5, expansions=2), clock)
    assert meter.spent() is None
    assert meter.fraction() == 0.0
    assert meter.seconds_left() is None
    assert meter.expansions_left() == 2
    assert meter.budget.counts_only


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"candidates": 1.5}, "1.5 candidates is no whole number"),
        ({"expansions": True}, "True expansions is no whole number"),
        ({"measurements": "20"}, "'20' measurements is no whole number"),
        ({"seconds": "60s"}, "'60s' seconds is no time"),
        ({"seconds": float("nan")}, "leaves nothing to search with"),
    ],
)
def test_a_limit_is_a_number_and_a_count_a_whole_one(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(BudgetError, match=re.escape(said)):
        Budget(**limits)
