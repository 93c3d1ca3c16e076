"""What a search may add to the rounding error, in every strategy."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import price, search
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.report.model import rounding_sentence
from rlflow.rewrite import RuleLibrary, load_rules
from rlflow.rewrite.tolerance import Tolerance, read_tolerance
from rlflow.search import Problem, TraceStep
from rlflow.search.result import Visited

_SPEC = importlib.util.spec_from_file_location("words_of_tolerance", Path(__file__).with_name("words.py"))
assert _SPEC is not None
words: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["words_of_tolerance"] = words
assert _SPEC.loader is not None
_SPEC.loader.exec_module(words)

PRICES = {"a": 3.0, "d": 2.0, "z": 0.5, "b": 3.1}
#: Four letters: a step of growth 9 adds 2 of the model's own error.
GROWTHS = {"a>z": 9.0, "a>d": 1.0}
WAYS = ("greedy", "backtracking", "beam", "annealing", "mcts", "genetic", "portfolio", "random")


def problem(limit: float | None, budget: str = "300x") -> Problem:
    state = words.word_state("aaaa", ["a>z", "a>d", "a>b", "b>a"], PRICES)
    tolerance = None if limit is None else Tolerance(limit, GROWTHS)
    return Problem.over(state, [rule.name for rule in state.rules], budget, tolerance=tolerance)


@pytest.mark.parametrize(("given", "limit"), [("strict", 1.0), ("normal", 10.0), ("2.5", 2.5), (1, 1.0), (32.0, 32.0)])
def test_a_tolerance_is_a_word_or_a_number(given: str | float, limit: float) -> None:
    assert read_tolerance(given) == limit


@pytest.mark.parametrize("given", ["loose", "0.5", 0, -3, "nan", math.inf, None])
def test_what_is_no_tolerance_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="expected strict, normal, or a number from 1 on"):
        read_tolerance(given)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("limit", "steps"), [(1.0, 0), (2.9, 0), (3.0, 1), (6.9, 2), (9.0, 4), (None, 4)])
def test_no_strategy_spends_more_than_the_tolerance(way: str, limit: float | None, steps: int) -> None:
    found = search.solve(problem(limit), way)
    spent = sum(step.rule == "a>z" for step in found.trace or ())
    assert spent <= steps
    if way != "random":
        assert spent == steps
        assert found.cost_after_ms == pytest.approx(steps * 0.5 + (4 - steps) * 2.0)


def test_what_is_held_back_is_named() -> None:
    whole = problem(3.0)
    search.solve(whole, "greedy")
    assert whole.frontier.rounding.refused == {"a>z"}
    whole = problem(9.0)
    search.solve(whole, "greedy")
    assert whole.frontier.rounding.refused == set()


def test_a_graph_beyond_the_tolerance_is_reached_and_never_kept() -> None:
    """A trace that was found without a tolerance is replayed; the search goes on as if it were not there."""
    trace = [TraceStep("a>z", (at,)) for at in range(4)]
    whole = problem(3.0)
    node = whole.replayed(trace)
    assert node.cost < whole.best_cost == whole.start_cost
    whole.nominate(node)
    whole.nominate(Visited(None, "f" * 32, 1.0, tuple(trace)))
    assert whole.result(search.StopReason.CONVERGED, "test").nominees == ()
    free = problem(None)
    assert free.replayed(trace).cost == free.best_cost


def test_the_bill_names_the_dearest_rule_first() -> None:
    budget = Tolerance(10.0, {"f4": 32.0, "fold": 2.0, "move": 1.0}).on(Graph.parse(NET))
    assert budget.operators == 4  # products and sums; the views and the constants do not count
    bill = budget.bill(["fold", "move", "f4", "fold"])
    assert bill["spent"] == pytest.approx(1 + 31 / 4 + 2 / 4)
    assert [(row["rule"], row["times"]) for row in bill["rules"]] == [("f4", 1), ("fold", 2)]
    assert budget.allows(bill["spent"]) and not budget.allows(bill["spent"] + 31 / 4)
    sentence = "rounding error at most 9.25 times the model's own, of 10 tolerated (f4 ×1 7.8, fold ×2 0.5)"
    assert rounding_sentence(bill) == sentence
    assert rounding_sentence(bill, most=1).endswith("(f4 ×1 7.8, 1 other 0.5)")


NET = """x: f32[4,8] = input
v: f32[8,8] = const
w: f32[8,8] = const
a = MatMul(x, v)
r = Reshape{shape=[2,2,8]}(a)
b = Relu(r)
c = MatMul(b, w)
t = Transpose{perm=[0,2,1]}(c)
d = Relu(t)
return d
"""


def merged(limit: float, way: str) -> search.Result:
    """Two products over one input, which the rules of ``merge`` make one; all of these are said to grow ninefold."""
    products = (f"w{k}: f32[256,8] = const\ny{k} = MatMul(x, w{k})\n" for k in range(2))
    text = "x: f32[256,256] = input\n" + "".join(products)
    rules = load_rules(families=["merge"])
    assert isinstance(rules, RuleLibrary)
    tolerance = Tolerance(limit, dict.fromkeys(rules, 9.0))
    whole = Problem(Graph.parse(text + "return y0, y1\n"), rules, price.make("analytic"), "60x", tolerance=tolerance)
    return search.solve(whole, way)


@pytest.mark.parametrize("way", ["eqsat", "tensat", "partition", "mixed", "greedy"])
def test_real_graphs_and_those_of_an_e_graph_keep_within_it(way: str) -> None:
    """An e-graph knows no steps: there each rule's own growth has to be within the tolerance."""
    found = merged(4.0, way)
    assert found.cost_after_ms == found.cost_before_ms
    assert merged(9.0, way).cost_after_ms < found.cost_before_ms


def test_a_rule_without_growth_costs_nothing() -> None:
    table = problem(1.0)
    assert np.isin([1, 2], table.moves(table.root()).rule).all()
