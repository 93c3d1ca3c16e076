"""The table of rule sets: the rules are those that are installed, wherever the table's script is."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from rlflow.rewrite import paths

REPRODUCE = Path(__file__).resolve().parents[2] / "reproduce"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """reproduce/rule_sets/run.py"""
    spec = importlib.util.spec_from_file_location("rule_sets_run", REPRODUCE / "rule_sets" / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sets_are_of_the_installed_package(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the scripts lie beside a copy of the rules, and not beside the package. Rules of that copy were
    proved again, for many minutes.
    """
    installed = tmp_path / "rlflow" / "_substitutions"
    (installed / "core").mkdir(parents=True)
    shutil.copy(paths.substitutions_dir() / "core" / "parallel.json", installed / "core")
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "rlflow")
    sets = script.rule_sets([])
    assert list(sets) == ["taso", "core", "everything"]
    assert 0 < len(sets["core"]) < 100 and len(sets["everything"]) == len(sets["core"])
