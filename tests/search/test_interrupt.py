from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rlflow import interrupts
from rlflow.search import InterruptGuard, StopToken

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")


def test_the_first_interrupt_asks_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    token = StopToken()
    with InterruptGuard(token):
        os.kill(os.getpid(), signal.SIGINT)
        assert _soon(lambda: token.stopped)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may arrive a moment later
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_guards_of_one_run_share_the_first_interrupt() -> None:
    heard = StopToken()
    with InterruptGuard(StopToken(), heard):
        os.kill(os.getpid(), signal.SIGINT)
        assert _soon(lambda: heard.stopped)
    with InterruptGuard(StopToken(), heard), pytest.raises(KeyboardInterrupt):  # noqa: PT012 - may arrive a moment later
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_two_interrupts_that_python_hears_as_one_count_as_two() -> None:
    """They come while native code runs, so the handler is called once, after it."""
    called = threading.Event()
    twice = "sleep 0.1; kill -INT $PPID; sleep 0.05; kill -INT $PPID"
    with interrupts.counting(called.set), InterruptGuard(StopToken()):
        with pytest.raises(KeyboardInterrupt), subprocess.Popen(["sh", "-c", twice]):  # noqa: PT012
            max(itertools.repeat(0, 60_000_000))
            time.sleep(0.01)
        assert called.wait(5.0)


def test_other_threads_are_left_alone() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with InterruptGuard(StopToken()):
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the main thread must hear of it
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures


def test_ctrl_c_in_a_process_gives_the_best_so_far() -> None:
    code = """
import itertools, sys, numpy as np
from rlflow.search import *
from rlflow.search.interrupt import InterruptGuard
token = StopToken()
with InterruptGuard(token):
    print("ready", flush=True)
    import time
    end = time.monotonic() + 30
    while not token.stopped and time.monotonic() < end:
        time.sleep(0.01)
    print("stopped" if token.stopped else "late", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0].strip() == "stopped"
    assert child.returncode == 0


def _soon(condition: object) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.001)
    return False
