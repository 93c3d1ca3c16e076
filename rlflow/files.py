"""Files that are written: whole or not at all, and refused before the work starts where they cannot be.

What is half-written, or only for a while, is locked by the process that needs it. A lock ends with its process, however
that ends, so that the next run can tell what was left behind, and removes it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rlflow.errors import OutputError, RlflowError, UsageError
from rlflow.protobuf_wire import locations

try:
    import fcntl
except ImportError:  # not a POSIX system: only age tells what was left behind
    fcntl = None  # type: ignore[assignment]
_HAS_LOCKS = fcntl is not None

__all__ = [
    "ScratchFolder",
    "check_is_not_read",
    "check_is_text",
    "check_output",
    "check_readable",
    "data_files",
    "is_same_file",
    "is_stream",
    "mode_of",
    "parse_json",
    "real_target",
    "remove_unfinished",
    "replacing",
    "same_place",
    "temporary_beside",
    "unfinished",
    "write_atomically",
]

_LOCK = ".in-use"
_SCRATCH = "rlflow-"
# Younger things may not have been locked yet; older ones that nobody can lock, on systems without locks, are dead.
_YOUNG_SECONDS, _OLD_SECONDS = 60.0, 86_400.0
# No model is larger than what protobuf reads.
_LARGEST_MODEL = 1 << 31


def check_output(output: str | os.PathLike[str], model: Any) -> Path:
    """The output path, once it is clear that it can be written and is neither the input nor its weights; raises
    :class:`OutputError`, and :class:`UsageError` for a name that is none.
    """
    if os.fspath(output) == "":
        raise UsageError("The name of an output is empty; give the name of a file to write.")
    if os.fspath(output) == "-":
        raise UsageError("The output - cannot be the standard output; give the name of a file to write.")
    check_is_text(output)
    path = Path(output)
    with _sentences(f"The output {path}"):
        if isinstance(model, (str, os.PathLike)):
            check_is_not_read(path, model)
        if path.is_dir():
            raise OutputError(f"The output {path} is a directory; expected the name of a file to write.")
        if is_stream(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return path
        target = real_target(path)
        if target.exists() and not target.is_file():
            raise OutputError(f"The output {path} is neither a file nor a pipe; choose another place.")
        if not target.parent.is_dir():
            raise OutputError(
                f"The output {path} cannot be written: there is no directory {target.parent}; make it first."
            )
        with tempfile.NamedTemporaryFile(prefix=f".{target.name}.data.", dir=target.parent):
            pass  # the longest name that will be needed
        _sweep_beside(target)
    return path


def check_is_text(output: str | os.PathLike[str]) -> None:
    """Raises :class:`UsageError` for an output whose name is no text: neither a runtime nor a report can name it."""
    try:
        os.fspath(output).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The output {os.fsencode(output)!r} is not UTF-8, and neither a runtime nor a report takes such a name; "
            "give another name."
        ) from error


@contextmanager
def _sentences(what: str) -> Iterator[None]:
    """What the system has against writing ``what`` as an :class:`OutputError`."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{what} cannot be written: {reason}; choose another place.") from error


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether what is there takes what is written and keeps no file: a pipe, or a device such as /dev/null. Raises
    OSError.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def real_target(path: str | os.PathLike[str]) -> Path:
    """The file that is written: where a link leads to, so that the link stays one. Raises OSError."""
    return Path(os.path.realpath(path)) if os.path.islink(path) and not is_stream(path) else Path(path)


def check_readable(path: str | os.PathLike[str], what: str, error: type[RlflowError]) -> None:
    """Raises ``error`` where there is no such file, or it cannot be read; ``what`` names it, such as "The model"."""
    try:
        with open(path, "rb"):
            pass
    except FileNotFoundError as missing:
        raise error(f"{what} {os.fspath(path)!r} does not exist; give the path of a file.") from missing
    except IsADirectoryError as folder:
        raise error(f"{what} {os.fspath(path)!r} is a directory; give the path of a file.") from folder
    except (OSError, ValueError) as refused:  # ValueError: a NUL in the name
        reason = getattr(refused, "strerror", None) or refused
        raise error(f"{what} {os.fspath(path)!r} cannot be read: {reason}.") from refused


def mode_of(path: str | os.PathLike[str], what: str, error: type[RlflowError]) -> int:
    """The mode of what is at a path, 0 where nothing is. Raises ``error`` where that cannot be seen: in a folder that
    may not be searched, by a name that is too long. ``what`` names it, such as "The model".
    """
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as refused:  # ValueError: a NUL in the name
        reason = getattr(refused, "strerror", None) or refused
        raise error(f"{what} {os.fspath(path)!r} cannot be read: {reason}.") from refused


