"""The idioms of reproduce/idioms: spellings are valid models, none is there twice, rules lead to the fast form."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from rlflow.frontends import load_model
from rlflow.graph import Graph
from rlflow.rewrite import RuleSet, State, load_rules
from rlflow.rulesets import Allowed, writable

HERE = Path(__file__).resolve().parents[2] / "reproduce" / "idioms"
spec = importlib.util.spec_from_file_location("idioms_run", HERE / "run.py")
assert spec is not None and spec.loader is not None
idioms = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = idioms
spec.loader.exec_module(idioms)


@pytest.mark.parametrize("idiom", idioms.IDIOMS, ids=lambda idiom: idiom["name"])
def test_four_spellings_at_least_and_each_is_a_model_of_its_own(idiom: dict) -> None:
    texts = {idioms.model_text(idiom, form) for form in idioms.spellings(idiom).values()}
    assert len(texts) == len(idiom["spellings"]) + len(idioms.UNSEEN[idiom["name"]])
    assert len(idiom["spellings"]) >= 4 and len(idioms.UNSEEN[idiom["name"]]) >= 4
    texts |= {idioms.model_text(idiom, form) for form in idiom["hand"].values()}
    for text in texts:
        onnx.checker.check_model(onnx.parser.parse_model(text), full_check=True)


def test_a_spelling_reaches_its_bar_at_nine_tenths_of_the_gain_by_hand() -> None:
    row = {"exit_status": 0, "by_command": 1.81, "by_hand": 2.0}
    assert idioms.reached(row)
    assert not idioms.reached({**row, "by_command": 1.79})
    assert not idioms.reached({**row, "by_command": 1.0})
    assert not idioms.reached({**row, "exit_status": 1})


SPELLINGS = [(idiom, spelling) for idiom in idioms.IDIOMS for spelling in idioms.spellings(idiom)]
STEPS, GRAPHS = 4, 600


def is_fast(graph: Graph, idiom: dict[str, Any]) -> bool:
    found = Counter(graph.op(node) for node in graph.order() if not graph.is_const(node))
    fits = found.total() <= idiom.get("size", found.total())
    return fits and not Counter(idiom["has"]) - found and not set(idiom["lacks"]) & set(found)


def steps_to_fast(idiom: dict[str, Any], spelling: str) -> int | None:
    """Rewrites from a spelling to a graph that has the operators of the fast form and none of the slow ones."""
    imported = load_model(onnx.parser.parse_model(idioms.model_text(idiom, idioms.spellings(idiom)[spelling])))
    targets = writable(load_rules(families=["targets"]), Allowed(idiom["opset"])).library
    families = ["idiom", "fold", *idiom.get("families", [])]
    found = [*load_rules(families=families).values(), *targets.values()]
    rules = RuleSet([rule.core for rule in found])
    layer, seen = [State(imported.graph, rules)], {imported.graph.digest}
    for depth in range(idiom.get("steps", STEPS) + 1):
        if any(is_fast(state.graph, idiom) for state in layer):
            return depth
        children = [state.child(i) for state in layer for i in range(len(state.moves()))]
        fresh = {graph.digest: graph for graph in children if graph.digest not in seen}
        seen |= set(fresh)
        layer = [State(graph, rules) for graph in list(fresh.values())[:GRAPHS]]
    return None


@pytest.mark.parametrize(("idiom", "spelling"), SPELLINGS, ids=[f"{idiom['name']}/{name}" for idiom, name in SPELLINGS])
def test_rules_lead_to_the_fast_form(idiom: dict[str, Any], spelling: str) -> None:
    steps = steps_to_fast(idiom, spelling)
    assert steps != 0, "it is spelled as the fast form already"
    assert steps is not None, "no rules of the library lead there"
