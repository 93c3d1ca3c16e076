"""What people export: architectures of torchvision, timm and transformers, optimised through the command line.

    python reproduce/exports/run.py [--only NAME ...] [--budget 60s] [--seed 0] [--resume] [--export-only]

Needs `pip install -c constraints.txt '.[bench]'`. Every model of architectures.py is exported with random weights by
torch's exporter, those that config.json lists also by the older one (NAME@older), and kept under build/exports. Each is
optimised for one thread; results/latest.jsonl holds the machine and one report a line. A third of the models is held
out in config.json, before any rule was written; `looked_at` there names those of them that rules were written for
later. Exit status 1 when a model failed or was not verified.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import machine
import results
import sweep

CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
CACHE = machine.ROOT / "build" / "exports"
OLDER = "@older"
EXPORT_SECONDS = 900
machine.PACKAGES = (*machine.PACKAGES, "torch", "torchvision", "timm", "transformers", "onnxscript")


def names() -> list[str]:
    """The models in the table's order: each architecture, then those of the older exporter."""
    sys.path.insert(0, os.fspath(HERE))
    from architectures import BUILDERS

    return [*BUILDERS, *(name + OLDER for name in CONFIG["older"])]


def exported(name: str, seed: int) -> Path | None:
    """The model's file, written where it is not there yet; None where torch cannot export it."""
    path = CACHE / f"{name}-{seed}.onnx"
    if path.exists():
        return path
    plain = name.removesuffix(OLDER)
    command = [sys.executable, os.fspath(HERE / "export.py"), plain, os.fspath(path), "--seed", str(seed)]
    command += ["--older"] if name.endswith(OLDER) else []
    try:
        status = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=EXPORT_SECONDS).returncode
    except subprocess.TimeoutExpired:
        status = None
    return path if status == 0 else None


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one model: the report of `rlflow optimize`, or that there is no model."""
    key = name.removesuffix(OLDER)
    about = {"held_out": key in CONFIG["held_out"], "bar": CONFIG["bars"].get(name)}
    source = exported(name, options.seed)
    if source is None:
        return {"kind": "export", "name": name, **about, "exit_status": None}
    with tempfile.TemporaryDirectory(prefix="rlflow-exports-") as scratch:
        return {**sweep.optimise_file(name, source, options.budget, options.seed, Path(scratch)), **about}


def gain(row: dict[str, Any]) -> float:
    """The confirmed speed-up; 1 where the model was kept as it came."""
    return float(row["speedup"]) if row.get("improved") else 1.0


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Geometric means and counts, over all models and over those held out."""
    lines = []
    for title, part in (("all", rows), ("held out", [row for row in rows if row["held_out"]])):
        gains = [gain(row) for row in part if row["kind"] == "report"]
        if gains:
            mean = math.exp(sum(map(math.log, gains)) / len(gains))
            above = sum(value >= 1.05 for value in gains)
            lines.append(f"{title}: {len(gains)} models, geometric mean {mean:.3f}, {above} gain 1.05 or more")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--budget", default="60s", help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl", help="file of the reports")
    parser.add_argument("--resume", action="store_true", help="keep the models that the file already has")
    parser.add_argument("--export-only", action="store_true", help="write the models and stop")
    results.add_options(parser)
    options = parser.parse_args()
    chosen = names()
    if unknown := sorted(set(options.only) - set(chosen)):
        parser.error(f"no such model: {', '.join(unknown)}")
    if options.export_only:
        return export_all(options.only or chosen, options.seed)
    command = ["python", "reproduce/exports/run.py", "--budget", options.budget, "--seed", str(options.seed)]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty, bulky=sweep.BULKY)
    done = {row["name"] for row in kept.rows}
    for name in (name for name in options.only or chosen if name not in done):
        row = kept.add(measure(name, options))
        print(f"{name}: {verdict(row)}", file=sys.stderr, flush=True)
    print(kept.about())
    reports = kept.of("report")
    print(sweep.table(reports, {row["name"]: row["bar"] for row in reports}))
    print(summary(kept.rows))
    failed = [row["name"] for row in kept.rows if not sweep.passed(verdict(row))]
    return 1 if failed else 0


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
