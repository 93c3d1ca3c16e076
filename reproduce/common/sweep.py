"""Optimises zoo models through the command line, one after the other, and keeps their reports: one JSON object a line.

Shared by the folders that print a table of gains; `foundation` and `zoo` say which models and which bars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results

CLI = [sys.executable, "-c", "from rlflow.cli import main; main()"]
REPRODUCE = Path(__file__).resolve().parents[1]
#: Of a report, what the tables do not need.
BULKY = ("curve", "statistics", "environment", "command")
HEADINGS = ("model", "before, ms", "after, ms", "speed-up", "95 % interval", "substitutions", "seconds", "verdict")


def sweep(folder: str, bars: dict[str, float | None], budget: str, description: str | None) -> int:
    """Runs the models of ``bars`` (name to the speed-up promised, None: not slower); the process's exit status."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(bars), choices=list(bars), metavar="NAME")
    parser.add_argument("--budget", default=budget, help="of each search")
    parser.add_argument("--seed", type=int, default=0)
    latest = REPRODUCE / folder / "results" / "latest.jsonl"
    parser.add_argument("--out", type=Path, default=latest, help="file of the reports")
    parser.add_argument("--resume", action="store_true", help="keep the models that the file already has")
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", f"reproduce/{folder}/run.py", "--budget", options.budget, "--seed", str(options.seed)]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty, bulky=BULKY)
    done = {row["name"] for row in kept.rows}
    with tempfile.TemporaryDirectory(prefix="rlflow-sweep-") as scratch:
        for name in (name for name in options.models if name not in done):
            row = kept.add(optimise(name, options.budget, options.seed, Path(scratch)))
            print(f"{name}: {verdict(row, bars[name])}", file=sys.stderr, flush=True)
    print(kept.about())
    print(table(kept.rows, bars))
    return 0 if all(passed(verdict(row, bars[row["name"]])) for row in kept.rows) else 1


def optimise(name: str, budget: str, seed: int, folder: Path) -> dict[str, Any]:
    """Exports and optimises one model with one thread; the report as ``--json`` wrote it, with the exit status."""
    source = folder / f"{name.replace('/', '-')}.onnx"
    run([*CLI, "zoo", "export", name, "-o", os.fspath(source)])
    row = optimise_file(name, source, budget, seed, folder)
    source.unlink(missing_ok=True)  # some hold hundreds of megabytes
    return row


def optimise_file(
    name: str, source: Path, budget: str, seed: int, folder: Path, *, keep: bool = False, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Optimises a model's file with one thread, in ``folder``; the report as ``--json`` wrote it, with the exit
    status. ``keep``: the model that was written stays there, under the name that the report gives. ``more``: options of
    the command."""
    target, report = (folder / f"{source.stem}{suffix}" for suffix in (".optimized.onnx", ".json"))
    command = [*CLI, "optimize", os.fspath(source), "-o", os.fspath(target), "--json", os.fspath(report)]
    command += ["--budget", budget, "--seed", str(seed), "--threads", "1", "--quiet", *more]
    status = run(command, check=False)
    found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    if not keep:
        target.unlink(missing_ok=True)
    names = {"model": source.name, "written": target.name}
    return {"kind": "report", "name": name, "exit_status": status, **found, **names}


def run(command: list[str], check: bool = True) -> int:
    result = subprocess.run(command, stdout=sys.stderr)
    if check and result.returncode != 0:
        raise SystemExit(f"{' '.join(command[3:])} ended with status {result.returncode}")
    return result.returncode


def verdict(row: dict[str, Any], bar: float | None) -> str:
    """'met', 'faster', 'not slower', or what is wrong with a row."""
    if row["exit_status"] != 0:
        return f"FAILED (exit {row['exit_status']})"
    if row["improved"] and not (row.get("verified") or {}).get("passed"):
        return "NOT VERIFIED"
    if bar is not None:
        return f"met ({bar:.2f}x)" if row["improved"] and row["speedup"] >= bar else f"MISSED ({bar:.2f}x)"
    # the command line returns the original where nothing is confirmed to be faster
    return "faster" if row["improved"] else "not slower: kept as it came"


def passed(text: str) -> bool:
    return text.startswith(("met", "faster", "not slower"))


def table(rows: list[dict[str, Any]], bars: dict[str, float | None]) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|--:|--:|--:|---|--:|--:|---|"]
    for row in rows:
        times = [figure(row.get(name)) for name in ("baseline_ms", "optimized_ms", "speedup")]
        interval = " to ".join(figure(end) for end in row.get("speedup_ci95") or [])
        total = row.get("seconds_total")
        seconds = "" if total is None else f"{total:.0f}"
        cells = [row["name"], *times, interval, str(len(row.get("trace") or [])), seconds]
        lines.append(f"| {' | '.join([*cells, verdict(row, bars[row['name']])])} |")
    return "\n".join(lines)


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
