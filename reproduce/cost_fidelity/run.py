"""Predicted against end-to-end time over the zoo: every model and its rewritten variants, one thread.

    python reproduce/cost_fidelity/run.py [--models NAME ...] [--variants 30] [--seconds 6] [--seed 0] [--out FOLDER]

Each model is exported with seeded weights and handed to `rlflow cost calibrate`, which prices it and its variants by
regions, and by the sum of single-operator times, and times all of them end to end. The bars: a median absolute error of
at most 6 %, and a rank correlation over a model's variants of at least 0.9 where their spread exceeds the noise.

results/NAME.json holds a model's rows, kept up to date while it runs: a run that was ended goes on where it was.
results/latest.jsonl: the machine, then one line a model. results/scatter.png: all points. Exit status 1 when a bar is
missed. Leave the machine alone meanwhile; about five minutes a model.
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

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1]))

import machine  # from the folder above

from rlflow.cost.endtoend import student
from rlflow.cost.fidelity import Agreement, agreement
from rlflow.report.plots import scatter

CLI = [sys.executable, "-m", "rlflow"]
MODELS = (
    "squeezenet1.1",
    "resnet-18",
    "resnext-50",
    "inception-v3",
    "densenet-121",
    "mobilenet-v2",
    "shufflenet-v2",
    "repvgg-a0",
    "nasrnn",
    "bert6-classifier",
    "vit-base",
    "llama-decoder-step",
)
ERROR_BAR, RANK_BAR = 0.06, 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--variants", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=6.0, help="longest time for one variant, about")
    parser.add_argument(
        "--max-noise", type=float, default=0.05, help="refuse a machine that differs from itself by more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    command = ["python", "reproduce/cost_fidelity/run.py", "--variants", str(options.variants)]
    command += [
        "--seconds",
        f"{options.seconds:g}",
        "--max-noise",
        f"{options.max_noise:g}",
        "--seed",
        str(options.seed),
    ]
    rows: list[dict[str, Any]] = [machine.header(command)]
    points: dict[str, list[tuple[float, float, str]]] = {}
    for name in options.models:
        status, found = calibrated(name, options)
        rows.append({**summary(name, found), "exit_status": status})
        for row in found:
            for price, ms in row["predicted_ms"].items():
                points.setdefault(price, []).append((row["measured_ms"], ms, name))
        machine.write_jsonl(options.out / "latest.jsonl", rows)
        if points:
            scatter(points, options.out / "scatter.png", title="Predicted against measured time")
    print(machine.describe(rows[0]))
    print(table(rows[1:]))
    return 0 if all(map(passed, rows[1:])) else 1


def calibrated(name: str, options: argparse.Namespace) -> tuple[int, list[dict[str, Any]]]:
    """The command's exit status and the rows of one model; those of an earlier run are kept."""
    target = options.out / f"{name.replace('/', '-')}.json"
    with tempfile.TemporaryDirectory(prefix="rlflow-fidelity-") as folder:
        source = Path(folder) / f"{name.replace('/', '-')}.onnx"
        subprocess.run([*CLI, "zoo", "export", name, "-o", os.fspath(source)], check=True, stdout=sys.stderr)
        command = [*CLI, "cost", "calibrate", os.fspath(source), "--variants", str(options.variants), "--threads", "1"]
        command += ["--seconds", f"{options.seconds:g}", "--max-noise", f"{options.max_noise:g}"]
        command += ["--seed", str(options.seed), "--json", os.fspath(target), "--resume"]
        status = subprocess.run(command, stdout=sys.stderr).returncode
    rows = json.loads(target.read_text(encoding="utf-8"))["rows"] if target.exists() else []
    if status != 0:
        print(f"{name}: 'rlflow cost calibrate' ended with status {status}, {len(rows)} rows", file=sys.stderr)
    return status, list(rows)


def summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the results: the figures by price."""
    measured = [row["measured_ms"] for row in rows]
    errors = [row["half_width"] / student(row["blocks"]) for row in rows]
    prices = list(rows[0]["predicted_ms"]) if rows else []
    found = {price: agreement([row["predicted_ms"][price] for row in rows], measured, errors) for price in prices}
    return {
        "kind": "fidelity",
        "name": name,
        "original_ms": measured[0] if measured else None,
        "prices": {price: figures._asdict() for price, figures in found.items()},
    }


def passed(row: dict[str, Any]) -> bool:
    """Whether the price by regions (the first one) meets both bars."""
    figures = [Agreement(**values) for values in row["prices"].values()]
    if not figures or row["exit_status"] != 0:
        return False
    ranked = figures[0].spearman is not None and figures[0].spearman >= RANK_BAR
    return figures[0].error <= ERROR_BAR and (ranked or not figures[0].telling)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | ms | price | graphs | error | after the original's factor | Spearman | spread | noise | bars |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        for number, (price, values) in enumerate(row["prices"].items()):
            one = Agreement(**values)
            rank = "-" if one.spearman is None else f"{one.spearman:.2f}" + ("" if one.telling else " (noise)")
            verdict = "" if number else "met" if passed(row) else "MISSED"
            cells = [row["name"], f"{row['original_ms']:.3g}", price, str(one.graphs), *map(percent, (
                one.error, one.scaled_error)), rank, *map(percent, (one.spread, one.noise)), verdict]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        if not row["prices"]:
            lines.append(f"| {row['name']} | | | | | | | | | FAILED |")
    return "\n".join(lines)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
