"""Work in a copy of the process: what comes back, and the sentence where nothing does."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from rlflow import forks, processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="A process is copied on Linux only")


def raising() -> bytes:
    raise ValueError("a number is odd\nand more")


def sleeping() -> bytes:
    time.sleep(60)
    return b""


def grasping() -> bytes:
    return bytes(8 << 30)


def crashing() -> bytes:
    return ctypes.string_at(0)


def aborting() -> bytes:
    os.abort()


@pytest.mark.parametrize("answer", [b"", b"=", b"!ValueError\nno", os.urandom(5_000_000)])
def test_the_answer_comes_back(answer: bytes) -> None:
    assert forks.apart(lambda: answer) == answer


@pytest.mark.parametrize(
    ("work", "kind", "text"),
    [
        (raising, "ValueError", "a number is odd\nand more"),
        (grasping, "MemoryError", ""),
        (crashing, "", "it crashed (SIGSEGV)"),
        (aborting, "", "it crashed (SIGABRT)"),
        (sleeping, "", "it took more than 0.5 s"),
        (lambda: os._exit(7), "", "it crashed (exit status 7)"),
    ],
)
def test_a_failure_is_a_sentence(work: Callable[[], bytes], kind: str, text: str, capfd: pytest.CaptureFixture) -> None:
    with pytest.raises(forks.Failed) as caught:
        forks.apart(work, seconds=0.5 if work is sleeping else 30.0, memory=1 << 30)
    assert (caught.value.kind, str(caught.value)) == (kind, text)
    assert capfd.readouterr() == ("", "")


def test_nothing_else_of_the_copy_is_kept() -> None:
    seen: list[int] = []

    def work() -> bytes:
        seen.append(os.getpid())
        return str(os.getpid()).encode()

    copy = int(forks.apart(work))
    assert (seen, copy != os.getpid()) == ([], True)
    with pytest.raises(ProcessLookupError):
        os.kill(copy, 0)  # it was waited for


def test_an_interrupt_leaves_no_copy_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    born: list[int] = []
    fork = os.fork

    def watched() -> int:
        child = fork()
        born.append(child)
        return child

    def interrupted(inlet: int, until: float) -> tuple[bytes, bool]:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fork", watched)
    monkeypatch.setattr(forks, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forks.apart(sleeping)
    with pytest.raises(ProcessLookupError):
        os.kill(born[0], 0)


def test_half_an_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(work: Callable[[], bytes], outlet: int, memory: int) -> None:
        os.write(outlet, b"=half")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(forks, "_compute", killed)
    with pytest.raises(forks.Failed, match=r"it crashed \(SIGKILL\)"):
        forks.apart(lambda: b"half of it")


def test_where_no_process_can_be_started_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(forks.Failed, match="no process could be started for it: Resource temporarily unavailable"):
        forks.apart(lambda: b"")
    assert len(os.listdir("/proc/self/fd")) == before


def copied(work: Callable[[], int]) -> tuple[forks.Copy, IO[bytes]]:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the copy writes into it
    return forks.Copy(work, errors), errors


def test_a_copy_has_streams_and_a_status_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        os.write(1, os.read(0, 100).upper())
        os.write(2, b"said")
        return 7

    copy, errors = copied(work)
    assert copy.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        copy.wait(timeout=0.0)
    copy.stdin.write(b"word")
    copy.stdin.close()
    assert copy.stdout.read() == b"WORD"
    assert (copy.wait(timeout=60), copy.poll(), copy.returncode) == (7, 7, 7)
    errors.seek(0)
    assert errors.read() == b"said"
    assert capfd.readouterr() == ("", "")


def test_the_end_of_the_original_is_not_the_end_of_a_copy(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    atexit.register(mark.touch)
    try:
        copy, _ = copied(lambda: processes.leave(3))
        assert copy.wait() == 3
        assert not mark.exists()
    finally:
        atexit.unregister(mark.touch)


def test_garbage_of_the_original_is_not_finalised_in_a_copy(tmp_path: Path) -> None:
    """As a worker's process that nobody holds any more, but a cycle: it is not the copy's to end."""

    class Owner:
        def __init__(self) -> None:
            self.own = self

    mark = tmp_path / "mark"
    gc.disable()
    try:
        weakref.finalize(Owner(), mark.touch)
        copy, _ = copied(lambda: gc.collect() * 0)
        assert copy.wait() == 0
        assert not mark.exists()
    finally:
        gc.enable()
    gc.collect()
    assert mark.exists()


def test_a_copy_that_fails_says_so_and_ends() -> None:
    copy, errors = copied(lambda: 1 // 0)
    assert copy.wait() == 1
    errors.seek(0)
    assert b"ZeroDivisionError" in errors.read()


def test_a_copy_is_killed() -> None:
    copy, _ = copied(lambda: time.sleep(600) or 0)
    copy.kill()
    assert copy.wait() == -signal.SIGKILL
    copy.kill()


def test_a_copy_ignores_what_it_comes_from_ignores() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        copy, _ = copied(lambda: len(os.read(0, 9)))
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(copy.pid, signal.SIGHUP)
    copy.stdin.write(b"word")
    copy.stdin.close()
    assert copy.wait(timeout=60) == 4


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_copy_that_cannot_say_what_is_wrong_ends_all_the_same() -> None:
    def work() -> int:
        raise OSError("wrong")

    with open("/dev/full", "wb") as full:
        assert forks.Copy(work, full).wait(timeout=60) == 1


def test_where_no_copy_can_be_made_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    with tempfile.TemporaryFile() as errors:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "fork", refused)
        with pytest.raises(OSError, match="temporarily"):
            forks.Copy(lambda: 0, errors)
        assert len(os.listdir("/proc/self/fd")) == before
