"""Sleep sets against brute force: nothing is lost, and permutations of one set of rewrites are met once."""

from __future__ import annotations

from collections import Counter

import pytest

from rlflow.rewrite import State
from rlflow.search import Problem, SearchNode, Sleep
from rlflow.testing import TOYS, TinyProblem

SMALL = [toy for toy in TOYS if toy.name not in ("haystack", "long-plateau")]


def closure(toy: TinyProblem) -> set[str]:
    root = State(toy.graph(), toy.ruleset(), toy.cost_model().pricer)
    seen, waiting = {root.graph.digest}, [root]
    while waiting:
        state = waiting.pop()
        moves = state.moves()
        for i in range(len(moves)):
            if moves.digest_hex(i) not in seen:
                seen.add(moves.digest_hex(i))
                waiting.append(state.open(i))
    return seen


def explore(problem: Problem, use_sleep: bool) -> Counter[str]:
    """How often each graph is entered by a depth-first search; a graph is entered again only where less sleeps now."""
    entered: Counter[str] = Counter()
    slept: dict[bytes, Sleep] = {}

    def visit(node: SearchNode, sleep: Sleep) -> None:
        entered[node.digest.hex()] += 1
        known = slept.get(node.digest)
        if known is not None and known.asleep <= sleep.asleep:
            return
        sleep = sleep if known is None else Sleep(sleep.asleep & known.asleep)
        slept[node.digest] = sleep
        table = problem.moves(node, sleep if use_sleep else None)
        explored: dict[tuple[int, bytes], frozenset[tuple[int, bytes]]] = {}
        for k in range(len(table)):
            child = problem.open(node, table.index[k])
            below = sleep.below(problem, table, k, explored) if use_sleep else Sleep()
            explored[table.signatures[k]] = frozenset(problem.moves(child).signatures)
            visit(child, below)

    visit(problem.root(), Sleep())
    return entered


@pytest.mark.parametrize("toy", SMALL, ids=lambda toy: toy.name)
def test_nothing_is_lost(toy: TinyProblem) -> None:
    assert set(explore(toy.problem("1000000c"), use_sleep=True)) == closure(toy)


def test_a_set_of_independent_rewrites_is_met_in_one_order() -> None:
    twins = next(toy for toy in TOYS if toy.name == "twins")
    plain, asleep = (explore(twins.problem("1000000c"), use_sleep=flag) for flag in (False, True))
    assert len(plain) == len(asleep) == 2**6
    assert sum(plain.values()) == 1 + 6 * 2**5  # once from every graph that lacks one of its rewrites
    assert set(asleep.values()) == {1}


def test_neighbours_are_not_independent() -> None:
    """Relu(Relu(Relu)): the two places overlap, so that neither order of the two rewrites is pruned."""
    from rlflow.graph import Graph

    twins = next(toy for toy in TOYS if toy.name == "twins")
    graph = Graph.parse("x: f32[2] = input\na = Relu(x)\nb = Relu(a)\nc = Relu(b)\nreturn c")
    problem = Problem(graph, twins.ruleset(), twins.cost_model(), "100c")
    table = problem.moves(problem.root())
    first, *others = range(len(table))
    explored = {table.signatures[first]: frozenset(table.signatures)}
    assert all(not Sleep().below(problem, table, k, explored).asleep for k in others)


def test_a_sleeping_candidate_is_not_counted() -> None:
    twins = next(toy for toy in TOYS if toy.name == "twins")
    problem = twins.problem("100c")
    table = problem.moves(problem.root())
    counted = problem.meter.candidates
    rest = problem.moves(problem.root(), Sleep(frozenset(table.signatures[:4])))
    assert len(rest) == 2
    assert problem.meter.candidates == counted + 2
