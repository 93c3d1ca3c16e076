"""The default command, with nothing but a short budget, on real models: none is refused for what one part lacks."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    """``reproduce/models/run.py``, which makes the table of these models."""
    sys.path.insert(0, str(ROOT / "reproduce" / "common"))
    spec = importlib.util.spec_from_file_location("reproduce_models", ROOT / "reproduce" / "models" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


real_models = script()
BUDGET = "2s"
FOLDER = ROOT.parent / "shared" / "data" / "models"
ENTRIES: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text()) if FOLDER.is_dir() else []
#: The models are not part of the repository; where they are absent, test_features.py has their features.
ABSENT = pytest.mark.skipif(not ENTRIES, reason="the real models (../shared/data/models) are not on this machine")


def entries() -> list[Any]:
    """In two groups, so that two workers run them and no more compete for the clock."""
    found: list[Any] = [
        pytest.param(entry, id=entry["name"], marks=[ABSENT, pytest.mark.xdist_group(f"real-models-{number % 2}")])
        for number, entry in enumerate(ENTRIES)
    ]
    return found or [pytest.param(None, id="none", marks=ABSENT)]


@pytest.mark.parametrize("entry", entries())
def test_the_default_command(entry: dict[str, Any], tmp_path: Path) -> None:
    row = real_models.run(FOLDER / f"{entry['name']}.onnx", entry["feed"], BUDGET, tmp_path)
    assert real_models.sound(row, entry["feed"]), row
    if entry["name"] == "espcn_qonnx_customops":
        assert "the operator Quant of the domain onnx.brevitas" in row["sentence"]
