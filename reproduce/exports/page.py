"""Writes the tables of this folder's page from results/latest.jsonl, those of each machine by themselves.

    python reproduce/exports/page.py [ROWS.jsonl ...]

The tables of other tools are those of results/peers.jsonl, what the allowances bring those of results/allowances.jsonl.
Rows of other files, as `run.py --out ROWS.jsonl` and `peers.py --out ROWS.jsonl` write them, first take the place of
those of the same model and the same machine there; of several such rows the last counts.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import peers
import results
import sweep
from gains import CONFIG, gain, key, mean, names, plain, sound, summary, undecided

PEERS_ARE = (
    "Other tools, timed against the model as it came. *Itself* is the original a second time. What *failed* counts as "
    "1.00 in the mean, because the user keeps the model. rlflow's result is the file that was optimised for one "
    "thread."
)
LATEST, ALLOWED, PAGE = HERE / "results" / "latest.jsonl", HERE / "results" / "allowances.jsonl", HERE / "README.md"
TABLES = re.compile(r"(<!-- rows: written by page.py -->\n).*?(<!-- end of rows -->)", re.DOTALL)


def joined(files: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The rows of the files, later ones in place of earlier ones of the same model, machine and tool, in the order of
    the table for one machine after the other; and the runs that they are of."""
    rows: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for file in files:
        found, machines = results.read(file)
        runs |= machines
        rows.update({(*key(row, runs), row.get("tool", ""), peers.threads_of(row)): row for row in found})
    places = list(dict.fromkeys(place for _, place, *_ in rows))
    order = names()
    rank = {known: (places.index(known[1]), order.index(known[0])) for known in rows if known[0] in order}
    return [rows[known] for known in sorted(rank, key=rank.__getitem__)], runs


def by_place(rows: Sequence[dict[str, Any]], runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of each machine by their models."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        name, place = key(row, runs)
        found.setdefault(place, {})[name] = row
    return found


def write_rows(path: Path, rows: Sequence[dict[str, Any]], runs: dict[str, dict[str, Any]]) -> None:
    """A results file as :class:`results.Results` writes it, without what is too bulky for the repository."""
    used = dict.fromkeys(row["run"] for row in rows)
    slim = [{name: value for name, value in row.items() if name not in sweep.BULKY} for row in rows]
    results.write_lines(path, [*({**runs[run], "run": run} for run in used), *slim])


def line(row: dict[str, Any]) -> str:
    """The table's line of a row."""
    bar = "" if row.get("bar") is None else f"{row['bar']:.2f}"
    if not sound(row):
        return f"| {row['name']} | failed | | {bar} | |"
    rules = Counter(step["rule"] for step in row.get("trace") or [])
    most = ", ".join(f"{rule} ×{times}" if times > 1 else rule for rule, times in rules.most_common(3))
    improved = row.get("improved")
    interval = " to ".join(f"{end:.2f}" for end in (row.get("speedup_ci95") or () if improved else ()))
    cleaned = improved and not interval
    note = "undecided" if undecided(row) else "clean-up alone" if cleaned else interval
    return f"| {row['name']} | {gain(row):.2f} | {note} | {bar} | {most} |"


def tables(
    rows: Sequence[dict[str, Any]], runs: dict[str, dict[str, Any]], allowed: dict[str, dict[str, dict[str, Any]]]
) -> str:
    """What stands between the marks of the page; ``allowed``: the rows with the allowances, by place and model."""
    places = by_place([row for row in rows if "tool" not in row], runs)
    lines = []
    for place, found in places.items():
        lines += [f"## {place}", "", *table(list(found.values()))]
        lines += with_allowances(found, allowed[place]) if place in allowed else []
        theirs = [row for row in rows if "tool" in row and key(row, runs)[1] == place]
        lines += [PEERS_ARE] if theirs else []
        for threads in sorted(set(map(peers.threads_of, theirs))):
            lines += [f"With {threads} threads:"] if threads > 1 else []
            lines += peers.table([row for row in theirs if peers.threads_of(row) == threads])
    return "\n".join([*lines, *beside(places)])


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of one machine."""
    heading = ["| Model | Gain | 95 % interval | Bar | Rules used most |", "|---|--:|---|--:|---|"]
    unsure = sum(undecided(row) for row in rows)
    lines = [f"{len(rows)} of the {len(names())} models are measured here, {unsure} undecided: {summary(rows)}", ""]
    for title, part in (
        ("Models that rules may have been written towards:", [row for row in rows if not row["held_out"]]),
        ("Held out:", [row for row in rows if row["held_out"]]),
    ):
        if part:
            lines += [title, "", *heading, *map(line, part), "", summary(part), ""]
    later = CONFIG["looked_at"]
    unseen = [row for row in rows if row["held_out"] and plain(row["name"]) not in later]
    if unseen:
        lines += [f"Without {' and '.join(later)}, which rules were written for later: {summary(unseen)}", ""]
    return lines


def allowances() -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of what the two allowances bring, by place and model."""
    return by_place(*results.read(ALLOWED)) if ALLOWED.exists() else {}


def with_allowances(plain_rows: dict[str, dict[str, Any]], allowed: dict[str, dict[str, Any]]) -> list[str]:
    """What the two allowances bring, and the mean over all models where they are given."""
    lines = [
        "With `--allow-opset 23 --allow-domain com.microsoft`, in runs of their own:",
        *results.heading("Model", "Without", "With"),
    ]
    for name in (name for name in names() if name in allowed):
        without = f"{gain(plain_rows[name]):.2f}" if name in plain_rows else ""
        lines.append(f"| {name} | {without} | {gain(allowed[name]):.2f} |")
    together = summary(list({**plain_rows, **allowed}.values()))
    return [*lines, "", f"All, those that were not run again with their gain without: {together}", ""]


def beside(places: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """The means over the models that every machine measured; nothing where there are fewer than two machines."""
    sets = [{name for name, row in found.items() if sound(row)} for found in places.values()]
    common = set.intersection(*sets) if len(sets) > 1 else set()
    if not common:
        return []
    means = {place: mean([gain(found[name]) for name in common]) for place, found in places.items()}
    each = "; ".join(f"{place}: {value:.3f}" for place, value in means.items())
    return ["## The same models on each", "", f"{len(common)} models, geometric mean. {each}.", ""]


def main(arguments: Sequence[str]) -> None:
    rows, runs = joined([LATEST, peers.LATEST, *map(Path, arguments)])
    write_rows(LATEST, [row for row in rows if "tool" not in row], runs)
    if theirs := [row for row in rows if "tool" in row]:
        write_rows(peers.LATEST, theirs, runs)
    text = PAGE.read_text(encoding="utf-8")
    written = tables(rows, runs, allowances())
    PAGE.write_text(TABLES.sub(lambda found: found[1] + "\n" + written + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
