"""The page of reproduce/exports: its tables are those of the rows, and rows of other files take their places."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproduce" / "exports"
sys.path.insert(0, str(FOLDER.parent / "common"))


def loaded(name: str) -> ModuleType:
    """A script of the folder under a name that no other folder's script has."""
    spec = importlib.util.spec_from_file_location(f"exports_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


page, run = loaded("page"), loaded("run")
import gains  # noqa: E402 - from reproduce/exports
import results  # noqa: E402 - from reproduce/common

ROW = {"kind": "report", "name": "resnet18", "exit_status": 0, "improved": True, "speedup": 1.2, "held_out": False}


def row(**fields: Any) -> dict[str, Any]:
    return {**ROW, "speedup_ci95": [1.1, 1.3], "bar": None, "trace": [], "run": "a", **fields}


def test_the_tables_on_the_page_are_those_of_the_rows() -> None:
    rows, runs = page.joined([page.LATEST, page.peers.LATEST])
    assert rows
    assert page.TABLES.search(page.PAGE.read_text(encoding="utf-8"))[0].strip().count("\n") > sum(
        "tool" not in one for one in rows
    )
    assert page.tables(rows, runs, page.allowances()).strip() in page.PAGE.read_text(encoding="utf-8")


def test_every_row_is_of_a_model_and_says_where_it_was_made() -> None:
    rows, runs = page.joined([page.LATEST])
    found, _ = results.read(page.LATEST)
    assert len(rows) == len(found) == len({gains.key(one, runs) for one in found})
    assert {one["run"] for one in rows} <= set(runs)


def machine_of(run: str, cpu: str = "a CPU") -> dict[str, Any]:
    return {"kind": "machine", "run": run, "commit": run, "cpu": cpu, "vectors": "AVX2"}


def test_rows_of_other_files_take_the_places_of_those_with_their_names(tmp_path: Path) -> None:
    for name, run, speed in (("old", "a", 1.2), ("new", "b", 1.4)):
        rows = [row(run=run, speedup=speed), row(run=run, name="resnet50" if run == "a" else "swin_t")]
        results.write_lines(tmp_path / name, [machine_of(run), *rows])
    rows, runs = page.joined([tmp_path / "old", tmp_path / "new"])
    assert [(one["name"], one["run"], one["speedup"]) for one in rows] == [
        ("resnet18", "b", 1.4),
        ("resnet50", "a", 1.2),
        ("swin_t", "b", 1.2),
    ]
    page.write_rows(tmp_path / "both", rows, runs)
    assert page.joined([tmp_path / "both"]) == (rows, runs)


def test_rows_of_two_machines_stand_apart_and_are_compared_where_both_have_the_model(tmp_path: Path) -> None:
    for name, run, speed in (("one", "a", 1.21), ("other", "b", 1.44)):
        rows = [row(run=run, speedup=speed), row(run=run, name="resnet50", speedup=1.0 if run == "a" else 1.44)]
        rows += [row(run=run, name="swin_t", speedup=2.0)] if run == "b" else []
        results.write_lines(tmp_path / name, [machine_of(run, name), *rows])
    rows, runs = page.joined([tmp_path / "one", tmp_path / "other"])
    assert [(one["name"], one["run"]) for one in rows] == [
        ("resnet18", "a"),
        ("resnet50", "a"),
        ("resnet18", "b"),
        ("resnet50", "b"),
        ("swin_t", "b"),
    ]
    text = page.tables(rows, runs, {})
    assert text.index("## one, AVX2") < text.index("2 models, geometric mean 1.100") < text.index("## other, AVX2")
    assert "3 models, geometric mean 1.607" in text
    assert "2 models, geometric mean. one, AVX2: 1.100; other, AVX2: 1.440." in text


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, "| resnet18 | 1.20 | 1.10 to 1.30 |  |  |"),
        ({"trace": [{"rule": "a"}, {"rule": "b"}, {"rule": "a"}]}, "| 1.20 | 1.10 to 1.30 |  | a ×2, b |"),
        ({"bar": 1.1}, "| 1.20 | 1.10 to 1.30 | 1.10 |  |"),
        ({"improved": False, "reason": "No gain: 1.001"}, "| 1.00 |  |  |  |"),
        ({"improved": False, "reason": "No claim: of the 8 blocks"}, "| 1.00 | undecided |  |  |"),
        ({"speedup": 1.0, "speedup_ci95": None}, "| 1.00 | clean-up alone |  |  |"),
        ({"exit_status": 1}, "| failed | |  | |"),
    ],
)
def test_a_line_says_what_the_row_does(fields: dict[str, Any], cells: str) -> None:
    assert cells in page.line(row(**fields))


