"""What the start of a session with kernels costs beside the runtime's own part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_sessions import needs_library, planned

import rlflow
from rlflow import zoo
from rlflow.errors import UsageError
from rlflow.kernels import prepare, unavailable

SCRIPT = "import sys, rlflow.kernels; rlflow.kernels.session(sys.argv[1]); sys.exit('onnx' in sys.modules)"


@needs_library
def test_a_session_of_a_prepared_file_does_not_read_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library onnx alone takes as long to import as ONNX Runtime to open a small model."""
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(planned())
    assert prepare(path) != os.fspath(path)
    subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT, os.fspath(path)], check=True)


@needs_library
@pytest.mark.parametrize(
    ("asked", "refused"),
    [("", False), ("portable", False), ("avx2", False), ("avx512", False), ("foo", True), ("AVX2", True)],
)
def test_an_instruction_set_that_nobody_knows_is_refused_before_the_work(
    asked: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library refuses it too, when it is loaded; then it is a note, and the model is written without a plan."""
    monkeypatch.setenv("RLFLOW_KERNELS_ISA", asked)
    sentence = f"RLFLOW_KERNELS_ISA is {asked!r}; expected avx512, avx2 or portable"
    assert unavailable() == (sentence if refused else None)
    if refused:
        with pytest.raises(UsageError, match=sentence):
            rlflow.optimize(zoo.build("squeezenet1.1"), kernels=True, budget="1s")
