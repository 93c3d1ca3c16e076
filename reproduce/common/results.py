"""What the longer reproductions share: a file of rows that a stopped run goes on with, and tables in Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine

#: Too long to be shown while running.
_LONG = ("kind", "key", "curve", "rounds", "model_losses", "dream_returns")


class Rows:
    """The results file: rows by key, written after each one."""

    def __init__(self, path: Path, command: list[str]) -> None:
        self.path = path
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.rows = self.rows or [machine.header(command)]

    def have(self, key: str) -> bool:
        return any(row.get("key") == key for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        machine.write_jsonl(self.path, self.rows)
        shown = {name: value for name, value in row.items() if name not in _LONG}
        print(row["key"], json.dumps(shown), file=sys.stderr, flush=True)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["kind"] == kind]


def heading(*names: str) -> Iterator[str]:
    """The first two lines of a table, after an empty one; figures are to the right."""
    yield from ("", f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1))
