"""Derivations by search, and the redundancy of a library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlflow import _core
from rlflow.rewrite import Rule, RuleLibrary, load_rules
from rlflow.synthesis.derive import Folding, derive
from rlflow.synthesis.redundancy import chains_of, redundant, tags, write_tags

A = "5e3a" + "0" * 27 + "a"
B = "5e3a" + "0" * 27 + "b"


def graph(text: str) -> _core.Graph:
    return _core.Graph.parse(text)


def relus(*lines: str) -> _core.Graph:
    return graph("\n".join(["x: f32[2,3] = input", "y: f32[2,3] = input", *lines]))


def rule(name: str, source: str, target: str, *where: str) -> Rule:
    return Rule(name, "t", (source,), (target,), where)


OUT_OF_CONCAT = rule("out", "(Relu (Concat{axis=?a} ?x ?y))", "(Concat{axis=?a} (Relu ?x) (Relu ?y))")
TWICE = rule("twice", "(Relu (Relu ?x))", "(Relu ?x)")
INTO_CONCAT = rule("into", "(Concat{axis=?a} (Relu ?x) (Relu ?y))", "(Relu (Concat{axis=?a} ?x ?y))")

JOINED = relus("c: f32[4,3] = Concat{axis=0}(x, y)", "r: f32[4,3] = Relu(c)", "return r")
APART = relus("a: f32[2,3] = Relu(x)", "b: f32[2,3] = Relu(y)", "c: f32[4,3] = Concat{axis=0}(a, b)", "return c")
DOUBLED = relus("c: f32[4,3] = Concat{axis=0}(x, y)", "r: f32[4,3] = Relu(c)", "s: f32[4,3] = Relu(r)", "return s")


@pytest.mark.parametrize(
    ("source", "target", "rules", "forward", "backward"),
    [
        (JOINED, JOINED, [TWICE], (), ()),
        (JOINED, APART, [OUT_OF_CONCAT], ("out",), ()),
        (DOUBLED, APART, [OUT_OF_CONCAT, TWICE], ("twice", "out"), ()),
        (APART, JOINED, [OUT_OF_CONCAT], (), ("out",)),
        (APART, JOINED, [OUT_OF_CONCAT, INTO_CONCAT], ("into",), ()),
    ],
)
def test_chains(source: _core.Graph, target: _core.Graph, rules: list[Rule], forward: tuple, backward: tuple) -> None:
    found = derive([(source, target)], RuleLibrary(rules), 3)
    assert found is not None
    assert (found.forward, found.backward) == (forward, backward)
    assert found.directed == (not backward)


def test_steps_are_counted_and_rules_can_be_left_out() -> None:
    rules = RuleLibrary([OUT_OF_CONCAT, TWICE])
    assert derive([(DOUBLED, APART)], rules, 1) is None
    assert derive([(DOUBLED, APART)], rules, 2, without={"twice"}) is None
    assert derive([(APART, JOINED)], rules, 3, backwards=False) is None
    assert derive([], rules) is None


def test_every_pair_must_be_derived() -> None:
    rules = RuleLibrary([OUT_OF_CONCAT])
    assert derive([(JOINED, APART), (DOUBLED, APART)], rules, 3) is None
    assert derive([(JOINED, APART), (JOINED, APART)], rules, 3).instances == 2


WEIGHTS = ["x: f32[2,3] = input", f"v: f32[3,3] = const @{A}", f"w: f32[3,3] = const @{B}"]


def test_constants_are_compared_by_value_and_operands_in_any_order() -> None:
    """x (v w) + x v, against x v + x (w' v'), whose weights are written otherwise and are the same."""
    first = graph("\n".join([*WEIGHTS, "s: f32[3,3] = Add(v, w)", "r: f32[2,3] = MatMul(x, s)", "return r"]))
    second = graph("\n".join([*WEIGHTS, "s: f32[3,3] = Add(w, v)", "r: f32[2,3] = MatMul(x, s)", "return r"]))
    other = graph("\n".join([*WEIGHTS, "s: f32[3,3] = Mul(w, v)", "r: f32[2,3] = MatMul(x, s)", "return r"]))
    chain = graph(
        "\n".join(
            [
                *WEIGHTS,
                "t: f32[3,3] = Transpose{perm=[1,0]}(w)",
                "u: f32[3,3] = Transpose{perm=[1,0]}(t)",
                "s: f32[3,3] = Add(u, v)",
                "r: f32[2,3] = MatMul(x, s)",
                "return r",
            ]
        )
    )
    folding = Folding()
    keys = [folding.key(g) for g in (first, second, other, chain)]
    assert first.digest != second.digest
    assert keys[0] == keys[1] == keys[3] != keys[2]


def test_parts_of_a_constant_are_folded() -> None:
    lines = [*WEIGHTS, "c: f32[6,3] = Concat{axis=0}(v, w)", "p, q = Split{axis=0, split=[3,3]}(c)"]
    taken = graph("\n".join([*lines, "r: f32[2,3] = MatMul(x, q)", "return r"]))
    plain = graph("\n".join([*WEIGHTS, "r: f32[2,3] = MatMul(x, w)", "return r"]))
    folding = Folding()
    assert folding.key(taken) == folding.key(plain)


# ---- redundancy

BOTH = rule("both", "(Relu (Relu (Concat{axis=?a} ?x ?y)))", "(Concat{axis=?a} (Relu ?x) (Relu ?y))")


def test_a_rule_that_others_imply_is_found() -> None:
    library = RuleLibrary([BOTH, OUT_OF_CONCAT, TWICE])
    assert chains_of(BOTH, library) >= {("twice", "out")}
    assert chains_of(TWICE, library) == set()
    assert redundant(library, samples=4) == {"both": ("twice", "out")}


def test_tags_leave_a_basis() -> None:
    """Of two rules that imply each other with a third, one stays."""
    chains = {"a": {("b", "c")}, "b": {("a",)}, "c": set(), "d": {("a",)}}
    found = tags(chains, ["d", "a", "b", "c"])
    assert found == {"d": ("a",), "b": ("a",)}
    assert not {name for chain in found.values() for name in chain} & found.keys()


def test_tags_are_written_and_removed_again(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    entry = {"name": "r", "source": ["(Relu ?x)"], "target": ["?x"], "numerics": "exact", "fires": ["g"]}
    path.write_text(json.dumps({"format": 1, "family": "f", "rules": [entry]}), encoding="utf-8")
    assert write_tags([path], {"r": ("p", "q")}) == 1
    assert json.loads(path.read_text())["rules"][0]["derived"] == ["p", "q"]
    assert write_tags([path], {"r": ("p", "q")}) == 0
    assert write_tags([path], {}) == 1
    assert "derived" not in json.loads(path.read_text())["rules"][0]


def test_a_redundant_rule_of_ours() -> None:
    library = load_rules()
    assert ("merge-matmul-columns",) in chains_of(library["merge-matmul-columns-pair"], library, samples=4)
    assert not chains_of(library["associate-matmul-right"], library, samples=4)
