"""Predicted against end-to-end time over the zoo: every model and its rewritten variants, one thread.

    python reproduce/cost_fidelity/run.py [--models NAME ...] [--variants 30] [--seconds S] [--seed 0] [--out FOLDER]
    python reproduce/cost_fidelity/run.py --summarise

Each model is exported with seeded weights and handed to `rlflow cost calibrate`, which prices it and its variants by
regions, and by the sum of single-operator times, and times all of them end to end. The bars: a median absolute error of
at most 6 %, and a rank correlation over a model's variants of at least 0.9 where their spread exceeds the noise.

results/NAME.json holds a model's rows, kept up to date while it runs: a run that was ended goes on where it was.
results/latest.jsonl: one line a model. results/table.md: the table. results/scatter.png: all points.
Exit status 1 when a bar is missed. Leave the machine alone meanwhile; about five minutes a model. --summarise measures
nothing: it makes table and plot of the rows that are there.

What regions cost inside a model (rlflow.price.in_model) was learnt from these rows. So that no model is judged by what
was learnt from it, the price «onnxruntime» of a model is that which the other models give; «regions alone» is without
it. Nothing is learnt from or for models that stream their weights. --learn prints what all others give.

A rank correlation has a ceiling: most variants of a network of many small convolutions take the same time within what
the clock can tell. «attainable» is the correlation of the measured times with themselves measured once more; «pairs in
order» counts the pairs of variants that the clock tells apart (by 1 % and three standard errors) and the part of them
that the price has in the right order.
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

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import results  # from the folder "common"

from rlflow.price.agreement import Agreement, agreement
from rlflow.price.in_model import ONNXRUNTIME, STREAMING, Total, learnt, left_out
from rlflow.price.whole import student
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
SECONDS = 6.0
#: Models whose time is that of memory, which differs more from one block of sessions to the next.
LONGER = {"nasrnn": 15.0, "llama-decoder-step": 15.0}
PRICE = "onnxruntime"
Points = dict[str, list[tuple[float, float, str]]]
ERROR_BAR, RANK_BAR = 0.06, 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--variants", type=int, default=30)
    parser.add_argument("--seconds", type=float, help="longest time for one variant, about (6; 15 for two models)")
    parser.add_argument(
        "--max-noise", type=float, default=0.05, help="refuse a machine that differs from itself by more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    parser.add_argument("--summarise", action="store_true", help="measure nothing, show what is there")
    parser.add_argument("--learn", action="store_true", help="print what regions cost inside a model, by all rows")
    results.add_options(parser)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    command = ["python", "reproduce/cost_fidelity/run.py", "--variants", str(options.variants)]
    command += ["--seconds", f"{options.seconds:g}"] if options.seconds else []
    command += ["--max-noise", f"{options.max_noise:g}", "--seed", str(options.seed)]
    dirty = options.dirty or options.summarise  # which measures nothing
    found = results.Results(options.out / "latest.jsonl", command, resume=True, dirty=dirty)
    points: Points = {}
    known: dict[str, list[dict[str, Any]]] = {}
    states: dict[str, int] = {}
    for name in options.models:
        if options.summarise and not target(name, options).exists():
            continue
        states[name], known[name] = (0, kept(name, options)) if options.summarise else calibrated(name, options)
        rows, points = judged(known, states)
        found.replace(rows, lambda row: not options.summarise and row["name"] in states)
        if points:
            scatter(points, options.out / "scatter.png", title="Predicted against measured time")
    if options.learn:
        print(learnt(totals(known, streams=False)))
    shown = f"{found.about()}\n\n{table(found.rows)}\n\n{pooled(points)}"
    (options.out / "table.md").write_text(shown + "\n", encoding="utf-8")
    print(shown)
    return 0 if all(map(passed, found.rows)) else 1


def totals(known: dict[str, list[dict[str, Any]]], streams: bool) -> dict[str, list[Total]]:
    """What was measured and what the regions cost alone, by model, of one of the two kinds of models."""
    return {
        name: [Total(row["measured_ms"], row["alone_ms"], row["regions"]) for row in rows]
        for name, rows in known.items()
        if rows and rows[0]["streams"] == streams
    }


def judged(known: dict[str, list[dict[str, Any]]], states: dict[str, int]) -> tuple[list[dict[str, Any]], Points]:
    """A line for every model, and all points; every model by what the others give."""
    lines: list[dict[str, Any]] = []
    points: Points = {}
    plain, streaming = totals(known, streams=False), totals(known, streams=True)
    for name, rows in known.items():
        others = STREAMING if name in streaming else left_out(plain, name) if len(plain) > 1 else ONNXRUNTIME
        shown = []
        for row, total in zip(rows, plain.get(name) or streaming.get(name, []), strict=True):
            inside, rest = others.ms(total.alone_ms, total.regions), {**row["predicted_ms"]}
            rest.pop(PRICE)
            shown.append({**row, "predicted_ms": {PRICE: inside, "regions alone": total.alone_ms, **rest}})
            for price, ms in shown[-1]["predicted_ms"].items():
                points.setdefault(price, []).append((row["measured_ms"], ms, name))
        in_model = {"factor": others.factor, "region_ms": others.region_ms}
        lines.append({**summary(name, shown), "in_model_of_the_others": in_model, "exit_status": states[name]})
    return lines, points


def target(name: str, options: argparse.Namespace) -> Path:
    return Path(options.out / f"{name.replace('/', '-')}.json")


def kept(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    return list(json.loads(target(name, options).read_text(encoding="utf-8"))["rows"])


def pooled(points: Points) -> str:
    """The median error of each price over all graphs of all models."""
    lines = []
    for price, found in points.items():
        errors = sorted(abs(ms / measured - 1.0) for measured, ms, _ in found)
        lines.append(f"{price}: median error {percent(errors[len(errors) // 2])} over {len(errors)} graphs.")
    return "\n".join(lines)


def calibrated(name: str, options: argparse.Namespace) -> tuple[int, list[dict[str, Any]]]:
    """The command's exit status and the rows of one model; those of an earlier run are kept."""
    file = target(name, options)
    with tempfile.TemporaryDirectory(prefix="rlflow-fidelity-") as folder:
        source = Path(folder) / f"{name.replace('/', '-')}.onnx"
        subprocess.run([*CLI, "zoo", "export", name, "-o", os.fspath(source)], check=True, stdout=sys.stderr)
        command = [*CLI, "cost", "calibrate", os.fspath(source), "--variants", str(options.variants), "--threads", "1"]
        seconds = options.seconds or LONGER.get(name, SECONDS)
        command += ["--seconds", f"{seconds:g}", "--max-noise", f"{options.max_noise:g}"]
        command += ["--seed", str(options.seed), "--json", os.fspath(file), "--resume"]
        prices = {**os.environ, "RLFLOW_CACHE": os.fspath(Path(folder) / "prices")}
        status = subprocess.run(command, stdout=sys.stderr, env=prices).returncode
    rows = kept(name, options) if file.exists() else []
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
    columns = ("model", "ms", "price", "graphs", "error", "after the original's factor", "Spearman", "attainable")
    columns += ("pairs in order", "spread", "noise", "bars")
    lines = [
        f"| {' | '.join(columns)} |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        for number, (price, values) in enumerate(row["prices"].items()):
            one = Agreement(**values)
            rank = "-" if one.spearman is None else f"{one.spearman:.2f}" + ("" if one.telling else " (noise)")
            verdict = "" if number else "met" if passed(row) else "MISSED"
            top = "-" if one.attainable is None else f"{one.attainable:.2f}"
            order = "-" if one.ordered is None else f"{one.ordered:.0%} of {one.pairs}"
            ranks = [rank, top, order]
            figures = [one.error, one.scaled_error, one.spread, one.noise]
            error, scaled, spread, noise = map(percent, figures)
            cells = [row["name"], f"{row['original_ms']:.3g}", price, str(one.graphs), error, scaled]
            cells += [*ranks, spread, noise, verdict]
            lines.append(f"| {' | '.join(cells)} |")
        if not row["prices"]:
            lines.append(f"| {row['name']} | | | | | | | | | | | FAILED |")
    return "\n".join(lines)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
