"""Prices that were measured once, kept in SQLite and shared by all processes of a user.

A price belongs to a region's signature *and* to where it was measured: device, runtime and its version, provider
threads and optimisation level. Losing the file costs time and nothing else, so no trouble with it ever stops a run: a
damaged file is set aside, an unwritable place is replaced by memory, and either is said once as a
:class:`PriceDatabaseWarning`.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import sqlite3
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlflow.errors import UsageError
from rlflow.files import parse_json

_VERSION = 2
_FORMAT = "rlflow prices"
_BUSY_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS prices (
    signature TEXT NOT NULL, device TEXT NOT NULL, runtime TEXT NOT NULL, version TEXT NOT NULL,
    threads INTEGER NOT NULL, level TEXT NOT NULL,
    ms REAL, spread_ms REAL, samples INTEGER NOT NULL, refusal TEXT, measured_at TEXT NOT NULL,
    clock TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', operators TEXT NOT NULL DEFAULT '',
    flops REAL NOT NULL DEFAULT 0, bytes REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (signature, device, runtime, version, threads, level)
) WITHOUT ROWID
"""
#: Finished comparisons of whole models (:mod:`rlflow.race.evidence`) and finished searches (a ``pair`` that begins with
#: ``search:``), of use on this machine only, so not exported. An older program that opens the file does not look at
#: this table, so that it needs no version of its own.
_VERDICTS = """
CREATE TABLE IF NOT EXISTS verdicts (
    pair TEXT NOT NULL, device TEXT NOT NULL, runtime TEXT NOT NULL, version TEXT NOT NULL,
    threads INTEGER NOT NULL, level TEXT NOT NULL, evidence TEXT NOT NULL, measured_at TEXT NOT NULL,
    PRIMARY KEY (pair, device, runtime, version, threads, level)
) WITHOUT ROWID
"""
#: What version 2 added to version 1: under which clock a price was taken, and what the region is.
_ADDED = tuple(
    f"ALTER TABLE prices ADD COLUMN {column} NOT NULL DEFAULT {default}"
    for column, default in (
        ("clock TEXT", "''"), ("kind TEXT", "''"), ("operators TEXT", "''"), ("flops REAL", "0"), ("bytes REAL", "0"),
    )
)  # fmt: skip
_KEY = ("signature", "device", "runtime", "version", "threads", "level")
_VALUES = ("ms", "spread_ms", "samples", "refusal", "measured_at", "clock", "kind", "operators", "flops", "bytes")
_COLUMNS = (*_KEY, *_VALUES)
_PUT = f"""
INSERT INTO prices ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
ON CONFLICT ({", ".join(_KEY)}) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _VALUES)}
"""
_PUT_NEWER = f"{_PUT} WHERE excluded.measured_at > prices.measured_at"
_HERE = "device = ? AND runtime = ? AND version = ? AND threads = ? AND level = ?"
_GET = f"SELECT signature, {', '.join(_VALUES)} FROM prices WHERE {_HERE} AND signature IN ({{marks}})"
_ALL_HERE = f"SELECT signature, {', '.join(_VALUES)} FROM prices WHERE {_HERE} ORDER BY signature"
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

    ``clock`` says which clock it was and in which state; ``kind``, ``operators``, ``flops`` and ``bytes`` what was
    measured (empty in what older versions wrote).
    """

    ms: float | None
    spread_ms: float | None = None
    samples: int = 0
    refusal: str | None = None
    measured_at: str = ""
    clock: str = ""
    kind: str = ""
    operators: str = ""
    flops: float = 0.0
    bytes: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether all fields are of their kinds and the numbers possible."""
        texts = (self.measured_at, self.clock, self.kind, self.operators)
        numbers = (self.ms, self.spread_ms, self.samples, self.flops, self.bytes)
        refused = isinstance(self.refusal, str) if self.ms is None else True
        return refused and all(isinstance(text, str) for text in texts) and all(map(_sound_number, numbers))

    def _row(self, now: str) -> tuple[Any, ...]:
        values = [getattr(self, name) for name in _VALUES]
        values[_VALUES.index("measured_at")] = self.measured_at or now
        return tuple(values)


