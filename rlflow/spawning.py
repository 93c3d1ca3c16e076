"""``multiprocessing`` whose processes do not look for modules in the current folder; see :mod:`rlflow.processes`."""

from __future__ import annotations

import multiprocessing.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

__all__ = ["safe_context"]

# -P leaves the current folder out; Python 3.10 lacks it, and its -I leaves out the user's own packages and PYTHON*
# variables too, which costs nothing: multiprocessing tells its children the whole module path.
_SAFE = ["-P"] if sys.version_info >= (3, 11) else ["-I"]


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
        with _safe_flags():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


def safe_context() -> SpawnContext:
    """``multiprocessing.get_context("spawn")``, but its processes do not look for modules in the current folder."""
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        with _safe_flags():
            resource_tracker.ensure_running()
    return _Context()


@contextmanager
def _safe_flags() -> Iterator[None]:
    """Meanwhile, ``multiprocessing`` starts interpreters with the safe flags; it has no option for that."""
    usual = multiprocessing.util._args_from_interpreter_flags  # type: ignore[attr-defined]
    multiprocessing.util._args_from_interpreter_flags = lambda: [*_SAFE, *usual()]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        multiprocessing.util._args_from_interpreter_flags = usual  # type: ignore[attr-defined]
