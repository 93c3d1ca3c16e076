"""What is said of a machine once it takes part, without Ray."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rlflow.crew import ray_node
from rlflow.errors import RlflowError


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        yield one
        one.kill()


def test_nobody_is_told_before_the_port_for_tasks_is_open(child: subprocess.Popen[bytes]) -> None:
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        port, opened = late.getsockname()[1], []

        def open_it() -> None:
            opened.append(time.monotonic())
            late.listen()

        timer = threading.Timer(0.3, open_it)
        timer.start()
        ray_node._await_port(port, child, time.monotonic() + 20.0)
        assert opened and time.monotonic() >= opened[0]
        timer.join()


def test_a_port_that_never_opens_is_a_sentence(child: subprocess.Popen[bytes]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(RlflowError, match=f"port {port} for tasks did not open"):
            ray_node._await_port(port, child, time.monotonic() + 0.2)
        child.kill()
        child.wait()
        began = time.monotonic()
        with pytest.raises(RlflowError, match="Is it in use"):
            ray_node._await_port(port, child, began + 60.0)
        assert time.monotonic() - began < 30.0
