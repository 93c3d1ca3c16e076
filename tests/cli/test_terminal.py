"""What a person sees: nothing is cut, words stay whole, nodes have their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlflow.cli.common import _wrapped
from tests.cli.commands import merge_model, rlflow


@pytest.mark.parametrize("arguments", [(), ("rules", "--help"), ("search", "--help"), ("train", "--help")])
def test_the_help_cuts_no_sentence(arguments: tuple[str, ...]) -> None:
    shown = rlflow(*arguments).output
    verbs = shown[shown.index("Commands:") :]
    assert "..." not in verbs
    assert all(len(line) <= 110 for line in verbs.splitlines())


def test_the_first_verb_is_the_one_that_most_people_want() -> None:
    assert rlflow().output.split("Commands:")[1].split()[0] == "optimize"


def test_the_help_ends_with_where_to_begin() -> None:
    last = rlflow().output.split("\n\n")[-1]
    assert "rlflow optimize model.onnx -o faster.onnx" in last and "rlflow COMMAND --help" in last


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("short", "short"),
        ("  one two three four", "  one two\n    three\n    four"),
        ("averylongwordindeed", "averylongwordindeed"),
        ("a/b-c/d e-f-g-h", "a/b-c/d\n  e-f-g-h"),
    ],
)
def test_lines_are_wrapped_between_words(line: str, shown: str) -> None:
    assert _wrapped(line, 11) == shown


def test_a_rule_is_explained_with_the_names_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(merge_model().SerializeToString())
    explained = rlflow("explain", path, "--rule", "merge-matmul-columns").stdout
    assert "MatMul product0 (position" in explained
    (at,) = {line.split("(position ")[1].split(")")[0] for line in explained.splitlines() if "product0" in line}
    assert rlflow("explain", path, "--rule", "merge-matmul-columns", "--node", at).stdout.strip() in explained


def test_what_is_no_verb_is_said_with_one_mark() -> None:
    assert rlflow("optimise").output.endswith(" optimise'. Did you mean optimize?\n")


def test_a_proof_is_shown_short_unless_all_is_asked_for() -> None:
    short, full = (rlflow("rules", "show", "merge-matmul-columns", *more).stdout for more in ((), ("--verbose",)))
    assert "scope:" in short and "semantics:" not in short
    assert "scope:" in full and "semantics:" in full
