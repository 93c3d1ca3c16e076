"""The rows of this folder: which model and which machine each is of, and what it says.

A row is known by its model *and* its machine: what pays depends on the vectors that a processor has, because the
runtime's blocks of channels are as wide as those. So a row never takes the place of another machine's.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import machine

CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
CACHE = machine.ROOT / "build" / "exports"
OLDER = "@older"
#: How the reason begins where the final comparison ended before it could decide.
UNDECIDED = ("No claim", "Undecided", "This machine is too noisy")
#: A gain that counts.
WORTH = 1.05


def names() -> list[str]:
    """All models in the order of the table, read from the text of architectures.py, which itself needs torch."""
    builders = re.findall(r'^    "(\w+)": ', (HERE / "architectures.py").read_text(encoding="utf-8"), re.MULTILINE)
    return [*builders, *(name + OLDER for name in CONFIG["older"])]


def plain(name: str) -> str:
    """The architecture of a model, whichever exporter wrote it."""
    return name.removesuffix(OLDER)


def model_file(name: str, seed: int) -> Path:
    """Where the exported model is kept."""
    return CACHE / f"{name}-{seed}.onnx"


def kept_file(name: str, seed: int) -> Path:
    """Where the faster model is kept, if there is one."""
    return CACHE / "optimized" / f"{name}-{seed}.onnx"


def key(row: dict[str, Any], runs: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """What a row is known by: its model, and where it was measured."""
    return row["name"], machine.place(runs[row["run"]])


def gain(row: dict[str, Any]) -> float:
    """The confirmed speed-up; 1 where the model was kept as it came."""
    return float(row["speedup"]) if row.get("improved") else 1.0


def undecided(row: dict[str, Any]) -> bool:
    """Whether the row's 1.00 says little."""
    return not row.get("improved") and str(row.get("reason", "")).startswith(UNDECIDED)


def sound(row: dict[str, Any]) -> bool:
    """Whether the row has a gain at all."""
    return row["kind"] == "report" and row["exit_status"] == 0


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many models, their geometric mean, and how many gain what counts."""
    gains = [gain(row) for row in rows if sound(row)]
    if not gains:
        return "0 models."
    above = sum(value >= WORTH for value in gains)
    return f"{len(gains)} models, geometric mean {mean(gains):.3f}, {above} at {WORTH} or more."


def mean(gains: Sequence[float]) -> float:
    """The geometric one."""
    return math.exp(sum(map(math.log, gains)) / len(gains))
