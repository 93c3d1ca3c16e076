"""Parts of a graph: cut out, recognised, solved once, replayed on the whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from words import word_state

from rlflow import price, search
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.search import PartitionedSearch, Problem, Result, StopReason, generator
from rlflow.search.partitioned import _Run
from rlflow.search.resume import solve_resumably
from rlflow.search.subgraphs import cut_out, plan
from rlflow.testing import TOYS
from rlflow.testing.toys import rules_of


def weight(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def stack(blocks: int, width: int = 256) -> str:
    """Blocks with a useless pair of transposes, a valley and a twin each; no two share a weight."""
    lines, here = [f"x: f32[64,{width}] = input"], "x"
    kept = []
    for k in range(blocks):
        lines += [
            f"w{k}: f32[{width},{width}] = const @{weight(f'{k} {width}')} min=-1.0 max=1.0 finite",
            f"t{k} = Transpose{{perm=[1,0]}}({here})",
            f"r{k} = Relu(t{k})",
            f"n{k} = Transpose{{perm=[1,0]}}(r{k})",
            f"p{k} = MatMul(n{k}, w{k})",
            f"q{k} = Tanh(n{k})",
            f"c{k} = Concat{{axis=1}}(p{k}, q{k})",
            f"e{k} = Relu(c{k})",
            f"s{k} = Slice{{starts=[{width}], ends=[{2 * width}], axes=[1], steps=[1]}}(e{k})",
            f"b{k} = MatMul(s{k}, w{k})",
            f"f{k} = Relu(b{k})",
            f"g{k} = Relu(f{k})",
        ]
        here = f"g{k}"
        kept.append(f"p{k}")
    return "\n".join([*lines, f"return {here}, {', '.join(kept)}"])


def problem(blocks: int, budget: str = "20000x") -> Problem:
    from rlflow.rewrite import compiled

    return Problem(Graph.parse(stack(blocks)), compiled(rules_of()), price.make("analytic", fusion="none"), budget)


def solved(blocks: int, spec: str, budget: str = "20000x") -> Result:
    return search.solve(problem(blocks, budget), spec)


def test_a_cut_through_nothing_gives_the_graph_again() -> None:
    graph = Graph.parse(stack(2))
    nodes = [n for n in graph.order() if not graph.is_const(n) and graph.op(n) != "Input"]
    region = cut_out(graph, nodes)
    pricer = price.make("analytic", fusion="none").pricer
    assert region.graph.num_nodes == graph.num_nodes
    assert pricer.price(region.graph) == pytest.approx(pricer.price(graph))
    assert [region.graph.op(place) for place in region.places] == [graph.op(member) for member in region.members]


def test_parts_cover_all_that_costs_and_stay_small() -> None:
    graph = Graph.parse(stack(5))
    parts = plan(graph, price.make("analytic", fusion="none").pricer, 12)
    assert all(len(part) <= 12 for part in parts)
    working = {n for n in graph.order() if not graph.is_const(n) and graph.op(n) != "Input"}
    assert {n for part in parts for n in part} == working


def test_parts_that_differ_in_weights_have_one_key() -> None:
    graph = Graph.parse(stack(6))
    parts = plan(graph, price.make("analytic", fusion="none").pricer, 14)
    keys = [cut_out(graph, part).key for part in parts]
    assert len(set(keys)) < len(keys)
    other = Graph.parse(stack(6, width=128))
    others = [cut_out(other, part).key for part in plan(other, price.make("analytic", fusion="none").pricer, 14)]
    assert not set(keys) & set(others)


def test_twins_are_solved_once_and_the_whole_is_as_good_as_searched_at_once() -> None:
    whole = problem(5)
    root = whole.root()
    run = _Run(PartitionedSearch(size=14), whole, np.random.default_rng(0), root, root)
    run._work_on_parts(search.make("backtracking"))
    assert run.searches < len(plan(root.graph, root.state.pricer, 14))
    end = run.node
    one, two = (solved(blocks, "backtracking", "300x").cost_after_ms for blocks in (1, 2))
    assert end.cost == pytest.approx(one + 4 * (two - one), rel=1e-6)  # the first block differs from the others


@pytest.mark.parametrize("inner", ["backtracking", "beam(width=4;twins=1)", "greedy"])
def test_the_trace_replays(inner: str) -> None:
    result = solved(4, f"partition:inner={inner},size=20")
    assert result.cost_after_ms < result.cost_before_ms
    from rlflow.rewrite import compiled

    again = search.replay(Graph.parse(stack(4)), compiled(rules_of()), [step.to_dict() for step in result.trace or ()])
    assert again.digest == result.best.digest


@pytest.mark.parametrize("expansions", [1, 7, 30, 100])
def test_what_is_spent_on_parts_is_spent(expansions: int) -> None:
    result = solved(3, "partition:size=20", f"{expansions}x")
    assert result.counts.expansions <= expansions
    assert result.cost_after_ms <= result.cost_before_ms


@pytest.mark.parametrize(("inner", "budget"), [("backtracking", "25x"), ("annealing", "40x"), ("greedy", "4x")])
def test_interrupted_and_resumed_it_is_the_search_that_went_on(inner: str, budget: str, tmp_path: Path) -> None:
    strategy = search.make(f"partition:inner={inner},size=14")
    whole = search.solve(problem(5), strategy)
    assert whole.stop_reason is StopReason.CONVERGED
    path = tmp_path / "search.json"
    for interruptions in range(50):  # noqa: B007 - counted below
        result = solve_resumably(problem(5, budget), strategy, path, resume=True, every=0.0, rng=generator)
        if not result.stop_reason.is_budget:
            break
    assert interruptions >= (1 if inner == "greedy" else 3)
    assert (result.best.digest, result.trace, result.counts) == (whole.best.digest, whole.trace, whole.counts)


def test_another_rewriting_system_is_searched_as_a_whole() -> None:
    state = word_state("aabb", ["ab>c", "c>"], {"a": 1.0, "b": 1.0, "c": 1.0})
    words = Problem.over(state, ["ab>c", "c>"], "100x")
    result = search.solve(words, "partition:inner=greedy")
    assert result.cost_after_ms == 0.0
    assert result.stop_reason is StopReason.EXHAUSTED


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("partition:inner=nothing", "no search strategy"),
        ("partition:inner=partition", "cannot be partitioned again"),
        ("partition:size=1", "at least 2"),
        ("portfolio:members=portfolio", "cannot be a member"),
        ("portfolio:members=", "no members"),
        ("portfolio:members=beam(width=0)", "at least 1"),
    ],
)
def test_mistakes_inside_options_are_sentences(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        search.make(spec)


def test_the_core_takes_a_move_by_its_nodes() -> None:
    toy = next(toy for toy in TOYS if toy.name == "mixture")
    from rlflow.rewrite import State

    state = State(toy.graph(), toy.ruleset(), toy.cost_model().pricer)
    moves = state.moves()
    for i in range(len(moves)):
        nodes = moves.touched[moves.touched_begin[i] : moves.touched_begin[i + 1]].tolist()
        found = state.take(int(moves.rule[i]), nodes)
        assert found is not None
        assert (found[0].graph.digest, found[1]) == (moves.digest_hex(i), state.key(i))
        assert state.take(int(moves.rule[i]), [*nodes, nodes[0]]) is None
    assert state.take(0, []) is None
    for rule in (len(toy.ruleset()), 10**6):
        with pytest.raises(UsageError, match=f"There is no rule {rule}"):
            state.take(rule, [])


@pytest.mark.parametrize("name", ["exclusive", "mixture", "packing"])
def test_what_a_rewrite_made_is_read_from_the_ids(name: str) -> None:
    problem = next(toy for toy in TOYS if toy.name == name).problem("60x")
    waiting, seen = [problem.root()], 0
    while waiting and problem.stopped() is None:
        node = waiting.pop()
        for i in problem.moves(node).index[:3]:
            if problem.stopped() is not None:
                break
            child = problem.open(node, i)
            made = child.graph.nodes_from(node.graph.id_limit)
            assert made == sorted(set(child.graph.order()) - set(node.graph.order()))
            working = [n for n in child.graph.order() if not child.graph.is_const(n) and child.graph.op(n) != "Input"]
            assert child.graph.num_working_nodes == child.size == len(working)
            waiting.append(child)
            seen += 1
    assert seen > 5
