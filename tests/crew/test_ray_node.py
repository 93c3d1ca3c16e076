"""What is said of a machine once it takes part, without Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlflow.crew import ray_crew, ray_node
from rlflow.errors import RlflowError

TOO_LATE = f"The current node {ray_crew.LATE}. This could happen because some of the raylet failed to startup."
#: Stands for `ray start`: too late for itself as often as the file has letters, then what Ray says and does.
RAY = f"""
import pathlib, socket, sys, time
left = pathlib.Path(sys.argv[1])
if left.read_text():
    left.write_text(left.read_text()[1:])
    sys.exit({TOO_LATE!r})
listening = socket.socket()
listening.bind(("127.0.0.1", int(sys.argv[2])))
print("Local node IP: 10.0.0.9", "Ray runtime started.", sep="\\n", flush=True)
listening.listen()
time.sleep(60)
"""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A machine whose Ray is too late ``times`` times."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    left = tmp_path / "left"
    monkeypatch.setattr(ray_node, "not_installed", lambda *given: None)
    command = [sys.executable, "-c", RAY, str(left), port]
    monkeypatch.setattr(ray_node.RayNode, "command", property(lambda self: command))

    def late(times: int) -> ray_node.RayNode:
        left.write_text("x" * times)
        return ray_node.RayNode(client_port=int(port))

    return late


def test_ray_is_started_again_where_it_was_too_late_for_itself(node: Any) -> None:
    heard: list[str] = []

    def ready(address: str) -> None:
        heard.append(address)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        node(ray_node.TRIES - 1).run(ready)
    assert heard == ["10.0.0.9"]
    with pytest.raises(RlflowError, match=ray_crew.LATE):
        node(ray_node.TRIES).run(ready)
    assert len(heard) == 1


def test_a_cluster_of_this_machine_is_begun_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    ended: list[bool] = []
    wrong: list[Exception] = []

    def init(**options: Any) -> None:
        begun.append(options)
        if wrong:
            raise wrong.pop()

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: ended.append(True)))
    wrong[:] = [Exception(TOO_LATE)] * 2
    ray_crew.begin(address="local")
    assert begun == [{"address": "local"}] * 3 and len(ended) == 2
    wrong[:] = [Exception(TOO_LATE)] * ray_crew.TRIES
    with pytest.raises(ConnectionError, match=ray_crew.LATE):
        ray_crew.begin(address="local")
    wrong[:] = [ValueError("no such address")]
    with pytest.raises(ValueError, match="no such address"):
        ray_crew.begin(address="local")


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


@pytest.mark.parametrize(
    ("given", "kept", "mode"),
    [
        ({}, False, None),
        ({}, True, "token"),
        ({"RAY_AUTH_TOKEN": "abc"}, False, "token"),
        ({"RAY_AUTH_MODE": "disabled"}, True, "disabled"),
    ],
)
def test_a_token_is_sent_where_there_is_one(
    given: dict[str, str], kept: bool, mode: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "")  # so that it is taken back afterwards
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if kept:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0123")
    ray_crew.send_token()
    assert os.environ.get("RAY_AUTH_MODE") == mode