def check_is_not_read(output: str | os.PathLike[str], model: str | os.PathLike[str]) -> None:
    """Raises :class:`OutputError` where an output is a file that is read, or weights of that model."""
    path = Path(output)
    if not os.path.isfile(path):
        return
    if is_same_file(path, model):
        raise OutputError(
            f"The output {path} is the input itself; give another name, the original is never overwritten."
        )
    if any(is_same_file(path, one) for one in data_files(model)):
        raise OutputError(
            f"The output {path} holds weights of the input {model}; give another name, the original is never "
            "overwritten."
        )


def data_files(model: str | os.PathLike[str]) -> list[Path]:
    """Where the model in a file says that weights of it are, sorted; none for what cannot be read, or is no model."""
    try:
        found = os.stat(model)
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _LARGEST_MODEL:
            return []  # a pipe can be read only once
        with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = locations(content)
    except (OSError, ValueError):
        return []
    return sorted(Path(model).parent / name for name in names if "\0" not in name)


def is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to one file that exists."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one is not there, or cannot be looked at: who reads it says so
        return False


def same_place(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths, existing or not, name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream whose content is under ``path`` once the block ends well, and nowhere when it does not.

    It is written beside the target and renamed; the file gets the rights that a new one would have. A pipe or a device
    is written to as it is, and a link stays one. Raises :class:`OutputError`.
    """
    with _sentences(f"The file {path}"):
        if is_stream(path):
            with open(path, "wb") as stream:
                yield stream
            return
        target = real_target(path)
    with temporary_beside(target) as temporary:
        with open(temporary, "wb") as stream:
            yield stream
        os.replace(temporary, target)


@contextmanager
def temporary_beside(path: str | os.PathLike[str]) -> Iterator[str]:
    """The name of a new empty file beside ``path``, which the block fills and moves; removed where the block fails.

    It has the rights that a new file would have. Raises :class:`OutputError`.
    """
    target = Path(path)
    with _sentences(f"The file {target}"):
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            _lock(handle)
            os.chmod(temporary, 0o666 & ~_umask())
            with unfinished(temporary):
                yield temporary
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file, text as UTF-8, so that it is there whole or not at all. Raises :class:`OutputError`."""
    with replacing(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text stands for, from a file that anybody may have written.

    Raises ValueError, whose text is the reason, for everything else: no JSON, no UTF-8, nested too deeply, integers of
    thousands of digits, halves of characters (which could not be written again).
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
    if escape in text.lower():  # type: ignore[operator]
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("a text in it has half a character (a lone surrogate)") from error
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- what must not be left behind

_unfinished: set[str] = set()


@contextmanager
def unfinished(path: str) -> Iterator[None]:
    """Inside, the file is worth nothing to anybody, should this process end now."""
    _unfinished.add(path)
    try:
        yield
    finally:
        _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove every file and folder that would be left behind; for a process that is about to end."""
    for path in tuple(_unfinished):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)


# -- what was left behind


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that the next run removes where this one was killed."""

    _swept = False

    def __init__(self, prefix: str = _SCRATCH) -> None:
        if not ScratchFolder._swept:
            ScratchFolder._swept = True
            _sweep_scratch()
        super().__init__(prefix=prefix)
        _unfinished.add(self.name)
        self._held = os.open(os.path.join(self.name, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        _lock(self._held)

    def cleanup(self) -> None:
        """Remove the folder with all that is in it."""
        super().cleanup()
        _unfinished.discard(self.name)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def _sweep_scratch() -> None:
    """Removes this user's folders of runs that are no more."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_SCRATCH) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    if _abandoned(entry.path, os.path.join(entry.path, _LOCK)):
                        shutil.rmtree(entry.path, ignore_errors=True)


def _sweep_beside(path: Path) -> None:
    """Removes the half-written files of runs that were to write ``path`` and are no more."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.(data(\.\d+)?\.)?[a-z0-9_]{{8}}")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    if _abandoned(entry.path, entry.path):
                        os.unlink(entry.path)


def _abandoned(path: str, lock: str) -> bool:
    """Whether something is this user's, not of this minute, and its ``lock`` (a file) is held by nobody."""
    found = os.lstat(path)
    age = time.time() - found.st_mtime
    if (hasattr(os, "getuid") and found.st_uid != os.getuid()) or age < _YOUNG_SECONDS:
        return False
    try:
        handle = os.open(lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:  # killed before it was locked
        return age > _OLD_SECONDS
    try:
        return stat.S_ISREG(os.fstat(handle).st_mode) and (_lock(handle) or (not _HAS_LOCKS and age > _OLD_SECONDS))
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Takes the lock of an open file, if nobody has it; it ends with the process."""
    if fcntl is None:
        return False  # type: ignore[unreachable]
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
