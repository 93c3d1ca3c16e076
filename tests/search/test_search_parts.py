"""The steps that searches are made of, each on a problem small enough to be followed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from words import word_state

from rlflow import price, search
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.rewrite import Rule, compiled
from rlflow.search import Budget, Problem
from rlflow.search.annealing import Annealing, draw_by_cost
from rlflow.search.descent import Descent, take_round
from rlflow.search.greedy import improving
from rlflow.search.mcts import Mcts, _Tree
from rlflow.search.trace import read_trace, replay
from rlflow.search.tree import Vertex, back_up, puct
from rlflow.testing import TINY

PRICES = {letter: float(price) for price, letter in enumerate("abcdefghij", 1)}


def problem(text: str, rules: str, budget: str = "2000x") -> Problem:
    """A problem over words: ``rules`` are ``left>right``, separated by spaces; a letter costs its place in abc."""
    state = word_state(text, rules.split(), PRICES)
    return Problem.over(state, [rule.name for rule in state.rules], budget)


def solved(text: str, rules: str, spec: str) -> float:
    return search.solve(problem(text, rules), spec).cost_after_ms


# --- ways down --------------------------------------------------------------------------------------------------------


def test_a_round_takes_what_touches_disjoint_nodes_and_gains() -> None:
    """``ee`` may become ``a`` in two places that share a letter: one of them is taken, and the other is remembered."""
    whole = problem("eee", "ee>a")
    table = whole.moves(whole.root())
    end, taken = take_round(whole, table, range(len(table)))
    assert end is not None
    assert [end.cost, list(taken.gains.values())] == [6.0, [9.0]]
    assert [(k, regret) for k, regret in taken.passed_over()] == [(1, 9.0)]


def test_rewrites_that_share_a_node_are_not_taken_together() -> None:
    """Both match the Relu and leave it where it is, so that the second would still apply after the first."""
    rules = [Rule(op, "t", (f"({op} (Relu ?x))",), ("(Relu ?x)",)) for op in ("Tanh", "Exp")]
    lines = ["x: f32[64,64] = input", "r = Relu(x)", "p = Tanh(r)", "q = Exp(r)", "return p, q"]
    whole = Problem(Graph.parse("\n".join(lines)), compiled(rules), price.make("analytic", fusion="none"), "100x")
    table = whole.moves(whole.root())
    assert len(table) == 2
    end, taken = take_round(whole, table, range(len(table)))
    assert end is not None
    assert len(taken.gains) == 1


def test_a_round_goes_uphill_nowhere() -> None:
    whole = problem("ad", "a>b d>c")
    table = whole.moves(whole.root())
    end, taken = take_round(whole, table, range(len(table)))
    assert end is not None
    assert end.cost == 4.0
    assert len(taken.gains) == 1


def test_a_descent_ends_where_no_rewrite_gains() -> None:
    end, table, rounds = Descent((whole := problem("jjj", "j>e e>b b>c")).root()).finish(whole)
    assert end.cost == 6.0
    assert len(table) == 3
    assert len(rounds) == 2


def test_the_cheapest_child_comes_first_and_neutral_ones_only_with_fewer_nodes() -> None:
    whole = problem("e", "e>d e>b e>c e>ad e>h")
    table = whole.moves(whole.root())
    assert [float(table.cost[k]) for k in improving(whole, table)] == [2.0, 3.0, 4.0]
    shorter = problem("bc", "bc>e")
    assert len(improving(shorter, shorter.moves(shorter.root()))) == 1
    twin = problem("ab", "ab>ba")
    assert improving(twin, twin.moves(twin.root())) == []


# --- beams and best first ---------------------------------------------------------------------------------------------


def opened(text: str, rules: str, spec: str) -> tuple[int, float]:
    """How many graphs a search opened, and the cost that it found."""
    result = search.solve(problem(text, rules), spec)
    return result.counts.expansions, result.cost_after_ms


@pytest.mark.parametrize(
    ("spec", "text", "rules", "cost"),
    [
        ("beam:width=1,slack=2,twins=9", "e", "e>f e>g g>a f>j", 5.0),  # the one member of the layer is the wrong one
        ("beam:width=2,slack=2", "e", "e>f e>g g>a f>j", 1.0),
        ("beam:width=9,slack=1.1", "e", "e>g g>a", 5.0),  # the way leads over a graph that is too dear
        ("beam:width=9,slack=1.5", "e", "e>g g>a", 1.0),
        ("backtracking:alpha=1.1", "e", "e>g g>a", 5.0),
        ("backtracking:alpha=1.5", "e", "e>g g>a", 1.0),
        ("backtracking:alpha=1.5,chain=1", "e", "e>f f>g g>a", 5.0),
        ("backtracking:alpha=1.5,chain=3", "e", "e>f f>g g>a", 1.0),
        ("greedy", "e", "e>d d>c e>b b>j", 2.0),
    ],
)
def test_how_far_a_search_goes(spec: str, text: str, rules: str, cost: float) -> None:
    assert solved(text, rules, spec) == cost


def test_a_beam_takes_few_of_the_same_kind() -> None:
    """Three twins of one rewrite fill a layer of three; with one of each kind there is room for the other rule."""
    crowded = problem("eeeh", "e>f h>j j>a")
    assert search.solve(crowded, "beam:width=3,twins=1,slack=1.3,macro=no").cost_after_ms == 16.0
    assert solved("eeeh", "e>f h>j j>a", "beam:width=3,twins=3,slack=1.3,macro=no,patience=1") == 23.0


# --- annealing --------------------------------------------------------------------------------------------------------


def test_cheap_ones_are_drawn_more_often_and_all_when_it_is_hot() -> None:
    rng = np.random.default_rng(0)
    costs = np.array([3.0, 1.0, 2.0])
    cold, hot = (
        np.bincount([draw_by_cost(rng, costs, temperature) for _ in range(3000)], minlength=3) / 3000
        for temperature in (1.0, 1e6)
    )
    weights = np.exp(-costs)
    np.testing.assert_allclose(cold, weights / weights.sum(), atol=0.03)
    np.testing.assert_allclose(hot, 1 / 3, atol=0.03)


def test_a_cycle_cools_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int]] = []
    drawn = Annealing._draw

    def watched(self: Annealing, table: Any, rng: Any, temperature: float, seen: set[bytes], ceiling: float) -> Any:
        k = drawn(self, table, rng, temperature, seen, ceiling)
        asked.append((temperature, len(seen)))
        assert k is None or table.digests[list(table.index).index(k)] not in seen
        return k

    monkeypatch.setattr(Annealing, "_draw", watched)
    whole = problem("eeee", "e>f f>e")
    options = Annealing(hot=4.0, cold=0.5, steps=4, slack=9.0)
    options._cycle(whole, np.random.default_rng(0), whole.root(), 4, 2.0)
    assert [round(temperature, 6) for temperature, _ in asked] == [8.0, 4.0, 2.0, 1.0]
    assert [count for _, count in asked] == [1, 2, 3, 4]


def test_a_cycle_ends_where_only_known_graphs_are_left() -> None:
    whole = problem("e", "e>f f>e")
    before = whole.meter.expansions
    Annealing(hot=4.0, cold=0.5, steps=6, slack=9.0)._cycle(whole, np.random.default_rng(0), whole.root(), 6, 2.0)
    assert whole.meter.expansions - before <= 3  # out, and the way down from there


# --- trees ------------------------------------------------------------------------------------------------------------


def vertex(edges: int) -> Vertex:
    zeros = np.zeros(edges)
    return Vertex(
        np.full(edges, 1 / edges), zeros.copy(), zeros.copy(), np.zeros(edges, dtype=int), np.ones(edges, dtype=bool)
    )


def test_what_was_found_is_handed_up() -> None:
    root, below = vertex(2), vertex(1)
    root.children[0] = below
    for gain in (0.5, 0.25):
        below.open_[:] = True
        back_up([(root, 0)], gain)
    assert (root.best[0], root.total[0], root.visits[0]) == (0.5, 0.75, 2)
    assert root.open_.tolist() == [True, True]
    back_up([(root, 0), (below, 0)], 0.0)  # behind the last edge of `below` is nothing more
    assert root.open_.tolist() == [False, True]


def test_exploration_wears_off() -> None:
    found = puct(np.array([0.5, 0.5]), np.array([3, 0]))
    np.testing.assert_allclose(found, [0.5 * 2 / 4, 0.5 * 2])


def tree(text: str, rules: str, target: float, **options: Any) -> Any:
    whole = problem(text, rules)
    return _Tree(Mcts(**options), whole, np.random.default_rng(0), whole.root(), target, 1.0, {})


@pytest.mark.parametrize(("mix", "first"), [(1.0, 0), (0.0, 1)])
def test_an_edge_is_worth_its_best_or_its_mean(mix: float, first: int) -> None:
    grown = tree("ee", "e>f e>g", 0.0, mix=mix, c=0.0, slack=9.0)
    root = grown.root
    root.visits[:], root.open_[:] = 4, True
    root.total[:], root.best[:] = 0.1, 0.05
    root.best[0], root.total[0] = 0.9, 0.0
    root.best[1], root.total[1] = 0.3, 1.0
    grown.low, grown.high = 0.0, 1.0
    scores = grown._score(root) if hasattr(grown, "_score") else None
    assert scores is not None
    assert int(np.argmax(scores)) == first


def test_a_tree_is_no_deeper_than_it_may_be() -> None:
    grown = tree("eeee", "e>f f>g g>h", 0.0, depth=2, slack=9.0, vertices=500)
    assert grown.grow() is None
    deepest = max(one.depth for one in _vertices(grown.root))
    assert deepest == 1
    assert grown.cut


def _vertices(root: Any) -> list[Any]:
    return [root, *(below for child in root.children.values() for below in _vertices(child))]


def test_a_tree_ends_at_a_better_graph_only() -> None:
    assert tree("e", "e>f f>e", 5.0, slack=9.0).grow() is None
    found = tree("e", "e>f f>a", 5.0, slack=9.0).grow()
    assert found is not None
    assert found.cost == 1.0


# --- budgets and traces -----------------------------------------------------------------------------------------------


def test_a_budget_on_top_of_what_was_spent() -> None:
    spent = {"seconds": 2.5, "candidates": 7, "expansions": 3, "measurements": 1}
    assert Budget.parse("10s,5x").plus(spent) == Budget(seconds=12.5, expansions=8)


def test_a_trace_is_read_in_order_and_replays_to_its_end() -> None:
    assert read_trace([{"rule": "r", "match": [3, 1, 2]}, ("s", [2, 0])])[0].match == (3, 1, 2)
    tiny = next(one for one in TINY if one.name == "valley")
    result = search.solve(tiny.problem(), "backtracking")
    assert len(result.best.trace) > 1
    assert replay(tiny.graph(), tiny.ruleset(), result.best.trace).digest == result.best.graph.digest
    with pytest.raises(UsageError, match="Step 1 of the trace"):
        replay(tiny.graph(), tiny.ruleset(), [SimpleNamespace()])  # type: ignore[list-item]
