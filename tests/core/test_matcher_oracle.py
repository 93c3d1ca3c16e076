"""The compiled matcher against a brute-force one of a few lines: same nodes, same bindings, on random graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core_graphs import random_graph

from rlflow._core import Graph, Rule, RuleSet, State

COMMUTATIVE = {"Add", "Mul"}
#: A pattern is a variable's name or (operator, child, child).
PATTERNS = [
    ("Relu", ("Add", "?a", "?b")),
    ("Add", ("Add", "?a", "?b"), "?c"),
    ("Add", ("MatMul", "?x", "?a"), ("MatMul", "?x", "?b")),
    ("Mul", "?a", "?a"),
    ("Sub", ("Add", "?a", "?b"), "?c"),
    ("MatMul", ("MatMul", "?a", "?b"), "?c"),
    ("Add", "?a", ("MatMul", "?a", "?b")),
    ("Mul", ("Mul", "?a", "?b"), "?a"),
]


def brute_force(graph: Graph, pattern: tuple | str, value: int, bound: dict[str, int]) -> Iterator[dict[str, int]]:
    """Every binding under which ``pattern`` stands at ``value``."""
    if isinstance(pattern, str):
        if bound.setdefault(pattern, value) == value:
            yield bound
        return
    node = graph.producer(value)
    operator, *children = pattern
    operands = graph.node_inputs(node)
    if graph.op(node) != operator or graph.output_index(value) or len(operands) != len(children):
        return
    orders = [operands]
    if operator in COMMUTATIVE and operands[0] != operands[1]:
        orders.append(operands[::-1])
    for order in orders:
        partial = [dict(bound)]
        for child, operand in zip(children, order, strict=True):
            partial = [dict(more) for b in partial for more in brute_force(graph, child, operand, dict(b))]
        yield from partial


def term(pattern: tuple | str) -> str:
    return pattern if isinstance(pattern, str) else f"({' '.join([pattern[0], *map(term, pattern[1:])])})"


def variables(pattern: tuple | str) -> list[str]:
    if isinstance(pattern, str):
        return [pattern]
    return list(dict.fromkeys(v for child in pattern[1:] for v in variables(child)))


@pytest.mark.parametrize("pattern", PATTERNS, ids=term)
def test_same_matches_as_brute_force(pattern: tuple) -> None:
    names = variables(pattern)
    # The target keeps the type and shows every binding: the child's digest tells matches apart.
    chain = names[0]
    for name in names[1:]:
        chain = f"(Sub {chain} {name})"
    rules = RuleSet([Rule("oracle", [term(pattern)], [f"(Abs {chain})"])])
    found = 0
    for seed in range(400):
        graph = random_graph(seed)
        state = State(graph, rules)
        moves = state.moves()
        expected = {
            (graph.position(n), tuple(b[v] for v in names))
            for n in graph.order()
            if len(graph.node_outputs(n)) == 1
            for b in brute_force(graph, pattern, graph.node_outputs(n)[0], {})
        }
        values = [v for n in graph.order() for v in graph.node_outputs(n)]
        ordinal = {graph.position(graph.producer(v)) * 64 + graph.output_index(v): v for v in values}
        actual = {(state.key(i)[0], tuple(ordinal[o] for o in state.key(i)[-len(names) :])) for i in range(len(moves))}
        assert actual == expected, f"seed {seed}\n{graph.text()}"
        found += len(expected)
    assert found > 2, "the pattern never occurs: the comparison says nothing"
