"""The table of what users of other tools ask for: every command in it runs as it is written, on a small model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import onnx
import pytest

from tests.cli.commands import merge_model, rlflow

PAGE = Path(__file__).resolve().parents[1] / "docs" / "comparison.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## What users of these tools ask for")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| ")]
COMMANDS = list(dict.fromkeys(one for row in ROWS for one in re.findall(r"`rlflow ([^`]+)`", row[2])))


def opened(model: onnx.ModelProto, name: str | None) -> onnx.ModelProto:
    """The model with its first dimension open, under a name or none."""
    for value in (*model.graph.input, *model.graph.output):
        first = value.type.tensor_type.shape.dim[0]
        first.ClearField("dim_value")
        if name is not None:
            first.dim_param = name
    return model


def test_each_request_has_an_answer_and_what_shows_it() -> None:
    answers = {row[1] for row in ROWS[1:]}
    assert len(ROWS) > 25 and answers == {"yes", "in part", "no"}
    assert all(len(row) == 3 and row[2] for row in ROWS)
    shown = re.compile(r"`(rlflow|make|import) |\]\(|this page")
    without = [row[0] for row in ROWS[1:] if row[1] != "no" and not shown.search(row[2])]
    assert not without, f"nothing shows these: {without}"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_runs_as_written(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model = opened(merge_model(), None if "x.0" in command else "N")
    Path("A").write_bytes(model.SerializeToString())
    words = shlex.split(command)
    if "-o" not in words and words[0] != "simplify" and "B" in words:  # B is what another command wrote
        Path("B").write_bytes(model.SerializeToString())
    done = rlflow(*words)
    assert done.exit_code in ((0, 4) if "--check" in words else (0,)), done.output
    assert "Traceback" not in done.output
    for name in ("B", *(word for word in words if word.endswith(".html"))):
        if name in words:
            assert Path(name).stat().st_size > 0
