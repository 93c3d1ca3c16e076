"""Files that are written: whole or not at all, and refused before the work starts where they cannot be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rlflow.errors import OutputError

__all__ = ["check_output", "replacing", "same_place", "write_atomically"]


def check_output(output: str | os.PathLike[str], model: Any) -> Path:
    """The output path, once it is clear that it can be written and is not the input; raises :class:`OutputError`."""
    path = Path(output)
    if isinstance(model, (str, os.PathLike)) and _same_file(path, Path(model)):
        raise OutputError(
            f"The output {path} is the input itself; give another name, the original is never overwritten."
        )
    if path.is_dir():
        raise OutputError(f"The output {path} is a directory; expected the name of a file to write.")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"The output {path} cannot be written: there is no directory {folder}; make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"The output {path} cannot be written: {error.strerror or error}; choose another place."
        ) from error
    return path


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def same_place(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths, existing or not, name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream whose content is under ``path`` once the block ends well, and nowhere when it does not.

    It is written beside the target and renamed; the file gets the rights that a new one would have. Raises
    :class:`OutputError`.
    """
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            f"The file {target} cannot be written: {error.strerror or error}; choose another place."
        ) from error


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file, text as UTF-8, so that it is there whole or not at all. Raises :class:`OutputError`."""
    with replacing(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
