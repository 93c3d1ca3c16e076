"""rlflow search, compare and explain in process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import rlflow


def test_strategies_are_listed_with_their_options() -> None:
    listed = json.loads(rlflow("search", "list", "--json").stdout)
    options = {row["name"]: {option["name"]: option["default"] for option in row["options"]} for row in listed}
    assert options["beam"]["width"] == "8"
    assert {"annealing", "backtracking", "beam", "genetic", "greedy", "mcts", "portfolio", "random"} <= set(options)
    shown = rlflow("search", "list").stdout
    assert "beam: " in shown
    assert "  width=8 (int): " in shown


def test_a_search_alone_writes_its_result_and_goes_on(model: Path, tmp_path: Path) -> None:
    report, checkpoint = tmp_path / "search.json", tmp_path / "checkpoint.json"
    options = ("--search", "beam:width=2", "--budget", "30x", "--checkpoint", checkpoint, "--json", report)
    done = rlflow("search", "run", model, *options, "--stats")
    assert done.exit_code == 0, done.output
    assert "winning" in done.stdout
    first = json.loads(report.read_text())
    assert first["cost_after_ms"] < first["cost_before_ms"]
    assert first["statistics"]["opened"] == first["expansions"]
    assert rlflow("search", "run", model, *options, "--resume", "--quiet").exit_code == 0
    again = json.loads(report.read_text())
    assert again["cost_before_ms"] == first["cost_before_ms"]
    assert again["cost_after_ms"] <= first["cost_after_ms"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--resume",), "--checkpoint FILE"),
        (("--workers", "2", "--search", "greedy"), "draws no random numbers"),
        (("--workers", "2", "--stats"), "one worker"),
        (("--search", "beam:widht=2"), "Did you mean width"),
    ],
)
def test_mistakes_of_a_search_are_sentences(arguments: tuple[str, ...], says: str, model: Path) -> None:
    failed = rlflow("search", "run", model, *arguments)
    assert failed.exit_code == 2
    assert says in failed.stderr


def test_strategies_are_compared(model: Path, tmp_path: Path) -> None:
    plain, table = tmp_path / "race.json", tmp_path / "race.csv"
    files = ("--json", plain, "--csv", table, "--keep", tmp_path / "race.jsonl")
    options = ("--search", "greedy,random(length=2;walks=1)", "--cost", "analytic", "--budget", "20x", "--seeds", "2")
    done = rlflow("compare", model, *options, *files)
    assert done.exit_code == 0, done.output
    assert "greedy" in done.stdout
    assert {row["strategy"] for row in json.loads(plain.read_text())["summary"]} == {
        "greedy",
        "random:length=2,walks=1",
    }
    assert len(json.loads(plain.read_text())["runs"]) == len(table.read_text().splitlines()) - 1 == 4
    alone = rlflow("compare", model, "--search", "greedy")
    assert alone.exit_code == 2
    assert "two or more" in alone.stderr


def test_a_rule_is_explained_at_a_node_by_name(model: Path) -> None:
    everywhere = rlflow("explain", model, "--rule", "merge-matmul-columns")
    assert everywhere.stdout == rlflow("rules", "explain", "merge-matmul-columns", model).stdout
    assert rlflow("explain", "merge-matmul-columns", model).stdout == everywhere.stdout
    there = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "product0")
    assert there.exit_code == 0, there.output
    assert there.stdout.strip() in everywhere.stdout
    by_value = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "p0")
    assert by_value.stdout == there.stdout
    lost = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "produkt0")
    assert lost.exit_code == 2
    assert "Did you mean product0" in lost.stderr
