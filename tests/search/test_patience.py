"""A search ends when it has gone on for long without a worthwhile gain, and not before."""

from __future__ import annotations

import pytest

from rlflow.errors import UsageError
from rlflow.search import Budget, Patience, StopReason, patience_of, solve
from rlflow.search.patience import WORTHWHILE
from rlflow.testing.tiny import TINY


def ends(gains: dict[int, float], least: int, until: int = 10_000) -> int | None:
    """The expansion at which patience ends a search whose best cost changes as ``gains`` says."""
    patience = Patience(least)
    patience.told(100.0, 0)
    for expansions in range(1, until):
        if patience.is_over(expansions):
            return expansions
        if expansions in gains:
            patience.told(gains[expansions], expansions)
    return None


class TestWhen:
    @pytest.mark.parametrize(
        ("gains", "end"),
        [
            ({}, 50),  # nothing is found
            ({10: 90.0}, 50),  # twice ten is less than the least
            ({40: 90.0}, 80),  # twice as long as to the last gain
            ({40: 90.0, 79: 80.0}, 158),
            ({40: 99.95}, 50),  # less than a thousandth is none,
            ({10: 99.95, 40: 99.85}, 80),  # but such gains add up
        ],
    )
    def test_table(self, gains: dict[int, float], end: int) -> None:
        assert ends(gains, 50) == end

    def test_creeping_ends_where_it_is_slower_than_a_thousandth_in_the_time_so_far(self) -> None:
        step = 100.0 * WORTHWHILE / 1000  # a worthwhile gain takes a thousand expansions
        assert ends({k: 100.0 - k * step for k in range(1, 9000)}, 500) == 500
        assert ends({k: 100.0 - k * step for k in range(1, 9000)}, 1100) is None


class TestWhoSays:
    @pytest.mark.parametrize(
        ("given", "budget", "usual", "least"),
        [
            ("auto", "60s", 3000, 3000),
            ("auto", "60s", None, None),  # the strategy ends by itself
            ("auto", "60s,500c", 3000, None),  # a count says how far to go
            ("auto", "50x", 3000, None),
            ("auto", "20meas", 3000, None),
            ("off", "60s", 3000, None),
            (None, "60s", 3000, None),
            ("700", "50x", None, 700),
            (700, "60s", 3000, 700),
        ],
    )
    def test_table(self, given: str | int | None, budget: str, usual: int | None, least: int | None) -> None:
        found = patience_of(given, Budget.parse(budget), usual)
        assert (found and found.least) == least

    @pytest.mark.parametrize("given", ["long", "0", "-3", "1.5"])
    def test_nonsense_is_refused(self, given: str) -> None:
        with pytest.raises(UsageError, match="patience"):
            patience_of(given, Budget.parse("60s"), 3000)


class TestSearches:
    def test_a_search_without_end_is_ended(self) -> None:
        problem = TINY[0].problem("5000x", patience=Patience(40))
        found = solve(problem, "mcts")
        plain = solve(TINY[0].problem("5000x"), "mcts")
        assert found.stop_reason is StopReason.CONVERGED
        assert found.counts.expansions < plain.counts.expansions
        assert problem.limits.idle() is not None

    def test_a_search_that_comes_to_its_end_before_says_so(self) -> None:
        problem = TINY[0].problem("5000x", patience=Patience(4000))
        assert solve(problem, "backtracking").stop_reason is StopReason.EXHAUSTED
        assert problem.limits.idle() is None


def test_a_gain_is_worthwhile_by_what_it_adds_to_the_last_one() -> None:
    """Not by how far the graph is from the start by now."""
    found = Patience(10)
    for cost, expansions in ((100.0, 0), (90.0, 20), (89.99, 500)):
        found.told(cost, expansions)
    assert found.last_gain == 20
    assert found.is_over(40)
    assert not found.is_over(39)
