"""A worker that begins as a copy of its client, for commands that time nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


COPIED = """
import os, signal, sys
from rlflow.errors import RuntimeCrashed
from rlflow.runtime import Worker
with Worker() as worker:
    worker.begin_copied()
    first = worker._starting.child
    print(type(first).__name__, worker.describe()["runtime"], worker.pid == first.pid, "onnxruntime" in sys.modules)
    os.kill(first.pid, signal.SIGINT)
    worker.describe()
    os.kill(first.pid, signal.SIGSEGV)
    try:
        worker.describe()
    except RuntimeCrashed as error:
        print(error)
    print(worker.describe()["runtime"], worker.starts, type(worker._process.child).__name__)
with Worker() as worker:
    worker.begin_copied()
    idle = worker._starting.child
print(first.returncode, idle.returncode is not None)
import onnxruntime
with Worker() as worker:
    worker.begin_copied()
    print(type(worker._starting.child).__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a copy of a process is safe on Linux only")
def test_a_worker_may_begin_as_a_copy_of_its_client() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-c", COPIED], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    started, died, again, ended, spawned = done.stdout.splitlines()
    assert started == "Copy onnxruntime True False"
    assert "killed by SIGSEGV" in died
    assert again == "onnxruntime 2 Popen", "the one after it is a process of its own"
    assert ended == f"{-signal.SIGSEGV} True"
    assert spawned == "Popen", "a library that is open here has threads that would not be copied"
