"""Random square-matrix graphs and a small rule set that exercises every construct of the term language."""

from __future__ import annotations

import random

from rlflow._core import Graph, GraphBuilder, Rule, RuleSet

RULES = RuleSet(
    Rule(name, source, target, where)
    for name, source, target, where in [
        (
            "merge",
            ["*(MatMul ?x ?w...)"],
            ["(Split{axis=rank($0)-1, split=dims(?w..., 1)} (MatMul ?x (Concat{axis=1} ?w...))):*"],
            ["constant(?w...)", "rank(?w...) == 2"],
        ),
        (
            "rows",
            ["*(MatMul ?x... ?w)"],
            ["(Split{axis=0, split=dims(?x..., 0)} (MatMul (Concat{axis=0} ?x...) ?w)):*"],
            ["constant(?w)", "rank(?x...) == 2", "independent(?x...)"],
        ),
        (
            "pair",
            ["(MatMul ?x ?w1)", "(MatMul ?x ?w2)"],
            [
                "(Split{axis=1, split=[dim(?w1,1),dim(?w2,1)]} (MatMul ?x (Concat{axis=1} ?w1 ?w2))):0",
                "(Split{axis=1, split=[dim(?w1,1),dim(?w2,1)]} (MatMul ?x (Concat{axis=1} ?w1 ?w2))):1",
            ],
            ["rank(?w1) == 2", "rank(?w2) == 2", "rank(?x) == 2"],
        ),
        ("slice-unary", ["(Slice{..?s} (?f:unary ?x))"], ["(?f (Slice{..?s} ?x))"], []),
        (
            "slice-binary",
            ["(Slice{..?s} (?f:binary ?x ?y))"],
            ["(?f (Slice{..?s} ?x) (Slice{..?s} ?y))"],
            ["same_shape(?x, ?y)"],
        ),
        ("split-unary", ["(Split{..?s} (?f:unary ?x))"], ["*(?f (Split{..?s} ?x):*)"], []),
        ("left", ["(MatMul (MatMul ?a ?b) ?c)"], ["(MatMul ?a (MatMul ?b ?c))"], ["rank(?a) == 2", "rank(?c) == 2"]),
        ("right", ["(MatMul ?a (MatMul ?b ?c))"], ["(MatMul (MatMul ?a ?b) ?c)"], ["rank(?a) == 2", "rank(?c) == 2"]),
        ("sum", ["(Add (MatMul ?x ?a) (MatMul ?x ?b))"], ["(MatMul ?x (Add ?a ?b))"], ["same_shape(?a, ?b)"]),
        ("add", ["(Add (Add ?a ?b) ?c)"], ["(Add ?a (Add ?b ?c))"], ["same_shape(?a, ?b, ?c)"]),
        (
            "transposes",
            ["(Transpose{perm=?p} (Transpose{perm=?q} ?x))"],
            ["(Transpose{perm=compose(?q, ?p)} ?x)"],
            [],
        ),
        (
            "transpose-unary",
            ["(Transpose{perm=?p} (?f:unary ?x))"],
            ["(?f (Transpose{perm=?p} ?x))"],
            ["users($0) == 1"],
        ),
        (
            "rejoin",
            ["(Concat{axis=?a} ?p... (Split{axis=?a, split=?s} ?x):0 (Split{axis=?a, split=?s} ?x):1 ?q...)"],
            ["(Concat{axis=?a} ?p... ?x ?q...)"],
            ["len(?s) == 2"],
        ),
        ("relu", ["(Relu (Relu ?x))"], ["(Relu ?x)"], []),
    ]
)


def random_graph(seed: int) -> Graph:
    """Four to 25 operators over two inputs and three constants, all values f32[n, n] with n = 2 or 4."""
    rng = random.Random(seed)
    n = rng.choice([2, 4])
    builder = GraphBuilder()
    values = [builder.input("x", 1, [n, n]), builder.input("y", 1, [n, n])]
    constants = [builder.constant(1, [n, n], f"{100 * n + k:032x}") for k in range(3)]
    for _ in range(rng.randint(6, 28)):
        x, y = rng.choice(values[-6:]), rng.choice(values)
        kind = rng.random()
        if kind < 0.3:
            value = builder.add("MatMul", {}, [x, rng.choice(constants + values)])
        elif kind < 0.45:
            value = builder.add(rng.choice(["Relu", "Tanh", "Neg"]), {}, [x])
        elif kind < 0.7:
            value = builder.add(rng.choice(["Add", "Mul", "Sub"]), {}, [x, y])
        elif kind < 0.78:
            value = builder.add("Transpose", {"perm": [1, 0]}, [x])
        elif kind < 0.88:
            axis = rng.randint(0, 1)
            first = builder.add("Split", {"axis": axis, "split": [n // 2, n // 2]}, [x], 2)
            order = [first, first + 1] if rng.random() < 0.7 else [first + 1, first]
            value = builder.add("Concat", {"axis": axis}, order)
        else:
            wide = builder.add("Concat", {"axis": 1}, [x, y])
            start = rng.randint(0, n)
            value = builder.add("Slice", {"starts": [start], "ends": [start + n], "axes": [1], "steps": [1]}, [wide])
        values.append(value)
    return builder.finish(values[-1:] + rng.sample(values[2:], min(4, len(values) - 2)))
