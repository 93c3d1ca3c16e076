"""What the start of a session with kernels costs beside the runtime's own part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_sessions import needs_library, planned

from rlflow.kernels import prepare

SCRIPT = "import sys, rlflow.kernels; rlflow.kernels.session(sys.argv[1]); sys.exit('onnx' in sys.modules)"


@needs_library
def test_a_session_of_a_prepared_file_does_not_read_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library onnx alone takes as long to import as ONNX Runtime to open a small model."""
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(planned())
    assert prepare(path) != os.fspath(path)
    subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT, os.fspath(path)], check=True)
