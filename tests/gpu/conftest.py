"""The cudnn back end on its stand-in: a process of tests sees one "GPU", whose memory is the host's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("gpu_stand_in", Path(__file__).with_name("stand_in.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
stand_in = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(stand_in)


@pytest.fixture(scope="session")
def fake_folder() -> Path:
    """Where the stand-in lies."""
    if sys.platform != "linux":
        pytest.skip("the cudnn back end runs on Linux alone")
    if stand_in.compiler() is None:
        pytest.skip("no C++ compiler to build the stand-in with")
    return stand_in.build()


@pytest.fixture
def fake_gpu(fake_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process, and the workers that it starts, find the stand-in and nothing else."""
    from rlflow.runtime import cuda

    monkeypatch.setenv("RLFLOW_CUDA_PATH", str(fake_folder))
    monkeypatch.setenv("RLFLOW_CUDA_ONLY", "1")
    cuda.device.cache_clear()
    yield fake_folder
    cuda.device.cache_clear()
