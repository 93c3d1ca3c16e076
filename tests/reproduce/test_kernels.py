"""The bench of the kernels: what it says beside OpenVINO, and of the machine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow.errors import RuntimeRefused
from rlflow.runtime import RuntimeOptions

FOLDER = Path(__file__).resolve().parents[2] / "reproduce" / "kernels"
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "common")]
spec = importlib.util.spec_from_file_location("kernels_models", FOLDER / "models.py")
assert spec is not None and spec.loader is not None
models = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = models
spec.loader.exec_module(models)

import machine  # noqa: E402 - from reproduce/common


class FakeWorker:
    """Its models take as many milliseconds as they are called, more in each process; by the wall ten times as many."""

    refuses = False

    def __init__(self, options: RuntimeOptions) -> None:
        self.options, self.process = options, 0

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def load(self, model: bytes) -> float:
        if self.refuses and self.options.runtime == "openvino":
            raise RuntimeRefused("OpenVINO refused the model.")
        return float(model)

    def prepare(self, handles: list[float]) -> None:
        pass

    def restart(self) -> None:
        self.process += 1

    def time_interleaved(self, handles: list[float], feeds: Any, **how: Any) -> SimpleNamespace:
        slower = [1.0, 1.1, 1.3, 1.4, 1.2][self.process] if self.options.runtime == "openvino" else 1.0
        ms = np.array([handles, handles, [9 * one for one in handles]]) * slower
        return SimpleNamespace(cpu_ms=ms, wall_ms=10 * ms)


@pytest.mark.parametrize("threads", [1, 2])
def test_openvino_is_set_against_both_in_the_middle_of_the_blocks(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "Worker", FakeWorker)
    how = models.How(1.0, "onnxruntime", "mixed", "1s", threads=threads)
    found = models.beside_openvino(b"4", b"2", {}, how)
    assert found["openvino_blocks"] == pytest.approx([2.0, 2.2, 2.4, 2.6, 2.8])
    assert (found["openvino"], found["onnxruntime_over_openvino"]) == pytest.approx((2.4, 1.2))


def test_a_model_that_openvino_refuses_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "refuses", True)
    found = models.beside_openvino(b"4", b"2", {}, models.How(1.0, "onnxruntime", "mixed", "1s"))
    assert found == {"openvino": None, "no_openvino": "OpenVINO refused the model."}


def test_a_thread_does_about_as_much_as_a_core_alone() -> None:
    assert 0.3 < machine.cores_at_once(1, 0.1) < 3.0
