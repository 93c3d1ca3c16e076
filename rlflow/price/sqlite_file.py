"""A SQLite file that all processes of a user share, and that no trouble stops a run over.

A damaged file is set aside, an unwritable place is replaced by memory, and either is said once as a
:class:`PriceDatabaseWarning`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

_BUSY_SECONDS = 10.0
_MEMORY = ":memory:"
_Result = TypeVar("_Result")


class PriceDatabaseWarning(UserWarning):
    """Prices will not be kept, or kept ones were lost; what is computed stays correct."""


class SqliteFile:
    """A connection to the file at ``path``, or to memory, where ``content`` may be already. ``prepare`` makes the
    tables, inside a transaction; it raises ``sqlite3.DatabaseError`` for a file that it cannot read.
    """

    def __init__(
        self,
        path: Path | None,
        prepare: Callable[[sqlite3.Connection], None],
        content: sqlite3.Connection | None = None,
    ) -> None:
        self.path = path
        self._prepare = prepare
        self._lock = threading.RLock()
        self._inode: int | None = None
        self._connection = content or self._open()

    def close(self) -> None:
        """Close the file; further use raises ``sqlite3.ProgrammingError``."""
        with self._lock:
            self._connection.close()

    def read(self, action: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What ``action`` returns; where the file turns out to be damaged, busy or full, by what is in its place."""
        return self._guarded(action, "read")

    def write(self, action: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """As :meth:`read`, in a transaction: all of it or, should the process die, nothing."""

        def whole(connection: sqlite3.Connection) -> _Result:
            with _transaction(connection):
                return action(connection)

        return self._guarded(whole, "written")

    def _guarded(self, action: Callable[[sqlite3.Connection], _Result], verb: str) -> _Result:
        with self._lock:
            try:
                return action(self._connection)
            except sqlite3.ProgrammingError:
                raise  # closed, or misused: a mistake in the program
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                self._connection.close()
                if _is_damage(error) and self.path is not None:
                    self._set_aside(self.path, error)
                    self._connection = self._open()
                else:
                    self._connection = self._fall_back(error, verb)
                return action(self._connection)

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(_MEMORY)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(os.fspath(self.path))
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not _is_damage(error):
                    raise
                self._set_aside(self.path, error)
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
            # Answers with another mode where the file system cannot do it.
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        if place != _MEMORY:
            self._inode = os.stat(place).st_ino
        return connection

    # --- trouble ----------------------------------------------------------------------------------------------------

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Rename the damaged file, unless another process has done so already and a new one is in its place."""
        if self._inode is not None and (not path.exists() or path.stat().st_ino != self._inode):
            return
        target = _free_name(path)
        os.replace(path, target)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        self._inode = None
        warn(
            f"The price database {path} cannot be used ({error}); "
            f"it was set aside as {target.name} and a new one was started."
        )

    def _fall_back(self, error: Exception, verb: str = "opened") -> sqlite3.Connection:
        warn(
            f"The price database {self.path} cannot be {verb} ({error}); "
            "prices are kept in memory and are lost when the program ends."
        )
        self.path = None
        return self._connect(_MEMORY)


def copied(path: Path) -> sqlite3.Connection:
    """The content of a SQLite file, in memory: neither the file nor its folder is touched.

    Raises ``sqlite3.DatabaseError`` and OSError for what is none, is damaged or cannot be read.
    """
    with open(path, "rb"):  # SQLite does not say why it cannot
        pass
    # What others have written may be beside the file. Where nothing is, SQLite needs to put nothing there, either.
    mode = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"
    place = f"{path.absolute().as_uri()}?{mode}"
    memory = sqlite3.connect(_MEMORY, isolation_level=None, check_same_thread=False)
    with contextlib.closing(sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS)) as source:
        (found,) = source.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({' '.join(found.split())})")
        source.backup(memory)
    return memory


def warn(sentence: str) -> None:
    """As :class:`PriceDatabaseWarning`."""
    warnings.warn(sentence, PriceDatabaseWarning, stacklevel=4)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_damage(error: Exception) -> bool:
    """Whether the file is damaged; a lock, a full disk or a missing permission (``OperationalError``) is not that.

    Bytes that are no text show as ``UnicodeDecodeError`` where they are in a name that SQLite complains of.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return any(words in str(error) for words in ("malformed", "Could not decode"))


def _free_name(path: Path) -> Path:
    for number in range(1000):
        target = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number else ""))
        if not target.exists():
            return target
    return path.with_name(f"{path.name}.corrupt-{os.getpid()}")
