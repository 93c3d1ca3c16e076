"""Copies of this process: for native code of others that may crash, hang, or ask for all memory, and for a process that
would only open what is open here.

A model from outside can end the process inside a library: an extent of 2**63 - 1 makes onnx's inference walk out of an
array. What happens in the copy is a reason in a sentence here.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import IO, NoReturn

__all__ = ["Copy", "Failed", "apart", "can_copy"]

SECONDS = 60.0
#: Address space beyond what this process has already, in bytes.
MEMORY = 1 << 30
_DONE, _RAISED = b"=", b"!"


class Failed(Exception):  # noqa: N818 - it is told on, as a sentence or as another error
    """The work came to no result. ``kind``: the name of the exception that it raised, or "" where the copy ended."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def apart(work: Callable[[], bytes], seconds: float = SECONDS, memory: int = MEMORY) -> bytes:
    """What ``work`` returns, computed in a copy of this process; nothing else of the copy is kept.

    ``work`` must only compute: the copy has no threads but its own, and shares this process's files. Raises
    :class:`Failed` where it raised, crashed, or took more than ``seconds`` or ``memory`` bytes. Elsewhere than on Linux
    ``work`` runs here, because a copy is not safe there.
    """
    if sys.platform != "linux":
        return work()
    inlet, outlet = os.pipe()
    try:
        copy = _fork()
    except OSError as error:  # too many processes, or too little memory for one more
        os.close(inlet)
        os.close(outlet)
        raise Failed("", f"no process could be started for it: {error.strerror}") from error
    if copy == 0:
        _compute(work, outlet, memory)
    os.close(outlet)
    answer, ended = b"", False
    try:
        answer, ended = _read(inlet, time.monotonic() + seconds)
    finally:
        os.close(inlet)
        status = _wait(copy, kill=not ended)
    if not ended:
        raise Failed("", f"it took more than {seconds:g} s")
    if status != 0:  # also where it was killed while it answered: half an answer may look like a whole one
        raise Failed("", f"it crashed ({_reason(status)})")
    if answer[:1] == _DONE:
        return answer[1:]
    if answer[:1] == _RAISED:
        kind, _, text = answer[1:].decode(errors="replace").partition("\n")
        raise Failed(kind, text)
    raise Failed("", "it ended without an answer")


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of locks that threads hold; none is taken
        return os.fork()


def _compute(work: Callable[[], bytes], outlet: int, memory: int) -> NoReturn:
    """The copy's whole life. It must not return: what this process would do next is not the copy's to do."""
    try:
        gc.disable()  # a finaliser would end what belongs to this process
        _limit(memory)
        try:
            answer = _DONE + work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            answer = _RAISED + f"{type(error).__name__}\n{error}".encode(errors="replace")
        rest = memoryview(answer)
        while rest:
            rest = rest[os.write(outlet, rest) :]
    finally:
        os._exit(0)


def _limit(memory: int) -> None:
    import resource

    _heed_signals()
    faulthandler.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the C library's last words
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as sizes:
        most = int(sizes.read().split()[0]) * resource.getpagesize() + memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _read(inlet: int, until: float) -> tuple[bytes, bool]:
    """All that comes, and whether its sender ended by itself before ``until``."""
    parts: list[bytes] = []
    while select.select([inlet], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(inlet, 1 << 20)
        if not part:
            return b"".join(parts), True
        parts.append(part)
    return b"".join(parts), False


def _wait(copy: int, kill: bool) -> int:
    if kill:
        os.kill(copy, signal.SIGKILL)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    except ChildProcessError:  # somebody ignores SIGCHLD
        return 0


def _reason(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def can_copy() -> bool:
    """Whether a copy of this process may live on: its other threads, which may hold locks, are not copied."""
    return sys.platform == "linux" and all(one.daemon for one in threading.enumerate()[1:])


class Copy:
    """A copy of this process that does ``work`` and ends with its status; to be watched as a
    :class:`subprocess.Popen` is, with pipes for its standard input and output and ``errors`` for what it says.
    """

    def __init__(self, work: Callable[[], int], errors: IO[bytes]) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        ours, theirs = os.pipe(), os.pipe()
        try:
            self.pid = _fork()
        except OSError:
            for end in (*ours, *theirs):
                os.close(end)
            raise
        if self.pid == 0:
            _live(work, (ours[0], theirs[1], errors.fileno()), (ours[1], theirs[0]))
        os.close(ours[0])
        os.close(theirs[1])
        self.stdin: IO[bytes] = os.fdopen(ours[1], "wb")
        self.stdout: IO[bytes] = os.fdopen(theirs[0], "rb")

    def poll(self) -> int | None:
        """The status of the copy where it has ended."""
        return self._await(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the copy, as :meth:`subprocess.Popen.wait` does."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 5e-4
        while (status := self._await(0 if end is None else os.WNOHANG)) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return status

    def kill(self) -> None:
        """End the copy by force."""
        if self.returncode is None:  # until it is waited for its number is its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _await(self, how: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # somebody ignores SIGCHLD
                pid, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _live(work: Callable[[], int], streams: tuple[int, int, int], others: tuple[int, int]) -> NoReturn:
    """The life of a copy that works on: with streams of its own, and nothing to do at the end of what it comes from."""
    status = 1
    try:
        atexit._clear()
        gc.freeze()  # garbage that is not collected yet has finalisers, which end what belongs to the original
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for other in (*streams[:2], *others):
            os.close(other)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        _heed_signals()
        status = work()
    except BaseException:  # noqa: BLE001 - whatever it is, it is told, and ends here
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:  # nothing to write to is no reason to live on
            os._exit(status)


def _heed_signals() -> None:
    """Signals end a copy, but those that what it comes from was told to ignore, as nohup does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
