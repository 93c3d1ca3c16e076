"""What a proof covers: small graphs, degrees, size arguments, floats, several processes."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from rlflow import _core
from rlflow.errors import UsageError
from rlflow.rewrite import ProofRecord, Rule, RuleLibrary, load_rules
from rlflow.synthesis import prove_all
from rlflow.synthesis.degree import degree_of
from rlflow.synthesis.exhaustive import small_graphs
from rlflow.synthesis.floats import LANES, _within, compare
from rlflow.synthesis.hints import make_hints
from rlflow.synthesis.pool import dearest_first, run_all
from rlflow.synthesis.prove import prove
from rlflow.synthesis.repair import repair_or_say
from rlflow.synthesis.trial import explore


def rule(source: str, target: str, *where: str, name: str = "r", numerics: str = "reassociates") -> Rule:
    return Rule(name, "t", (source,), (target,), where, numerics=numerics)


@pytest.mark.parametrize(
    ("source", "where", "rank", "count"),
    [
        ("(Sigmoid ?x)", (), 2, 4),  # [1,1] [1,2] [2,1] [2,2]
        ("(Sigmoid ?x)", ("rank(?x) == 1",), 2, 0),
        ("(Add ?x ?y)", (), 1, 8),  # both of rank 1, or one of them and a scalar
        ("(Add ?x ?y)", ("same_shape(?x, ?y)",), 1, 2),
        ("(Transpose{perm=?p} ?x)", (), 2, 8),
    ],
)
def test_small_graphs_are_all_there_once(source: str, where: tuple[str, ...], rank: int, count: int) -> None:
    found = [s.graph.text() for s in small_graphs(rule(source, "?x", *where), rank) if s is not None]
    assert len(found) == len(set(found)) == count


@pytest.mark.parametrize("number", ["-1", "3", "0.5"])
def test_constants_of_one_number_hold_it_in_small_graphs(number: str) -> None:
    """Whatever graphs with other numbers the process counted through before."""
    found = [s.graph for s in small_graphs(rule("(Mul ?x ?c)", "?x", f"scalar(?c) == {number}"), 1) if s is not None]
    assert len(found) == 8
    for graph in found:
        values = [graph.const_values(n) for n in graph.order() if graph.op(n) == "Constant"]
        assert values and all(set(one) == {float(number)} for one in values)


def test_a_window_that_sees_only_padding_is_found_by_counting() -> None:
    """The random samples of this rule never drew one."""
    lie = rule("(AveragePool{..?p} (Add ?x ?c))", "(Add (AveragePool{..?p} ?x) ?c)", "constant(?c)", "rank(?c) == 0",
               'attr(?p, "count_include_pad") == 0')  # fmt: skip
    verdict = prove(lie, check_floats=False)
    assert verdict.kind == "value" and verdict.example.values and verdict.example.before != verdict.example.after


def test_degrees() -> None:
    text = "x: f32[2,3] = input\ny: f32[3,2] = input\nm: f32[2,2] = MatMul(x, y)\ns: f32[2,2] = Mul(m, m)\nreturn s"
    assert degree_of(_core.Graph.parse(text)) == 4
    text = "x: f32[2] = input\ny: f32[2] = input\nd: f32[2] = Div(x, y)\ns: f32[2] = Add(d, d)\nreturn s"
    assert degree_of(_core.Graph.parse(text)) == 4  # (xy + xy) / y^2, before anything cancels
    text = "x: f32[2] = input\nd: f32[2] = Sigmoid(x)\nreturn d"
    assert degree_of(_core.Graph.parse(text)) == 1


def test_the_record_says_its_scope() -> None:
    record = prove(rule("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))"), samples=30).record
    assert record.fired >= 30
    assert record.scope.startswith(f"field: p = 2^61-1, degree <= 2, {record.fired} samples over")
    assert record.small > 50 and record.small_rank >= 1 and record.size.startswith("pointwise")
    assert ProofRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    numbers = prove(rule("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))", "numel(?x) < 9"), samples=30).record
    assert not numbers.size


def test_a_counterexample_has_small_whole_numbers() -> None:
    verdict = prove(rule("(MatMul ?x ?y)", "(MatMul ?y ?x)", "same_shape(?x, ?y)", "rank(?x) == 2"), samples=30)
    example = verdict.example
    numbers = str(list(example.values.values())).replace("'", "").replace("[", "").replace("]", "").split(", ")
    assert all(abs(int(n)) <= 1 for n in numbers) and len(numbers) <= 8
    assert _core.Graph.parse(example.graph).num_nodes == 3
    assert example.before != example.after and "before," in verdict.counterexample


def test_leaving_a_domain_is_caught_in_floats() -> None:
    """log(x*y) with both negative; the exact evaluator takes Log for an arbitrary function, so ask floats alone."""
    lie = rule("(Log (Mul ?x ?y))", "(Add (Log ?x) (Log ?y))", "same_shape(?x, ?y)")
    good = rule("(Log (Mul ?x ?y))", "(Log (Mul ?y ?x))", "same_shape(?x, ?y)")
    samples = explore(good, make_hints(good.source, good.where, {}, ()), 30, 0).concrete
    assert compare(good, samples).kind == ""
    report = compare(lie, samples)
    assert report.kind == "float" and "domain" in report.problem


def test_what_is_bad_in_float32_must_say_so() -> None:
    cancels = "(Sub (Add ?x (Literal{value=65536.0, like=?x})) (Literal{value=65536.0, like=?x}))"
    bad = rule("(Neg (Neg ?x))", cancels, "is_float(?x)")
    verdict = prove(bad, samples=30)
    assert verdict.kind == "numerics" and "float32" in verdict.reason
    declared = prove(rule("(Neg (Neg ?x))", cancels, "is_float(?x)", numerics="unstable"), samples=30)
    assert declared.proved and declared.record.growth >= 1024


def test_classes_of_rounding_can_be_switched_off() -> None:
    library = load_rules()
    exact = library.with_numerics("exact")
    assert 0 < len(exact) < len(library) and {r.numerics for r in exact.values()} == {"exact"}
    assert len(library.with_numerics("unstable")) == len(library)
    with pytest.raises(UsageError, match="reassociates"):
        library.with_numerics("sloppy")
    marked = Rule("derived", "t", ("(Relu ?x)",), ("?x",), derived=("a", "b"))
    assert list(RuleLibrary([marked, rule("(Neg (Neg ?x))", "?x")]).basis()) == ["r"]


RULES = [
    rule("(Neg (Neg ?x))", "?x", name="true"),
    rule("(Sub ?x ?y)", "(Sub ?y ?x)", name="false"),
    rule("(Relu (Relu ?x))", "(Relu ?x)", name="true-too"),
]


def test_processes_change_nothing_and_the_order_stays() -> None:
    told: list[str] = []
    one = prove_all(RULES, samples=20)
    two = prove_all(RULES, lambda v: told.append(v.rule), samples=20, jobs=2)
    assert one == two and sorted(told) == sorted(r.name for r in RULES)


def test_rules_of_which_more_is_written_are_begun_first() -> None:
    long = Rule("long", "t", ("(Relu (Relu ?x))",), ("(Relu ?x)",), samples=({"?x": "f32[A,B,C]"},))
    assert dearest_first([*RULES, long]) == [3, 2, 1, 0]
    assert dearest_first([RULES[0], RULES[0]]) == [0, 1]


def test_repairs_come_back_from_processes() -> None:
    task = functools.partial(repair_or_say, samples=20, check_floats=False)
    answers = run_all(task, RULES[::2], jobs=2)
    assert [a.status for a in answers] == ["proved", "proved"] and answers[0].repaired.core.digest == RULES[0].digest


def _interrupting(r: Rule) -> str:
    if r.name == "false":
        raise KeyboardInterrupt  # what Ctrl-C becomes
    return r.name


def test_an_interrupt_keeps_what_is_known() -> None:
    assert run_all(_interrupting, RULES) == ["true"]


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("(Transpose{perm=?p} (Sinh ?x))", "(Sinh (Transpose{perm=?p} ?x))", ""),
        ("(Transpose{perm=?p} (Neg ?x))", "(Neg (Transpose{perm=?p} ?x))", ""),
        ("(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))", "numerics"),
        ("(Exp (Add (Add ?x ?y) ?z))", "(Exp (Add ?x (Add ?y ?z)))", "numerics"),
        ("(Mul (Sigmoid ?x) (Add ?y ?z))", "(Add (Mul (Sigmoid ?x) ?y) (Mul (Sigmoid ?x) ?z))", "numerics"),
    ],
)
def test_exact_is_bit_for_bit_but_for_what_lanes_do(source: str, target: str, kind: str) -> None:
    assert (prove(rule(source, target, numerics="exact"), samples=40).kind or "") == kind


def test_what_a_vector_loop_may_do_to_an_element() -> None:
    one = np.float32(1.5)
    pairs = [(one, one), (one, one + 4 * np.spacing(one)), (np.float32(np.nan), np.float32(np.nan))]
    assert all(_within(np.array([a]), np.array([b]), LANES) for a, b in pairs)
    pairs = [(one, one + 5 * np.spacing(one)), (one, np.float32(np.inf)), (one, np.float32(np.nan))]
    assert not any(_within(np.array([a]), np.array([b]), LANES) for a, b in pairs)
    assert not _within(np.array([one]), np.array([one + np.spacing(one)]), 0)
