"""The one writer of results files: every row says in which run it was made, and a changed tree is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

REPRODUCE = Path(__file__).resolve().parents[2] / "reproduce"
sys.path.insert(0, str(REPRODUCE / "common"))

import machine  # noqa: E402 - from reproduce/common
import results  # noqa: E402

HEADER = {"kind": "machine", "commit": "abc", "cpu": "a CPU", "cores": 2, "python": "3.11", "packages": {}}


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are of the commit that :func:`header_of` was told last."""
    header_of(monkeypatch, "abc")


def header_of(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    header = {**HEADER, "commit": commit, "date": f"2026-11-22 of {commit}"}
    monkeypatch.setattr(machine, "header", lambda command: {**header, "command": " ".join(command)})


def test_rows_keep_the_run_they_were_made_in(tmp_path: Path, at: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "latest.jsonl"
    first = results.Results(path, ["make", "it"])
    first.extend([{"key": "a", "ms": 1}, {"key": "b", "ms": 2}])
    header_of(monkeypatch, "def")
    second = results.Results(path, ["make", "it"], resume=True)
    second.drop(lambda row: row["key"] == "a")
    second.add({"key": "a", "ms": 3})

    rows, machines = results.read(path)
    assert {row["key"]: machines[row["run"]]["commit"] for row in rows} == {"a": "def", "b": "abc"}
    assert second.about().count("1 of 2 rows") == 2


def test_a_command_keeps_no_folder_of_this_machine() -> None:
    given = ["run.py", "--data", "/somewhere/data/models", "--output", "../here/rows.jsonl", "--budget", "60s"]
    assert machine.header(given)["command"] == "run.py --data models --output ../here/rows.jsonl --budget 60s"


def test_no_kept_command_has_an_absolute_path() -> None:
    files = sorted(REPRODUCE.glob("*/results/*.jsonl"))
    headers = [header for file in files for header in results.read(file)[1].values()]
    assert len(headers) > 20
    words = [word for header in headers for word in str(header.get("command", "")).split()]
    assert not [word for word in words if word.startswith("/")]


def test_a_file_of_before_rows_named_their_run_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (HEADER, {"key": "a"}, {"key": "b"})))
    rows, machines = results.read(path)
    assert {machines[row["run"]]["commit"] for row in rows} == {"abc"}


def test_rows_of_nowhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps({"key": "a", "run": "gone"}))
    with pytest.raises(SystemExit, match="does not say where they ran"):
        results.read(path)


def test_a_changed_tree_is_refused_unless_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header_of(monkeypatch, "abc-dirty")
    with pytest.raises(SystemExit, match="--dirty"):
        results.Results(tmp_path / "latest.jsonl", ["make"])
    kept = results.Results(tmp_path / "latest.jsonl", ["make"], dirty=True)
    kept.add({"ms": 1})
    assert "with uncommitted changes" in kept.about()


def test_nothing_is_written_before_the_first_row(tmp_path: Path, at: None) -> None:
    path = tmp_path / "latest.jsonl"
    path.write_text("what was there")
    results.Results(path, ["make"])
    assert path.read_text() == "what was there"


def test_bulky_fields_are_kept_outside_the_repository(
    tmp_path: Path, at: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RAW", tmp_path / "raw")
    path = tmp_path / "table" / "results" / "latest.jsonl"
    results.Results(path, ["make"], bulky=("curve",)).add({"ms": 1, "curve": [1, 2]})
    assert "curve" not in results.read(path)[0][0]
    again = results.Results(path, ["make"], resume=True, bulky=("curve",))
    assert again.rows[0]["curve"] == [1, 2]


def test_processes_that_share_a_file_keep_each_others_rows(
    tmp_path: Path, at: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RAW", tmp_path / "raw")
    path = tmp_path / "latest.jsonl"
    one, other = (results.Results(path, ["make"], resume=True, shared=True) for _ in range(2))
    one.add({"ms": 1})
    other.add({"ms": 2})
    assert [row["ms"] for row in results.read(path)[0]] == [1, 2]


def test_rows_worked_out_anew_stay_of_the_run_that_measured(
    tmp_path: Path, at: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "latest.jsonl"
    results.Results(path, ["make"]).extend([{"name": "a", "error": 1}, {"name": "b", "error": 2}])
    header_of(monkeypatch, "def")
    later = results.Results(path, ["make"], resume=True)
    later.replace([{"name": "a", "error": 3}, {"name": "b", "error": 4}], lambda row: row["name"] == "b")
    rows, machines = results.read(path)
    assert {row["name"]: machines[row["run"]]["commit"] for row in rows} == {"a": "abc", "b": "def"}


@pytest.mark.parametrize("path", sorted(REPRODUCE.glob("*/results/*.jsonl")), ids=lambda path: path.parts[-3])
def test_every_row_in_the_repository_says_where_it_is_from(path: Path) -> None:
    rows, machines = results.read(path)
    assert rows
    assert all(machines[row["run"]]["date"] for row in rows)


def test_a_machine_without_git_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in the container, which has neither git nor a repository."""
    monkeypatch.setenv("PATH", str(tmp_path))
    header = machine.header(["make", "it"])
    assert header["commit"] is None and "commit unknown" in machine.describe(header)
