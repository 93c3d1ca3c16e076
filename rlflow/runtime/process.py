"""The process of a worker, from the client's side: it is started, spoken to, watched, and its death told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

from rlflow.errors import RuntimeCrashed, RuntimeRefused, RuntimeUnavailable
from rlflow.forks import Copy, can_copy
from rlflow.processes import module_path, python_command, started
from rlflow.runtime import wire

_C = TypeVar("_C", bound="Channel")
_Child = subprocess.Popen[bytes] | Copy
_START_SECONDS = 120.0
#: What the process was doing, by the request that it got.
_DOING = {
    "start": "starting",
    "load": "loading a model",
    "interface": "loading a model",
    "run": "running a model",
    "time_interleaved": "timing models",
    "measure_many": "measuring a model",
    "profile": "profiling a model",
    "optimized": "optimising a model",
    "write_optimized": "optimising a model",
}


class WorkerProcess:
    """A process that runs ``main`` of ``module``, the pipe to it, and the keys of the models that it holds
    (``loaded``). Not waited for until it is greeted. ``serve``: what a copy of this process runs instead, which has
    libraries open that the new one would open, where there may be one.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        serve: Callable[[], int] | None = None,
    ) -> None:
        if not sys.executable:
            raise RuntimeUnavailable(
                "Python does not know its own executable here, so no worker process can be started."
            )
        self.loaded: set[int] = set()
        self._errors = tempfile.TemporaryFile(prefix="rlflow-worker-")  # noqa: SIM115 - lives as long as the process
        self.child: _Child
        if serve is not None and settings is None and can_copy():
            self.child = started(_copied(serve, arguments, self._errors))
        else:
            self.child = started(_spawned(module, arguments, self._errors, settings))
        # for those who never close
        self._last_resort = weakref.finalize(self, _discard, self.child, self._errors, True)

    @property
    def ended(self) -> bool:
        """Whether it is gone, by whatever way."""
        return self.child.poll() is not None

    def greet(self) -> None:
        """Wait until it has said that it is there; raises :class:`RuntimeUnavailable` where it cannot be used."""
        watch = _Watch(self.child, _START_SECONDS)
        try:
            kind, value = wire.receive(self.child.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError) as error:
            sentence = self._obituary("start", _START_SECONDS, watch.fired)
            self.end(kill=True)
            raise RuntimeUnavailable(sentence) from error
        except BaseException:
            self.end(kill=True)
            raise
        finally:
            watch.stop()
        if kind != "ok":
            self.end(kill=False)
            raise RuntimeUnavailable(value)

    def exchange(self, method: str, arguments: Sequence[Any], limit: float) -> Iterator[tuple[str, Any]]:
        """Send a request and yield its answers; each may take ``limit`` seconds. Leaves no half-read pipe behind,
        whatever happens.
        """
        answers: list[tuple[str, Any]] = []
        try:
            watch = _Watch(self.child, limit)
            try:
                wire.send(self.child.stdin, (method, arguments, limit))  # type: ignore[arg-type]
                while not answers or answers[-1][0] == "item":
                    answers.append(wire.receive(self.child.stdout))  # type: ignore[arg-type]
                    watch.reset()
                    if answers[-1][0] == "item":
                        yield answers[-1]
            finally:
                watch.stop()
        except (EOFError, OSError) as error:
            sentence = self._obituary(method, limit, watch.fired)
            self.end(kill=True)
            raise RuntimeCrashed(sentence, timed_out=watch.fired) from error
        except BaseException:
            self.end(kill=True)  # interrupted half-way through a message: the pipe is of no use any more
            raise
        kind, value = answers[-1]
        if kind == "refused":
            raise RuntimeRefused(value)
        if kind == "unavailable":
            raise RuntimeUnavailable(value)
        yield kind, value

    def end(self, kill: bool) -> None:
        """End the process, by force or by closing its pipe, and wait until it is gone."""
        if self._last_resort.detach() is not None:
            _discard(self.child, self._errors, kill)

    def _obituary(self, method: str, limit: float, timed_out: bool) -> str:
        doing = _DOING.get(method, method)
        if timed_out:
            return f"The runtime's process did not answer within {limit:g} s while {doing}; it was stopped."
        try:
            code = self.child.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return f"The runtime's process closed its pipe while {doing}; it was stopped."
        return f"The runtime's process died while {doing} ({death(code)}).{last_words(self._errors)}"


