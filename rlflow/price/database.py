"""Prices that were measured once, kept in SQLite and shared by all processes of a user.

A price belongs to a region's signature *and* to where it was measured: device, runtime and its version, provider
threads and optimisation level. Losing the file costs time and nothing else, so no trouble with it ever stops a run
(:mod:`rlflow.price.sqlite_file`), and what is damaged inside is left out with a warning.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlflow.errors import UsageError, brief
from rlflow.ledger import home
from rlflow.price import exchange
from rlflow.price.records import (
    COLUMNS,
    KEY,
    VALUES,
    ContextSummary,
    Price,
    PriceContext,
    sound_key,
    sound_number,
)
from rlflow.price.sqlite_file import PriceDatabaseWarning, SqliteFile, copied, warn

__all__ = ["ContextSummary", "Price", "PriceContext", "PriceDatabase", "PriceDatabaseWarning", "default_path"]

_VERSION = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS prices (
    signature TEXT NOT NULL, device TEXT NOT NULL, runtime TEXT NOT NULL, version TEXT NOT NULL,
    threads INTEGER NOT NULL, level TEXT NOT NULL,
    ms REAL, spread_ms REAL, samples INTEGER NOT NULL, refusal TEXT, measured_at TEXT NOT NULL,
    clock TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', operators TEXT NOT NULL DEFAULT '',
    flops REAL NOT NULL DEFAULT 0, bytes REAL NOT NULL DEFAULT 0, traits TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (signature, device, runtime, version, threads, level)
) WITHOUT ROWID
"""
#: What a version added to the one before: 2 under which clock a price was taken, and what the region is; 3 in what
#: regions of the same operators differ.
_ADDED = {
    2: (
        ("clock TEXT", "''"), ("kind TEXT", "''"), ("operators TEXT", "''"), ("flops REAL", "0"), ("bytes REAL", "0"),
    ),
    3: (("traits TEXT", "''"),),
}  # fmt: skip
_PUT = f"""
INSERT INTO prices ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
ON CONFLICT ({", ".join(KEY)}) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in VALUES)}
"""
_PUT_NEWER = f"{_PUT} WHERE excluded.measured_at > prices.measured_at"
_HERE = "device = ? AND runtime = ? AND version = ? AND threads = ? AND level = ?"
_GET = f"SELECT signature, {', '.join(VALUES)} FROM prices WHERE {_HERE} AND signature IN ({{marks}})"
_ALL_HERE = f"SELECT signature, {', '.join(VALUES)} FROM prices WHERE {_HERE} ORDER BY signature"
_CHUNK = 500


def default_path() -> Path:
    """``prices.sqlite`` at :func:`rlflow.ledger.home`."""
    return home() / "prices.sqlite"