class ContextSummary(NamedTuple):
    """What is known about one place: number of prices, of refusals among them, dates, and median relative spread."""

    context: PriceContext
    prices: int
    refusals: int
    oldest: str
    newest: str
    relative_spread: float | None


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
            found.clear()
            for start in range(0, len(wanted), _CHUNK):
                part = wanted[start : start + _CHUNK]
                query = _GET.format(marks=", ".join("?" * len(part)))
                for signature, *values in self._connection.execute(query, (*context._row(), *part)):
                    found[signature] = Price(*values)

        self._guarded(read, "read")
        return self._sound(found)

    def put_many(self, prices: Mapping[str, Price], context: PriceContext) -> None:
        """Store prices, replacing older ones of the same key; all of them or, should the process die, none."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        where = context._row()
        rows = [(signature, *where, *price._row(now)) for signature, price in prices.items()]

        def write() -> None:
            with self._transaction():
                self._connection.executemany(_PUT, rows)

        self._guarded(write, "written")

    def all_here(self, context: PriceContext) -> dict[str, Price]:
        """Every price of one place, by signature."""
        found: dict[str, Price] = {}

        def read() -> None:
            found.clear()
            for signature, *values in self._connection.execute(_ALL_HERE, context._row()):
                found[signature] = Price(*values)

        self._guarded(read, "read")
        return self._sound(found)

    def _sound(self, prices: dict[str, Price]) -> dict[str, Price]:
        """Those that can be prices: a damaged file, or another program, may have left anything."""
        sound = {signature: price for signature, price in prices.items() if price.sound}
        if len(sound) < len(prices):
            self._warn_damaged(len(prices) - len(sound))
        return sound

    def _warn_damaged(self, count: int) -> None:
        _warn(f"{count} prices in {self.path} are no prices (damaged, or of another program); they are left out.")

    def count(self) -> int:
        """Number of stored prices, over all devices."""
        return int(self._one("SELECT COUNT(*) FROM prices"))

    def contexts(self) -> list[ContextSummary]:
        """Where prices were taken, most recent first."""
        rows: list[Any] = []

        def read() -> None:
            query = f"SELECT {', '.join(_KEY[1:])}, ms, spread_ms, measured_at FROM prices"
            rows[:] = self._connection.execute(query).fetchall()

        self._guarded(read, "read")
        sound = [row for row in rows if _sound_key(row[:-3]) and _sound_number(row[-3]) and _sound_number(row[-2])]
        sound = [row for row in sound if isinstance(row[-1], str)]
        if len(sound) < len(rows):
            self._warn_damaged(len(rows) - len(sound))
        rows = sound
        grouped: dict[PriceContext, list[Any]] = {}
        for *where, ms, spread, when in rows:
            grouped.setdefault(PriceContext(*where), []).append((ms, spread, when))
        found = [_summary(context, values) for context, values in grouped.items()]
        return sorted(found, key=lambda one: (one.newest, one.context._row()), reverse=True)

    def export_to(self, write: Callable[[str], Any]) -> int:
        """Hand every price to ``write`` as a line of JSON, after a line that says what this is; their number."""
        rows: list[Any] = []

        def read() -> None:
            rows[:] = self._connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM prices ORDER BY {', '.join(_KEY)}")

        self._guarded(read, "read")
        sound = [row for row in rows if _sound_key(row[1 : len(_KEY)]) and Price(*row[len(_KEY) :]).sound]
        if len(sound) < len(rows):
            self._warn_damaged(len(rows) - len(sound))
        rows = sound
        write(json.dumps({"format": _FORMAT, "version": _VERSION, "prices": len(rows)}) + "\n")
        for row in rows:
            write(json.dumps(dict(zip(_COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")
        return len(rows)

    def import_from(self, lines: Iterable[str], name: str) -> tuple[int, int]:
        """Take in what :meth:`export_to` wrote; of two prices of one key the more recent stays. Returns the numbers of
        lines read and of prices that are new or replaced.

        Raises :class:`UsageError`, naming the line, for anything else; nothing is taken in then.
        """
        rows = _imported(lines, name)
        changed = [0]

        def write() -> None:
            with self._transaction():
                before = self._connection.total_changes
                self._connection.executemany(_PUT_NEWER, rows)
                changed[0] = self._connection.total_changes - before

        self._guarded(write, "written")
        return len(rows), changed[0]

    def prune(
        self, *, before: str | None = None, other_than: PriceContext | None = None, refusals: bool = False,
        everything: bool = False,
    ) -> int:  # fmt: skip
        """Delete prices: measured before a date (ISO, UTC), taken by another version of the runtime of ``other_than``
        on its device, refusals, or all; but for refusals with the comparisons of whole models of the same kind. The
        number of prices deleted.
        """
        conditions: list[str] = []
        values: list[Any] = []
        if before is not None:
            conditions.append("measured_at < ?")
            values.append(before)
        if other_than is not None:
            conditions.append("(device = ? AND runtime = ? AND version <> ?)")
            values += [other_than.device, other_than.runtime, other_than.version]
        if everything:
            conditions, values = ["1"], []
        if not (conditions or refusals):
            return 0
        both, deleted = list(conditions), [0]
        if refusals and not everything:
            conditions.append("ms IS NULL")

        def write() -> None:
            with self._transaction():
                if both:
                    self._connection.execute(f"DELETE FROM verdicts WHERE {' OR '.join(both)}", values)
                deleted[0] = self._connection.execute(
                    f"DELETE FROM prices WHERE {' OR '.join(conditions)}", values
                ).rowcount

        self._guarded(write, "written")
        return deleted[0]

    # --- comparisons and searches of whole models -----------------------------------------------------------------

    def verdict(self, pair: str, context: PriceContext) -> str | None:
        """What was kept about two models, or about a search, in one place."""
        found: list[str | None] = [None]

        def read() -> None:
            query = f"SELECT evidence FROM verdicts WHERE pair = ? AND {_HERE}"
            row = self._connection.execute(query, (pair, *context._row())).fetchone()
            found[0] = None if row is None else row[0]

        self._guarded(read, "read")
        return found[0]

    def put_verdict(self, pair: str, context: PriceContext, evidence: str | None, measured_at: str) -> None:
        """Keep that in place of what there was; ``None`` forgets it."""
        where = (pair, *context._row())

        def write() -> None:
            with self._transaction():
                self._connection.execute(f"DELETE FROM verdicts WHERE pair = ? AND {_HERE}", where)
                if evidence is not None:
                    marks = ", ".join("?" * (len(where) + 2))
                    self._connection.execute(f"INSERT INTO verdicts VALUES ({marks})", (*where, evidence, measured_at))

        self._guarded(write, "written")

    def count_verdicts(self) -> int:
        """Number of comparisons that are kept, over all devices."""
        return int(self._one("SELECT COUNT(*) FROM verdicts WHERE pair NOT LIKE 'search:%'"))

    def forget_verdicts(self) -> int:
        """Delete them all, and the searches; the number of comparisons."""
        count = self.count_verdicts()

        def write() -> None:
            with self._transaction():
                self._connection.execute("DELETE FROM verdicts")

        self._guarded(write, "written")
        return count

    def _one(self, query: str) -> Any:
        found: list[Any] = [0]

        def read() -> None:
            found[0] = self._connection.execute(query).fetchone()[0]

        self._guarded(read, "read")
        return found[0]

    # --- trouble --------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(os.fspath(self.path))
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
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
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, 1, _VERSION):
                raise sqlite3.DatabaseError(f"its schema version is {version}, this program writes version {_VERSION}")
            for statement in _ADDED if version == 1 else ():
                connection.execute(statement)
            connection.execute(_SCHEMA)
            connection.execute(_VERDICTS)
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
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
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


def _summary(context: PriceContext, values: Sequence[tuple[float | None, float | None, str]]) -> ContextSummary:
    spreads = [spread / ms for ms, spread, _ in values if ms and spread is not None]
    dates = [when for _, _, when in values]
    refused = sum(ms is None for ms, _, _ in values)
    spread = statistics.median(spreads) if spreads else None
    return ContextSummary(context, len(values), refused, min(dates), max(dates), spread)


def _imported(lines: Iterable[str], name: str) -> list[tuple[Any, ...]]:
    rows, number = [], 0
    for number, line in enumerate(lines, 1):
        where = f"While importing prices from {name}, line {number}:"
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise UsageError(f"{where} expected a JSON object, found {line.strip()[:60]!r}.") from error
        if number == 1:
            if not isinstance(entry, dict) or entry.get("format") != _FORMAT:
                raise UsageError(f"{where} this is no file of 'rlflow cost export'.")
            if entry.get("version") != _VERSION:
                raise UsageError(f"{where} its version is {entry.get('version')}; this program reads {_VERSION}.")
            continue
        rows.append(_imported_row(entry, where))
    if number == 0:
        raise UsageError(f"While importing prices from {name}: the file is empty.")
    return rows


def _imported_row(entry: Any, where: str) -> tuple[Any, ...]:
    kinds = {"signature": str, "device": str, "runtime": str, "version": str, "threads": int, "level": str,
             "samples": int, "measured_at": str, "clock": str, "kind": str, "operators": str}  # fmt: skip
    if not isinstance(entry, dict) or set(entry) != set(_COLUMNS):
        raise UsageError(f"{where} expected the fields {', '.join(_COLUMNS)}.")
    for key, kind in kinds.items():
        if not isinstance(entry[key], kind):
            raise UsageError(f"{where} the field {key!r} is {entry[key]!r}; expected {kind.__name__}.")
    ms = entry["ms"]
    if ms is not None and not (isinstance(ms, (int, float)) and math.isfinite(ms) and ms >= 0):
        raise UsageError(f"{where} the field 'ms' is {ms!r}; expected milliseconds, or null for a refusal.")
    for key in ("spread_ms", "flops", "bytes"):
        value = entry[key]
        absent = key == "spread_ms" and value is None
        if not absent and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise UsageError(f"{where} the field {key!r} is {value!r}; expected a number.")
    if not (entry["refusal"] is None or isinstance(entry["refusal"], str)):
        raise UsageError(f"{where} the field 'refusal' is {entry['refusal']!r}; expected a sentence or null.")
    return tuple(entry[name] for name in _COLUMNS)


def _is_damage(error: Exception) -> bool:
    """Whether the file is damaged; a lock, a full disk or a missing permission (``OperationalError``) is not that.

    Bytes that are no text show as ``UnicodeDecodeError`` where they are in a name that SQLite complains of.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return any(words in str(error) for words in ("malformed", "Could not decode"))


def _sound_key(values: Sequence[Any]) -> bool:
    """Whether device, runtime, version, threads and level are of their kinds."""
    *texts, threads, level = values
    return isinstance(threads, int) and all(isinstance(text, str) for text in (*texts, level))


def _sound_number(value: Any) -> bool:
    """Whether a duration, or the absence of one, is possible."""
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0)


def _free_name(path: Path) -> Path:
    for number in range(1000):
        target = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number else ""))
        if not target.exists():
            return target
    return path.with_name(f"{path.name}.corrupt-{os.getpid()}")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, PriceDatabaseWarning, stacklevel=4)
