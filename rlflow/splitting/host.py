"""A worker: a process that holds one part of a model, and runs it on what it is sent."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlflow.errors import RlflowError
from rlflow.splitting import frames
from rlflow.splitting.frames import BrokenConnection, Connection, Frame

#: Seconds that a stranger may take to show the token, and that the rest of a frame may take once it has begun.
_GREETING, _FRAME = 10.0, 600.0
_CONNECT = 120.0


@dataclass(frozen=True)
class Held:
    """A part that is open: the answer to a request is what its session gives."""

    title: str
    session: Any

    @classmethod
    def opened(cls, path: str, title: str, threads: int) -> Held:
        """Open the model in ``path``. Raises RuntimeRefused, RuntimeUnavailable."""
        from rlflow.runtime import RuntimeOptions, runtime

        options = RuntimeOptions(threads=threads)
        place = runtime(options.runtime)
        place.start()
        return cls(title, place.open(path, options))

    def answer(self, asked: Frame) -> Frame:
        """The outputs and the processor seconds of this process so far, or the sentence of what went wrong."""
        number = asked.values.get("id")
        try:
            if asked.kind != "run" or not isinstance(number, int):
                raise BrokenConnection(f"{self.title} was asked for {asked.kind!r}; it only runs.")
            found = self.session.run(asked.tensors)
            for name, value in found.items():
                if not isinstance(value, np.ndarray):
                    raise BrokenConnection(f"The output {name!r} of {self.title} is no tensor, and cannot be sent.")
        except RlflowError as error:
            return Frame("failed", {"id": number if isinstance(number, int) else -1, "why": str(error)})
        return Frame("done", {"id": number, "processor": time.process_time()}, found)


def serve(link: Connection, held: Held) -> None:
    """Answer requests until the other end leaves."""
    link.send(Frame("ready", {"part": held.title, "processor": time.process_time()}), _GREETING)
    while True:
        try:
            asked = link.receive(_FRAME, idle=math.inf)
        except BrokenConnection:
            return
        answer = held.answer(asked)
        try:
            link.send(answer, _FRAME)
        except BrokenConnection as error:
            if answer.kind == "failed":
                return
            link.send(Frame("failed", {"id": asked.values["id"], "why": str(error)}), _GREETING)


def listen(waiting: socket.socket, held: Held, token: bytes, say: Callable[[str], None]) -> None:
    """Serve one coordinator after the other, each of which has to know the token; until it is interrupted."""
    while True:
        link, address = waiting.accept()
        connection = Connection(link, f"The coordinator at {address[0]}")
        try:
            frames.greet(connection, token, _GREETING, as_worker=True)
            say(f"{connection.name} is connected.")
            serve(connection, held)
            say(f"{connection.name} has left.")
        except BrokenConnection as error:
            say(str(error))
        finally:
            connection.close()


def main() -> int:
    """A worker of this machine, for the process that started it: ``sys.argv[1:]`` is the model's path, its title, the
    number of threads and the processor to stay on ("" for any); the token comes on the standard input, the port goes to
    the standard output. Ends with its connection.
    """
    path, title, threads, core = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's to handle
    if core:
        os.sched_setaffinity(0, {int(core)})
    token = sys.stdin.buffer.readline().strip()
    with frames.listening("127.0.0.1", 0) as waiting:
        sys.stdout.write(f"{waiting.getsockname()[1]}\n")
        sys.stdout.flush()
        os.dup2(2, 1)  # what native code prints is no answer
        waiting.settimeout(_CONNECT)
        link, _ = waiting.accept()
    connection = Connection(link, "The coordinator")
    try:
        frames.greet(connection, token, _CONNECT, as_worker=True)
        try:
            held = Held.opened(path, title, int(threads))
        except RlflowError as error:
            connection.send(Frame("failed", {"id": -1, "why": str(error)}), _GREETING)
            return 1
        serve(connection, held)
    except BrokenConnection:
        return 1  # the coordinator has gone; there is nobody to tell
    finally:
        connection.close()
    return 0
