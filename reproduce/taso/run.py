"""Builds TASO's examples through ``import taso``, optimises each, and prints what was gained, beside TASO's figures.

    python reproduce/taso/run.py [--models NAME …] [--budget N] [--alpha A] [--cost MODEL] [--seconds S] [--out FOLDER]

Alpha and budget are by default the example's. results/latest.jsonl holds one row a model. Exit
status 1 where an optimised model's outputs differ from the original's.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common"), os.fspath(HERE.parents[1])]

import results  # from the folder "common"

import rlflow
import taso


class Taso(NamedTuple):
    """TASO's own result: its cost before and after (ms), and the rewritten model's speed-up in ONNX Runtime."""

    before: float
    after: float
    runtime: float | None


# TASO (f11782c) built for oneDNN, one thread, the example's alpha and budget; CPU time before / after in ONNX Runtime.
TASO = {
    "nasrnn": Taso(1.42, 1.29, 5.04 / 5.30),
    "bert": Taso(650.86, 639.18, 818 / 846),
    "resnet50": Taso(82.09, 82.09, 75.9 / 75.8),
    "resnext50": Taso(92.60, 92.46, 86.8 / 89.2),
    "nasnet_a": Taso(381.41, 376.84, 322.6 / 335.1),
    "inceptionv3": Taso(122.44, 121.57, 108.4 / 109.7),
    "batched_resnet": None,
}
# TASO's script takes 32 images; its measured run took one.
BATCH = {"inceptionv3": 1}
KINDS = ("search", "runtime")


def row_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Builds, optimises and compares one model."""
    example = importlib.import_module(name)
    graph = example.build(BATCH[name]) if name in BATCH else example.build()
    alpha = example.ALPHA if options.alpha is None else options.alpha
    budget = example.BUDGET if options.budget is None else options.budget
    started = time.monotonic()
    better = taso.optimize(graph, alpha, budget, cost=options.cost, seconds=options.seconds)
    wall = time.monotonic() - started
    report = better.report
    compared = rlflow.verify(taso.export_onnx(graph), taso.export_onnx(better)) if report.improved else None
    return {
        "kind": "model",
        "name": name,
        "alpha": alpha,
        "budget": report.budget,
        "improved": report.improved,
        "reason": report.reason,
        "stop_reason": report.stop_reason,
        "estimate_before_ms": graph.cost(),
        "estimate_after_ms": better.cost(),
        "search_before_ms": report.cost_before_ms,
        "search_after_ms": report.cost_after_ms,
        "runtime_before_ms": report.original_ms,
        "runtime_after_ms": report.optimized_ms,
        "speedup": report.speedup,
        "speedup_ci95": report.speedup_ci95,
        "operators_before": sum(report.operators_before.values()),
        "operators_after": sum(report.operators_after.values()),
        "rules": [step["rule"] for step in report.trace or []],
        "outputs_equal": compared is None or bool(compared.passed),
        "seconds": wall,
        "taso": None if TASO[name] is None else TASO[name]._asdict(),
    }


def printed(row: dict[str, Any]) -> str:
    """One line of the table."""
    other = row["taso"]
    theirs = (
        "no figure"
        if other is None
        else f"{other['before']:.2f} > {other['after']:.2f} ms, runtime x{other['runtime']:.2f}"
    )
    speed = "no clock" if row["speedup"] is None else f"x{row['speedup']:.3f}"
    cost, runtime = (f"{number(row[f'{kind}_before_ms'])} > {number(row[f'{kind}_after_ms'])} ms" for kind in KINDS)
    operators = f"{row['operators_before']} > {row['operators_after']}"
    equal = "equal" if row["outputs_equal"] else "DIFFERENT"
    times = f"runtime {runtime} {speed}  {row['seconds']:.0f} s"
    return f"{row['name']:15} {cost}  {times}  operators {operators}  {equal}  (TASO: {theirs})"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(TASO), choices=list(TASO))
    parser.add_argument("--budget", type=int, help="expansions (default: the example's)")
    parser.add_argument("--alpha", type=float, help="default: the example's")
    parser.add_argument("--cost", default="onnxruntime")
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of one search")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    results.add_options(parser)
    options = parser.parse_args()
    kept = results.Results(options.out / "latest.jsonl", ["python", *sys.argv], dirty=options.dirty)
    for name in options.models:
        print(printed(kept.add(row_of(name, options))), flush=True)
    return 0 if all(row["outputs_equal"] for row in kept.rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
