"""This machine as part of a Ray cluster: the first one, or one that joins."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rlflow.crew.ray_crew import LATE, RESOURCE, SETTINGS
from rlflow.crew.task_list import TRIES
from rlflow.errors import RlflowError, UsageError
from rlflow.processes import started
from rlflow.registry import not_installed

#: Ports of the first machine: for machines that join, and for those who send tasks.
PORT, CLIENT_PORT = 6379, 10001
#: So many seconds for Ray to start, and to end.
_START, _END = 90.0, 20.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"Local node IP: (\S+)")


@dataclass(frozen=True)
class RayNode:
    """How this machine takes part. ``join``: ``HOST:PORT`` of the first machine; ``None``: this is the first one.

    ``device``: the name under which it measures, one task at a time; ``None``: it only computes. ``cores``: how many
    workers it has room for; ``None``: one a core. ``port``, ``client_port``: of the first machine.
    """

    join: str | None = None
    device: str | None = None
    cores: int | None = None
    port: int = PORT
    client_port: int = CLIENT_PORT

    def __post_init__(self) -> None:
        missing = not_installed("Ray", "ray", "[ray]")
        if missing is not None:
            raise UsageError(f"A worker needs Ray, and {missing}.")
        if self.device is not None and not _NAME.fullmatch(self.device):
            raise UsageError(
                f"The device name {self.device!r} cannot be used; expected letters, digits and any of . _ -."
            )
        if self.join is not None and not re.fullmatch(r"\S+:\d+", self.join):
            raise UsageError(f"The address {self.join!r} cannot be read; expected HOST:PORT, as in 10.0.0.2:{PORT}.")

    @property
    def command(self) -> list[str]:
        """What starts Ray here, and stays until it ends."""
        ports = [f"--port={self.port}", f"--ray-client-server-port={self.client_port}"]
        where = ["--head", *ports, "--include-dashboard=false"] if self.join is None else [f"--address={self.join}"]
        if self.cores is not None:
            where.append(f"--num-cpus={self.cores}")
        if self.device is not None:
            where.append(f"--resources={json.dumps({RESOURCE + self.device: 1})}")
        return [sys.executable, "-m", "ray.scripts.scripts", "start", *where, "--block", "--disable-usage-stats"]

    def run(self, ready: Callable[[str], object]) -> None:
        """Take part until Ctrl-C; ``ready`` hears this machine's address once others can join and send tasks.

        Raises :class:`RlflowError` where Ray cannot start, or ends by itself.
        """
        child, said, address = self._begun()
        try:
            ready(address)
            while said.get() is not None:
                pass
            raise RlflowError(f"Ray ended by itself, with status {child.wait()}.")
        finally:
            _end(child)

    def _begun(self) -> tuple[subprocess.Popen[bytes], queue.Queue[str | None], str]:
        """Ray, what it says, and this machine's address. It is started again where it was too late for itself."""
        for attempt in range(TRIES):
            child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **SETTINGS},
            )  # fmt: skip
            started(child)
            said: queue.Queue[str | None] = queue.Queue()
            threading.Thread(target=_listen, args=(child, said), daemon=True).start()
            deadline = time.monotonic() + _START
            try:
                address = _address(said, deadline)
                if self.join is None:
                    _await_port(self.client_port, child, deadline)
                return child, said, address
            except BaseException as error:
                _end(child)
                if LATE not in str(error) or attempt == TRIES - 1:
                    raise
        raise AssertionError("not reached")


def _listen(child: subprocess.Popen[bytes], said: queue.Queue[str | None]) -> None:
    """Hand on what Ray says, line by line, and ``None`` at its end."""
    assert child.stdout is not None
    for line in child.stdout:
        said.put(line.decode("utf-8", "replace").strip())
    said.put(None)


def _address(said: queue.Queue[str | None], deadline: float) -> str:
    """This machine's address, once Ray says that it has started."""
    address, lines = "", list[str]()
    while True:
        try:
            line = said.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            raise RlflowError(f"Ray did not start within {_START:.0f} s. {_words(lines)}") from None
        if line is None:
            raise RlflowError(f"Ray cannot start here. {_words(lines)}")
        lines += [line] if line else []
        found = _ADDRESS.search(line)
        address = found.group(1) if found else address
        if "Ray runtime started" in line:
            return address


def _await_port(port: int, child: subprocess.Popen[bytes], deadline: float) -> None:
    """Return once the port for tasks is open: Ray says that it has started seconds before, and who sends a task in
    between waits for an answer in vain.
    """
    while child.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.1)
    raise RlflowError(f"Ray started, but its port {port} for tasks did not open within {_START:.0f} s. Is it in use?")


def _words(lines: list[str]) -> str:
    return f"It said: {' '.join(lines)[-400:]}" if lines else "It said nothing."


def _end(child: subprocess.Popen[bytes]) -> None:
    """End Ray and what it has started here."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_END)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    with contextlib.suppress(ProcessLookupError):  # what it had begun when it failed
        os.killpg(child.pid, signal.SIGKILL)
