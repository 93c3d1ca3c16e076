"""What a verb will write, checked before it works: each file in a place of its own, and none over what is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from rlflow.errors import OutputError, UsageError

__all__ = ["check_files", "check_folder", "check_outputs", "check_page", "check_replaced", "files_of"]


def check_outputs(outputs: Mapping[str, str | os.PathLike[str] | None], inputs: Iterable[Any] = ()) -> None:
    """That each of ``outputs``, by what the user calls them, can be written, is none of the ``inputs`` (paths; others
    are passed over), and is no other output. ``None``: not wanted; "-" for ``--json``: printed.

    Raises :class:`UsageError` and :class:`OutputError`.
    """
    from rlflow.files import check_is_not_read, check_output, is_stream, same_place

    wanted = {name: place for name, place in outputs.items() if place is not None and (name, place) != ("--json", "-")}
    read, taken = [one for one in inputs if isinstance(one, (str, os.PathLike))], dict[str, Any]()
    for name, place in wanted.items():
        check_output(place, None)
        for one in read:
            check_is_not_read(place, one)
        for other, there in taken.items():
            if same_place(place, there) and not is_stream(place):
                raise UsageError(f"{other} and {name} cannot both be written to {place}; give each its own place.")
        taken[name] = place


def check_replaced(what: str, place: str | os.PathLike[str], first: bytes, kind: str) -> None:
    """That a file which is there already is empty or begins with ``first``, in small letters or large, as those of this
    ``kind`` do: a slip must not cost a model. ``what`` is written, in words. Raises :class:`UsageError`.
    """
    from rlflow.files import check_readable

    if not os.path.isfile(place):
        return
    check_readable(place, "The file", UsageError)
    with open(place, "rb") as file:
        found = file.read(64).lstrip().lower()
    if not found.startswith(first) and found:
        raise UsageError(f"{what} would replace {place}, a file that holds something else than {kind}; name another.")


def check_page(option: str, place: str | os.PathLike[str] | None) -> None:
    """As :func:`check_replaced`, for the HTML file of an option, if it is wanted."""
    if place is not None:
        check_replaced(f"{option} {place}", place, b"<!doctype html", "HTML")


def check_folder(folder: str, outputs: Mapping[str, str | None]) -> None:
    """That a folder to make has a name, and that no other output goes into it. Raises :class:`UsageError` and
    :class:`OutputError`.
    """
    from rlflow.files import check_is_text, mode_of

    if not folder:
        raise UsageError("The name of the output is empty; give the name of a folder.")
    check_is_text(folder)
    mode_of(folder, "The output", OutputError)
    inside = os.path.join(os.path.realpath(folder), "")
    for name, place in outputs.items():
        if place not in (None, "-") and os.path.join(os.path.realpath(str(place)), "").startswith(inside):
            raise UsageError(f"{name} cannot be written into the folder {folder} of -o; give it another place.")


def check_files(folder: str, names: Iterable[str], outputs: Mapping[str, str | None]) -> None:
    """That no other output has the place of a file called so that ``-o`` puts into a folder. Raises
    :class:`UsageError`.
    """
    from rlflow.files import same_place

    for name in names:
        for option, place in outputs.items():
            if place is not None and same_place(place, os.path.join(folder, name)):
                raise UsageError(f"-o and {option} cannot both be written to {place}; give each its own place.")


def files_of(given: Iterable[str]) -> list[str]:
    """The files that ``--input-data`` may mean: ``FILE`` and ``name=FILE`` (a name may have an equals sign, too)."""
    return [path for one in given for path in (one, one.partition("=")[2]) if path]
