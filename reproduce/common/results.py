"""The one writer of results files: rows of JSON, each with the commit, machine, date and versions that it is of.

A file holds lines of two kinds. A line of kind ``machine`` describes one run of a script (:func:`machine.header`) under
a short name, ``run``; every other line is a row, and says by the same name in which run it was made. So a file that
several runs wrote, in part over one another, still says of each figure where it comes from.

A tree with uncommitted changes is refused, because nobody could make the figure again; ``--dirty`` allows it, and then
:meth:`Results.about`, which stands above every table, says so.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import machine

Row = dict[str, Any]

#: Where the rows are kept with the fields that are too bulky for the repository; a release's artefact.
RAW = machine.ROOT / "build" / "results"
#: Too long to be shown while running.
_LONG = ("kind", "key", "run", "curve", "rounds", "trace", "climb", "steps", "model_losses", "dream_returns")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every script with results has."""
    parser.add_argument("--dirty", action="store_true", help="allow uncommitted changes; the table says so")


class Results:
    """A results file, written after each row, through a temporary file.

    ``command``: what makes it again. ``resume``: go on with the rows that are there; else begin anew. ``dirty``: the
    tree may have uncommitted changes. ``bulky``: fields that only the raw file gets (under :data:`RAW`); it is what a
    resumed run reads, where it is there. ``shared``: other processes may add to the file meanwhile. Nothing is written
    before the first row, so a run that fails at once leaves the old file.
    """

    def __init__(
        self,
        path: Path,
        command: Sequence[str],
        *,
        resume: bool = False,
        dirty: bool = False,
        bulky: Sequence[str] = (),
        shared: bool = False,
    ) -> None:
        self.path, self._bulky, self._shared = path, frozenset(bulky), shared
        self.machine = machine.header(list(command))
        if str(self.machine["commit"]).endswith("-dirty") and not dirty:
            raise SystemExit(
                "The tree has uncommitted changes, so nobody could make these figures again: commit them first, or add "
                "--dirty, which the table then says."
            )
        self.run = _name(self.machine)
        self.rows: list[Row] = []
        self._machines: dict[str, Row] = {}
        if resume:
            self._read()
        self._machines[self.run] = self.machine

    @property
    def raw(self) -> Path | None:
        """The file with all fields; ``None`` where ``path`` has them all."""
        inside = self.path.resolve().parent.parts[-2:]
        return RAW / inside[0] / self.path.name if self._bulky and inside[-1:] == ("results",) else None

    def _kept(self) -> Path:
        return self.raw if self.raw is not None and self.raw.exists() else self.path

    @property
    def machines(self) -> dict[str, Row]:
        """The runs by name, this one among them."""
        return dict(self._machines)

    @property
    def commit(self) -> str | None:
        return self.machine["commit"]

    def have(self, key: str) -> bool:
        return any(row.get("key") == key for row in self.rows)

    def of(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row.get("kind") == kind]

    def add(self, row: Row) -> Row:
        """Keep a row of this run, write, and show it where it has a key."""
        kept = self.extend([row])[0]
        if "key" in kept:
            self.show(kept)
        return kept

    def extend(self, rows: Sequence[Row]) -> list[Row]:
        """Keep rows of this run, and write once."""
        mine = [{**row, "run": self.run} for row in rows]
        with self._alone():
            self.rows.extend(mine)
            self.write()
        return mine

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """With the rows of the other processes, where there may be some."""
        if not self._shared:
            yield
            return
        RAW.mkdir(parents=True, exist_ok=True)
        with open(RAW / f"{_name({'path': os.fspath(self.path.resolve())})}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            yield

    def _read(self) -> None:
        self.rows, machines = read(self._kept())
        self._machines |= machines

    def show(self, row: Row) -> None:
        """One line on the standard error."""
        shown = {name: value for name, value in row.items() if name not in _LONG}
        print(row["key"], json.dumps(shown), file=sys.stderr, flush=True)

    def replace(self, rows: Sequence[Row], made_here: Callable[[Row], bool]) -> None:
        """Rows that are worked out anew from what was measured: one that was not measured in this run stays of the run
        that the row with its name was of.
        """
        runs = {row.get("name"): row["run"] for row in self.rows}
        self.rows = [
            {**row, "run": self.run if made_here(row) else runs.get(row.get("name"), self.run)} for row in rows
        ]
        self.write()

    def drop(self, unwanted: Callable[[Row], bool]) -> None:
        self.rows = [row for row in self.rows if not unwanted(row)]

    def write(self) -> None:
        runs = dict.fromkeys(row["run"] for row in self.rows)
        machines = [{**self._machines[run], "run": run} for run in runs]
        slim = [{name: value for name, value in row.items() if name not in self._bulky} for row in self.rows]
        if self.raw is None:
            write_lines(self.path, [*machines, *self.rows])
        else:
            write_lines(self.raw, [*machines, *self.rows])
            write_lines(self.path, [*machines, *slim])

    def about(self) -> str:
        """One line a run that rows are of: where, when and by which commit."""
        return "\n".join(about(self.rows, self._machines))


def about(rows: Sequence[Row], machines: dict[str, Row]) -> Iterator[str]:
    """A line for each run that rows are of; how many, where there is more than one run."""
    counts = Counter(row["run"] for row in rows)
    for run, count in counts.items():
        part = f"{count} of {len(rows)} rows: " if len(counts) > 1 else ""
        yield part + machine.describe(machines[run])


def read(path: Path) -> tuple[list[Row], dict[str, Row]]:
    """(the rows, the runs that they are of by name); a row without a name is of the run written above it."""
    rows: list[Row] = []
    machines: dict[str, Row] = {}
    above = ""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        row = json.loads(line)
        if row.get("kind") == "machine":
            above = row.pop("run", None) or _name(row)
            machines[above] = row
        else:
            rows.append({**row, "run": row.get("run", above)})
    unnamed = {row["run"] for row in rows} - set(machines)
    if unnamed:
        raise SystemExit(f"{path}: rows of the runs {sorted(unnamed)}, of which the file does not say where they ran.")
    return rows, machines


def write_lines(path: Path, rows: Sequence[Row]) -> None:
    """One JSON object a line, through a temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)


def heading(*names: str) -> Iterator[str]:
    """The first two lines of a table, after an empty one; figures are to the right."""
    yield from ("", f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1))


def _name(header: Row) -> str:
    """The run's short name: a digest of its header."""
    return hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=4).hexdigest()
