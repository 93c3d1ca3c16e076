"""Events name rewrites independently of the order of the others: permutations agree, and parts can be put together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlflow.search import Chronicle, SearchNode
from rlflow.search.events import dependents
from rlflow.testing import TOYS, TinyProblem

NAMED = {toy.name: toy for toy in TOYS}


def walk(chronicle: Chronicle, node: SearchNode, seed: int, steps: int) -> SearchNode:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        table = chronicle.moves(node)
        if len(table) == 0:
            return node
        node = chronicle.open(node, table.index[int(rng.integers(len(table)))])
    return node


@pytest.mark.parametrize("name", ["twins", "two-valleys", "mixture", "packing", "haystack"])
def test_a_history_applies_again_from_the_root(name: str) -> None:
    chronicle = Chronicle(NAMED[name].problem("100000c"))
    for seed in range(5):
        end = walk(chronicle, chronicle.root(), seed, 6)
        again = chronicle.apply(chronicle.root(), chronicle.history(end).events)
        assert again.digest == end.digest
        assert chronicle.history(again).events == chronicle.history(end).events


def test_permutations_have_the_same_events() -> None:
    chronicle = Chronicle(NAMED["twins"].problem("100000c"))
    events = chronicle.history(walk(chronicle, chronicle.root(), 0, 3)).events
    ends = [chronicle.apply(chronicle.root(), order) for order in itertools.permutations(events)]
    assert len({end.digest for end in ends}) == 1
    assert {frozenset(chronicle.history(end).events) for end in ends} == {frozenset(events)}


def test_two_histories_are_joined() -> None:
    chronicle = Chronicle(NAMED["twins"].problem("100000c"))
    root = chronicle.root()
    table = chronicle.moves(root)
    one, other = chronicle.open(root, table.index[0]), chronicle.open(root, table.index[3])
    both = chronicle.apply(one, chronicle.history(other).events)
    assert set(chronicle.history(both).events) == {
        *chronicle.history(one).events,
        *chronicle.history(other).events,
    }
    assert chronicle.apply(both, chronicle.history(other).events) is both  # what is there already is not repeated


def test_what_cannot_be_applied_is_passed_over() -> None:
    chronicle = Chronicle(NAMED["exclusive"].problem("100000c"))
    root = chronicle.root()
    ends = [chronicle.open(root, i) for i in chronicle.moves(root).index]
    first = ends[0]
    for other in ends[1:]:
        joined = chronicle.apply(first, chronicle.history(other).events)
        assert joined.depth in (1, 2)


def test_dependents_follow_what_made_their_nodes() -> None:
    chronicle = Chronicle(NAMED["valley"].problem("100000c"))
    end = walk(chronicle, chronicle.root(), 0, 2)
    first, second = chronicle.history(end).events
    assert dependents((first, second), first) == {first, second}
    assert dependents((first, second), second) == {second}


def test_a_new_graph_has_new_numbers_and_the_same_names() -> None:
    toy: TinyProblem = NAMED["two-valleys"]
    histories = []
    for order in (0, -1):
        chronicle = Chronicle(toy.problem("100000c"))
        node = chronicle.root()
        for _ in range(2):
            table = chronicle.moves(node)
            node = chronicle.open(node, table.index[order])
        while len(table := chronicle.moves(node)):
            node = chronicle.open(node, table.index[0])
        histories.append((node.digest, frozenset(chronicle.history(node).events)))
    assert histories[0] == histories[1]
