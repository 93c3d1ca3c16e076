"""Statistics, checkpoints, workers and views: what goes on beside a search."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from rlflow import search
from rlflow.errors import CostError, UsageError
from rlflow.search import Budget, Problem, Statistics, StopReason, View, generator, strategies
from rlflow.search.parallel import shared_out, solve_in_parallel
from rlflow.search.resume import SavedSearch, solve_resumably
from rlflow.testing import TOYS
from rlflow.testing.conformance import fingerprint
from rlflow.testing.toys import toy_problem

NAMED = {toy.name: toy for toy in TOYS}


def test_statistics_add_up() -> None:
    problem = NAMED["mixture"].problem("300x")
    problem.observer = statistics = Statistics(problem.rule_names)
    result = search.solve(problem, "mcts")
    plain = json.loads(json.dumps(statistics.to_dict(result.trace)))
    rows = plain["rules"]
    assert sum(row["tried"] for row in rows) == plain["opened"] == result.counts.expansions
    assert sum(row["matched"] for row in rows) == result.counts.candidates
    assert sum(row["winning"] for row in rows) == len(result.trace or ())
    assert all(row["accepted"] <= row["gained"] <= row["tried"] for row in rows)
    assert sum(row["accepted"] for row in rows) == len(result.curve) - 1
    assert sum(plain["depths"].values()) == plain["opened"]
    assert 0 < plain["duplicates"] < plain["opened"]
    assert min(point["cost_ms"] for point in plain["landscape"]) == result.cost_after_ms


def test_the_landscape_is_thinned() -> None:
    problem = NAMED["haystack"].problem("3000x")
    problem.observer = statistics = Statistics(problem.rule_names)
    search.solve(problem, "random")
    assert 500 <= len(statistics.landscape) <= 1000


@pytest.mark.parametrize("strategy", ["greedy", "beam", "genetic", "backtracking", "portfolio"])
def test_a_resumed_search_goes_on(strategy: str, tmp_path: Path) -> None:
    toy, path = NAMED["mixture"], tmp_path / "search.json"
    first = solve_resumably(toy.problem("2x"), search.make(strategy), path, rng=generator)
    then = solve_resumably(toy.problem("500x"), search.make(strategy), path, resume=True, rng=generator)
    assert then.cost_before_ms == first.cost_before_ms
    assert then.cost_after_ms <= first.cost_after_ms
    again = search.replay(toy.graph(), toy.ruleset(), then.trace or ())
    assert again.digest == then.best.digest
    kept = SavedSearch.read(path)
    assert kept.cost_after_ms == then.cost_after_ms
    own = 2 if search.make(strategy).goes_on else 0  # a search that goes on counts what was spent before
    assert [one["expansions"] for one in kept.spent] == [2, then.counts.expansions - own]
    assert kept.finished == (not then.stop_reason.is_budget)


def resumed(strategy: str, path: Path, budget: str, seed: int = 0, **options: object) -> search.Result:
    problem = NAMED["mixture"].problem(budget, seed=seed)
    return solve_resumably(problem, search.make(strategy), path, resume=True, rng=generator, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["noted at every step", "never noted: all is done again"])
def test_a_resumed_search_is_the_one_that_was_interrupted(every: float, tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    for budget in ("20x", "1x", "39x"):
        last = resumed("mcts", path, budget, every=every)
    assert fingerprint(last) == fingerprint(search.solve(NAMED["mixture"].problem("60x"), "mcts"))


@pytest.mark.parametrize(("strategy", "seed"), [("mcts:c=2", 0), ("mcts", 1), ("beam", 0)])
def test_another_search_starts_from_the_best_graph(strategy: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    first = resumed("mcts", path, "25x", every=0.0)
    then = resumed(strategy, path, "5x", seed=seed, every=0.0)
    assert then.cost_after_ms <= first.cost_after_ms
    assert then.counts.expansions <= 5
    assert [one["strategy"] for one in SavedSearch.read(path).spent] == ["mcts", strategy]


def test_a_search_that_is_killed_goes_on_from_where_it_was_noted(tmp_path: Path) -> None:
    path, ticks = tmp_path / "search.json", iter(range(100_000))
    problem = NAMED["mixture"].problem("60x", clock=ticks.__next__)

    def give_up(progress: search.Progress) -> None:
        if progress.expansions >= 30:
            raise KeyboardInterrupt

    problem.events.listener = give_up
    with pytest.raises(KeyboardInterrupt):
        solve_resumably(problem, search.make("backtracking"), path, every=0.0, rng=generator)
    noted = SavedSearch.read(path).reached or {}
    assert 0 < noted["expansions"] <= 30
    last = resumed("backtracking", path, f"{60 - int(noted['expansions'])}x")
    assert fingerprint(last) == fingerprint(search.solve(NAMED["mixture"].problem("60x"), "backtracking"))


@dataclass(frozen=True)
class Forgetful(search.StrategyBase):
    name: ClassVar[str] = "forgetful"
    goes_on: ClassVar[bool] = True

    def search(self, problem: Problem, rng: object) -> StopReason:
        problem.keep(iter(()))
        return StopReason.EXHAUSTED


def test_what_cannot_be_written_down_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(strategies.STRATEGIES.opened, "forgetful", Forgetful)
    with pytest.raises(TypeError, match="mark the class with @resumable"):
        resumed("forgetful", tmp_path / "search.json", "9x")


def test_a_checkpoint_is_refused_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    solve_resumably(NAMED["mixture"].problem("5x"), search.make("greedy"), path, rng=generator)
    with pytest.raises(UsageError, match="another model"):
        solve_resumably(NAMED["twins"].problem("5x"), search.make("greedy"), path, resume=True, rng=generator)
    path.write_text("{}")
    with pytest.raises(UsageError, match="cannot be read as a checkpoint"):
        SavedSearch.read(path)


def test_a_checkpoint_is_written_while_the_search_runs(tmp_path: Path) -> None:
    path, seen = tmp_path / "search.json", []
    problem = NAMED["mixture"].problem("40x", clock=iter(range(100_000)).__next__)
    problem.events.listener = lambda progress: seen.append(path.exists())
    solve_resumably(problem, search.make("beam"), path, every=0.0, rng=generator)
    assert seen[0]


def test_workers_find_the_same_every_time_and_the_best_of_all() -> None:
    make_problem = functools.partial(toy_problem, "mixture")
    runs = [solve_in_parallel(make_problem, search.make("annealing"), Budget.parse("60x"), 5, 2) for _ in range(2)]
    assert fingerprint(runs[0]) == fingerprint(runs[1])
    result = runs[0]
    assert result.counts.expansions <= 60
    assert result.stop_reason is StopReason.BUDGET_EXPANSIONS
    assert result.curve[-1].cost_ms == result.cost_after_ms
    toy = NAMED["mixture"]
    assert search.replay(toy.graph(), toy.ruleset(), result.trace or ()).digest == result.best.digest


@pytest.mark.parametrize("strategy", ["backtracking", "beam:width=2"])
def test_workers_share_out_the_first_choices(strategy: str) -> None:
    toy, opened = NAMED["exclusive"], []
    for part in ((0, 2), (1, 2), (0, 1)):
        problem = toy.problem("500x")
        problem.share, problem.observer = part, Opened()
        result = search.solve(problem, strategy)
        opened.append({first for first in problem.observer.first if first is not None})
        assert result.stop_reason in (StopReason.EXHAUSTED, StopReason.CONVERGED)
    assert opened[0] and opened[1] and not opened[0] & opened[1]
    assert opened[2] <= opened[0] | opened[1]
    make_problem = functools.partial(toy_problem, "exclusive")
    runs = [solve_in_parallel(make_problem, search.make(strategy), Budget.parse("200x"), 0, 2) for _ in range(2)]
    assert fingerprint(runs[0]) == fingerprint(runs[1])
    assert runs[0].cost_after_ms <= search.solve(toy.problem("500x"), strategy).cost_after_ms


class Opened:
    """Remembers the children of the starting graph that were opened and cost more than it, or the same."""

    def __init__(self) -> None:
        self.first: list[bytes | None] = []

    def enumerated(self, table: search.MoveTable) -> None:
        pass

    def opened(self, parent: search.SearchNode, child: search.SearchNode, rule: int, is_best: bool) -> None:
        self.first.append(child.digest if parent.depth == 0 and not is_best else None)


@pytest.mark.parametrize(("strategy", "workers"), [("greedy", 2), ("annealing", 0), ("partition", 3)])
def test_workers_that_make_no_sense_are_refused(strategy: str, workers: int) -> None:
    make = functools.partial(toy_problem, "twins")
    with pytest.raises(UsageError, match=r"expected at least 1|draws no random numbers"):
        solve_in_parallel(make, search.make(strategy), Budget.parse("9x"), 0, workers)


def test_counts_are_shared_out_and_seconds_are_not() -> None:
    assert shared_out(Budget.parse("60s,100x,3c"), 4) == Budget.parse("60s,25x,1c")


def test_a_view_shares_everything_but_where_it_starts() -> None:
    problem = NAMED["twins"].problem("100x")
    root = problem.root()
    child = problem.open(root, problem.moves(root).index[0])
    view = View(problem, child)
    assert view.root() is child
    view.open(child, view.moves(child).index[0])
    assert problem.meter.expansions == 2
    assert problem.best_cost == view.best.cost < child.cost
    result = view.result(StopReason.CONVERGED, "x")
    assert result.cost_before_ms == root.cost
    assert view.root() is child


@pytest.mark.parametrize(("options", "lengths"), [("", [12, 15, 120, 120]), ("stretch=1", [12, 12, 12, 12])])
def test_cycles_of_annealing_grow_up_to_ten_times_the_first(options: str, lengths: list[int]) -> None:
    annealing = search.make(f"annealing:{options}" if options else "annealing")
    assert [annealing.steps_of(cycle) for cycle in (0, 1, 20, 10**6)] == lengths


@dataclass(frozen=True)
class Broken(search.StrategyBase):
    name: ClassVar[str] = "broken"

    def search(self, problem: Problem, rng: object) -> StopReason:
        raise ZeroDivisionError("on purpose")


def test_a_portfolio_hands_on_what_a_member_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(strategies.STRATEGIES.opened, "broken", Broken)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        search.solve(NAMED["twins"].problem("50x"), "portfolio:members=random+broken,slice=2")


def test_the_catalogue_documents_every_option() -> None:
    for row in search.catalogue():
        assert row["doc"], row["name"]
        assert not [option["name"] for option in row["options"] if not option["doc"]], row["name"]


def test_a_negative_cost_of_the_model_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.Prices, "cost", lambda self, state: -1.0)
    with pytest.raises(CostError, match=r"costs -1\.0 ms; expected a number that is not negative"):
        search.solve(NAMED["mixture"].problem("2x"), "greedy")