def test_the_mean_is_geometric_and_counts_what_was_kept() -> None:
    rows = [row(speedup=1.21), row(improved=False, speedup=1.3)]
    assert gains.summary(rows) == "2 models, geometric mean 1.100, 1 at 1.05 or more."


def test_other_tools_stand_below_the_machine_that_they_were_timed_on(tmp_path: Path) -> None:
    timed = [
        {"name": "resnet18", "kind": "peer", "run": "a", "tool": tool, "gain": 1.1} for tool in ("itself", "onnxsim")
    ]
    again = {"name": "resnet18", "kind": "peer", "run": "b", "tool": "onnxsim", "gain": 1.3}
    results.write_lines(tmp_path / "reports", [machine_of("a"), row()])
    results.write_lines(tmp_path / "peers", [machine_of("a"), *timed])
    results.write_lines(tmp_path / "newer", [machine_of("b"), again])
    rows, runs = page.joined([tmp_path / "reports", tmp_path / "peers", tmp_path / "newer"])
    assert [one.get("tool") for one in rows] == [None, "itself", "onnxsim"]
    text = page.tables(rows, runs, {})
    assert text.index("## a CPU, AVX2") < text.index("| resnet18 | 1.10 | 1.30 |")
    assert "1 models, geometric mean 1.200" in text
    assert "threads:" not in text


def test_what_the_allowances_bring_stands_beside_what_there_is_without() -> None:
    rows = {name: row(name=name, speedup=1.0) for name in ("resnet18", "swin_t")}
    lines = page.with_allowances(rows, {"swin_t": row(name="swin_t", speedup=1.21)})
    assert "| swin_t | 1.00 | 1.21 |" in lines
    assert lines[-2].endswith("2 models, geometric mean 1.100, 1 at 1.05 or more.")


def test_rows_of_more_threads_have_a_table_of_their_own(tmp_path: Path) -> None:
    one = {"name": "resnet18", "kind": "peer", "run": "a", "tool": "rlflow", "gain": 1.2}
    peers_file = [machine_of("a"), {**one, "tool": "itself"}, one, {**one, "tool": "itself", "threads": 2}]
    results.write_lines(tmp_path / "reports", [machine_of("a"), row()])
    results.write_lines(tmp_path / "peers", [*peers_file, {**one, "threads": 2, "gain": 1.1}])
    rows, runs = page.joined([tmp_path / "reports", tmp_path / "peers"])
    text = page.tables(rows, runs, {})
    assert text.index("| resnet18 | 1.20 | 1.20 |") < text.index("With 2 threads:") < text.index("| 1.20 | 1.10 |")


def test_a_resumed_run_leaves_out_what_this_machine_has_measured() -> None:
    runs = {"a": machine_of("a"), "b": machine_of("b", "another CPU")}
    rows = [row(), row(name="resnet50", improved=False, reason="No claim: busy"), row(name="swin_t", run="b")]
    named = {"only": ["resnet18", "resnet50", "swin_t"]}
    for options, left in (
        ({"resume": False, "undecided": False}, ["resnet18", "resnet50", "swin_t"]),
        ({"resume": True, "undecided": False}, ["swin_t"]),
        ({"resume": True, "undecided": True}, ["resnet50", "swin_t"]),
    ):
        assert run.wanted(argparse.Namespace(**named, **options), rows, runs, "a CPU, AVX2") == left


@pytest.mark.parametrize("improved", [True, False])
def test_what_is_faster_is_kept_for_the_comparison_with_other_tools(
    improved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "optimized" / "swin_t-0.onnx"

    def optimise(name: str, source: Path, budget: str, seed: int, folder: Path, **how: Any) -> dict[str, Any]:
        assert how["keep"]
        (folder / "written.onnx").write_bytes(b"faster")
        return row(name=name, improved=improved, written="written.onnx")

    monkeypatch.setattr(run.sweep, "optimise_file", optimise)
    monkeypatch.setattr(run, "exported", lambda name, seed: tmp_path / "swin_t-0.onnx")
    monkeypatch.setattr(run, "kept_file", lambda name, seed: kept)
    kept.parent.mkdir()
    kept.write_bytes(b"of an earlier run")
    found = run.measure("swin_t", argparse.Namespace(seed=0, budget="60s", allowances=False))
    assert found["held_out"] is False
    assert kept.exists() is improved
    assert not improved or kept.read_bytes() == b"faster"
    kept.write_bytes(b"of a run without the allowances")
    run.measure("swin_t", argparse.Namespace(seed=0, budget="60s", allowances=True))
    assert kept.read_bytes() == b"of a run without the allowances"