class Channel:
    """Requests to a process that is started with the first of them, and replaced when it has died."""

    #: Module whose ``main`` the process runs.
    module = "rlflow.runtime.worker"
    #: Environment variables of the process beside this one's.
    settings: Mapping[str, str] | None = None

    def __init__(self, arguments: Sequence[str], time_limit: float) -> None:
        self.time_limit = time_limit
        self.starts = 0
        self._arguments = list(arguments)
        self._process: WorkerProcess | None = None
        self._starting: WorkerProcess | None = None

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the live worker, or ``None``."""
        return None if self._process is None else self._process.child.pid

    def begin(self, serve: Callable[[], int] | None = None) -> None:
        """Let the process start, which takes part of a second, without waiting for it: the first request will.
        ``serve``: what a copy of this process runs in its place, where there may be one.
        """
        if self._process is None and self._starting is None:
            self._starting = WorkerProcess(self.module, self._arguments, self.settings, serve)

    def replace_process(self, beside: bool) -> None:
        """End the process; another serves the next request. ``beside``: the one after it starts beside it, seconds of
        imports that spoil timings on the processor alone.
        """
        following = None
        if beside:
            following, self._starting = self._starting, None
        self._stop(kill=False)
        if beside:
            self._starting = following
            self._live()
            self._starting = WorkerProcess(self.module, self._arguments, self.settings)

    def close(self) -> None:
        """End the process; the next request starts another."""
        self._stop(kill=False)

    def _ask(self, method: str, *arguments: Any, time_limit: float | None = None) -> Any:
        for kind, value in self._exchange(method, arguments, time_limit or self.time_limit):
            if kind == "ok":
                return value
        raise AssertionError("the exchange ends with an answer or raises")

    def _exchange(self, method: str, arguments: Sequence[Any], limit: float) -> Iterator[tuple[str, Any]]:
        process = self._live()
        try:
            yield from process.exchange(method, arguments, limit)
        finally:
            if process.ended:
                self._stop(kill=True)

    def _live(self) -> WorkerProcess:
        if self._process is not None and self._process.ended:
            self._stop(kill=True)  # died between requests
        if self._process is None:
            process, self._starting = self._starting or WorkerProcess(self.module, self._arguments, self.settings), None
            process.greet()
            self._process = process
            self.starts += 1
        return self._process

    def _stop(self, kill: bool) -> None:
        for process in (self._process, self._starting):
            if process is not None:
                process.end(kill)
        self._process = self._starting = None


def _spawned(
    module: str, arguments: Sequence[str], errors: IO[bytes], settings: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python_command(module, "main", arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=None if settings is None else {**os.environ, **settings},
    )


def _copied(serve: Callable[[], int], arguments: Sequence[str], errors: IO[bytes]) -> Copy:
    def work() -> int:
        sys.path[:] = module_path()
        sys.argv[1:] = arguments
        return serve()

    return Copy(work, errors)


def _discard(child: _Child, errors: IO[bytes], kill: bool) -> None:
    if kill:
        child.kill()
    for stream in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):  # bytes left unsent, for a process that is gone
            stream.close()  # type: ignore[union-attr]
    try:
        child.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    errors.close()


class _Watch:
    """Kills a process that keeps its client waiting, which turns a hang into an end of file."""

    def __init__(self, child: _Child, seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self.fired = False
        self.reset()

    def reset(self) -> None:
        self.stop()
        self._timer = threading.Timer(self._seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        timer: threading.Timer | None = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self.fired = True
        self._child.kill()


def death(code: int) -> str:
    """How a process ended, by its status, as a clause."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


def last_words(errors: IO[bytes]) -> str:
    """The last line that the process wrote to its error stream, as a clause."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 4096))
    lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f" Its last words: {lines[-1][:300]}" if lines else ""
