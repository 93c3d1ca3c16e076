"""Laws and what z3 derives from them."""

from __future__ import annotations

import random
import sys

import pytest

from rlflow.errors import ProofError
from rlflow.rewrite import Rule
from rlflow.synthesis.axioms import derive
from rlflow.synthesis.hints import make_hints
from rlflow.synthesis.laws import LAWS
from rlflow.synthesis.prove import prove
from rlflow.synthesis.sampling import draw_sample

LAW_RULES = [rule for law in LAWS for rule in law.rules()]


def rule(source: str, target: str, *where: str) -> Rule:
    return Rule("r", "t", (source,), (target,), where)


@pytest.mark.parametrize("law", LAW_RULES, ids=lambda r: r.name)
def test_every_law_is_validated_by_the_exact_evaluator(law: Rule) -> None:
    verdict = prove(law, samples=60, check_floats=False, exhaustive=False)
    assert verdict.proved, f"{verdict.kind} {verdict.reason}\n{verdict.counterexample}"


def test_laws_have_names_of_their_own() -> None:
    assert len({law.name for law in LAWS}) == len(LAWS) >= 44


def test_the_shape_facts_hold() -> None:
    """Every node of random graphs is asked what the facts say of it."""
    seen = 0
    texts = (
        "(MatMul (Add ?x ?y) ?z)",
        "(Relu (Concat{axis=?k} ?x (Mul ?y ?z)))",
        "(Conv{..?a} (AveragePool{..?p} ?x) ?w)",
    )
    for text in texts:
        hints = make_hints([text], [], {}, [])
        for k in range(150):
            sample = draw_sample(hints, random.Random(k))
            if sample is None or sample.symbols:
                continue
            g = sample.graph
            for n in g.order():
                seen += 1
                shape = g.shape(g.node_outputs(n)[0])
                operands = [g.shape(v) for v in g.node_inputs(n)]
                match g.op(n):
                    case "Relu":
                        assert shape == operands[0]
                    case "Add" | "Mul" if operands[0] == operands[1] or not operands[1]:
                        assert shape == operands[0]
                    case "MatMul" if min(map(len, operands)) >= 2:
                        assert len(shape) == max(map(len, operands))
                        if max(map(len, operands)) == 2:
                            assert shape == [operands[0][0], operands[1][1]]
                    case "Conv":
                        assert len(shape) == len(operands[0]) and shape[1] == operands[1][0]
                    case "Concat" | "AveragePool":
                        assert len(shape) == len(operands[0])
    assert seen > 500


DERIVED = [
    rule("(Add ?z (Add ?z (Add ?x ?y)))", "(Add (Add ?x ?z) (Add ?y ?z))"),
    rule("(Mul ?x (Add ?y (Mul ?z ?y)))", "(Mul ?y (Add ?x (Mul ?x ?z)))"),
    rule("(Relu (Concat{axis=1} (Relu ?x) ?y))", "(Concat{axis=1} (Relu ?x) (Relu ?y))"),
    rule("(MatMul ?x (MatMul ?y ?z))", "(MatMul (MatMul ?x ?y) ?z)", "rank(?x) == 2", "rank(?y) == 2", "rank(?z) == 2"),
    rule(
        "(Add (Conv{..?a} ?x ?w) (Conv{..?a} ?y ?v))",
        "(Conv{..?a} (Concat{axis=1} ?x ?y) (Concat{axis=1} ?w ?v))",
        'attr(?a, "group") == 1',
        "same_shape(?x, ?y)",
        "same_shape(?w, ?v)",
    ),
]


@pytest.mark.parametrize("statement", DERIVED, ids=lambda r: r.source[0])
def test_true_rules_are_derived_and_the_laws_are_named(statement: Rule) -> None:
    pytest.importorskip("z3", reason="z3 is not installed: pip install '.[prove]'")
    answer = derive(statement, seconds=60)
    assert answer.proved and answer.laws and set(answer.laws) <= {law.name for law in LAWS}


NOT_DERIVED = [
    rule("(Sub ?x ?y)", "(Sub ?y ?x)"),
    rule("(Relu (Add ?x ?y))", "(Add (Relu ?x) (Relu ?y))"),
    rule("(Softmax{axis=?a} (Split{axis=?a, split=?s} ?x...):0)", "?x"),
]


@pytest.mark.parametrize("statement", NOT_DERIVED, ids=lambda r: r.source[0])
def test_nothing_false_is_derived(statement: Rule) -> None:
    pytest.importorskip("z3", reason="z3 is not installed: pip install '.[prove]'")
    answer = derive(statement, seconds=30)
    assert not answer.proved and answer.reason


def test_without_z3_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(ProofError, match=r"rlflow\[prove\]"):
        derive(DERIVED[0])


def test_time_runs_out_rather_than_hang() -> None:
    pytest.importorskip("z3", reason="z3 is not installed: pip install '.[prove]'")
    answer = derive(rule("(MatMul ?x (Add ?y (MatMul ?x ?z)))", "(Add ?y (MatMul ?x ?x))"), seconds=0.01)
    assert not answer.proved and "0.01 s" in answer.reason


def test_an_ill_formed_rule_is_not_asked_about() -> None:
    pytest.importorskip("z3", reason="z3 is not installed: pip install '.[prove]'")
    answer = derive(rule("(Relu ?x)", "(Relu ?y)"))
    assert not answer.proved and "?y" in answer.reason
