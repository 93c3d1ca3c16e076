"""The coordinator's side of a worker: a process of this machine that it starts, or one on a host that waits."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from rlflow.errors import RlflowError, brief
from rlflow.processes import python_command, started
from rlflow.runtime.process import death, last_words
from rlflow.splitting import frames
from rlflow.splitting.frames import BrokenConnection, Connection, Frame


class WorkerLost(RlflowError):  # noqa: N818 - it says what happened
    """A worker died, fell silent or refused what it was sent; the sentence says which, and what it was doing."""


@dataclass(frozen=True)
class Stop:
    """One part on its worker: what it takes and gives, by name; ``path`` is its file where the worker is started
    here.
    """

    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    path: str = ""


class Station:
    """A worker that holds a part and answers. ``name`` is what sentences call it; ``processor``: seconds of processor
    time that its process had taken when it answered last.
    """

    def __init__(self, stop: Stop, seconds: float) -> None:
        self.stop, self.seconds, self.name = stop, seconds, f"The worker of {stop.title}"
        self.processor = 0.0
        self.link: Connection | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._token = b""

    def start(self, threads: int, core: int | None) -> None:
        """Start a process of this machine, which opens the part meanwhile; :meth:`ready` waits for it."""
        self._token = secrets.token_hex(32).encode()
        self._errors = tempfile.TemporaryFile(prefix="rlflow-part-")  # noqa: SIM115 - lives as long as the process
        arguments = [self.stop.path, self.stop.title, str(threads), "" if core is None else str(core)]
        command = python_command("rlflow.splitting.host", "main", arguments)
        self._child = started(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        )
        self.name += f" (process {self._child.pid})"
        with contextlib.suppress(OSError):
            self._child.stdin.write(self._token + b"\n")  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]

    def connect(self, host: str, port: int, token: bytes) -> None:
        """Connect to a worker that waits elsewhere."""
        self.name += f" at {host}:{port}"
        self._token = token
        try:
            self.link = frames.connected(host, port, self.seconds, self.name)
        except BrokenConnection as error:
            raise WorkerLost(str(error)) from error

    def ready(self) -> None:
        """Wait until the worker is known to be ours and its part is open. Raises WorkerLost."""
        try:
            if self._child is not None:
                self.link = frames.connected("127.0.0.1", self._port(self._child), self.seconds, self.name)
            assert self.link is not None
            frames.greet(self.link, self._token, self.seconds, as_worker=False)
            answer = self.link.receive(self.seconds)
        except BrokenConnection as error:
            raise self.lost(error, "starting") from error
        if answer.kind != "ready":
            raise WorkerLost(f"{self.name} cannot serve: {brief(answer.values.get('why', answer.kind), 400)}")
        if answer.values.get("part") != self.stop.title:
            raise WorkerLost(
                f"{self.name} holds {brief(answer.values.get('part'), 80)}; expected {self.stop.title}. "
                "Name the hosts in the order of their parts."
            )
        self._note_time(answer)

    def _note_time(self, answer: Frame) -> None:
        spent = answer.values.get("processor")
        self.processor = float(spent) if isinstance(spent, (int, float)) else 0.0

    def _port(self, child: subprocess.Popen[bytes]) -> int:
        """The port that a new process says it listens on."""
        watch = threading.Timer(self.seconds, child.kill)
        watch.daemon = True
        watch.start()
        try:
            line = child.stdout.readline()  # type: ignore[union-attr]
        finally:
            watch.cancel()
        if not line.strip().isdigit():
            raise BrokenConnection(f"{self.name} did not say where it listens.")
        return int(line)

    def lost(self, error: BrokenConnection, doing: str) -> WorkerLost:
        """The sentence about a worker that is not there any more."""
        if self._child is None:
            return WorkerLost(f"{error} It was {doing}.")
        if "within" in str(error) and self._child.poll() is None:
            return WorkerLost(f"{self.name} did not answer within {self.seconds:g} s while {doing}; it was stopped.")
        try:
            code = self._child.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return WorkerLost(f"{error} It was {doing}, and was stopped.")
        words = last_words(self._errors) if self._errors is not None else ""
        return WorkerLost(f"{self.name} died while {doing} ({death(code)}).{words}")

    def close(self) -> None:
        """End the worker, or leave the one that is elsewhere."""
        if self.link is not None:
            self.link.close()
        if self._child is None:
            return
        for stream in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        try:
            self._child.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._errors is not None:
            self._errors.close()

    def ask(self, number: int, tensors: dict[str, object]) -> None:
        """Send a request."""
        assert self.link is not None
        try:
            self.link.send(Frame("run", {"id": number}, tensors), self.seconds)  # type: ignore[arg-type]
        except BrokenConnection as error:
            raise self.lost(error, f"running request {number}") from error

    def answered(self, number: int) -> dict[str, object]:
        """The answer to the request that was sent first of those that wait."""
        assert self.link is not None
        try:
            answer = self.link.receive(self.seconds)
        except BrokenConnection as error:
            raise self.lost(error, f"running request {number}") from error
        if answer.kind == "failed":
            raise WorkerLost(f"{self.name} refused request {number}: {brief(answer.values.get('why'), 400)}")
        missing = [name for name in self.stop.outputs if name not in answer.tensors]
        if answer.kind != "done" or answer.values.get("id") != number or missing:
            raise WorkerLost(f"{self.name} answered request {number} with something else; it is not of this split.")
        self._note_time(answer)
        return dict(answer.tensors)


def cores_for(count: int) -> list[int] | None:
    """A processor for each of ``count`` workers, round and round; ``None`` where processes cannot be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    own: Sequence[int] = sorted(os.sched_getaffinity(0))
    return [own[number % len(own)] for number in range(count)]
