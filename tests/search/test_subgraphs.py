"""A part that is cut out of a graph: what it covers, what it hands out, in which order, and what its key says."""

from __future__ import annotations

from typing import Any

import pytest

from rlflow import price
from rlflow.graph import Graph
from rlflow.search.subgraphs import _grow, _in_order, cut_out, plan


def graph(*lines: str, x: str = "f32[4,6]") -> Graph:
    return Graph.parse("\n".join([f"x: {x} = input", *lines]))


def part_of(whole: Graph, *ops: str) -> list[int]:
    return [node for node in whole.order() if whole.op(node) in ops]


def pricer() -> Any:
    return price.make("analytic", fusion="none").pricer


def test_what_the_whole_hands_out_the_part_does_too() -> None:
    whole = graph("p = Relu(x)", "q = Tanh(p)", "return q, p")
    region = cut_out(whole, part_of(whole, "Relu", "Tanh"))
    assert len(region.graph.outputs()) == 2
    inner = graph("p = Relu(x)", "q = Tanh(p)", "r = Neg(p)", "s = Add(q, r)", "return s")
    assert len(cut_out(inner, part_of(inner, "Relu", "Tanh")).graph.outputs()) == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (graph("p = Relu(x)", "return p"), graph("p = Relu(x)", "return p"), True),
        (graph("p = Relu(x)", "return p"), graph("p = Relu(x)", "return p", x="f32[4,5]"), False),
        (graph("p = Relu(x)", "return p"), graph("p = Tanh(x)", "return p"), False),
        (
            graph("c: f32[] = const 2.0", "p = Mul(x, c)", "return p"),
            graph("c: f32[] = const 3.0", "p = Mul(x, c)", "return p"),
            False,  # a single number is read by conditions
        ),
        (
            graph("c: f32[6] = const [1.0,2.0,3.0,4.0,5.0,6.0]", "p = Mul(x, c)", "return p"),
            graph("c: f32[6] = const [1.0,2.0,3.0,4.0,5.0,7.0]", "p = Mul(x, c)", "return p"),
            True,  # weights are not
        ),
    ],
)
def test_parts_with_one_key_are_rewritten_alike(one: Graph, other: Graph, same: bool) -> None:
    keys = [cut_out(whole, part_of(whole, "Relu", "Tanh", "Mul")).key for whole in (one, other)]
    assert (keys[0] == keys[1]) is same


def test_a_part_is_in_the_order_of_its_values() -> None:
    whole = graph("p = Relu(x)", "q = Tanh(x)", "r = Neg(q)", "s = Add(p, r)", "t = Exp(s)", "return t")
    part = part_of(whole, "Relu", "Tanh", "Neg", "Add", "Exp")
    for order in (part[::-1], part[2:] + part[:2], part):
        found = list(_in_order(whole, order))
        assert sorted(found) == sorted(part)
        places = {node: place for place, node in enumerate(found)}
        reads = [(whole.producer(value), node) for node in part for value in whole.node_inputs(node)]
        assert all(places[a] < places[b] for a, b in reads if a in places)


def test_parts_are_small_and_no_anchor_is_searched_twice() -> None:
    lines = [f"p{k + 1} = Relu(p{k})" if k % 2 else f"p{k + 1} = Tanh(p{k})" for k in range(12)]
    whole = graph("p0 = Neg(x)", *lines, "return p12")
    parts = plan(whole, pricer(), 4)
    assert max(map(len, parts)) == 4
    assert len(parts) <= 8
    anchors = [part[0] for part in parts]
    assert not any(anchor in earlier for k, anchor in enumerate(anchors) for earlier in parts[:k])


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4, 5])]
)
def test_a_part_grows_to_its_size_and_no_further_however_many_neighbours_a_node_has(
    size: int, expected: list[int]
) -> None:
    near = {0: [1, 2, 3, 4], 1: [0, 5], 2: [0], 3: [0], 4: [0], 5: [1]}
    assert _grow(0, near, size) == expected
