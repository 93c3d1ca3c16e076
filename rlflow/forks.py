"""Native code of others that may crash, hang, or ask for all memory: run in a copy of this process, which is dropped.

A model from outside can end the process inside a library: an extent of 2**63 - 1 makes onnx's inference walk out of an
array. What happens in the copy is a reason in a sentence here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

__all__ = ["Failed", "apart"]

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of locks that threads hold; none is taken
            copy = os.fork()
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

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
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
