"""The idioms of reproduce/idioms: every spelling is a valid model, and none is there twice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import onnx
import pytest

HERE = Path(__file__).resolve().parents[2] / "reproduce" / "idioms"
spec = importlib.util.spec_from_file_location("idioms_run", HERE / "run.py")
assert spec is not None and spec.loader is not None
idioms = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = idioms
spec.loader.exec_module(idioms)


@pytest.mark.parametrize("idiom", idioms.IDIOMS, ids=lambda idiom: idiom["name"])
def test_four_spellings_at_least_and_each_is_a_model_of_its_own(idiom: dict) -> None:
    texts = {idioms.model_text(idiom, spelling) for spelling in idiom["spellings"]}
    assert len(texts) == len(idiom["spellings"]) >= 4
    for text in texts:
        onnx.checker.check_model(onnx.parser.parse_model(text), full_check=True)


def test_a_spelling_reaches_its_bar_at_nine_tenths_of_the_gain_by_hand() -> None:
    row = {"exit_status": 0, "improved": True, "speedup": 1.81, "by_hand": 2.0}
    assert idioms.reached(row)
    assert not idioms.reached({**row, "speedup": 1.79})
    assert not idioms.reached({**row, "improved": False})
    assert not idioms.reached({**row, "exit_status": 1})
