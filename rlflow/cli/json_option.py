"""``--json``, which is the same in every verb: alone it prints JSON, and with FILE it writes the same there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from rlflow.errors import UsageError

__all__ = ["emit_json", "in_json", "json_option"]

#: What stands for stdout.
_STDOUT = "-"


class _JsonFile(click.ParamType):
    """A file that JSON may be written to. Since FILE may be left out, what follows ``--json`` may be meant as the
    verb's own argument: a model or a file of rules is never written over.
    """

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The place as it came, once something may be written there."""
        if value != _STDOUT:
            taken = _taken(value)
            if taken is not None:
                raise UsageError(
                    f"--json {value} would write JSON to {taken}. To print JSON, put --json last or write --json=-; "
                    "to write a file, name another."
                )
            from rlflow.files import check_output

            check_output(value, None)
        return value


def _taken(path: str) -> str | None:
    """What lies there that is no JSON of ours, in words."""
    if os.path.isfile(path):
        return _foreign(path)
    if "." in os.path.splitext(path)[1] and path.endswith((".json", ".jsonl")):
        return None
    from rlflow import zoo
    from rlflow.specs import name_of

    known = os.sep not in path and name_of(path.partition("?")[0]) in zoo.names()
    return "a file with the name of a zoo model" if known else None


def _foreign(path: str) -> str | None:
    from rlflow.files import check_readable, parse_json

    check_readable(path, "The file", UsageError)
    with open(path, "rb") as file:
        if file.read(64).lstrip()[:1] not in (b"", b"{", b"["):
            return "a file that holds something else"
        file.seek(0)
        try:
            found = parse_json(file.read().decode())
        except ValueError:
            return None  # a report that was cut short
    rules = isinstance(found, dict) and isinstance(found.get("rules"), list)
    return "a file of rules" if rules else None


def json_option(what: str = "JSON") -> Callable[[Any], Any]:
    """The option, as the parameter ``json_file``: ``None``, ``-`` for stdout, or a file."""
    return click.option(
        "--json", "json_file", is_flag=False, flag_value=_STDOUT, metavar="[FILE]", type=_JsonFile(),
        help=f"Print {what}, or write it to FILE.",
    )  # fmt: skip


def in_json(place: str | None, plain: Callable[[], Any]) -> bool:
    """Does what ``--json`` asks for with plain values. True where stdout is theirs, so that nothing else goes there."""
    if place is not None:
        emit_json(plain(), place)
    return place == _STDOUT


def emit_json(value: Any, place: str) -> None:
    """Write plain values as JSON to a file, or print them where ``place`` is ``-``."""
    if place == _STDOUT:
        click.echo(json.dumps(value, indent=2, ensure_ascii=not _prints_all()))
        return
    from rlflow.files import write_atomically

    write_atomically(place, f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode())


def _prints_all() -> bool:
    """Whether stdout has every character; what it has not would be lost, and JSON can say it otherwise."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
