"""Pictures of rules: the whole library can be drawn, and what is drawn is what the rule says."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from rlflow.report.rule_drawing import drawings, rule_page, rule_trees, side_by_side
from rlflow.report.rule_words import condition_in_words, facts
from rlflow.rewrite import Rule, all_shipped
from tests.cli.commands import rlflow
from tests.report.test_page import Reader

rule = partial(Rule, "example", "own")


@pytest.mark.parametrize(
    ("given", "source", "target"),
    [
        pytest.param(
            rule(("(Relu (Relu ?x))",), ("(Relu ?x)",)),
            ["Relu", "└─ Relu", "   └─ x"], ["Relu", "└─ x"], id="a chain",
        ),
        pytest.param(
            rule(("(Add (Mul ?x ?c) ?b)",), ("(Add (Mul ?x ?c) ?b)",), ("constant(?c)", "rank(?c) == 1")),
            ["Add", "├─ Mul", "│  ├─ x", "│  └─ c  (constant, rank 1)", "└─ b"],
            ["Add", "├─ Mul", "│  ├─ x", "│  └─ c", "└─ b"], id="what is known of a variable",
        ),
        pytest.param(
            rule(("(Sub (Exp ?x) (Exp ?x))",), ("(Sub ?k ?k)",), let=(("?k", "(Abs ?x)"),)),
            ["Sub", "├─ a = Exp", "│  └─ x", "└─ a"], ["Sub", "├─ k = Abs", "│  └─ x", "└─ k"], id="what is shared",
        ),
        pytest.param(
            rule(("*(MatMul ?x ?w...)",), ("(Split{axis=1} (MatMul ?x (Concat{axis=1} ?w...))):*",)),
            ["each MatMul", "├─ x", "└─ w…"],
            ["Split{axis=1}, each output", "└─ MatMul", "   ├─ x", "   └─ Concat{axis=1}", "      └─ w…"],
            id="any number",
        ),
        pytest.param(
            rule(("(Exp (Split{..?a} ?x):1)", "(Log (Split{..?a} ?x):0)"), ("(?f:{Exp,Log} _ ?x)", "?x")),
            ["Exp", "└─ b = Split{…a}, output 1", "   └─ x", "Log", "└─ b"],
            ["f (Exp or Log)", "├─ (none)", "└─ x", "x"], id="several roots, outputs of one node",
        ),
    ],
)  # fmt: skip
def test_a_rule_as_text(given: Rule, source: list[str], target: list[str]) -> None:
    assert rule_trees(given) == (source, target)


def test_blocks_stand_beside_each_other_where_they_fit() -> None:
    left, right = ["Relu", "└─ x"], ["x"]
    assert side_by_side(left, right, 80) == ["Relu   =>   x", "└─ x"]
    assert side_by_side(left, right, 10) == ["Relu", "└─ x", "=>", "x"]


def test_every_rule_can_be_drawn_and_names_all_that_it_has() -> None:
    library = all_shipped()
    for one in library.values():
        for texts, tree, drawing in zip((one.source, one.target), rule_trees(one), drawings(one), strict=True):
            whole, text = " ".join(texts), "\n".join(tree)
            for operator in re.findall(r"\(([A-Z]\w+)", whole):
                assert re.search(rf"\b{operator}\b", text), one.name
                assert f">{operator}" in drawing, one.name
            drawn = set(re.findall(r"(?:─ |^|= )([a-z]\w*)", text, flags=re.MULTILINE))
            values = re.findall(r"(?<= )\?(\w+)(?=[ .)])", re.sub(r"\{[^}]*\}", "", whole))
            assert drawn >= set(values), one.name


def test_the_page_has_both_sides_and_stands_alone() -> None:
    for name in ("merge-matmul-columns", "fold-normalisation-into-conv", "view-of-both-parts"):
        one = all_shipped()[name]
        text = rule_page(one)
        read = Reader(text)
        assert read.addresses == [] and text.count("<svg") == 2
        assert 'class="n removed"' in text and 'class="n added"' in text
        assert one.doc in text


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("constant(?w...)", "each w is constant"),
        ("not constant($0)", "the result is not constant"),
        ("rank(?w) == 2", "the rank of w is 2"),
        ("rank(?x) <= rank(?y)", "the rank of x is at most that of y"),
        ("rank(?c) == 0 or rank(?c) == 1", "the rank of c is 0 or 1"),
        ("dim(?x,1) == dim(?y, 0)", "dimension 1 of x is dimension 0 of y"),
        ('attr(?a,"group") == 1', "the attribute group is 1"),
        ("?p == [0,2,1,3]", "p is [0,2,1,3]"),
        ("same_shape($0, ?y)", "the result and y have the same shape"),
        ("rank(?x) + a < R or dim(?x, a-R) == 1", ""),  # the formula has to do
    ],
)
def test_conditions_in_words(condition: str, words: str) -> None:
    assert condition_in_words(condition) == words


def test_three_of_four_conditions_have_words() -> None:
    conditions = [one for rule in all_shipped().values() for one in rule.where]
    assert sum(bool(condition_in_words(one)) for one in conditions) >= 0.75 * len(conditions)
    assert facts(["constant(?w)", "rank(?w) == 2", "rank(?x) >= 1"]) == {"?w": "constant, rank 2"}


def test_the_verb_shows_the_picture_and_writes_the_page(tmp_path: Path) -> None:
    out = tmp_path / "rule.html"
    done = rlflow("rules", "show", "merge-matmul-columns", "--html", out)
    assert done.exit_code == 0, done.output
    assert "each MatMul" in done.stdout and "each w is constant" in done.stdout
    Reader(out.read_text(encoding="utf-8"))
    assert rlflow("rules", "show", "merge-matmul-columns", "--html", tmp_path / "none" / "x.html").exit_code != 0
