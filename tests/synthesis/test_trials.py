"""What a proof needs: enough evidence, equal types, shapes and every element, a record of this very statement."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow.errors import RuleError
from rlflow.rewrite import ProofRecord, Rule, all_shipped
from rlflow.rewrite.library import checked
from rlflow.synthesis import cache
from rlflow.synthesis import prove as prover
from rlflow.synthesis.prove import prove
from rlflow.synthesis.trial import Trial, difference

TWICE = Rule("relu-twice", "t", ("(Relu (Relu ?x))",), ("(Relu ?x)",))


@pytest.mark.parametrize("fired", [0, 1, 49])
def test_fewer_firings_than_wanted_prove_nothing(fired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def explored(rule: Rule, hints: Any, samples: int, seed: int, **options: Any) -> Any:
        return SimpleNamespace(
            fired=fired, wild=0, tries=500, failures=[], same=0, samples=samples, needs_order=False, unsupported=""
        )

    monkeypatch.setattr(prover, "explore", explored)
    found = prove(TWICE, samples=50)
    assert found.status == "undecided"
    assert found.record is None


@pytest.mark.parametrize(
    ("source", "target", "status", "kind"),
    [
        ("(Relu (Relu ?x))", "(Relu ?x)", "proved", ""),
        ("(Relu ?x)", "(Relu (Relu ?x))", "refuted", "loop"),
        ("(Neg (Neg ?x))", "(Neg (Neg (Neg (Neg ?x))))", "refuted", "loop"),
        ("(Relu ?x)", "(Tanh ?x)", "refuted", "value"),
    ],
)
def test_the_kinds_of_verdicts(source: str, target: str, status: str, kind: str) -> None:
    found = prove(Rule("r", "t", (source,), (target,)), samples=20, exhaustive=False)
    assert (found.status, found.kind or "") == (status, kind)


class OneOutput:
    """A graph of one output of a type."""

    def __init__(self, dtype: int) -> None:
        self.type = dtype

    def outputs(self) -> list[int]:
        return [0]

    def dtype(self, value: int) -> int:
        return self.type

    def type_text(self, value: int) -> str:
        return str(self.type)


A = np.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("dtypes", "after", "kind"),
    [
        ((1, 1), A, None),
        ((1, 11), A, "shape"),
        ((1, 1), A.reshape(3, 2), "shape"),
        ((1, 1), A[:, :1], "shape"),
        ((1, 1), np.where(A == 5, 9, A), "value"),
        ((1, 1), A + 1, "value"),
    ],
)
def test_both_sides_are_equal_in_type_shape_and_every_element(
    dtypes: tuple[int, int], after: np.ndarray, kind: str | None
) -> None:
    one, other = (OneOutput(dtype) for dtype in dtypes)
    found = difference(one, other, [A], [after])  # type: ignore[arg-type]
    assert (None if found is None else found[0]) == kind


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ("the target has the type f32[2,3], the source f32[3,2]", "bad"),
        ("Concat of the target would have 0 operands", "bad"),
        ("the child is the same graph", "same"),
    ],
)
def test_a_target_that_cannot_be_built_speaks_against_the_rule(refusal: str, kind: str) -> None:
    sample = SimpleNamespace(symbols={}, graph=None)
    found = Trial._refused(SimpleNamespace(), sample, {"last_refusal": refusal})  # type: ignore[arg-type]
    assert found.kind == kind


def test_a_proof_of_another_statement_is_none(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is kept is believed only as long as it fits the rule, the operators and the prover."""
    record = cache.prove_cached(TWICE)
    proved: list[Rule] = []
    again = cache.prove
    monkeypatch.setattr(cache, "prove", lambda rule: (proved.append(rule), again(rule))[1])
    assert cache.prove_cached(TWICE) == record
    assert not proved
    monkeypatch.setattr(ProofRecord, "stale", lambda self, core: "the statement has changed")
    cache.prove_cached(TWICE)
    assert proved == [TWICE]


def test_a_shipped_rule_with_a_stale_proof_is_refused() -> None:
    rule = next(iter(all_shipped().values()))
    assert checked(rule, None) is rule
    assert rule.proof is not None
    fields = {name: getattr(rule, name) for name in Rule.__dataclass_fields__}
    old = Rule(**{**fields, "proof": dataclasses.replace(rule.proof, statement="0" * 32)})
    with pytest.raises(RuleError, match="stale"):
        checked(old, None)


def test_a_rule_from_outside_is_proved_whatever_its_record_says() -> None:
    record = next(iter(all_shipped().values())).proof
    fields = {name: getattr(TWICE, name) for name in Rule.__dataclass_fields__}
    claimed = Rule(**{**fields, "proof": record})

    def refuse(rule: Rule) -> ProofRecord:
        raise rule.refuse("it is refuted")

    with pytest.raises(RuleError, match="refuted"):
        checked(claimed, refuse)
    with pytest.raises(RuleError, match="not proved here"):
        checked(claimed, None)
