"""Ctrl-C, counted as it arrives.

Python calls a handler once for two signals in quick succession, and only between two steps of its own: a second Ctrl-C
soon after the first, or while native code runs, would be lost or late.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["arrived", "counting"]

_lock = threading.RLock()
_pipe: int | None = None
_count = 0


def arrived() -> int:
    """How many SIGINTs have come since :func:`counting` was entered; 0 where it was not."""
    global _count
    with _lock:
        if _pipe is not None:
            with contextlib.suppress(BlockingIOError):
                _count += os.read(_pipe, 1 << 12).count(signal.SIGINT)
        return _count


@contextlib.contextmanager
def counting(at_the_second: Callable[[], object]) -> Iterator[None]:
    """Inside, SIGINTs are counted, and a thread calls ``at_the_second`` at the second one.

    It does nothing where signals cannot be heard: outside the main thread, and on systems without POSIX's.
    """
    global _pipe, _count
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    _pipe, tell = os.pipe()
    _count = 0
    for end in (_pipe, tell):
        os.set_blocking(end, False)
    threading.Thread(target=_watch, args=(_pipe, at_the_second), daemon=True).start()
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_deaf)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(tell)  # which ends the thread
        with _lock:
            _pipe = None


def _watch(pipe: int, at_the_second: Callable[[], object]) -> None:
    """Wakes at every signal, until the pipe has no other end."""
    watched = select.poll()
    watched.register(pipe, select.POLLIN)
    while arrived() < 2:
        if any(event & select.POLLHUP for _, event in watched.poll()):
            os.close(pipe)
            return
    at_the_second()


def _deaf() -> None:
    """In a copy of this process: what it hears is not the original's to count."""
    global _pipe
    with contextlib.suppress(ValueError):  # it was copied from another thread
        signal.set_wakeup_fd(-1)
    _pipe = None
