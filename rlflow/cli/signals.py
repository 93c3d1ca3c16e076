"""How signals end the command line: tidied up, with one sentence, and at once where that is asked for twice."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

import click

from rlflow import interrupts

__all__ = ["INTERRUPTED", "end_on_signals", "ending_at_the_second_interrupt"]

#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 128 + signal.SIGINT
#: Seconds in which the program may end by itself after the second Ctrl-C.
_GRACE_SECONDS = 0.5


def end_on_signals() -> None:
    """SIGTERM and SIGHUP end the program the way an error does, so that everything that was begun is tidied up.

    What was ignored when the program started (as ``nohup`` arranges) stays so, and processes forked from this one end
    the plain way.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=functools.partial(signal.signal, number, signal.SIG_DFL))


def _end(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one does not wait
    with contextlib.suppress(OSError):  # nobody reads it: a terminal that hangs up
        click.echo(f"rlflow: ended by {signal.Signals(number).name}; nothing was written.", err=True)
    sys.exit(128 + number)


def ending_at_the_second_interrupt() -> contextlib.AbstractContextManager[None]:
    """Inside, a second SIGINT ends this process within about a second, whatever it is doing."""
    return interrupts.counting(_end_soon)


def _end_soon() -> NoReturn:
    """The main thread has a moment to end by itself; after that it may be anywhere."""
    time.sleep(_GRACE_SECONDS)
    _end_at_once()


def _end_at_once() -> NoReturn:
    from rlflow.files import remove_unfinished
    from rlflow.processes import kill_started

    try:
        kill_started()
        remove_unfinished()
        shown = b"\x1b[?25h\n" if os.isatty(2) else b""  # the cursor, which progress hides
        os.write(2, shown + b"rlflow: error: interrupted twice; ended at once.\n")
    finally:
        os._exit(INTERRUPTED)
