"""Measurements that are kept in SQLite, so that a tuning that was interrupted goes on where it was.

A record belongs to a subgraph's name and space, and to the engine's ``place`` (device, versions, clock). A tuning that
is run again makes the same choices from the same seed; what was measured before is read instead.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from rlflow.errors import UsageError
from rlflow.price.sqlite_file import SqliteFile, copied
from rlflow.tuner.engines import INVALID, Engine, TunedSubgraph
from rlflow.tuner.space_files import plain
from rlflow.tuner.spaces import TensorProgram

_SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (
    place TEXT NOT NULL, subgraph TEXT NOT NULL, program TEXT NOT NULL, seconds REAL, measured_at TEXT NOT NULL,
    PRIMARY KEY (place, subgraph, program)
) WITHOUT ROWID
"""
_PUT = "INSERT OR REPLACE INTO trials (place, subgraph, program, seconds, measured_at) VALUES (?, ?, ?, ?, ?)"
_GET = "SELECT program, seconds FROM trials WHERE place = ? AND subgraph = ?"
_COLUMNS = ["place", "subgraph", "program", "seconds", "measured_at"]
_COUNT = "SELECT COUNT(*) FROM trials WHERE place = ?"


class Records:
    """Trials by place and subgraph. ``seconds`` is NULL for a program that cannot run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = SqliteFile(Path(path), _prepare)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def known(self, place: str, subgraph: TunedSubgraph) -> dict[TensorProgram, float]:
        """What was measured; what is no program of its space is left out."""
        rows = self._file.read(lambda one: one.execute(_GET, (place, key_of(subgraph))).fetchall())
        found = ((_program(text), seconds) for text, seconds in rows)
        return {
            program: INVALID if seconds is None else float(seconds)
            for program, seconds in found
            if program is not None and subgraph.space.holds(program) and _sound(seconds)
        }

    def put(
        self, place: str, subgraph: TunedSubgraph, programs: Sequence[TensorProgram], seconds: Sequence[float]
    ) -> None:
        """Keep measurements: all of them or, should the process die, none."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        key = key_of(subgraph)
        rows = [
            (place, key, json.dumps([one.sketch, list(one.values)]), None if took == INVALID else took, now)
            for one, took in zip(programs, seconds, strict=True)
        ]
        self._file.write(lambda connection: connection.executemany(_PUT, rows))

    def count(self, place: str) -> int:
        """Number of trials of a place."""
        return int(self._file.read(lambda one: one.execute(_COUNT, (place,)).fetchone()[0]))


def require_trials(path: str | os.PathLike[str]) -> None:
    """Raises :class:`UsageError` where a file is there that holds anything but trials; it stays as it is."""
    if not os.path.exists(path) or (os.path.isfile(path) and os.path.getsize(path) == 0):
        return
    try:
        with closing(copied(Path(path))) as content:
            tables = {name for (name,) in content.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = [row[1] for row in content.execute("PRAGMA table_info(trials)")]
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
    else:
        if not tables or (tables == {"trials"} and columns == _COLUMNS):
            return
        reason = "it is another program's database"
    raise UsageError(
        f"The file {os.fspath(path)} cannot be used for the trials: {reason}. Remove it, or give another folder."
    )


class Remembering:
    """An engine that measures no program twice: what ``records`` have is read."""

    def __init__(self, engine: Engine, records: Records) -> None:
        self._engine, self._records = engine, records
        self.place = engine.place
        self._known = [records.known(engine.place, one) for one in engine.subgraphs]
        #: Programs that were read, and measured, by this object.
        self.read, self.measured = 0, 0

    @property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        return self._engine.subgraphs

    @property
    def cpu_seconds(self) -> float:
        return self._engine.cpu_seconds

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return self._engine.features(subgraph, programs)

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        known = self._known[subgraph]
        new = [one for one in dict.fromkeys(programs) if one not in known]
        if new:
            seconds = self._engine.measure(subgraph, new)
            self._records.put(self.place, self.subgraphs[subgraph], new, seconds)
            known.update(zip(new, seconds, strict=True))
        self.measured += len(new)
        self.read += len(programs) - len(new)
        return [known[one] for one in programs]

    def close(self) -> None:
        self._engine.close()


def key_of(subgraph: TunedSubgraph) -> str:
    """Names the subgraph and its space: another space has other programs. Its weight in a network does not count."""
    content = json.dumps({**plain(subgraph), "weight": 1.0}, sort_keys=True)
    return f"{subgraph.name}#{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(_SCHEMA)


def _program(text: object) -> TensorProgram | None:
    try:
        sketch, values = json.loads(str(text))
        return TensorProgram(int(sketch), tuple(int(one) for one in values))
    except (ValueError, TypeError):
        return None


def _sound(seconds: object) -> bool:
    return seconds is None or (isinstance(seconds, float) and 0 < seconds < INVALID)
