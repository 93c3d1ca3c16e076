"""What people export: architectures of torchvision, timm and transformers, optimised through the command line.

    python reproduce/exports/run.py [--only NAME ...] [--budget 60s] [--seed 0] [--resume [--undecided]] [--export-only]
        [--allowances]

Needs `pip install -c constraints.txt '.[bench]'`. Every model of architectures.py is exported with random weights by
torch's exporter, those that config.json lists also by the older one (NAME@older), and kept under build/exports; so is
what is faster, under build/exports/optimized. Each is optimised for one thread; results/latest.jsonl holds the machines
and one report a line, one for each model and machine. A third of the models is held out in config.json, before any rule
was written; `looked_at` there names those of them that rules were written for later. With --allowances the result
may need opset 23 and ONNX Runtime's own domain; these rows are in results/allowances.jsonl, and no model is kept. Exit
status 1 when a model failed or was not verified.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import machine
import results
import sweep
from gains import CONFIG, OLDER, kept_file, key, model_file, names, plain, summary, undecided

EXPORT_SECONDS = 900
LATEST, ALLOWED = HERE / "results" / "latest.jsonl", HERE / "results" / "allowances.jsonl"
ALLOWANCES = ("--allow-opset", "23", "--allow-domain", "com.microsoft")
machine.PACKAGES = (*machine.PACKAGES, "torch", "torchvision", "timm", "transformers", "onnxscript")


def exported(name: str, seed: int) -> Path | None:
    """The model's file, written where it is not there yet; None where torch cannot export it."""
    path = model_file(name, seed)
    if path.exists():
        return path
    command = [sys.executable, os.fspath(HERE / "export.py"), plain(name), os.fspath(path), "--seed", str(seed)]
    command += ["--older"] if name.endswith(OLDER) else []
    try:
        status = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=EXPORT_SECONDS).returncode
    except subprocess.TimeoutExpired:
        status = None
    return path if status == 0 else None


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one model: the report of `rlflow optimize`, or that there is no model."""
    about = {"held_out": plain(name) in CONFIG["held_out"], "bar": CONFIG["bars"].get(name)}
    source, kept = exported(name, options.seed), kept_file(name, options.seed)
    more = ALLOWANCES if options.allowances else ()
    if not more:
        kept.unlink(missing_ok=True)
    if source is None:
        return {"kind": "export", "name": name, **about, "exit_status": None}
    with tempfile.TemporaryDirectory(prefix="rlflow-exports-") as scratch:
        row = sweep.optimise_file(name, source, options.budget, options.seed, Path(scratch), keep=True, more=more)
        if row.get("improved") and not more:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(scratch) / row["written"], kept)
    return {**row, **about}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--budget", default="60s", help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--allowances", action="store_true", help=" ".join(ALLOWANCES))
    parser.add_argument("--out", type=Path, help="file of the reports")
    parser.add_argument("--resume", action="store_true", help="leave out the models that have a row of this machine")
    parser.add_argument("--undecided", action="store_true", help="with --resume: but not those whose row says little")
    parser.add_argument("--export-only", action="store_true", help="write the models and stop")
    results.add_options(parser)
    options = parser.parse_args()
    chosen = names()
    if unknown := sorted(set(options.only) - set(chosen)):
        parser.error(f"no such model: {', '.join(unknown)}")
    if options.export_only:
        return export_all(options.only or chosen, options.seed)
    command = ["python", "reproduce/exports/run.py", "--budget", options.budget, "--seed", str(options.seed)]
    command += ["--allowances"] if options.allowances else []
    out = options.out or (ALLOWED if options.allowances else LATEST)
    kept = results.Results(out, command, resume=True, dirty=options.dirty, bulky=sweep.BULKY)
    here = machine.place(kept.machine)
    for name in wanted(options, kept.rows, kept.machines, here):
        row = measure(name, options)
        kept.drop(lambda old, name=name: key(old, kept.machines) == (name, here))
        print(f"{name}: {verdict(kept.add(row))}", file=sys.stderr, flush=True)
    mine = [row for row in kept.rows if key(row, kept.machines)[1] == here]
    reports = [row for row in mine if row["kind"] == "report"]
    print("\n".join(results.about(mine, kept.machines)))
    print(sweep.table(reports, {row["name"]: row["bar"] for row in reports}))
    print(f"all: {summary(mine)}\nheld out: {summary([row for row in mine if row['held_out']])}")
    return 1 if any(not sweep.passed(verdict(row)) for row in mine) else 0


def wanted(
    options: argparse.Namespace, rows: Sequence[dict[str, Any]], runs: dict[str, dict[str, Any]], here: str
) -> list[str]:
    """The models to measure: those named, or all; with ``--resume`` without those that have a row of this machine."""
    rest = {
        row["name"]
        for row in rows
        if options.resume and key(row, runs)[1] == here and not (options.undecided and undecided(row))
    }
    return [name for name in options.only or names() if name not in rest]


def export_all(chosen: Sequence[str], seed: int) -> int:
    """Writes the models only; exit status 1 where torch refused one."""
    missing = []
    for name in chosen:
        path = exported(name, seed)
        print(f"{name}: {'not exported' if path is None else f'{path.stat().st_size / 1e6:.1f} MB'}", flush=True)
        missing += [name] if path is None else []
    return 1 if missing else 0


def verdict(row: dict[str, Any]) -> str:
    if row["kind"] == "export":
        return "FAILED: torch did not export it"
    return sweep.verdict(row, None)  # a bar that is missed is shown, and does not fail the run


if __name__ == "__main__":
    sys.exit(main())
