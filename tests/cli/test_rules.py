"""rlflow rules in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlflow.rewrite import load_rules, read_rules
from rlflow.rewrite.paths import library_files, named_files
from tests.cli.commands import rlflow


def test_rules_are_listed_shown_and_explained(model: Path) -> None:
    listed = json.loads(rlflow("rules", "list", "--json").stdout)
    assert len(listed) == len(load_rules())
    assert {"name", "family", "source", "target", "proof"} <= set(listed[0])
    name = listed[0]["name"]
    assert name in rlflow("rules", "list").stdout
    shown = rlflow("rules", "show", name).stdout
    for word in ("source:", "target:", "proof:"):
        assert word in shown
    explained = rlflow("rules", "explain", "merge-matmul-columns", model)
    assert explained.exit_code == 0, explained.output
    assert "fires" in explained.stdout
    assert rlflow("rules", "explain", "merge-matmul-columns", model, "--node", "999").exit_code == 2


def own_rules(path: Path, *rules: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"format": 1, "family": "own", "rules": list(rules)}))
    return path


TWICE = {"name": "twice", "source": ["(Relu (Relu ?x))"], "target": ["(Relu ?x)"], "where": ["is_float(?x)"]}
LIE = {"name": "lie", "source": ["(Sub ?x ?y)"], "target": ["(Sub ?y ?x)"]}


def test_rules_are_proved(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE)
    done = rlflow("rules", "prove", path, "--jobs", "1", "--samples", "40", "--write")
    assert done.exit_code == 0, done.output
    assert "twice: proved; exact rationals: 40 samples" in done.stdout and "1 rule: 1 proved." in done.stdout
    record = json.loads(path.read_text())["rules"][0]["proof"]
    assert record["fired"] == 40 and record["small"] > 0 and record["scope"].startswith("exact rationals:")
    floats = rlflow("rules", "prove", path, "--jobs", "1", "--method", "float")
    assert floats.exit_code == 0 and "runs in floats" in floats.stdout
    assert rlflow("rules", "prove", path, "--method", "float", "--write").exit_code == 2
    assert rlflow("rules", "prove").exit_code == 2


def test_a_counterexample_is_shown_with_its_values(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE, LIE)
    done = rlflow("rules", "prove", path, "--jobs", "2", "--samples", "40", "--json")
    assert done.exit_code == 1 and "1 proved, 1 refuted" in done.stderr
    proved, refuted = json.loads(done.stdout)
    assert proved["status"] == "proved" and refuted["kind"] == "value"
    example = refuted["counterexample"]
    assert example["before"] != example["after"] and set(example["values"]) == {"x0", "x1"}


def test_rules_are_repaired_and_counted(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE, {**LIE, "name": "lie", "where": ["is_float(?x)"]})
    done = rlflow("rules", "repair", path, "twice", "--jobs", "1", "--samples", "30")
    assert done.exit_code == 0 and "twice: true as it stands" in done.stdout
    assert rlflow("rules", "repair", path, "nothing").exit_code == 2
    counts = json.loads(rlflow("rules", "stats", "--json").stdout)
    assert counts["rules"] == len(load_rules()) == sum(counts["families"].values())
    assert counts["proofs"]["over the field"] > counts["proofs"]["over ordered rationals"] > 0
    assert "operator (in sources)" in rlflow("rules", "stats").stdout


def test_an_unknown_rule_counts_every_name_once() -> None:
    shipped = read_rules([*library_files(), *named_files()])
    count = len({name for rule in shipped for name in (rule.name, rule.family)})
    done = rlflow("rules", "prove", "zzzzz")
    assert done.exit_code == 2
    assert f"'zzzzz' is no file, rule or family. There are {count} others" in done.stderr
