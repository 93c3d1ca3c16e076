"""The table that ``make gpu-check`` ends in: what is measured, what is measured in part, and what is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproduce" / "gpu"
_SPEC = importlib.util.spec_from_file_location("gpu_check_summary", FOLDER / "summary.py")
assert _SPEC is not None
assert _SPEC.loader is not None
summary = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(summary)

PLANNED = {"cases": 2, "operators": 3, "calibration": 2, "optimize": 2}


def found(operators: int, models: int) -> dict[str, Any]:
    return {
        "gpu": {"device": "Fake GPU (sm_90, 4 processors)"},
        "cases": [{"difference": off} for off in (2e-7, 0.004)[:models]],
        "operators": [{"ratio": ratio} for ratio in (1.5, 0.8, 0.9)[:operators]],
        "calibration": [{"error": error} for error in (0.021, 0.134)[:models]],
        "optimize": [{"report": {"improved": improved, "speedup": 1.0}} for improved in (True, False)[:models]],
    }


@pytest.mark.parametrize(
    ("content", "measured"),
    [
        (found(3, 2), ["yes"] * 4),
        (found(2, 1), ["in part"] * 4),
        (found(1, 0), ["no", "in part", "no", "no"]),
        (None, ["no"] * 4),
    ],
)
def test_what_is_measured(content: dict[str, Any] | None, measured: list[str]) -> None:
    rows = summary.rows(content, PLANNED, "no GPU here" if content is None else "")
    assert [row[1] for row in rows[:4]] == measured
    assert {row[1] for row in rows[4:]} == {"no"}
    assert len(rows) == 4 + len(summary.NOT_MEASURED)


def test_the_table_as_it_is_printed() -> None:
    lines = summary.text(found(3, 2), PLANNED).splitlines()
    assert lines[0] == "On Fake GPU (sm_90, 4 processors)."
    assert lines[1].split() == ["what", "measured", "what", "is", "known"]
    assert "yes       2 of 2 graphs; off by at most 0.004 of the largest value" in lines[3]
    assert "yes       3 of 3 operators; 0.90 times torch's time in the middle, 1.50 at worst" in lines[4]
    assert "yes       2 of 2 models; error at most 13.4%" in lines[5]
    assert "yes       2 of 2 models; a confirmed gain on 1" in lines[6]


def test_without_a_gpu_the_check_ends_in_the_table() -> None:
    environment = {**os.environ, "RLFLOW_CUDA_PATH": "", "RLFLOW_CUDA_ONLY": "1"}
    command = [sys.executable, os.fspath(FOLDER / "check.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 1
    assert "gpu-check: The NVIDIA driver is not installed here" in done.stderr
    assert done.stdout.splitlines()[0] == "Nothing was measured on a GPU."
    assert done.stdout.count("no GPU here") == 4
