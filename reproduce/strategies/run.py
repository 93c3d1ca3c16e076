"""The strategies on zoo models: the analytic cost, the same number of opened graphs for each, three seeds.

    python reproduce/strategies/run.py [--models NAME ...] [--search a,b] [--budget 300x] [--seeds 3] [--plot FILE]

The same as ``rlflow compare``, with what each figure is of. build/results/strategies/runs.jsonl holds a line a search
and is used again; results/latest.jsonl a line a model and strategy; results/table.md the table that is printed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results  # from the folder "common"

from rlflow import zoo
from rlflow.comparison import Comparison, compare

MODELS = [
    "squeezenet1.1", "nasrnn", "bert6-classifier", "llama-decoder-step", "densenet-121", "inception-v3", "resnext-50",
]  # fmt: skip
STRATEGIES = "greedy,backtracking,beam,annealing,mcts,genetic,portfolio,partition"


def table(found: Comparison) -> str:
    rows = found.summary()
    lines = [f"| model | {' | '.join(found.strategies)} |", "|---|" + "--:|" * len(found.strategies)]
    for model in found.models:
        mine = {row["strategy"]: row for row in rows if row["model"] == model}
        lines.append(f"| {model} | {' | '.join(cell(mine[name]) for name in found.strategies)} |")
    means = [
        statistics.fmean(math.log(row["relative_cost"]) for row in rows if row["strategy"] == name)
        for name in found.strategies
    ]
    lines.append(f"| **geometric mean** | {' | '.join(f'{math.exp(mean):.5f}' for mean in means)} |")
    return "\n".join(lines)


def cell(row: dict[str, Any]) -> str:
    """Cost relative to the start, with the half-width of its 95 % interval where seeds differ."""
    spread = row["relative_cost_ci"] or 0.0
    return f"{row['relative_cost']:.5f}" + (f" ± {spread:.5f}" if spread >= 5e-6 else "")


def claims(found: Comparison) -> list[str]:
    certain = [one for one in found.differences if one.significant]
    lines = [f"{one.model}: {one.better} beats {one.worse} by {100 * (one.ratio - 1):.3f} %" for one in certain]
    return [
        *lines,
        f"{len(found.differences) - len(certain)} of {len(found.differences)} differences are not significant.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, metavar="NAME")
    parser.add_argument("--search", default=STRATEGIES)
    parser.add_argument("--budget", default="300x")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--plot", metavar="FILE", help="draw the anytime curves (extra [report])")
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/strategies/run.py", "--budget", options.budget, "--seeds", str(options.seeds)]
    kept = results.Results(options.results / "latest.jsonl", command, dirty=options.dirty)
    searches = results.RAW / "strategies" / "runs.jsonl"
    searches.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rlflow-strategies-") as folder:
        paths = [Path(folder) / f"{name.replace('/', '-')}.onnx" for name in options.models]
        for name, path in zip(options.models, paths, strict=True):
            path.write_bytes(zoo.build(name).SerializeToString())
        found = compare(
            paths,
            options.search.split(","),
            budget=options.budget,
            seeds=options.seeds,
            cost="analytic",
            keep=searches,
            on_stage=lambda sentence: print(sentence, file=sys.stderr, flush=True),
        )
    kept.extend(found.summary())
    text = "\n".join([kept.about(), "", table(found), "", *(f"* {claim}" for claim in claims(found))])
    (options.results / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if options.plot:
        from rlflow.report.plots import anytime_curves

        anytime_curves(found.runs, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
