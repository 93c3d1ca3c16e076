"""Rule files and graph texts that are too deep, too long or half characters: one short sentence, at once."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlflow.errors import GraphError, RuleError
from rlflow.graph import Graph
from rlflow.rewrite import Rule, read_rules
from rlflow.synthesis.importers.tensat import read_tensat

DEEP = 50_000


def rule(source: str = "(Relu ?x)", target: str = "?x", where: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": "r", "source": [source], "target": [target], "where": list(where)}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (rule("(Relu " * DEEP + "?x" + ")" * DEEP), "characters; expected 10000 at most"),
        (rule("(Relu " * 300 + "?x" + ")" * 300), "nested too deeply"),
        (rule(target="(Relu " * 300 + "?x" + ")" * 300), "nested too deeply"),
        (rule(where=("not " * 100_000 + "true",)), "characters; expected 10000 at most"),
        (rule(where=("not " * 2000 + "true",)), "nested too deeply"),
        (rule(where=("(" * 100_000 + "true" + ")" * 100_000,)), "characters; expected 10000 at most"),
        (rule(where=("(" * 4000 + "true" + ")" * 4000,)), "nested too deeply"),
        (rule(where=("-" * 4000 + "1 == 1",)), "nested too deeply"),
        (rule(where=("[" * 4000,)), "nested too deeply"),
        (rule(where=("1" * 5000 + " == 1",)), "a whole number of 5000 digits; expected 18 at most"),
        (rule("(Split{axis=0} ?x)", "(Split{axis=0} ?x):99999999999999999999"), "expected the number of an output"),
        (rule("(Relu ?x):abc"), "expected the number of an output"),
        (rule(where=("true",) * 300), "300 terms or conditions of one kind; expected 256 at most"),
    ],
)
def test_statements(entry: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"format": 1, "family": "f", "rules": [entry]}))
    began = time.monotonic()
    (found,) = read_rules([tmp_path / "r.json"])
    with pytest.raises(RuleError, match=words) as error:
        found.core  # noqa: B018 - compiles it
    assert time.monotonic() - began < 5
    assert len(str(error.value)) < 2000


def test_what_people_write_is_far_below_the_limits() -> None:
    assert Rule("r", "f", ("(Relu " * 150 + "?x" + ")" * 150,), ("?x",), ("1" + "+1" * 4000 + " > 0",)).core


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"format": ' + "1" * 5000 + "}", "cannot be read"),
        ('{"format": 1, "family": "\\ud800", "rules": []}', "half a character"),
        ('{"format": 1, "family": "f", "rules": [{"name": "\\uDfff"}]}', "half a character"),
    ],
)
def test_texts_of_json(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(RuleError, match=words):
        read_rules([tmp_path / "r.json"])


@pytest.mark.parametrize(
    "dim", ["n" * 1_000_000, "(" * 100_000, "-" * 20_000, "*".join(["(a+b+c+d+e+f+g+h)"] * 200), "1" * 5000]
)
def test_dimensions(dim: str) -> None:
    began = time.monotonic()
    with contextlib.suppress(GraphError):
        Graph.parse(f"x: f32[{dim}] = input\nreturn x")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("before", range(4))
def test_a_sentence_is_cut_between_characters(before: int) -> None:
    with pytest.raises(GraphError, match="…"):
        Graph.parse("x" * before + "…" * 500)


@pytest.mark.parametrize(
    "text",
    [
        "(relu " * DEEP,
        "(relu " * 200 + "?x" + ")" * 200 + "=>?x",
        "(matmul " + "1" * 5000 + " ?x ?y)=>?x",
        "(transpose ?x 1_" + "0" * 5000 + " 1)=>?x",
        "relu" * 10_000,
        "(" + "relu" * 10_000,
        "(relu ?" + "x" * 40_000 + ")=>?x",
    ],
)
def test_tensat(text: str) -> None:
    """Refused, in a sentence that shows no more of the file than can be read."""
    with pytest.raises(RuleError, match=r"nested|a number of|a name of") as refused:
        read_tensat(text)
    assert len(str(refused.value)) < 300


def test_an_error_may_quote_half_a_character() -> None:
    """Found by fuzzing: the parser points at a byte, which is no text by itself."""
    with pytest.raises(RuleError, match="at column 5: unexpected"):
        Rule("r", "f", ("(Relu ?x)",), ("?x",), ("not üconstant(?x)",)).core  # noqa: B018 - compiles it


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[2] = " + "Relu" * 10_000 + "(x)",
        "y: f32[2] = " + "[" * 40_000 + "(x)",
        "y: f32[2] = Relu{" + "alpha" * 10_000 + "=1}(x)",
    ],
)
def test_a_graph_of_text(line: str) -> None:
    with pytest.raises(GraphError, match="line 2: ") as refused:
        Graph.parse(f"x: f32[2] = input\n{line}\nreturn y")
    assert len(str(refused.value)) < 500
