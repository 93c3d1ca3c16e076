"""Writes the tables of this folder's page from results/latest.jsonl.

    python reproduce/exports/page.py [ROWS.jsonl ...]

Rows of other files, as `run.py --out ROWS.jsonl` writes them, first take the place of those with their names there; of
several rows with one name the last counts.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results
import sweep

CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
LATEST, PAGE = HERE / "results" / "latest.jsonl", HERE / "README.md"
TABLES = re.compile(r"(<!-- rows: written by page.py -->\n).*?(<!-- end of rows -->)", re.DOTALL)
#: How the reason begins where the final comparison ended before it could decide.
UNDECIDED = ("No claim", "Undecided", "This machine is too noisy")
#: A gain that counts.
WORTH = 1.05


def names() -> list[str]:
    """All models in the order of the table, read from the text of architectures.py, which itself needs torch."""
    builders = re.findall(r'^    "(\w+)": ', (HERE / "architectures.py").read_text(encoding="utf-8"), re.MULTILINE)
    return [*builders, *(f"{name}@older" for name in CONFIG["older"])]


def gain(row: dict[str, Any]) -> float:
    """The confirmed speed-up; 1 where the model was kept as it came."""
    return float(row["speedup"]) if row.get("improved") else 1.0


def undecided(row: dict[str, Any]) -> bool:
    """Whether the row's 1.00 says little."""
    return not row.get("improved") and str(row.get("reason", "")).startswith(UNDECIDED)


def joined(files: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The rows of the files, later ones in place of earlier ones of the same name, and the runs that they are of."""
    rows: dict[str, dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for file in files:
        found, machines = results.read(file)
        rows.update({row["name"]: row for row in found})
        runs |= machines
    return [rows[name] for name in names() if name in rows], runs


def write_rows(path: Path, rows: Sequence[dict[str, Any]], runs: dict[str, dict[str, Any]]) -> None:
    """A results file as :class:`results.Results` writes it, without what is too bulky for the repository."""
    used = dict.fromkeys(row["run"] for row in rows)
    slim = [{name: value for name, value in row.items() if name not in sweep.BULKY} for row in rows]
    results.write_lines(path, [*({**runs[run], "run": run} for run in used), *slim])


def line(row: dict[str, Any]) -> str:
    """The table's line of a row."""
    bar = "" if row.get("bar") is None else f"{row['bar']:.2f}"
    if row["kind"] != "report" or row["exit_status"] != 0:
        return f"| {row['name']} | failed | | {bar} | |"
    rules = Counter(step["rule"] for step in row.get("trace") or [])
    most = ", ".join(f"{rule} ×{times}" if times > 1 else rule for rule, times in rules.most_common(3))
    interval = " to ".join(f"{end:.2f}" for end in row["speedup_ci95"]) if row.get("improved") else ""
    note = "undecided" if undecided(row) else interval
    return f"| {row['name']} | {gain(row):.2f} | {note} | {bar} | {most} |"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many models, their geometric mean, and how many gain what counts."""
    gains = [gain(row) for row in rows if row["kind"] == "report" and row["exit_status"] == 0]
    mean = math.exp(sum(map(math.log, gains)) / len(gains)) if gains else 1.0
    above = sum(value >= WORTH for value in gains)
    return f"{len(gains)} models, geometric mean {mean:.3f}, {above} at {WORTH} or more."


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """What stands between the marks of the page."""
    heading = ["| Model | Gain | 95 % interval | Bar | Rules used most |", "|---|--:|---|--:|---|"]
    lines = [f"{len(rows)} of the {len(names())} models are measured: {summary(rows)}", ""]
    for title, part in (
        ("Models that rules may have been written towards:", [row for row in rows if not row["held_out"]]),
        ("Held out:", [row for row in rows if row["held_out"]]),
    ):
        lines += [title, "", *heading, *map(line, part), "", summary(part), ""]
    later = CONFIG["looked_at"]
    unseen = [row for row in rows if row["held_out"] and row["name"].split("@")[0] not in later]
    lines += [f"Without {' and '.join(later)}, which rules were written for later: {summary(unseen)}", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    rows, runs = joined([LATEST, *map(Path, arguments)])
    write_rows(LATEST, rows, runs)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLES.sub(lambda found: found[1] + "\n" + tables(rows) + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
