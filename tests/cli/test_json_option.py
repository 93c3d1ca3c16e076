"""``--json`` is the same in every verb: alone it prints, with FILE it writes, and models and rules are left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rlflow.cli import main

SMALL = "nasrnn?hidden=4&steps=1"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def commands(group: click.Group, path: str = "rlflow") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        one = group.get_command(click.Context(group), name)
        assert one is not None
        if isinstance(one, click.Group):
            yield from commands(one, f"{path} {name}")
        else:
            yield f"{path} {name}", one


def test_every_verb_has_the_same_option() -> None:
    found = {
        path: option
        for path, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option) and "--json" in option.opts
    }
    assert len(found) > 20
    for path, option in found.items():
        told = (option.name, option.is_flag, option.flag_value, option.metavar)
        assert told == ("json_file", False, "-", "[FILE]"), path


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", SMALL), ("diff", SMALL, SMALL), ("verify", SMALL, SMALL), ("rules", "stats"), ("search", "list"),
        ("search", "run", SMALL, "--budget", "5x", "-q"), ("info", "decoders"), ("info", "report-schema"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)  # fmt: skip
def test_printed_and_written_are_the_same(arguments: tuple[str, ...], tmp_path: Path) -> None:
    printed = call(*arguments, "--json")
    assert printed.exit_code == 0, printed.output
    assert _lasting(json.loads(printed.stdout)) == _lasting(json.loads(call(*arguments, "--json", "-").stdout))
    written = call(*arguments, "--json", tmp_path / "found.json")
    assert written.exit_code == 0, written.output
    assert _lasting(json.loads((tmp_path / "found.json").read_text("utf-8"))) == _lasting(json.loads(printed.stdout))


def test_the_report_of_a_simplification(tmp_path: Path) -> None:
    done = call("simplify", SMALL, tmp_path / "o.onnx", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["format"] and sum(report["operators_after"].values()) > 0 and report["verified"]["passed"]
    beside = call("simplify", SMALL, tmp_path / "o.onnx", "--json", tmp_path / "o.json")
    assert "nodes, " in beside.stdout and _lasting(json.loads((tmp_path / "o.json").read_text("utf-8")))
    assert "cannot both be written" in call("simplify", SMALL, tmp_path / "o", "--json", tmp_path / "o").stderr


def _lasting(found: object) -> object:
    """Without what a clock says."""
    if isinstance(found, dict):
        return {name: _lasting(one) for name, one in found.items() if "second" not in name and name != "curve"}
    return [_lasting(one) for one in found] if isinstance(found, list) else found


def test_the_table_is_still_shown_where_a_file_is_written(tmp_path: Path) -> None:
    told = call("rules", "stats").stdout
    assert call("rules", "stats", "--json", tmp_path / "stats.json").stdout == told


def test_a_model_or_a_rule_file_behind_the_option_is_left_alone(tmp_path: Path) -> None:
    model, rules = tmp_path / "a.onnx", tmp_path / "rules.json"
    assert call("zoo", "export", "nasrnn", "-o", model).exit_code == 0
    rules.write_text('{"schema": 1, "rules": []}', "utf-8")
    for arguments, file in (
        (("inspect", "--json", model, SMALL), model),
        (("rules", "prove", "--json", rules, "core"), rules),
    ):
        before = file.read_bytes()
        done = call(*arguments)
        assert done.exit_code == 2 and "put --json last" in done.stderr
        assert file.read_bytes() == before


def test_a_zoo_name_behind_the_option_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("inspect", "--json", "squeezenet1.1", SMALL)
    assert done.exit_code == 2 and "the name of a zoo model" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_earlier_report_is_written_over(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    for text in ("", "[1]", '{"cut": ['):
        file.write_text(text, "utf-8")
        assert call("info", "decoders", "--json", file).exit_code == 0
        assert isinstance(json.loads(file.read_text("utf-8")), list)
