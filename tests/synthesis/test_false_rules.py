"""The prover is tested on lies: every false, shape-unsound or malformed rule is refused, and for the right reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlflow import _core
from rlflow.errors import RuleError
from rlflow.rewrite import Rule
from rlflow.synthesis import load_rules
from rlflow.synthesis.prove import prove

FILE = Path(__file__).resolve().parents[1] / "data" / "false_rules.json"
ENTRIES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["rules"]


def as_rule(entry: dict[str, Any]) -> Rule:
    return Rule(
        name=entry["name"],
        family="false",
        source=tuple(entry["source"]),
        target=tuple(entry["target"]),
        where=tuple(entry.get("where", ())),
        let=tuple(entry.get("let", {}).items()),
        samples=tuple(entry.get("samples", ())),
        numerics=entry.get("numerics", "reassociates"),
    )


def test_there_are_enough_lies() -> None:
    assert len(ENTRIES) >= 150
    assert len({entry["name"] for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["name"])
def test_a_false_rule_is_refused_for_the_right_reason(entry: dict[str, Any]) -> None:
    verdict = prove(as_rule(entry))
    assert not verdict.proved and verdict.record is None
    found = verdict.kind if verdict.status == "refuted" else verdict.status
    assert found in entry["kind"], f"{verdict.status} {verdict.kind}: {verdict.reason}"
    assert entry.get("reason", "") in verdict.reason
    assert re.search(entry.get("shows", ""), verdict.counterexample or ""), verdict.counterexample
    if found in ("value", "shape"):
        assert verdict.example is not None and verdict.counterexample == verdict.example.text()
        _core.Graph.parse(verdict.example.graph)


def test_a_counterexample_is_small() -> None:
    entry = next(e for e in ENTRIES if e["name"] == "transposes-composed-backwards")
    verdict = prove(as_rule(entry))
    assert verdict.example is not None
    graph = _core.Graph.parse(verdict.example.graph)
    assert graph.num_nodes <= 5


def test_a_file_with_a_false_rule_is_refused_with_its_line(tmp_path: Path) -> None:
    entry = next(e for e in ENTRIES if e["name"] == "sub-commutes")
    path = tmp_path / "mine.json"
    rule = {"name": "mine", "source": entry["source"], "target": entry["target"]}
    path.write_text(json.dumps({"format": 1, "family": "mine", "rules": [rule]}, indent=1), encoding="utf-8")
    with pytest.raises(RuleError, match="refuted") as caught:
        load_rules([path])
    assert caught.value.file == str(path) and caught.value.line == 6
