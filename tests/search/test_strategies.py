from __future__ import annotations

import dataclasses

import pytest

from rlflow import search
from rlflow.errors import UsageError


def test_the_strategies_are_there() -> None:
    assert {"annealing", "backtracking", "beam", "genetic", "greedy", "mcts", "portfolio", "random"} <= set(
        search.names()
    )


@pytest.mark.parametrize("name", search.names())
def test_a_strategy_is_described_by_the_options_that_make_it(name: str) -> None:
    plain = search.make(name)
    assert search.describe(plain) == name
    assert isinstance(plain, search.Strategy)
    assert [row[0] for row in search.option_table(type(plain))] == [field.name for field in dataclasses.fields(plain)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("backtracking:alpha=1.1,queue=20", {"alpha": 1.1, "queue": 20}),
        ("backtracking: alpha = 1.1 ,", {"alpha": 1.1}),
        ("backtracking:macro=off,causal=false", {"macro": False, "causal": False}),
        ("greedy:pick=first", {"pick": "first"}),
        ("random:length=3,walks=2,slack=1.5", {"length": 3, "walks": 2, "slack": 1.5}),
    ],
)
def test_options_are_read_and_written_back(spec: str, expected: dict[str, object]) -> None:
    strategy = search.make(spec)
    assert {key: getattr(strategy, key) for key in expected} == expected
    assert search.make(search.describe(strategy)) == strategy


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("backtrackng", "Did you mean backtracking"),
        ("zzz", "There are: annealing, backtracking"),
        ("backtracking:alfa=1.1", "Did you mean alpha"),
        ("backtracking:alpha=high", "expected a number"),
        ("backtracking:alpha=0.9", "at least 1"),
        ("backtracking:alpha=nan", "at least 1"),
        ("backtracking:queue=2.5", "expected a whole number"),
        ("backtracking:queue=0", "queue"),
        ("backtracking:macro=maybe", "true or false"),
        ("backtracking:alpha", "has no value"),
        ("greedy:pick=worst", "best or first"),
        ("random:length=0", "length"),
    ],
)
def test_mistakes_are_sentences(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        search.make(spec)


def test_overrides_win_and_none_is_no_override() -> None:
    assert search.make("backtracking:alpha=1.2", alpha=1.3).alpha == 1.3  # type: ignore[attr-defined]
    assert search.make("backtracking:alpha=1.2", alpha=None).alpha == 1.2  # type: ignore[attr-defined]
    assert search.make(search.Backtracking(), alpha=1.3) == search.Backtracking(alpha=1.3)
    with pytest.raises(UsageError, match="no option 'alpha'"):
        search.make("greedy", alpha=1.2)


def test_only_frozen_dataclasses_with_a_name_of_their_own_are_registered() -> None:
    class Plain:
        name = "plain"

    with pytest.raises(TypeError, match="frozen dataclass"):
        search.register(Plain)

    @dataclasses.dataclass(frozen=True)
    class Second:
        name = "greedy"

    with pytest.raises(UsageError, match="search strategy called 'greedy' already"):
        search.register(Second)
