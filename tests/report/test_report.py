from __future__ import annotations

import io
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlflow.errors import OutputError
from rlflow.files import check_output, same_place, write_atomically
from rlflow.report import (
    OutputFigures,
    Report,
    RuntimeInfo,
    TimeInterval,
    Verified,
    group_trace,
    render,
    write_json,
)
from rlflow.report.tables import headline

TRACE = [{"rule": rule, "match": [number]} for number, rule in enumerate(["merge", "merge", "slice", "merge"])]
REPORT = Report(
    model="m.onnx",
    improved=True,
    reason="it is faster",
    strategy="backtracking",
    cost_model="onnxruntime",
    budget="60s",
    seed=3,
    stop_reason="budget-seconds",
    cost_before_ms=2.0,
    cost_after_ms=1.5,
    original_ms=2.2,
    baseline_ms=2.1,
    optimized_ms=1.6,
    speedup=1.3125,
    speedup_ci95=(1.3, 1.32),
    intervals={
        name: TimeInterval(ms, ms - 0.1, ms + 0.1)
        for name, ms in (("original", 2.2), ("baseline", 2.1), ("optimized", 1.6))
    },
    verified=Verified(
        True, [OutputFigures("y", 1e-7, 2e-7, 1e-5, True), OutputFigures("z", 0.0, 0.0, 1e-5, True, "it is constant")]
    ),
    candidates=100,
    expansions=10,
    measurements=5,
    seconds=1.25,
    trace=TRACE,
    runtime=RuntimeInfo("onnxruntime", "1.2.3", 1),
    operators_before={"MatMul": 3, "Add": 1},
    operators_after={"MatMul": 1, "Split": 1, "Add": 1},
    notes=("something was assumed",),
    written="out.onnx",
)


def text(report: Report, verbose: bool = False) -> str:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - the console owns it
    console.print(render(report, verbose=verbose))
    return console.export_text()


def test_a_gain_is_shown_with_its_interval_and_all_that_led_to_it() -> None:
    shown = text(REPORT)
    for part in (
        "1.312 times as fast (95 % interval 1.300 to 1.320)",
        "as it came",
        "imported, no rewrites",
        "2 to 2.2",
        "Substitutions applied, in order (4)",
        "×2",
        "equal",
        "proves nothing: it is constant",
        "note: something was assumed",
        "onnxruntime 1.2.3, 1 thread",
        "written to out.onnx",
        "100 candidates, 10 expansions, 5 measurements",
    ):
        assert part in shown, part
    rows = {
        line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip().startswith(("MatMul", "Split"))
    }
    assert rows == {"MatMul": ["3", "1", "-2"], "Split": ["0", "1", "+1"]}


@pytest.mark.parametrize(("terminal", "lines"), [(True, 3), (False, 1)])
def test_a_long_sentence_is_never_cut(terminal: bool, lines: int) -> None:
    """It is wrapped where somebody looks, and one line where a program reads."""
    reason = " ".join(f"word{number}" for number in range(40))
    shown = io.StringIO()
    console = Console(width=100, file=shown, force_terminal=terminal, color_system=None)
    console.print(render(replace(REPORT, improved=False, reason=reason)), crop=terminal)
    said = shown.getvalue()
    assert " ".join(said.split()).startswith(f"Nothing gained: {reason}")
    assert sum("word" in line for line in said.splitlines()) == lines


def test_no_gain_says_why() -> None:
    shown = text(replace(REPORT, improved=False, reason="no candidate was faster", verified=None))
    assert "Nothing gained: no candidate was faster" in shown
    assert "Substitutions" not in shown


def test_without_a_clock_no_time_is_claimed() -> None:
    shown = text(replace(REPORT, speedup=None, speedup_ci95=None, intervals={}, cost_model="analytic"))
    assert "no clock was used" in shown
    assert "-25.0 %" in shown
    assert "times as fast" not in shown


@pytest.mark.parametrize(("after", "gained"), [(0.004023, False), (0.0040229, False), (0.00402, True)])
def test_a_gain_that_rounds_to_none_is_not_called_one(after: float, gained: bool) -> None:
    costs = {"cost_before_ms": 0.004023, "cost_after_ms": after, "cost_model": "analytic"}
    said = headline(replace(REPORT, speedup=None, speedup_ci95=None, intervals={}, **costs))
    assert said.startswith("Analytic cost" if gained else "Nothing gained: the analytic cost is 0.004023 ms before and")
    assert "-0.0 %" not in said


def test_long_lists_are_cut_unless_everything_is_asked_for() -> None:
    trace = [{"rule": f"rule-{number}", "match": []} for number in range(50)]
    outputs = [OutputFigures(f"y{number}", 0.0, 0.0, 1e-5, True) for number in range(20)]
    long = replace(REPORT, trace=trace, verified=Verified(True, outputs))
    assert "and 20 more groups" in text(long)
    assert "and 8 more" in text(long)
    assert "rule-49" in text(long, verbose=True)
    assert "y19" in text(long, verbose=True)


def test_a_difference_is_shown() -> None:
    bad = Verified(False, [OutputFigures("y", 1.0, 0.5, 1e-5, False)])
    assert "DIFFERS" in text(replace(REPORT, verified=bad))


def test_groups_keep_the_order() -> None:
    assert group_trace(TRACE) == [("merge", 2), ("slice", 1), ("merge", 1)]
    assert group_trace([]) == []


def test_the_json_form_is_plain_and_complete() -> None:
    plain = json.loads(json.dumps(REPORT.to_dict(), allow_nan=False))
    assert plain["speedup_ci95"] == [1.3, 1.32]
    assert plain["verified"]["outputs"][0] == {
        "name": "y", "max_abs": 1e-7, "max_rel": 2e-7, "tolerance": 1e-5, "passed": True, "vacuous": None,
    }  # fmt: skip
    assert plain["runtime"] == {"name": "onnxruntime", "version": "1.2.3", "threads": 1}
    assert plain["intervals"]["original"] == {"ms": 2.2, "low": pytest.approx(2.1), "high": pytest.approx(2.3)}
    assert plain["trace"] == TRACE
    assert plain["format"] == 1
    assert set(Report.__dataclass_fields__) < set(plain)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_become_null(value: float) -> None:
    assert replace(REPORT, speedup=value, gate={"p": [value]}).to_dict()["gate"] == {"p": [None]}


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    write_json(REPORT, path)
    first = path.read_bytes()
    assert json.loads(first)["model"] == "m.onnx"

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputError, match="No space left on device"):
        write_json(replace(REPORT, seed=4), path)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="asks for POSIX permissions")
def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "f", b"x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_outputs_are_checked_before_the_work(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"x")
    (tmp_path / "link.onnx").symlink_to(model)
    assert check_output(tmp_path / "new.onnx", model) == tmp_path / "new.onnx"
    for bad, says in (
        (model, "is the input itself"),
        (tmp_path / "link.onnx", "is the input itself"),
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "o.onnx", "there is no directory"),
    ):
        with pytest.raises(OutputError, match=says):
            check_output(bad, model)
    assert same_place(tmp_path / "a", tmp_path / "." / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.onnx", "m.onnx"]


def test_the_time_is_split_and_measurement_told_apart() -> None:
    stages = {"loading": 2.0, "pricing": 0.01, "timing": 6.5}
    report = replace(REPORT, stages=stages, seconds_total=8.52, seconds_measuring=1.5, gate={"seconds": 6.25})
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(render(report))
    text = console.export_text()
    assert "8.5 s in all: loading 2.0, timing 6.5" in text
    assert "7.8 s of these measuring: regions 1.5, whole models 6.2" in text
