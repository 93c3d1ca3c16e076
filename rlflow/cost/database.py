"""Prices that were measured once, kept in SQLite and shared by all processes of a user.

A price belongs to a region's signature *and* to where it was measured: device, runtime and its version, provider
threads and optimisation level. Losing the file costs time and nothing else, so no trouble with it ever stops a run: a
damaged file is set aside, an unwritable place is replaced by memory, and either is said once as a
:class:`PriceDatabaseWarning`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VERSION = 1
_BUSY_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS prices (
    signature TEXT NOT NULL, device TEXT NOT NULL, runtime TEXT NOT NULL, version TEXT NOT NULL,
    threads INTEGER NOT NULL, level TEXT NOT NULL,
    ms REAL, spread_ms REAL, samples INTEGER NOT NULL, refusal TEXT, measured_at TEXT NOT NULL,
    PRIMARY KEY (signature, device, runtime, version, threads, level)
) WITHOUT ROWID
"""
_PUT = """
INSERT INTO prices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (signature, device, runtime, version, threads, level) DO UPDATE SET
    ms = excluded.ms, spread_ms = excluded.spread_ms, samples = excluded.samples,
    refusal = excluded.refusal, measured_at = excluded.measured_at
"""
_GET = """
SELECT signature, ms, spread_ms, samples, refusal, measured_at FROM prices
WHERE device = ? AND runtime = ? AND version = ? AND threads = ? AND level = ? AND signature IN ({marks})
"""
_CHUNK = 500


class PriceDatabaseWarning(UserWarning):
    """Prices will not be kept, or kept ones were lost; what is computed stays correct."""


@dataclass(frozen=True)
class PriceContext:
    """Where prices hold: change any field and they must be measured anew."""

    device: str
    runtime: str
    version: str
    threads: int = 1
    level: str = "all"

    @classmethod
    def of(cls, description: Mapping[str, Any], level: str) -> PriceContext:
        """From what :meth:`rlflow.runtime.Worker.describe` returns."""
        runtime = description["runtime"]
        if description["provider"] != "CPUExecutionProvider":
            runtime = f"{runtime}/{description['provider']}"
        return cls(description["device"], runtime, description["version"], int(description["threads"]), level)

    def _row(self) -> tuple[str, str, str, int, str]:
        return self.device, self.runtime, self.version, self.threads, self.level


@dataclass(frozen=True)
class Price:
    """Median milliseconds, interquartile range and number of samples; or, with ``ms`` ``None``, the sentence of the
    runtime's refusal.
    """

    ms: float | None
    spread_ms: float | None = None
    samples: int = 0
    refusal: str | None = None
    measured_at: str = ""


def default_path() -> Path:
    """``prices.sqlite`` in ``$RLFLOW_CACHE``, else in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    own = os.environ.get("RLFLOW_CACHE")
    if own:
        return Path(own).expanduser() / "prices.sqlite"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rlflow" / "prices.sqlite"


class PriceDatabase:
    """Read and write prices in batches; safe to share between processes and threads. Use as a context manager, or
    ``close`` it.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path: Path | None = Path(path) if path is not None else default_path()
        self._lock = threading.RLock()
        self._inode: int | None = None
        self._connection = self._open()

    def __enter__(self) -> PriceDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; further use raises ``sqlite3.ProgrammingError``."""
        with self._lock:
            self._connection.close()

    @property
    def persistent(self) -> bool:
        """Whether prices survive this process."""
        return self.path is not None

    def get_many(self, signatures: Iterable[str], context: PriceContext) -> dict[str, Price]:
        """The known prices among ``signatures``; unknown ones are absent."""
        wanted = list(dict.fromkeys(signatures))
        found: dict[str, Price] = {}

        def read() -> None:
            for start in range(0, len(wanted), _CHUNK):
                part = wanted[start : start + _CHUNK]
                query = _GET.format(marks=", ".join("?" * len(part)))
                for signature, *values in self._connection.execute(query, (*context._row(), *part)):
                    found[signature] = Price(*values)

        self._guarded(read, "read")
        return found

    def put_many(self, prices: Mapping[str, Price], context: PriceContext) -> None:
        """Store prices, replacing older ones of the same key; all of them or, should the process die, none."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        where = context._row()
        rows = [
            (signature, *where, price.ms, price.spread_ms, price.samples, price.refusal, price.measured_at or now)
            for signature, price in prices.items()
        ]

        def write() -> None:
            with self._transaction():
                self._connection.executemany(_PUT, rows)

        self._guarded(write, "written")

    def count(self) -> int:
        """Number of stored prices, over all devices."""
        counts = [0]

        def read() -> None:
            counts[0] = self._connection.execute("SELECT COUNT(*) FROM prices").fetchone()[0]

        self._guarded(read, "read")
        return counts[0]

    # --- trouble --------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(os.fspath(self.path))
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._set_aside(error)
                return self._connect(os.fspath(self.path))
        except (OSError, sqlite3.Error) as error:
            return self._fall_back(error)

    def _connect(self, place: str) -> sqlite3.Connection:
        """Connect, patiently: SQLite's own busy handler does not cover the switch to WAL, where first users collide."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._connect_once(place)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)

    def _connect_once(self, place: str) -> sqlite3.Connection:
        connection = sqlite3.connect(place, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            connection.execute(
                "PRAGMA journal_mode = WAL"
            ).fetchone()  # answers with another mode where the file system cannot do it
            connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"its schema version is {version}, this program writes version {_VERSION}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        if place != ":memory:":
            self._inode = os.stat(place).st_ino
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _guarded(self, action: Any, verb: str) -> None:
        """Run ``action``; where the file turns out to be damaged, busy or full, go on without it."""
        with self._lock:
            try:
                action()
            except sqlite3.ProgrammingError:
                raise  # closed, or misused: a mistake in the program
            except sqlite3.DatabaseError as error:
                self._connection.close()
                if _is_damage(error) and self.path is not None:
                    self._set_aside(error)
                    self._connection = self._open()
                else:
                    self._connection = self._fall_back(error, verb)
                action()

    def _set_aside(self, error: Exception) -> None:
        """Rename the damaged file, unless another process has done so already and a new one is in its place."""
        assert self.path is not None
        if self._inode is not None and (not self.path.exists() or self.path.stat().st_ino != self._inode):
            return
        target = _free_name(self.path)
        os.replace(self.path, target)
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self._inode = None
        _warn(
            f"The price database {self.path} cannot be used ({error}); "
            f"it was set aside as {target.name} and a new one was started."
        )

    def _fall_back(self, error: Exception, verb: str = "opened") -> sqlite3.Connection:
        _warn(
            f"The price database {self.path} cannot be {verb} ({error}); "
            "prices are kept in memory and are lost when the program ends."
        )
        self.path = None
        return self._connect(":memory:")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is damaged; a lock, a full disk or a missing permission (``OperationalError``) is not that."""
    return not isinstance(error, sqlite3.OperationalError) or "malformed" in str(error)


def _free_name(path: Path) -> Path:
    for number in range(1000):
        target = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number else ""))
        if not target.exists():
            return target
    return path.with_name(f"{path.name}.corrupt-{os.getpid()}")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, PriceDatabaseWarning, stacklevel=4)
