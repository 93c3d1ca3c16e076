"""Processor time of child processes, as the system counts it."""

from __future__ import annotations

import os
from pathlib import Path


class ChildTime:
    """Adds up the seconds of a child that may be replaced by another one. 0 where the system does not say."""

    def __init__(self) -> None:
        self._spent, self._pid, self._last = 0.0, 0, 0.0

    def of(self, pid: int | None) -> float:
        """Seconds so far, of the process ``pid`` and of those before it."""
        now = 0.0 if pid is None else _process_seconds(pid)
        self._spent += now - self._last if pid == self._pid else now
        self._pid, self._last = pid or 0, now
        return self._spent


def _process_seconds(pid: int) -> float:
    path = Path(f"/proc/{pid}/stat")
    if not path.exists():
        return 0.0
    fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
