"""Verdicts, sampling and the cache."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlflow import _core
from rlflow.errors import RuleError
from rlflow.rewrite import Rule, load_rules
from rlflow.synthesis import load_rules as load_proved
from rlflow.synthesis import prove_all, trial
from rlflow.synthesis.domains import Field
from rlflow.synthesis.element_types import DTYPES
from rlflow.synthesis.hints import hints_of, make_hints
from rlflow.synthesis.methods import one_verdict
from rlflow.synthesis.prove import prove
from rlflow.synthesis.sampling import draw_sample
from rlflow.synthesis.terms import literal, mentions, read_term

TRUE = {"name": "mine-assoc", "source": ["(Mul (Mul ?x ?y) ?z)"], "target": ["(Mul ?x (Mul ?y ?z))"]}


def rule(source: str, target: str, *where: str, numerics: str = "reassociates") -> Rule:
    return Rule("r", "t", (source,), (target,), where, numerics=numerics)


def write(path: Path, *rules: dict) -> Path:
    path.write_text(json.dumps({"format": 1, "family": "mine", "rules": list(rules)}), encoding="utf-8")
    return path


def test_a_verdict_is_the_same_every_time() -> None:
    r = rule("(Relu (Transpose{perm=?p} ?x))", "(Transpose{perm=?p} (Relu ?x))", numerics="exact")
    first, second = prove(r, samples=30), prove(r, samples=30)
    assert first.record == second.record and first.proved and first.record.method == "field"
    assert json.dumps(first.record.to_json()) == json.dumps(second.record.to_json())


def test_an_order_is_used_where_the_field_fails() -> None:
    r = rule("(Relu (Mul ?x ?c))", "(Mul (Relu ?x) ?c)", "constant(?c)", "min_of(?c) > 0", "is_float(?x)")
    assert prove(r, samples=40).record.method == "ordered"


def test_a_rule_that_cannot_fire_is_undecided() -> None:
    verdict = prove(rule("(Relu ?x)", "(Sigmoid ?x)", "rank(?x) == 2", "rank(?x) == 3"), samples=5)
    assert verdict.status == "undecided" and "never fired" in verdict.reason


def test_symbolic_extents_are_drawn_too() -> None:
    """True for every plain extent; with a name for it, the condition must stay unknown rather than be guessed."""
    hints = make_hints(["(Add ?x ?y)"], [], {}, [])
    samples = [draw_sample(hints, random.Random(k)) for k in range(300)]
    assert any(s is not None and s.symbols for s in samples)


def test_draws_reach_the_corners() -> None:
    hints = make_hints(["(Conv{..?a} ?x ?w)"], [], {}, [])
    seen: Counter[str] = Counter()
    for k in range(400):
        sample = draw_sample(hints, random.Random(k))
        if sample is None:
            continue
        g = sample.graph
        for n in g.order():
            if g.op(n) == "Conv":
                a = g.attrs(n)
                seen["grouped"] += a["group"] > 1
                seen["strided"] += max(a["strides"]) > 1
                seen["dilated"] += max(a["dilations"]) > 1
                seen["uneven pads"] += len(set(a["pads"])) > 1
                seen[f"rank {len(g.shape(g.node_outputs(n)[0]))}"] += 1
    assert all(
        seen[what] > 3 for what in ("grouped", "strided", "dilated", "uneven pads", "rank 3", "rank 4", "rank 5")
    ), seen


def test_coinciding_variables_are_drawn() -> None:
    hints = make_hints(["(Add (Mul ?x ?y) ?z)"], [], {}, [])
    same = 0
    for k in range(200):
        sample = draw_sample(hints, random.Random(k))
        same += sample is not None and len({v for n in sample.graph.order() for v in sample.graph.node_inputs(n)}) < 4
    assert same > 5


def test_sources_without_a_common_variable_are_drawn_of_two_types() -> None:
    given = {"?x": "f32[A]", "?y": "f32[A]"}
    hints = make_hints(["(Relu ?x)", "(Relu ?y)"], ["same_shape(?x, ?y)"], {}, [given])
    samples = [draw_sample(hints, random.Random(k)) for k in range(200)]
    types = [{s.graph.dtype(v) for v in s.graph.outputs()} for s in samples if s is not None]
    assert sum(len(t) > 1 for t in types) > 5


def test_half_of_the_evidence_lies_beside_the_hints() -> None:
    hinted = {"?x": "f32[A,B]", "?y": "f32[A,B]"}
    r = rule("(Relu (Max ?x ?y))", "(Max (Relu ?x) (Relu ?y))", "same_shape(?x, ?y)")
    verdict = prove(replace(r, samples=(hinted,)), samples=60, check_floats=False, exhaustive=False)
    assert verdict.proved and verdict.wild_fired >= 60


def test_nested_concatenations_fit_in_unequal_parts() -> None:
    hints = make_hints(["(Concat{axis=0} (Concat{axis=1} ?x ?y) (Concat{axis=1} ?w ?v))"], [], {}, [])
    unequal = 0
    for k in range(300):
        sample = draw_sample(hints, random.Random(k))
        if sample is not None:
            g = sample.graph
            widths = [g.shape(g.node_outputs(n)[0])[1] for n in g.inputs()]
            unequal += len(widths) == 4 and widths[0] != widths[2]
    assert unequal > 5


def test_terms_are_read() -> None:
    term = read_term("*(Split{axis=?a, split=[1,2], ..?r} (?f:{Relu,Tanh}{alpha=1.0} ?x...) _):?k")
    assert (
        term.star
        and term.op == "Split"
        and term.attrs == {"axis": "?a", "split": "[1,2]"}
        and term.rest == "?r"
        and term.output == "?k"
    )
    inner = term.children[0]
    assert inner.op_var == "?f" and inner.op_class == ["Relu", "Tanh"] and inner.children[0].kind == "seq"
    assert term.children[1].kind == "absent"
    assert literal("[1, 2]") == [1, 2] and literal("true") == 1 and literal("rank(?x)") is None
    assert mentions(["constant(?x) and not constant(?y)", "not (constant(?z) or rank(?x) == 1)"], "constant") == {"?x"}


def test_a_file_of_ones_own_is_proved_and_remembered(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "mine.json", TRUE)
    with pytest.raises(RuleError, match="not proved here"):
        load_rules([path])
    library = load_proved([path])
    assert library["mine-assoc"].proof is not None
    assert len(list((cache_dir / "proofs").glob("*.json"))) == 1

    def never(*_: object) -> None:
        raise AssertionError("it was proved before")

    monkeypatch.setattr("rlflow.synthesis.cache.prove", never)
    assert load_proved([path])["mine-assoc"].proof == library["mine-assoc"].proof
    both = load_proved([path], families=["linear"])
    assert "mine-assoc" in both and both.families == ["linear", "mine"]


def test_a_record_in_a_foreign_file_is_not_believed(tmp_path: Path) -> None:
    record = next(iter(load_rules().values())).proof.to_json()
    path = write(
        tmp_path / "mine.json", {"name": "lie", "source": ["(Sub ?x ?y)"], "target": ["(Sub ?y ?x)"], "proof": record}
    )
    with pytest.raises(RuleError, match="refuted"):
        load_proved([path])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("source", "target", "where"),
    [
        (
            "(Div (Add ?x ?c) ?c)",
            "(Add (Div ?x ?c) (Literal{value=1, like=?x}))",
            ("min_of(?c) > 0", "same_shape(?x,$0)"),
        ),
        ("(Relu (Mul ?x ?c))", "(Mul (Relu ?x) ?c)", ("min_of(?c) > 0",)),
        ("(Relu (Abs ?x))", "(Abs ?x)", ()),
    ],
)
def test_what_is_false_of_integers_is_refuted_by_every_seed(
    source: str, target: str, where: tuple[str, ...], seed: int
) -> None:
    assert prove(rule(source, target, *where), seed=seed).kind == "value"


@pytest.mark.parametrize(("name", "dtype"), DTYPES.items())
def test_every_element_type_that_a_condition_names_is_drawn(name: str, dtype: int) -> None:
    r = rule("(Not ?x)" if name == "bool" else "(Neg ?x)", "?x", f'dtype(?x) == "{name}"')
    tried = trial.Trial(r, hints_of(r), Field(), 20, 0)
    samples = [tried.draw(tried.hints, dtype=dtype) for _ in range(20)]
    inputs = [(s.graph, s.graph.node_outputs(n)[0]) for s in samples if s for n in s.graph.inputs()]
    assert any(graph.dtype(v) == dtype for graph, v in inputs)


def test_a_fault_that_nobody_foresaw_costs_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    r = rule("(Relu (Transpose{perm=?p} ?x))", "(Transpose{perm=?p} (Relu ?x))")
    whole = trial.Trial.go

    def failing(self: trial.Trial) -> None:
        if self.rule.name == "broken":
            raise AttributeError("no such thing")
        whole(self)

    monkeypatch.setattr(trial.Trial, "go", failing)
    broken, good = prove_all([replace(r, name="broken"), r], samples=20)
    assert good.proved and broken.status == "undecided"
    assert "the prover failed: it did not foresee AttributeError (no such thing) at test_prove.py:" in broken.reason
    assert one_verdict(replace(r, name="broken"), method="float").status == "undecided"


def test_progress_is_told_and_faults_of_the_prover_are_named() -> None:
    told: list[str] = []
    odd = rule("(NonZero ?x)", "(NonZero ?x)")
    verdicts = prove_all([rule("(Neg (Neg ?x))", "?x"), odd], lambda v: told.append(v.status), samples=20)
    assert told == ["proved", "undecided"] and "register a sampler" in verdicts[1].reason


@pytest.mark.parametrize("source", ["(Neg (Neg ?x))", "(NonZero ?x)"])  # proved; a fault of the prover
def test_cycles_of_garbage_are_sought_as_before_afterwards(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, meanwhile = gc.get_threshold(), set()

    def explore(*given: Any, **options: Any) -> Any:
        meanwhile.add(gc.get_threshold())
        return trial.explore(*given, **options)

    monkeypatch.setattr("rlflow.synthesis.prove.explore", explore)
    prove_all([rule(source, "?x" if "Neg" in source else source)], samples=10)
    assert meanwhile != {before} and gc.get_threshold() == before


def test_the_core_is_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that rewrote wrongly would be caught: the child is evaluated, not the rule's text."""
    good = rule("(Neg (Neg ?x))", "?x")
    real = _core.State

    class Wrong:
        def __init__(self, graph: _core.Graph, ruleset: _core.RuleSet) -> None:
            self.state = real(graph, ruleset)
            self.moves, self.stats = self.state.moves, self.state.stats

        def child(self, i: int) -> _core.Graph:
            return _core.Graph.parse(self.state.child(i).text().replace("return x0", "q = Sigmoid(x0)\nreturn q", 1))

    monkeypatch.setattr("rlflow.synthesis.trial._core.State", Wrong)
    assert prove(good, samples=20).status == "refuted"
