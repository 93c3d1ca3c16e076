"""Boundaries of a statement, twins of attributes, and integers as machines hold them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rlflow.rewrite import Rule
from rlflow.synthesis.boundaries import MOST_EXTENT, boundaries_of
from rlflow.synthesis.drawn_values import choices
from rlflow.synthesis.hints import hints_of, make_hints
from rlflow.synthesis.integers import EDGES, edges_of, wrapped
from rlflow.synthesis.sampling import draw_sample
from rlflow.synthesis.twins import Twins


@pytest.mark.parametrize(
    ("terms", "where", "values", "extents", "ranks"),
    [
        (["(Clip ?x ?a ?b)"], ["value(?b) >= 6"], {6.0, -6.0}, set(), set()),
        (["(Slice{starts=[0], ends=[40]} ?x)"], [], {40.0}, {39, 40, 41}, set()),
        (["(Slice{starts=[0], ends=[20*25]} ?x)"], [], {500.0}, {499, 500, 501}, set()),
        (["?x"], ["rank(?x) >= 6"], {6.0}, set(), {5, 6, 7}),
        (["?x"], ["dim(?x, 0) <= 12 and value(?c) == 100"], {12.0, 100.0}, {11, 12, 13}, set()),
        (["(Cast{to=11} ?x)"], ['dtype(?x) == "f16"'], {11.0}, set(), set()),
        (["(Literal{value=1e6, like=?x})"], [], {1e6, -1e6}, set(), set()),
    ],
)
def test_the_numbers_of_a_statement_are_boundaries(
    terms: list[str], where: list[str], values: set[float], extents: set[int], ranks: set[int]
) -> None:
    found = boundaries_of(terms, where)
    assert values <= set(found.values)
    assert all(any(v < w < v + abs(v) / 64 for w in found.values) for v in values if v)  # and just above
    assert extents <= set(found.extents) and (extents or not set(found.extents) & {499, 500})
    assert ranks <= set(found.ranks) and not found.beyond


@pytest.mark.parametrize(
    ("terms", "where", "counts"),
    [
        (["(Concat{axis=?a} ?xs...)"], ["len(?xs...) > 4 and dim($0, 0) == 9"], {4, 5}),
        (["(Concat{axis=0} *(Mul ?xs... (Literal{value=if($n == 6, 2.0, 1.0), like=?xs...})))"], [], {5, 6, 7}),
        (["if(len(?s) > 5, 1, 8-3)"], [], {4, 5, 6, 7, 8, 9}),  # of a definition, all its numbers
        (["(Slice{axes=[0], starts=[0], ends=[9], steps=[1]} ?x)"], ["rank(?x) > 5"], set()),
    ],
)
def test_the_numbers_of_operands_are_boundaries(terms: list[str], where: list[str], counts: set[int]) -> None:
    assert counts == set(boundaries_of(terms, where).counts)


def test_operands_are_drawn_on_both_sides_of_a_number() -> None:
    rule = Rule("r", "t", ("(Concat{axis=?a} ?xs...)",), ("(Concat{axis=?a} ?xs...)",), ("len(?xs...) > 6",))
    samples = [draw_sample(hints_of(rule), random.Random(k)) for k in range(200)]
    graphs = [s.graph for s in samples if s is not None]
    assert {5, 6, 7} <= {len(g.node_inputs(n)) for g in graphs for n in g.order() if g.op(n) == "Concat"}


@pytest.mark.parametrize(
    ("terms", "where", "beyond"),
    [
        (["(Concat{axis=?a} ?xs...)"], ["len(?xs...) < 40"], "40 operands"),
        (["(Slice{ends=[5000]} ?x)"], [], "5000"),
        (["(Slice{ends=[9223372036854775807]} ?x)"], [], ""),  # to the end
        (["?x"], ["value(?c) >= 1000000"], ""),
        (["?x"], ["numel(?x) < 1000000"], "1000000"),
        (["?x"], ["rank(?x) == 9"], "rank 9"),
    ],
)
def test_what_cannot_be_drawn_is_said(terms: list[str], where: list[str], beyond: str) -> None:
    found = boundaries_of(terms, where).beyond
    assert beyond in found and bool(found) == bool(beyond)


def drawn(rule: Rule, count: int) -> list[str]:
    hints = hints_of(rule)
    samples = [draw_sample(hints, random.Random(k)) for k in range(count)]
    return [s.graph.text() for s in samples if s is not None]


def test_extents_are_drawn_on_both_sides_of_a_boundary() -> None:
    rule = Rule("r", "t", ("(Relu ?x)",), ("?x",), ("dim(?x, 0) <= 40",))
    texts = " ".join(drawn(rule, 600))
    for extent in (39, 40, 41):
        assert f"[{extent}," in texts or f"[{extent}]" in texts
    assert MOST_EXTENT > 1000


def test_hints_add_and_do_not_narrow() -> None:
    rule = Rule(
        "r", "t", ("(Min ?x ?c)",), ("?x",), ("value(?c) >= 50",), samples=({"?x": "f32[4,4]", "?c": "f32[] = 50"},)
    )
    samples = [draw_sample(hints_of(rule), random.Random(k)) for k in range(600)]
    graphs = [s.graph for s in samples if s is not None and not s.symbols]
    shapes = {tuple(g.shape(g.node_outputs(g.inputs()[0])[0])) for g in graphs if g.inputs()}
    square = {s for s in shapes if len(s) == 2 and s[0] == s[1]}
    assert (4, 4) in square and any(s[0] > 4 for s in square)  # 4 became another extent, in both places
    values = {tuple(g.const_values(n) or ()) for g in graphs for n in g.order() if g.op(n) == "Constant"}
    assert (50.0,) in values and any(v and v[0] > 50 for v in values) and any(v and v[0] < 50 for v in values)


def test_attributes_of_two_roots_are_drawn_apart_in_one() -> None:
    rests = {"?a": {"group": 1, "strides": [1, 2], "dilations": [1, 1]}}
    seen: set[tuple[str, ...]] = set()
    for k in range(200):
        twins, mine = Twins(random.Random(k)), {**rests, "?b": {}}
        for name in ("group", "strides", "dilations"):
            if twins.decides("?b", name, mine):
                mine["?b"][name] = twins.value("?b", name, mine)
        if mine["?b"]:
            seen.add(tuple(n for n in mine["?b"] if mine["?b"][n] != rests["?a"][n]))
    assert seen == {(), ("group",), ("strides",), ("dilations",)}


@pytest.mark.parametrize(
    ("dtype", "values", "held"),
    [
        (2, [-1, 255, 256], [255, 255, 0]),
        (3, [127, 128, -129], [127, -128, 127]),
        (6, [2**31 - 1, 2**31, 2**32], [2**31 - 1, -(2**31), 0]),
        (7, [2**62, -(2**62)], [2**62, -(2**62)]),
        (13, [-1, 2**62], [-1, 2**62]),
    ],
)
def test_integers_wrap_at_their_width(dtype: int, values: list[int], held: list[int]) -> None:
    assert wrapped(np.array(values, np.int64), dtype).tolist() == held


def test_edges_are_held_by_their_type() -> None:
    assert edges_of(2)[-1] == 255 and edges_of(3)[0] == -128 and edges_of(1) == []
    assert edges_of(7)[0] == -(2**63) and {2**63 - 1, -(2**63), -1} <= set(edges_of(13))  # patterns of 64 bits
    assert {2**24 + 1, 2**31, 2**53 + 1} <= set(EDGES)


def test_the_plan_reads_the_target_too() -> None:
    hints = make_hints(["(Relu ?x)"], [], {}, (), ["(Slice{axes=[0], starts=[0], ends=[9], steps=[1]} ?x)"])
    assert {8, 9, 10} <= set(hints.boundaries.extents)


@pytest.mark.parametrize("pool", [1, 2, 3, 8, 11, 33])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 500])
def test_many_choices_are_those_of_one_by_one(pool: int, count: int) -> None:
    at_once, each = random.Random(pool), random.Random(pool)
    assert choices(at_once, range(pool), count) == [each.choice(range(pool)) for _ in range(count)]
    assert at_once.getstate() == each.getstate()
