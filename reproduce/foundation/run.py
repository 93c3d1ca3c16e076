"""Optimises the zoo's models through the command line, one after the other, and prints the table of gains.

    python reproduce/foundation/run.py [--models NAME ...] [--budget 120s] [--seed 0] [--out FOLDER]

Every model is written with seeded weights, optimised for one thread, and its JSON report kept: results/latest.jsonl
holds the machine and then one report a line. Exit status 1 when a model failed, was not verified, or missed its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent))

import machine  # from the folder above

# What the project promises over ONNX Runtime with all its optimisations on, one thread; None: not slower.
BARS: dict[str, float | None] = {
    "squeezenet1.1": None,
    "inception-v3": None,
    "densenet-121": 1.05,
    "repvgg-a0": 1.12,
    "nasrnn": 1.25,
    "bert6-classifier": 1.10,
    "llama-decoder-step": 1.30,
}
CLI = [sys.executable, "-c", "from rlflow.cli import main; main()"]


def optimise(name: str, budget: str, seed: int, folder: Path) -> dict[str, Any]:
    """Exports and optimises one model; the report as ``--json`` wrote it, with the exit status."""
    source, target, report = (folder / f"{name}{suffix}" for suffix in (".onnx", ".optimized.onnx", ".json"))
    run([*CLI, "zoo", "export", name, "-o", os.fspath(source)])
    command = [*CLI, "optimize", os.fspath(source), "-o", os.fspath(target), "--json", os.fspath(report)]
    status = run([*command, "--budget", budget, "--seed", str(seed), "--threads", "1", "--quiet"], check=False)
    found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return {"kind": "report", "name": name, "exit_status": status, **found, "model": source.name}


def run(command: list[str], check: bool = True) -> int:
    result = subprocess.run(command, stdout=sys.stderr)
    if check and result.returncode != 0:
        raise SystemExit(f"{' '.join(command[3:])} ended with status {result.returncode}")
    return result.returncode


def verdict(row: dict[str, Any]) -> str:
    """'met' or what is wrong with a row."""
    if row["exit_status"] != 0:
        return f"FAILED (exit {row['exit_status']})"
    if row["improved"] and not (row.get("verified") or {}).get("passed"):
        return "NOT VERIFIED"
    bar = BARS[row["name"]]
    if bar is None:  # the command line returns the original where nothing is confirmed to be faster
        return "not slower"
    return f"met ({bar:.2f}x)" if row["improved"] and row["speedup"] >= bar else f"MISSED ({bar:.2f}x)"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | before, ms | after, ms | speed-up | 95 % interval | substitutions | bar |",
        "|---|--:|--:|--:|---|--:|---|",
    ]
    for row in rows:
        times = " | ".join(figure(row.get(name)) for name in ("baseline_ms", "optimized_ms", "speedup"))
        interval = " to ".join(figure(end) for end in row.get("speedup_ci95") or [])
        lines.append(f"| {row['name']} | {times} | {interval} | {len(row.get('trace') or [])} | {verdict(row)} |")
    return "\n".join(lines)


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(BARS), choices=list(BARS))
    parser.add_argument("--budget", default="120s", help="of each search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    options = parser.parse_args()
    command = ["python", "reproduce/foundation/run.py", "--budget", options.budget, "--seed", str(options.seed)]
    rows = [machine.header(command)]
    with tempfile.TemporaryDirectory(prefix="rlflow-zoo-") as folder:
        for name in options.models:
            rows.append(optimise(name, options.budget, options.seed, Path(folder)))
            machine.write_jsonl(options.out, rows)  # after every model, so that an interrupted run keeps what it has
            print(f"{name}: {verdict(rows[-1])}", file=sys.stderr, flush=True)
    print(machine.describe(rows[0]))
    print(table(rows[1:]))
    return 0 if all(verdict(row).startswith(("met", "not slower")) for row in rows[1:]) else 1


if __name__ == "__main__":
    sys.exit(main())
