"""The ledger: what one run keeps for the next.

Searches, comparisons, proofs and checkpoints are entries of a :class:`Kind`, which says how a value is written and
read. An entry is a file of two lines of JSON: a header (kind, version, when, about what, a digest of the rest) and the
value. It is written whole or not at all. What is read is not trusted: an entry of another version is none, a damaged
one is removed with a :class:`LedgerWarning`, and a folder that others could have written to is not looked into. Losing
the ledger costs time and nothing else, so no trouble with it ends a run.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rlflow.errors import OutputError, RlflowError
from rlflow.files import parse_json, write_atomically

__all__ = ["Kind", "Ledger", "LedgerWarning", "home", "key", "now", "read", "sealed", "trusted", "write"]

_T = TypeVar("_T")
#: What a reader may raise for a value that is none.
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, RlflowError)


class LedgerWarning(UserWarning):
    """Something will not be kept, or was lost; what is computed stays correct."""


@dataclass(frozen=True)
class Kind(Generic[_T]):
    """``name`` is that of its folder, ``version`` changes with the form of the values or what they mean. ``plain``: a
    value as JSON can say it; ``of``: the value of that, which raises an error for anything else. At most so many
    ``entries`` are kept, none longer than ``days`` and all together in so many ``bytes``.
    """

    name: str
    version: int
    plain: Callable[[_T], Any]
    of: Callable[[Any], _T]
    entries: int = 20_000
    days: float = 365.0
    bytes: int = 256 << 20


def home() -> Path:
    """``$RLFLOW_CACHE``, else ``rlflow`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    own = os.environ.get("RLFLOW_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rlflow"


def key(*parts: object) -> str:
    """A name for all that an entry depends on, by the parts' ``repr``."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(repr(part).encode() + b"\0")
    return hasher.hexdigest()


def now() -> str:
    """This moment as an ISO date in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def trusted(folder: Path) -> bool:
    """Whether only this user can have written there: what somebody else left would be believed."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


# --- one entry --------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], kind: Kind[_T], value: _T, at: str | None = None, **about: object) -> None:
    """Write an entry wherever it is wanted. Raises :class:`rlflow.errors.OutputError`."""
    write_atomically(path, sealed(kind, json.dumps(kind.plain(value)), at, **about))


def sealed(kind: Kind[Any], text: str, at: str | None = None, **about: object) -> str:
    """An entry whose value is written as ``text``."""
    header = {"kind": kind.name, "version": kind.version, "at": at or now(), "digest": _digest(text.encode())}
    return json.dumps({**header, "about": {name: str(one) for name, one in about.items()}}) + "\n" + text + "\n"


def read(path: str | os.PathLike[str], kind: Kind[_T]) -> _T:
    """The value of an entry. Raises OSError where it cannot be read, and ValueError, whose text is the reason, for what
    is no entry of this kind and version, or is damaged.
    """
    found = _value(Path(path).read_bytes(), kind)
    if found is None:
        raise ValueError(f"it was written by another version of this program (expected version {kind.version})")
    return found[0]


def _value(content: bytes, kind: Kind[_T]) -> tuple[_T] | None:
    """The value, ``None`` for one of another version."""
    header, _, rest = content.partition(b"\n")
    try:
        known = parse_json(header)
        if not isinstance(known, dict) or known.get("kind") != kind.name:
            raise ValueError(f"it does not begin as an entry of {kind.name!r} does")
        if known.get("version") != kind.version:
            return None
        rest = rest.removesuffix(b"\n")
        if known.get("digest") != _digest(rest):
            raise ValueError("it is not as it was written")
        return (kind.of(parse_json(rest)),)
    except _DAMAGE as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


# --- all entries of a kind --------------------------------------------------------------------------------------------


class Ledger(Generic[_T]):
    """The entries of one kind, by key, in ``folder`` (default: the kind's own in :func:`home`). ``fresh``: none is
    recalled, though all are kept.
    """

    def __init__(self, kind: Kind[_T], folder: Path | None = None, fresh: bool = False) -> None:
        self.kind, self.fresh = kind, fresh
        self.folder = home() / kind.name if folder is None else folder

    def recall(self, key: str) -> _T | None:
        """What was kept under ``key``."""
        path = self._path(key)
        if self.fresh or not os.path.lexists(self.folder) or not self._believed():
            return None
        try:
            found = _value(path.read_bytes(), self.kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _warn(f"What was kept in {path} cannot be used ({error}); it is removed, and made again when needed.")
            self.forget(key)
            return None
        return None if found is None else found[0]

    def keep(self, key: str, value: _T, at: str | None = None, **about: object) -> None:
        """In place of what was there. ``at``: when it was found, an ISO date in UTC; ``about``: see :meth:`prune`."""
        try:
            if self._made():
                write(self._path(key), self.kind, value, at, **about)
                if key.startswith("0"):  # now and then: looking at all entries takes a moment
                    self.sweep()
        except (OSError, OutputError) as error:
            _warn_once(f"Nothing can be kept in {self.folder} ({error}); what is found there now is lost.")

    def forget(self, key: str) -> None:
        """Throw away what was kept under ``key``."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def prune(self, which: Callable[[Mapping[str, str]], bool] = lambda about: True) -> int:
        """Delete the entries that ``which`` is true for; the number deleted. It is told what each is ``about``, and
        ``at``; of what cannot be read, nothing.
        """
        gone = 0
        for path in self._entries():
            if which(_about(path)):
                with contextlib.suppress(OSError):
                    path.unlink()
                    gone += 1
        return gone

    def __len__(self) -> int:
        return sum(1 for _ in self._entries())

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _entries(self) -> Iterator[Path]:
        yield from sorted(self.folder.glob("*.json")) if trusted(self.folder) else ()

    def _believed(self) -> bool:
        if trusted(self.folder):
            return True
        _warn_once(f"Others could have written to {self.folder}; what is kept there is not used.")
        return False

    def _made(self) -> bool:
        """Makes the folder, or takes it back where others could read or write it; whether that was possible."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted(self.folder) and not self.folder.is_symlink() and os.lstat(self.folder).st_uid == os.getuid():
            self.folder.chmod(0o700)
            for entry in self.folder.glob("*.json"):
                entry.unlink()  # who knows whose
        return self._believed()

    def sweep(self) -> None:
        """Remove what is too old or too much, the oldest first; the newest entry stays."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    known = entry.stat(follow_symlinks=False)
                    found.append((known.st_mtime, known.st_size, entry.path))
        oldest, room = time.time() - 86_400.0 * self.kind.days, self.kind.bytes
        for number, (when, size, path) in enumerate(sorted(found, reverse=True)):
            room -= size
            if number > 0 and (number >= self.kind.entries or when < oldest or room < 0):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _about(path: Path) -> dict[str, str]:
    try:
        with open(path, "rb") as stream:
            header = parse_json(stream.readline())
        return {**header["about"], "at": str(header["at"])}
    except (OSError, *_DAMAGE):
        return {}


_told: set[str] = set()


def _warn_once(sentence: str) -> None:
    if sentence not in _told:
        _told.add(sentence)
        _warn(sentence)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, LedgerWarning, stacklevel=4)
