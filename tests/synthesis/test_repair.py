"""Condition mining: what a false statement lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlflow.rewrite import Rule
from rlflow.synthesis.atoms import candidates, names_of
from rlflow.synthesis.prove import prove
from rlflow.synthesis.repair import repair

module = sys.modules["rlflow.synthesis.repair"]


def rule(source: str | tuple[str, ...], target: str | tuple[str, ...], *where: str) -> Rule:
    as_tuple = [(t,) if isinstance(t, str) else t for t in (source, target)]
    return Rule("r", "t", as_tuple[0], as_tuple[1], where)


MERGED = "(Split{axis=1, split=[dim(?w,0), dim(?v,0)]} (Conv{..?a} ?x (Concat{axis=0} ?w ?v)))"
CASES = {
    "broadcasting element-wise": (
        rule("(Concat{axis=?a} (Mul ?x ?y) (Mul ?z ?w))", "(Mul (Concat{axis=?a} ?x ?z) (Concat{axis=?a} ?y ?w))"),
        {"same_shape(?x, ?y)", "same_shape(?z, ?w)"},
    ),
    "grouped convolutions": (
        rule(("(Conv{..?a} ?x ?w)", "(Conv{..?a} ?x ?v)"), (f"{MERGED}:0", f"{MERGED}:1")),
        {'attr(?a, "group") == 1'},
    ),
    "a permutation undone": (rule("(Transpose{perm=?p} (Transpose{perm=?q} ?x))", "?x"), {"?p == inverse(?q)"}),
    "a cut through a row": (
        rule(
            "(Slice{axes=?a, starts=?s, ends=?e, steps=?t} (Softmax{axis=?k} ?x))",
            "(Softmax{axis=?k} (Slice{axes=?a, starts=?s, ends=?e, steps=?t} ?x))",
        ),
        {"not ?k in ?a"},
    ),
}


def test_a_proposal_is_proved_with_another_seed_than_it_was_mined_with(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[tuple[str, int]] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seeds.append((name, options["seed"] if name == "prove" else arguments[3]))
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(module, "prove", noted("prove", module.prove))
    monkeypatch.setattr(module, "explore", noted("explore", module.explore))
    answer = repair(CASES["a permutation undone"][0], check_floats=False)
    assert answer.status == "repaired"
    assert seeds[-1][0] == "prove" and seeds[-1] not in seeds[:-1]
    assert seeds[-1][1] not in {seed for name, seed in seeds if name == "explore"}


@pytest.mark.parametrize("name", CASES)
def test_the_missing_conditions_are_found_and_proved(name: str) -> None:
    statement, expected = CASES[name]
    answer = repair(statement, samples=50, check_floats=False, seconds=600)
    assert answer.status == "repaired" and set(answer.added) == expected, (answer.added, answer.reason)
    assert answer.repaired is not None and answer.repaired.where == (*statement.where, *answer.added)
    assert answer.verdict.proved and answer.repaired.proof == answer.verdict.record and 0 < answer.kept <= 1


def test_unequal_channels() -> None:
    """TASO's rules 99 ff.: two convolutions become one with two groups."""
    attributes = ", ".join(f'{n}=attr(?a, "{n}")' for n in ("strides", "dilations", "pads"))
    built = f"(Conv{{group=2, {attributes}}} (Concat{{axis=1}} ?x ?y) (Concat{{axis=0}} ?w ?v))"
    statement = rule("(Concat{axis=1} (Conv{..?a} ?x ?w) (Conv{..?a} ?y ?v))", built, 'attr(?a, "group") == 1')
    answer = repair(statement, samples=60, check_floats=False, seconds=600)
    assert answer.status == "repaired", answer.reason
    unequal = [*answer.repaired.where, "dim(?w, 0) != dim(?v, 0)"]
    again = prove(rule(statement.source[0], built, *unequal), samples=5, check_floats=False, exhaustive=False)
    assert again.status == "undecided" and "never fired" in again.reason


def test_what_is_true_or_hopeless_is_said() -> None:
    assert repair(rule("(Neg (Neg ?x))", "?x"), samples=20, check_floats=False).status == "proved"
    assert repair(rule("(Relu ?x)", "(Relu ?x)"), samples=20).status == "identity"
    hopeless = repair(rule("(Sigmoid ?x)", "(Tanh ?x)"), samples=20, check_floats=False, seconds=600)
    assert hopeless.status == "none" and hopeless.repaired is None and "no instance" in hopeless.reason
    broken = repair(rule("(Relu ?x)", "(Relu ?y)"), samples=20)
    assert broken.status == "none" and broken.verdict.kind == "statement"


def test_the_answer_is_the_same_every_time() -> None:
    statement = rule(
        "(Transpose{perm=[1,0]} (MatMul ?x ?y))", "(MatMul (Transpose{perm=[1,0]} ?y) (Transpose{perm=[1,0]} ?x))"
    )
    first, second = (repair(statement, samples=30, check_floats=False, seconds=600) for _ in range(2))
    assert first == second and first.status == "repaired"


def test_candidates_speak_of_what_the_source_binds() -> None:
    names = names_of(["(Add (Conv{..?a} ?x ?w) (Transpose{perm=?p} ?y))"])
    assert names.values == ["?x", "?w", "?y"] and names.rests == {"?a": "Conv"}
    assert names.attributes == {"?p": ("Transpose", "perm")} and names.windows == {"?w"}
    found = candidates(["(Add (Conv{..?a} ?x ?w) (Transpose{perm=?p} ?y))"], ["same_shape(?x, ?y)"])
    assert len(found) == len(set(found)) and "same_shape(?x, ?y)" not in found
    assert {'attr(?a, "group") == 1', "perm_is_swap(?p)", "rank(?y) == 2", "constant(?w)"} <= set(found)
