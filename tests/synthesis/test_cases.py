"""Deciding by cases: points of polyhedra, and graphs with ordered operators for all values at once."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from rlflow import _core
from rlflow.rewrite import Rule
from rlflow.synthesis.cases import decide
from rlflow.synthesis.polyhedra import Constraint, TooLarge, point_in
from rlflow.synthesis.prove import prove
from rlflow.synthesis.sampling import Sample


def constraint(relation: str, **factors: int) -> Constraint:
    """``one`` is the constant; ``a_b`` the product of a and b."""
    terms = {tuple(sorted(name.split("_"))) if name != "one" else (): Fraction(c) for name, c in factors.items()}
    return Constraint(tuple(sorted(terms.items())), relation)


@pytest.mark.parametrize(
    ("constraints", "exists"),
    [
        ([], True),
        ([constraint("<", a=1), constraint("<", a=-1)], False),
        ([constraint("<=", a=1), constraint("<=", a=-1)], True),
        ([constraint("<", a=1, b=-1), constraint("<", b=1, c=-1), constraint("<", c=1, a=-1)], False),
        ([constraint("<", a=1, b=-1), constraint("<", b=1, c=-1), constraint("<", a=1, c=-1, one=5)], True),
        ([constraint("=", a=1, b=-2), constraint("=", a=1, b=1, one=-3)], True),
        ([constraint("=", a=1), constraint("<", a=1)], False),
        ([constraint("<", a_b=1, one=1)], True),
        ([constraint("<", a_b=1), constraint("<", a_b=-1)], False),
    ],
)
def test_a_point_is_found_where_there_is_one(constraints: list[Constraint], exists: bool) -> None:
    point = point_in(constraints, {"a": Fraction(2), "b": Fraction(1)})
    assert (point is not None) == exists
    assert point is None or all(c.holds(point) for c in constraints)


def test_a_square_is_not_believed_to_be_negative() -> None:
    with pytest.raises(TooLarge):
        point_in([constraint("<", a_a=1)], {})


def test_elimination_agrees_with_z3_on_random_constraints() -> None:
    z3 = pytest.importorskip("z3")
    rng = random.Random(7)
    found = 0
    for _ in range(60):
        rows = [
            constraint(
                rng.choice(["<", "<=", "<=", "="]),
                **{n: rng.randint(-2, 2) or 1 for n in rng.sample("abcd", 2)},
                one=rng.randint(-3, 3),
            )
            for _ in range(rng.randint(2, 6))
        ]
        solver, names = z3.Solver(), {n: z3.Real(n) for n in "abcd"}
        for row in rows:
            left = sum((z3.RealVal(str(c)) * (names[m[0]] if m else 1) for m, c in row.polynomial), z3.RealVal(0))
            solver.add(left < 0 if row.relation == "<" else left <= 0 if row.relation == "<=" else left == 0)
        point = point_in(rows, {})
        assert (point is not None) == (solver.check() == z3.sat)
        assert point is None or all(row.holds(point) for row in rows)
        found += point is not None
    assert 5 < found < 55


def pair(before: str, after: str, count: int = 3) -> tuple[_core.Graph, _core.Graph]:
    inputs = "".join(f"x{k}: f32[] = input\n" for k in range(count))
    return _core.Graph.parse(inputs + before), _core.Graph.parse(inputs + after)


MAX3 = "a: f32[] = Max(x0, x1)\nb: f32[] = Max(a, x2)\nreturn b"
RAMP = (
    "three: f32[] = const 3.0\nz: f32[] = const 0.0\nsix: f32[] = const 6.0\ns: f32[] = Add(x1, x2)\n"
    "b: f32[] = Add(x0, three)\nc: f32[] = Clip(b, z, six)\n"
)
SUM = "r: f32[] = Add(y, s)\nreturn r"
DECISIONS = [
    (MAX3, "a: f32[] = Max(x1, x2)\nb: f32[] = Max(x0, a)\nreturn b", "equal"),
    (MAX3, "a: f32[] = Max(x0, x1)\nb: f32[] = Min(a, x2)\nreturn b", "unequal"),
    ("a: f32[] = Max(x0, x1)\nb: f32[] = Min(x0, x1)\nc: f32[] = Add(a, b)\nd: f32[] = Add(c, x2)\nreturn d",
     "c: f32[] = Add(x0, x1)\nd: f32[] = Add(c, x2)\nreturn d", "equal"),
    ("a: f32[] = Abs(x0)\nb: f32[] = Mul(x1, x2)\nc: f32[] = Add(a, b)\nreturn c",
     "n: f32[] = Neg(x0)\na: f32[] = Max(x0, n)\nb: f32[] = Mul(x2, x1)\nc: f32[] = Add(b, a)\nreturn c", "equal"),
    ("g: bool[] = Greater(x0, x1)\na: f32[] = Where(g, x0, x1)\nb: f32[] = Add(a, x2)\nreturn b",
     "a: f32[] = Max(x0, x1)\nb: f32[] = Add(a, x2)\nreturn b", "equal"),
    ("a: f32[] = Relu(x0)\nb: f32[] = Add(a, x1)\nc: f32[] = Mul(b, x2)\nreturn c",
     "b: f32[] = Add(x0, x1)\na: f32[] = Relu(b)\nc: f32[] = Mul(a, x2)\nreturn c", "unequal"),
    (RAMP + "d: f32[] = Mul(x0, c)\ny: f32[] = Div(d, six)\nr: f32[] = Add(y, s)\nreturn r",
     "s: f32[] = Add(x1, x2)\ny: f32[] = HardSwish(x0)\nr: f32[] = Add(y, s)\nreturn r", "equal"),
    (RAMP + "y: f32[] = Div(c, six)\nr: f32[] = Add(y, s)\nreturn r",
     "s: f32[] = Add(x1, x2)\ny: f32[] = HardSigmoid{alpha=0.16666667, beta=0.5}(x0)\n" + SUM, "equal"),
    (RAMP + "y: f32[] = Div(c, six)\nr: f32[] = Add(y, s)\nreturn r",
     "s: f32[] = Add(x1, x2)\ny: f32[] = HardSigmoid{alpha=0.2, beta=0.5}(x0)\n" + SUM, "unequal"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "status"), DECISIONS)
def test_graphs_are_decided_for_all_values(before: str, after: str, status: str) -> None:
    parent, child = pair(before, after)
    decision = decide(parent, child, Sample(parent, {}), 0)
    assert decision.status == status, decision
    assert (status == "equal") == (not decision.problem)


def _clipped_below(value: float) -> _core.Graph:
    builder = _core.GraphBuilder()
    x, y = (builder.input(f"x{k}", 1, []) for k in range(2))
    bound = builder.constant(1, [], f"{int(value):032x}", [value], None)
    return builder.finish([builder.add("Add", {}, [builder.add("Max", {}, [x, bound], 0), y], 0)])


def test_a_difference_that_no_sample_hits_is_found() -> None:
    """The sides differ where x0 is between 1000 and 1001 only."""
    parent, child = (_clipped_below(value) for value in (1000.0, 1001.0))
    decision = decide(parent, child, Sample(parent, {}), 0)
    assert decision.status == "unequal" and "before" in decision.problem


@pytest.mark.parametrize(
    ("source", "target", "where"),
    [
        ("(Max (Min ?x ?y) (Min ?y ?z) (Min ?x ?z))", "(Min (Max ?x ?y) (Max ?y ?z) (Max ?x ?z))", ()),
        ("(Where (Greater ?x ?y) ?x ?y)", "(Max ?x ?y)", ("is_float(?x)",)),
        ("(Max (Min ?x ?c) ?d)", "(Min (Max ?x ?d) ?c)", ("rank(?c) == 0", "rank(?d) == 0", "value(?d) <= value(?c)")),
    ],
)
def test_what_is_true_of_an_order_is_proved_by_cases(source: str, target: str, where: tuple[str, ...]) -> None:
    verdict = prove(Rule("r", "t", (source,), (target,), where), check_floats=False, exhaustive=False)
    assert verdict.record is not None, verdict.reason
    assert verdict.record.method == "ordered" and verdict.record.cases > 0
    assert "decided by cases" in verdict.record.scope


def test_the_symmetry_of_a_sigmoid_is_proved_and_other_laws_are_not_denied() -> None:
    where = ("rank(?c) == 0", "uniform(?c)", "scalar(?c) == 1")
    true = prove(Rule("r", "t", ("(Sub ?c (Sigmoid ?x))",), ("(Sigmoid (Neg ?x))",), where))
    assert true.proved
    beyond = prove(Rule("r", "t", ("(Mul (Exp ?x) (Exp ?y))",), ("(Exp (Add ?x ?y))",)))
    assert beyond.status == "undecided" and "Exp may be any function" in beyond.reason
    false = prove(Rule("r", "t", ("(Mul (Exp ?x) (Exp ?y))",), ("(Exp (Sub ?x ?y))",)))
    assert false.status == "refuted" and "Exp may be any function" in false.reason
