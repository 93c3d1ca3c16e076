"""Whose turn it is in a portfolio, and what the members hear of each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from rlflow import search
from rlflow.search import Problem, StopReason, portfolio
from rlflow.search.levin.chains import LevinSearch
from rlflow.search.view import View
from rlflow.testing import TINY, TinyProblem
from tests.search import words

TURNS = 12


class Scripted:
    """A member by what it gains in each of its turns, in parts of what the best graph cost."""

    def __init__(self, log: list[str], name: str, gains: Iterable[float], problem: Any) -> None:
        self.log, self.gains, self.problem = log, itertools.chain(gains, itertools.repeat(0.0)), problem
        self.strategy = SimpleNamespace(name=name, has_trace=True)
        self.part, self.rate, self.dry, self.turns, self.runs, self.idle = 1.0, 0.0, 0, 0, 0, False
        self.view: Any = None

    def turn(self, start: Any, work: float) -> None:
        self.log.append(self.strategy.name)
        self.runs += 1
        self.problem.meter.expansions += 100  # alike, so that gains alone make the difference
        self.problem.best *= 1.0 - next(self.gains)
        self.view = SimpleNamespace(best=SimpleNamespace(cost=self.problem.best))


def turns_of(**gains: list[float]) -> str:
    """Who had each of the first turns, a letter for each."""
    log: list[str] = []
    problem = SimpleNamespace(
        meter=SimpleNamespace(expansions=0, candidates=0, measurements=0),
        best=10.0,
        root=lambda: SimpleNamespace(cost=10.0),
        stopped=lambda: StopReason.BUDGET_EXPANSIONS if len(log) == TURNS else None,
    )
    members: Any = [Scripted(log, name, plan, problem) for name, plan in gains.items()]
    scheduler = portfolio._Scheduler(portfolio.Portfolio(), problem, members)  # type: ignore[arg-type]
    assert scheduler.run(None) is StopReason.BUDGET_EXPANSIONS
    return "".join(log)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        # Nobody gains: all alike.
        ({"a": [], "b": [], "c": []}, "abcabcabcabc"),
        # Who gains goes on as long as it does, and two turns longer; then all alike again.
        ({"a": [0.0, 0.1], "b": [], "c": []}, "abcaaabcabcb"),
        ({"a": [0.0, 0.1, 0.1, 0.1], "b": []}, "abaaaaabbabb"),
        # What gained much long ago does not hide small gains of now.
        ({"a": [0.5], "b": [0.0, 0.001, 0.001, 0.001, 0.001, 0.001]}, "abaabbbbbbba"),
        # Of two that gain, who gains more for its work.
        ({"a": [0.1] * TURNS, "b": [0.001] * TURNS}, "abaaaaaaaaaa"),
    ],
)
def test_who_gained_last_goes_on_for_a_while(gains: dict[str, list[float]], expected: str) -> None:
    assert turns_of(**gains) == expected


@pytest.mark.parametrize(("strategy", "credited"), [("mixed", False), ("portfolio", True)])
def test_the_way_down_that_all_would_make_is_nobodys_gain(
    monkeypatch: pytest.MonkeyPatch, strategy: str, credited: bool
) -> None:
    rates: list[float] = []
    plain = portfolio._Member.close

    def watched(self: Any) -> None:
        rates.append(self.rate)
        plain(self)

    monkeypatch.setattr(portfolio._Member, "close", watched)
    twins = next(tiny for tiny in TINY if tiny.name == "twins")  # where downhill is all that there is
    found = search.solve(twins.problem("400x"), f"{strategy}:members=backtracking+mcts")
    assert found.cost_after_ms < found.cost_before_ms
    assert (max(rates) > 0.0) is credited


def test_a_timed_region_is_work() -> None:
    problem: Any = SimpleNamespace(meter=SimpleNamespace(expansions=7, candidates=100, measurements=3))
    assert portfolio._work(problem) == 7 + 2 + 150


def far() -> Problem:
    """A word of which the price falls by single steps, and by a chain."""
    rules = ["ab>cb", "cb>x", "de>fe", "fe>y"]
    prices = dict(zip("abcdefxy-", (2.0, 2.0, 2.5, 2.0, 2.0, 2.5, 1.0, 1.0, 1.0), strict=True))
    return Problem.over(words.word_state("ab------de", rules, prices), rules, "500x")


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        ([], []),
        (["better"], ["better"]),
        (["same"], []),
        (["dearer"], []),
        (["better", "dearer"], []),  # only the last is kept
        (["dearer", "better"], ["better"]),
    ],
)
def test_news_are_heard_once_where_they_are_cheaper_than_all_of_this_search(told: list[str], heard: list[str]) -> None:
    problem = far()
    view = View(problem)
    nodes: Any = {name: SimpleNamespace(cost=problem.root().cost + by, name=name)
                  for name, by in (("better", -1.0), ("same", 0.0), ("dearer", 1.0))}  # fmt: skip
    for name in told:
        view.tell(nodes[name])
    assert [one.name for one in (view.news(), view.news()) if one is not None] == heard
    assert problem.news() is None


def test_levin_searches_on_from_what_another_search_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    arrive = LevinSearch.arrive

    def noted(run: LevinSearch, node: Any, *rest: Any) -> bool:
        begun.append(node.graph.text)
        return arrive(run, node, *rest)

    problem = far()
    view, elsewhere = View(problem), View(problem)
    monkeypatch.setattr(LevinSearch, "arrive", noted)
    steps = iter(range(100))

    def waiting() -> None:
        if next(steps) == 0:  # it has begun, and cannot get there itself
            found = search.make("backtracking").run(elsewhere, None)  # type: ignore[arg-type]
            assert found.best.graph.text == "x------y"
            view.tell(elsewhere.best)

    view._turn = waiting
    search.make("levin:lead=1,alpha=1").run(view, None)  # type: ignore[arg-type]
    assert begun == ["ab------de", "x------y"]


def test_what_waited_is_told_the_best_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    plain = View.tell

    def watched(self: View, node: Any) -> None:
        told.append(node.cost)
        assert node.cost == self.best_cost
        plain(self, node)

    monkeypatch.setattr(View, "tell", watched)
    plateau: TinyProblem = next(tiny for tiny in TINY if tiny.name == "plateau")
    search.solve(plateau.problem("300x"), "mixed:slice=2,members=backtracking+levin(lead=1)+mcts")
    assert told
