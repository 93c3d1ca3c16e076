"""The smaller verbs in process: inspect, zoo, info, and help."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from pathlib import Path

import click
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

from rlflow.cli import main
from rlflow.cli.sections import SectionedCommand
from rlflow.rewrite import load_rules
from tests.cli.commands import commands_of, plain_model, rlflow


def test_inspect_shows_what_a_model_is_made_of(model: Path) -> None:
    done = rlflow("inspect", model)
    assert done.exit_code == 0, done.output
    for word in ("MatMul", "opset", "Inputs", "f32[4,64]", "Rules that could fire"):
        assert word in done.stdout
    (plain,) = json.loads(rlflow("inspect", model, "--json").stdout)
    assert plain["operators"] == {"MatMul": 3, "Add": 2}
    assert plain["parameters_bytes"] == 3 * 64 * 64 * 4
    assert plain["rules"]
    assert plain["outside_table"] == []


def test_inspect_names_operators_outside_the_table(tmp_path: Path) -> None:
    custom = plain_model([helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")])
    custom.opset_import.append(helper.make_opsetid("nowhere", 1))
    path = tmp_path / "custom.onnx"
    path.write_bytes(custom.SerializeToString())
    (plain,) = json.loads(rlflow("inspect", path, "--json").stdout)
    assert plain["outside_table"] == ["nowhere.Nonsense"]


def test_the_zoo_is_listed_and_exported(tmp_path: Path) -> None:
    listed = rlflow("zoo", "list")
    assert listed.exit_code == 0
    assert "squeezenet1.1" in listed.stdout
    assert {entry["name"] for entry in json.loads(rlflow("zoo", "list", "--json").stdout)} >= {
        "squeezenet1.1",
        "nasrnn",
    }
    out = tmp_path / "s.onnx"
    done = rlflow("zoo", "export", "squeezenet1.1", "-o", out, "--batch", "2")
    assert done.exit_code == 0, done.output
    exported = onnx.load(out)
    assert exported.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert rlflow("zoo", "export", "squeezenet1.1", "-o", out, "--set", "nothing=1").exit_code == 2


def test_info_shows_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("rlflow.cli.info")  # a verb's file is opened when it is asked for
    monkeypatch.setattr(module, "_availability", lambda _: "rlflow[gpu]")
    assert "rlflow[gpu]" in rlflow("info").stdout


def test_info_says_what_is_there() -> None:
    done = rlflow("info")
    assert done.exit_code == 0, done.output
    for word in (
        "cost model analytic",
        "cost model onnxruntime",
        "search backtracking",
        "CPUExecutionProvider",
        "prices",
    ):
        assert word in done.stdout
    plain = json.loads(rlflow("info", "--json").stdout)
    assert plain["cost_models"]["analytic"] == "available"
    assert sum(plain["rules"].values()) == len(load_rules())


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "--help"], ["rules", "--help"], ["--version"]])
def test_help_and_version(arguments: list[str]) -> None:
    done = rlflow(*arguments)
    assert done.exit_code == 0
    assert done.stdout


#: With more options than this, a verb shows them under headings.
MANY = 12


def test_where_options_are_many_they_are_under_headings_each_once() -> None:
    for name, command in commands_of(main):
        options = sorted(one.name for one in command.params if isinstance(one, click.Option))
        if isinstance(command, SectionedCommand):
            assert sorted(itertools.chain.from_iterable(command.sections.values())) == options, name
        else:
            assert len(options) <= MANY, f"{name} has {len(options)} options in one list"


@pytest.mark.parametrize("width", [80, 200])
def test_the_help_with_headings_shows_every_option_in_full(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = CliRunner().invoke(main, ["optimize", "--help"]).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= min(width, 110)
    assert [line for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)] == [
        "Result:", "Time:", "Inputs:", "What may change:", "Where it will run:", "Prices and search:", "Other options:",
    ]  # fmt: skip
    optimize = dict(commands_of(main))["optimize"]
    words = "".join(shown.split())  # a hyphen may end a line
    for option in optimize.params:
        if isinstance(option, click.Option):
            assert re.search(rf"^  (-\w, )?{option.opts[-1]}\b", shown, re.MULTILINE), option.name
            assert "".join((option.help or "").split()) in words, option.name
    texts = {len(line) - len(line.lstrip()) for line in lines if line.startswith(" " * 12)}
    assert len(texts) == 1, "the texts of all headings begin in one column"


def test_the_help_of_every_option_is_a_sentence() -> None:
    """None begins in the middle (“Of the random inputs.”), and none is left out."""
    for name, command in commands_of(main):
        assert command.help and command.help.strip().endswith("."), name
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            place, text = f"{name} {option.opts[0]}", option.help or ""
            assert text, f"{place} has no help"
            assert re.search(r"(\.|\])$", text), f"{place}: {text}"
            assert not re.match(r"(Of|For|With|Without|Such) ", text), f"{place}: {text}"
            assert len(text.split()) > 1, f"{place}: {text}"