class PriceDatabase:
    """Read and write prices in batches; safe to share between processes and threads. Use as a context manager, or
    ``close`` it.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._file = SqliteFile(Path(path) if path is not None else default_path(), _prepare)

    @classmethod
    def copy_of(cls, path: str | os.PathLike[str]) -> PriceDatabase:
        """The prices of a file, in memory: the file stays as it is. Raises :class:`UsageError` for what is no price
        database, is damaged, or cannot be read.
        """
        found = cls.__new__(cls)
        try:
            content = copied(Path(path))
            _require_prices(content)
            found._file = SqliteFile(None, _prepare, content)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"The file {os.fspath(path)} cannot be used as a price database: {reason}.") from error
        return found

    def __enter__(self) -> PriceDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; further use raises ``sqlite3.ProgrammingError``."""
        self._file.close()

    @property
    def path(self) -> Path | None:
        """The file; ``None`` where prices are in memory only."""
        return self._file.path

    @property
    def persistent(self) -> bool:
        """Whether prices survive this process."""
        return self.path is not None

    # --- prices -----------------------------------------------------------------------------------------------------

    def get_many(self, signatures: Iterable[str], context: PriceContext) -> dict[str, Price]:
        """The known prices among ``signatures``; unknown ones are absent."""
        wanted = list(dict.fromkeys(signatures))

        def read(connection: sqlite3.Connection) -> dict[str, Price]:
            found: dict[str, Price] = {}
            for start in range(0, len(wanted), _CHUNK):
                part = wanted[start : start + _CHUNK]
                query = _GET.format(marks=", ".join("?" * len(part)))
                for signature, *values in connection.execute(query, (*context.row, *part)):
                    found[signature] = Price(*values)
            return found

        return self._sound(self._file.read(read))

    def put_many(self, prices: Mapping[str, Price], context: PriceContext) -> None:
        """Store prices, replacing older ones of the same key; all of them or, should the process die, none."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        rows = [(signature, *context.row, *price.row(now)) for signature, price in prices.items()]
        self._file.write(lambda connection: connection.executemany(_PUT, rows))

    def all_here(self, context: PriceContext) -> dict[str, Price]:
        """Every price of one place, by signature."""

        def read(connection: sqlite3.Connection) -> dict[str, Price]:
            return {signature: Price(*values) for signature, *values in connection.execute(_ALL_HERE, context.row)}

        return self._sound(self._file.read(read))

    def _sound(self, prices: dict[str, Price]) -> dict[str, Price]:
        """Those that can be prices: a damaged file, or another program, may have left anything."""
        sound = {signature: price for signature, price in prices.items() if price.sound}
        self._say_damaged(len(prices) - len(sound))
        return sound

    def _say_damaged(self, count: int) -> None:
        if count:
            warn(f"{count} prices in {self.path} are no prices (damaged, or of another program); they are left out.")

    def count(self) -> int:
        """Number of stored prices, over all devices."""
        return self._count("SELECT COUNT(*) FROM prices")

    def contexts(self) -> list[ContextSummary]:
        """Where prices were taken, most recent first."""
        rows = self._rows(f"SELECT {', '.join(KEY[1:])}, ms, spread_ms, measured_at FROM prices")
        sound = [row for row in rows if sound_key(row[:-3]) and sound_number(row[-3]) and sound_number(row[-2])]
        sound = [row for row in sound if isinstance(row[-1], str)]
        self._say_damaged(len(rows) - len(sound))
        grouped: dict[PriceContext, list[Any]] = {}
        for *where, ms, spread, when in sound:
            grouped.setdefault(PriceContext(*where), []).append((ms, spread, when))
        found = [_summary(context, values) for context, values in grouped.items()]
        return sorted(found, key=lambda one: (one.newest, one.context.row), reverse=True)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def export_to(self, write: Callable[[str], Any]) -> int:
        """Hand every price to ``write`` as a line of JSON, after a line that says what this is; their number."""
        rows = self._rows(f"SELECT {', '.join(COLUMNS)} FROM prices ORDER BY {', '.join(KEY)}")
        sound = [row for row in rows if sound_key(row[1 : len(KEY)]) and Price(*row[len(KEY) :]).sound]
        self._say_damaged(len(rows) - len(sound))
        exchange.write_lines(sound, _VERSION, write)
        return len(sound)

    def import_from(self, lines: Iterable[str], name: str) -> tuple[int, int]:
        """Take in what :meth:`export_to` wrote; of two prices of one key the more recent stays. Returns the numbers of
        lines read and of prices that are new or replaced.

        Raises :class:`UsageError`, naming the line, for anything else; nothing is taken in then.
        """
        rows = exchange.read_lines(lines, _VERSION, name)

        def write(connection: sqlite3.Connection) -> int:
            before = connection.total_changes
            connection.executemany(_PUT_NEWER, rows)
            return connection.total_changes - before

        return len(rows), self._file.write(write)

    def prune(
        self, *, before: str | None = None, other_than: PriceContext | None = None, refusals: bool = False,
        everything: bool = False,
    ) -> int:  # fmt: skip
        """Delete prices: measured before a date (ISO, UTC), taken by another version of the runtime of ``other_than``
        on its device, refusals, or all. The number of prices deleted.
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
        if refusals and not everything:
            conditions.append("ms IS NULL")
        if not conditions:
            return 0

        def write(connection: sqlite3.Connection) -> int:
            return connection.execute(f"DELETE FROM prices WHERE {' OR '.join(conditions)}", values).rowcount

        return self._file.write(write)

    def _rows(self, query: str) -> list[Any]:
        return self._file.read(lambda connection: connection.execute(query).fetchall())

    def _count(self, query: str) -> int:
        return int(self._rows(query)[0][0])


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or bring them up to this version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in range(_VERSION + 1):
        raise sqlite3.DatabaseError(f"its schema version is {version}, this program writes version {_VERSION}")
    for later in range(version + 1, _VERSION + 1) if version else ():
        for column, default in _ADDED[later]:
            connection.execute(f"ALTER TABLE prices ADD COLUMN {column} NOT NULL DEFAULT {default}")
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _require_prices(connection: sqlite3.Connection) -> None:
    """Raises ``sqlite3.DatabaseError`` where there is anything but prices; brings those up to this version."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "prices" not in names:
        raise sqlite3.DatabaseError("it has no table of prices")
    others = sorted(name for name in names if name != "prices" and not name.startswith("sqlite_"))
    if others:
        raise sqlite3.DatabaseError(f"it has tables of another program ({brief(', '.join(others))})")
    _prepare(connection)
    if {row[1] for row in connection.execute("PRAGMA table_info(prices)")} != set(COLUMNS):
        raise sqlite3.DatabaseError("its prices are of another program")


def _summary(context: PriceContext, values: Sequence[tuple[float | None, float | None, str]]) -> ContextSummary:
    spreads = [spread / ms for ms, spread, _ in values if ms and spread is not None]
    dates = [when for _, _, when in values]
    refused = sum(ms is None for ms, _, _ in values)
    spread = statistics.median(spreads) if spreads else None
    return ContextSummary(context, len(values), refused, min(dates), max(dates), spread)
