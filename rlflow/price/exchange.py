"""Prices as lines of JSON, to be taken to another machine or file: one that says what this is, then one a price."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlflow.errors import UsageError
from rlflow.files import parse_json
from rlflow.price.records import COLUMNS, sound_traits

_FORMAT = "rlflow prices"
#: The fields that lines of an earlier version do not have, and what these are then.
_LACKING: dict[int, dict[str, Any]] = {2: {"traits": ""}}
#: Whole numbers below this are what the database holds.
_LARGEST = 2**63


def write_lines(rows: Sequence[Sequence[Any]], version: int, write: Callable[[str], Any]) -> None:
    """Hand rows of ``COLUMNS`` to ``write``, line by line; ``version``: of the schema."""
    write(json.dumps({"format": _FORMAT, "version": version, "prices": len(rows)}) + "\n")
    for row in rows:
        write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")


def read_lines(lines: Iterable[str], version: int, name: str) -> list[tuple[Any, ...]]:
    """The rows that :func:`write_lines` wrote; ``name``: of the file. Raises :class:`UsageError`, naming the line, for
    anything else.
    """
    rows, number, lacking = [], 0, dict[str, Any]()
    for number, line in enumerate(lines, 1):
        where = f"While importing prices from {name}, line {number}:"
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise UsageError(f"{where} expected a JSON object, found {line.strip()[:60]!r}.") from error
        if number == 1:
            lacking = _lacking(entry, version, where)
        else:
            rows.append(_row(entry, lacking, where))
    if number == 0:
        raise UsageError(f"While importing prices from {name}: the file is empty.")
    return rows


def _lacking(entry: Any, version: int, where: str) -> dict[str, Any]:
    """The fields that the lines behind this header lack, and what they are."""
    if not isinstance(entry, dict) or entry.get("format") != _FORMAT:
        raise UsageError(f"{where} this is no file of 'rlflow cost export'.")
    found, known = entry.get("version"), {**_LACKING, version: {}}
    if type(found) is not int or found not in known:
        versions = " and ".join(map(str, known))
        raise UsageError(f"{where} its version is {_shown(found)}; this program reads {versions}.")
    return known[found]


def _row(entry: Any, lacking: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    kinds = {"signature": str, "device": str, "runtime": str, "version": str, "threads": int, "level": str,
             "samples": int, "measured_at": str, "clock": str, "kind": str, "operators": str}  # fmt: skip
    expected = [name for name in COLUMNS if name not in lacking]
    if not isinstance(entry, dict) or set(entry) != set(expected):
        raise UsageError(f"{where} expected the fields {', '.join(expected)}.")
    entry = {**entry, **lacking}
    for key, kind in kinds.items():
        if not isinstance(entry[key], kind):
            raise UsageError(f"{where} the field {key!r} is {_shown(entry[key])}; expected {kind.__name__}.")
        if kind is int and not 0 <= entry[key] < _LARGEST:
            raise UsageError(
                f"{where} the field {key!r} is {_shown(entry[key])}; expected a number from 0, below 2^63."
            )
    ms = entry["ms"]
    if ms is not None and not (_is_number(ms) and ms >= 0):
        raise UsageError(f"{where} the field 'ms' is {_shown(ms)}; expected milliseconds, or null for a refusal.")
    for key in ("spread_ms", "flops", "bytes"):
        value = entry[key]
        absent = key == "spread_ms" and value is None
        if not absent and not _is_number(value):
            raise UsageError(f"{where} the field {key!r} is {_shown(value)}; expected a number.")
    if not (entry["refusal"] is None or isinstance(entry["refusal"], str)):
        raise UsageError(f"{where} the field 'refusal' is {_shown(entry['refusal'])}; expected a sentence or null.")
    if not sound_traits(entry["traits"]):
        raise UsageError(f"{where} the field 'traits' is {_shown(entry['traits'])}; expected traits, or nothing.")
    return tuple(entry[name] for name in COLUMNS)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that the database can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < _LARGEST


def _shown(value: Any) -> str:
    """A value of the file as a sentence can hold it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
