"""Processes of our own, started so that the folder they happen to run in is not searched for modules.

``python -c …``, which is also how ``multiprocessing`` starts its helpers, looks for every module in the current folder
first. A folder of models that somebody else filled may hold a ``json.py``; it must not run.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol, TypeVar

__all__ = ["COLLECTION", "kill_started", "leave", "module_path", "python_command", "started"]


class _Process(Protocol):
    """What is known of a process: as :class:`subprocess.Popen` tells it."""

    pid: int
    returncode: Any

    def kill(self) -> None: ...


_Child = TypeVar("_Child", bound=_Process)
_started: weakref.WeakSet[Any] = weakref.WeakSet()

#: How often Python looks for cycles of garbage in a process of ours. What a start makes is modules and classes, which
#: are none: to go through them as often as by default takes a tenth of a short command's time.
COLLECTION = (10_000, 10, 10)
# Nothing but what is built in may be imported before the path is set: not even json.
_BOOTSTRAP = (
    f"import gc, sys; gc.set_threshold{COLLECTION}; sys.path[:] = eval(sys.argv.pop(1)); "
    "from {module} import {name}; sys.exit({name}())"
)


def module_path() -> list[str]:
    """Where this process finds modules, without "the current folder, whichever that is"; with rlflow's own place."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [entry for entry in sys.path if entry]
    return path if home in path else [*path, home]


def python_command(module: str, name: str, arguments: Sequence[str] = ()) -> list[str]:
    """The command line of a Python process that ends with the status that function ``name`` of ``module`` returns.

    It finds modules where this process does; ``arguments`` are its ``sys.argv[1:]``.
    """
    code = _BOOTSTRAP.format(module=module, name=name)
    return [sys.executable, "-c", code, repr(module_path()), *arguments]


def started(child: _Child) -> _Child:
    """The same process, which :func:`kill_started` now knows of."""
    _started.add(child)
    return child


def kill_started() -> None:
    """Kill every process of ours that still runs, with its whole group where it has one of its own; for a process that
    is about to end.
    """
    for child in tuple(_started):
        with suppress(OSError):
            if child.returncode is None and hasattr(os, "killpg") and os.getpgid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
    if "multiprocessing" in sys.modules:  # else there are no helpers
        import multiprocessing

        for helper in multiprocessing.active_children():
            helper.kill()


def leave(status: int) -> NoReturn:
    """End this process as ``sys.exit`` does, but leave what it holds to the system: to take libraries such as onnx
    apart piece by piece takes Python a tenth of a second, and nobody reads the pieces.

    What was registered for the end runs, and the streams are flushed. Where that cannot be, or another thread has work
    left, Python ends the process its own way, which waits or says what is wrong.
    """
    if any(not one.daemon and one is not threading.current_thread() for one in threading.enumerate()):
        sys.exit(status)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)
    os._exit(status)
