"""When a rule fires and what it makes: one small graph for each thing that must be told apart."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rlflow._core import Graph, Rule, RuleSet, State


class Case(NamedTuple):
    """A rule, a graph, and in how many ways the rule fires there."""

    what: str
    rule: Rule
    graph: str
    ways: int


def rule(source: str | list[str], target: str | list[str], *where: str) -> Rule:
    sides = [[side] if isinstance(side, str) else side for side in (source, target)]
    return Rule("r", *sides, list(where))


def graph(*lines: str, x: str = "f32[4,6]") -> str:
    return "\n".join([f"x: {x} = input", *lines])


CLIPS = rule(["(Concat{axis=?a} (?f:unary ?x) (?f ?y))"], ["(?f (Concat{axis=?a} ?x ?y))"])
RELUS = rule("(Add (Relu ?x) (Relu ?x))", "(Mul (Relu ?x) (Relu ?x))")
TURNS = rule("(Transpose{..?t} (Add ?x ?y))", "(Add (Transpose{..?t} ?x) (Transpose{..?t} ?y))")
SLICES = rule("(Add (Slice{..?s} ?x) (Slice{..?s} ?y))", "(Slice{..?s} (Add ?x ?y))", "same_shape(?x, ?y)")
PRODUCTS = rule(
    "*(MatMul ?x ?w...)",
    "(Split{axis=rank($0)-1, split=dims(?w..., 1)} (MatMul ?x (Concat{axis=1} ?w...))):*",
    "constant(?w...)",
)
SECOND = rule("(Relu (Split{..?s} ?x):1)", "(Split{..?s} (Relu ?x)):1")


def clipped(low: str, high: str) -> str:
    return graph(
        "y: f32[4,6] = input",
        "a: f32[] = const 0.0",
        "b: f32[] = const 6.0",
        "c: f32[] = const 1.0",
        f"p = Clip(x, {low})",
        f"q = Clip(y, {high})",
        "z = Concat{axis=0}(p, q)",
        "return z",
    )


def sliced(one: str, two: str) -> str:
    text = "{} = Slice{{starts=[{}], ends=[{}], axes=[1], steps=[1]}}({})"
    first, second = one.split(), two.split()
    return graph(
        "y: f32[4,6] = input",
        text.format("p", *first, "x"),
        text.format("q", *second, "y"),
        "z = Add(p, q)",
        "return z",
    )


def number(value: str) -> str:
    return graph("c: f32[2] = const " + value, "y: f32[4,2] = input", "z = Mul(y, c)", "return z")


def scaled(*where: str) -> Rule:
    return rule("(Mul ?x ?c)", "(Mul (Mul ?x ?c) (Literal{value=1.0, like=?c}))", *where)


CASES = [
    Case("one operator with the same bounds", CLIPS, clipped("a, b", "a, b"), 1),
    Case("one operator with other bounds", CLIPS, clipped("a, b", "a, c"), 0),
    Case("one operator with a bound more", CLIPS, clipped("a, b", "a"), 0),
    Case(
        "one operator, another attribute",
        CLIPS,
        graph(
            "p = LeakyRelu{alpha=0.5}(x)", "q = LeakyRelu{alpha=0.25}(x)", "z = Concat{axis=0}(p, q)", "return z"
        ),
        0,
    ),
    Case(
        "one operator, the same attribute",
        CLIPS,
        graph(
            "t = Neg(x)", "p = LeakyRelu{alpha=0.5}(x)", "q = LeakyRelu{alpha=0.5}(t)",
            "z = Concat{axis=0}(p, q)", "return z",
        ),
        1,
    ),
    Case("a variable that is one value", RELUS, graph("p = Relu(x)", "z = Add(p, p)", "return z"), 1),
    Case(
        "a variable that would be two values",
        RELUS,
        graph("y: f32[4,6] = input", "p = Relu(x)", "q = Relu(y)", "z = Add(p, q)", "return z"),
        0,
    ),
    Case("the same slice of both, either way round", SLICES, sliced("0 3", "0 3"), 2),
    Case("another slice of the other", SLICES, sliced("0 3", "3 6"), 0),
    Case(
        "the second output",
        SECOND,
        graph("p, q = Split{axis=1, split=[3,3]}(x)", "z = Relu(q)", "return z"),
        1,
    ),
    Case("the first output", SECOND, graph("p, q = Split{axis=1, split=[3,3]}(x)", "z = Relu(p)", "return z"), 0),
    Case(
        "operands the other way round",
        rule("(Add (Relu ?x) (Tanh ?y))", "(Sub (Relu ?x) (Neg (Tanh ?y)))"),
        graph("p = Tanh(x)", "q = Relu(x)", "z = Add(p, q)", "return z"),
        1,
    ),
    Case(
        "operands that do not commute",
        rule("(Sub (Relu ?x) (Tanh ?y))", "(Add (Relu ?x) (Neg (Tanh ?y)))"),
        graph("p = Tanh(x)", "q = Relu(x)", "z = Sub(p, q)", "return z"),
        0,
    ),
    Case(
        "a constant attribute",
        rule("(Concat{axis=0} ?a ?b)", "(Concat{axis=1} ?a (Neg ?b))"),
        graph("z = Concat{axis=1}(x, x)", "return z"),
        0,
    ),
    Case(
        "one member is no group",
        PRODUCTS,
        graph("w: f32[6,3] = const", "v: f32[5,3] = const", "z = MatMul(x, w)", "return z"),
        0,
    ),
    Case(
        "a group of one beside another reader",
        PRODUCTS,
        graph("w: f32[6,3] = const", "y: f32[6,3] = input", "p = MatMul(x, w)", "q = MatMul(x, y)", "return p, q"),
        0,
    ),
    Case(
        "two roots are two nodes",
        rule(["(MatMul ?x ?w)", "(MatMul ?x ?v)"], ["(MatMul ?x (Neg ?w))", "(MatMul ?x (Neg ?v))"]),
        graph("w: f32[6,3] = const", "z = MatMul(x, w)", "return z"),
        0,
    ),
    Case("less, and it is", scaled("max_of(?c) < 3.0"), number("[1.0,2.0]"), 1),
    Case("less, and it is equal", scaled("max_of(?c) < 2.0"), number("[1.0,2.0]"), 0),
    Case("at most, and it is equal", scaled("max_of(?c) <= 2.0"), number("[1.0,2.0]"), 1),
    Case("uniform", scaled("uniform(?c)"), number("[2.0,2.0]"), 1),
    Case("not uniform", scaled("uniform(?c)"), number("[1.0,2.0]"), 0),
    Case("an axis from the end", scaled("dim(?x, -1) == 2", "dim(?x, -2) == 4"), number("[1.0,2.0]"), 1),
    Case("a condition that is not known", scaled("dim(?x, 0) == 4"), number("[1.0,2.0]").replace("4,2", "N,2"), 0),
    Case(
        "the graph's output is a reader",
        rule("(Relu (Tanh ?x))", "(Tanh (Relu ?x))", "users(?x) == 1"),
        graph("y = Neg(x)", "p = Tanh(y)", "z = Relu(p)", "return z, y"),
        0,
    ),
    Case(
        "a second output in use",
        rule("(Split{axis=1, split=[3,3]} ?x)", "(Slice{starts=[0], ends=[3], axes=[1], steps=[1]} ?x)"),
        graph("p, q = Split{axis=1, split=[3,3]}(x)", "z = Add(p, q)", "return z"),
        0,
    ),
    Case(
        "a second output that nobody reads",
        rule("(Split{axis=1, split=[3,3]} ?x)", "(Slice{starts=[0], ends=[3], axes=[1], steps=[1]} ?x)"),
        graph("p, q = Split{axis=1, split=[3,3]}(x)", "z = Neg(p)", "return z"),
        1,
    ),
    Case(
        "a target with other extents",
        rule("(Relu ?x)", "(Transpose{perm=[1,0]} (Relu ?x))"),
        graph("z = Relu(x)", "return z"),
        0,
    ),
    Case(
        "roots that depend on each other",
        rule(
            ["(MatMul ?x ?w)", "(MatMul ?y ?w)"],
            [
                "(Split{axis=0, split=[dim(?x,0),dim(?y,0)]} (MatMul (Concat{axis=0} ?x ?y) ?w)):0",
                "(Split{axis=0, split=[dim(?x,0),dim(?y,0)]} (MatMul (Concat{axis=0} ?x ?y) ?w)):1",
            ],
        ),
        graph("w: f32[6,6] = const", "p = MatMul(x, w)", "q = Relu(p)", "z = MatMul(q, w)", "return z"),
        0,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_in_how_many_ways_a_rule_fires(case: Case) -> None:
    state = State(Graph.parse(case.graph), RuleSet([case.rule]))
    assert len(state.moves()) == case.ways


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["p, q = Split{axis=1, split=[3,3]}(x)", "return p"], ["p, q = Split{axis=1, split=[3,3]}(x)", "return q"]),
        (
            ["p, q = Split{axis=1, split=[3,3]}(x)", "z = Sub(p, q)", "return z"],
            ["p, q = Split{axis=1, split=[3,3]}(x)", "z = Sub(q, p)", "return z"],
        ),
        (["z = LeakyRelu{alpha=0.5}(x)", "return z"], ["z = LeakyRelu{alpha=0.25}(x)", "return z"]),
        (["z = Relu(x)", "return z"], ["z = Tanh(x)", "return z"]),
        (["z = Relu(x)", "return z"], ["z = Relu(x)", "return z, x"]),
        (["z = Relu(x)", "return z, x"], ["z = Relu(x)", "return x, z"]),
    ],
)
def test_graphs_that_compute_something_else_have_other_digests(one: list[str], other: list[str]) -> None:
    digests = [Graph.parse(graph(*lines)).digest for lines in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]
