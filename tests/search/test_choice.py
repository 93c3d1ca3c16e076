"""The table that says whose turns in a portfolio come first: its regression, its shares, what comes of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import price, search
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.rulesets import load_library
from rlflow.search import Problem, portfolio
from rlflow.search.choice import LEAST, BanditTable, features, fit

GRAPH = """
x: f32[4,6] = input
w: f32[6,6] = input
a = Transpose{perm=[1,0]}(x)
b = Transpose{perm=[1,0]}(a)
c = MatMul(b, w)
d = Relu(c)
return d
"""


def problem(budget: str = "50x") -> Problem:
    return Problem(Graph.parse(GRAPH.strip()), load_library(None), price.make("analytic"), budget)


def table(**constants: float) -> BanditTable:
    """One feature, which counts for nothing; each strategy's prediction is its constant."""
    arms = {name: np.array([value, 0.0]) for name, value in constants.items()}
    return BanditTable(("log nodes",), np.zeros(1), np.ones(1), arms, {}, temperature=0.1)


def written(path: Path, one: BanditTable) -> Path:
    path.write_text(json.dumps(one.to_dict()))
    return path


def test_features_are_parts_of_the_graph_and_cost_nothing() -> None:
    given = problem()
    names = {given.rule_names[int(rule)] for rule in given.frontier.listed(given.root(), None)[0].rule}
    some = sorted(names)[0]
    before = given.meter.candidates
    found = features(given, {some: "mine"})
    assert given.meter.candidates == before
    assert found["log nodes"] == pytest.approx(np.log1p(4))
    assert found["op products"] == pytest.approx(1 / 4)
    assert found["op moves"] == pytest.approx(2 / 4)
    assert found["op unary"] == pytest.approx(1 / 4)
    assert found["op reduce"] == 0
    assert found["rule mine"] > 0
    assert sum(value for name, value in found.items() if name.startswith("rule ")) == pytest.approx(1)


def test_the_regression_finds_what_is_linear_and_a_ridge_goes_to_the_mean() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        seen = {"a": rng.normal(), "b": rng.normal() + 5}
        rows += [("one", seen, 0.3 + 0.2 * seen["a"]), ("two", seen, 1 - 0.1 * seen["b"])]
    names, mean, scale, arms = fit(rows, 1e-9)
    found = BanditTable(names, mean, scale, arms, {}).predicted({"a": 2.0, "b": 7.0})
    assert found == pytest.approx({"one": 0.7, "two": 0.3})
    names, mean, scale, arms = fit(rows, 1e9)
    found = BanditTable(names, mean, scale, arms, {}).predicted({"a": 2.0, "b": 7.0})
    assert found["one"] == pytest.approx(np.mean([value for arm, _, value in rows if arm == "one"]), abs=1e-4)


def test_shares_average_one_follow_the_prediction_and_leave_nobody_out() -> None:
    found = table(beam=0.9, mcts=0.1).shares(problem(), ["mcts", "greedy", "beam"])
    assert sum(found) == pytest.approx(3)
    assert found[2] > found[1] > found[0] >= LEAST  # greedy is not in the table: predicted as the mean
    assert table(beam=0.5).shares(problem(), ["greedy", "mcts"]) == [1.0, 1.0]


def test_the_first_turns_go_by_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[str, float]] = []
    plain = portfolio._Member.turn

    def watched(self: Any, start: Any, work: float) -> None:
        turns.append((self.strategy.name, work))
        plain(self, start, work)

    monkeypatch.setattr(portfolio._Member, "turn", watched)
    path = written(tmp_path / "table.json", table(random=0.0, backtracking=1.0))
    spec = "portfolio:members=random+backtracking,slice=4"
    search.solve(problem(), spec)
    assert turns[:2] == [("random", 4.0), ("backtracking", 4.0)]
    turns.clear()
    search.solve(problem(), f"{spec},choice={path}")
    assert [name for name, _ in turns[:2]] == ["backtracking", "random"]
    first, second = (work for _, work in turns[:2])
    assert first + second == pytest.approx(8)
    assert first > 6


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = dataclasses.replace(table(beam=0.25), families={"a": "b"}, card={"rows": 3})
    again = BanditTable.read(written(tmp_path / "table.json", one))
    assert again.to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"mean": [0.0, 1.0]}, {"scale": [0.0]}, {"arms": {"beam": [1.0]}}, {"temperature": 0},
        {"arms": {"beam": [1.0, float("nan")]}}, {"arms": []}, {"names": None},
    ],
)  # fmt: skip
def test_a_table_that_makes_no_sense_is_a_sentence_before_the_search(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({**table(beam=1.0).to_dict(), **change}))
    with pytest.raises(UsageError, match="by which a portfolio was to choose, cannot be read"):
        search.make(f"portfolio:choice={path}").ready()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="cannot be read"):
        search.make(f"mixed:choice={tmp_path / 'none.json'}").ready()  # type: ignore[attr-defined]
