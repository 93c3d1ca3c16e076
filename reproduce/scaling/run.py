"""Time, memory and gain on transformer stacks of 100 to 20,000 nodes, with and without partition.

    python reproduce/scaling/run.py [--layers 2 6 20 60 200 400] [--search a b] [--budget 10s] [--resume] [--plot FILE]

Every run is a process of its own, with the analytic cost, so that its memory can be told from that of the others.
Seconds, those of the budget too, are the processor's. results/latest.jsonl holds a line a run. The gain
of a run that reached its budget is a lower bound.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import machine  # from the folder "common"
import results

LAYERS = [2, 6, 20, 60, 200, 400]
STRATEGIES = [
    *("greedy", "backtracking", "beam", "eqsat", "tensat"),
    *("random", "annealing", "mcts", "genetic", "portfolio"),
    *("partition:inner=greedy", "partition", "partition:inner=beam", "partition:inner=eqsat"),
]
SIZES = {"hidden": 64, "heads": 4, "feed_forward": 256, "vocab": 100}  # small weights: the number of nodes is the point


def measure(layers: int, strategy: str, budget: str) -> dict[str, Any]:
    """One search in this process; megabytes above what the loaded model takes."""
    from rlflow import price, search, zoo
    from rlflow.frontends import load_model
    from rlflow.rewrite import load_rules

    graph = load_model(zoo.build("bert-base", layers=layers, **SIZES)).graph
    # A budget in seconds means seconds of the processor: other work on the machine then changes nothing.
    problem = search.Problem(graph, load_rules(), price.make("analytic"), budget, clock=time.process_time)
    problem.root()
    before = peak_mb()
    started, cpu = time.perf_counter(), time.process_time()
    result = search.solve(problem, strategy)
    return {
        "kind": "scaling",
        "layers": layers,
        "nodes": graph.num_nodes,
        "strategy": strategy,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "search_mb": peak_mb() - before,
        "total_mb": peak_mb(),
        "gain": 1 - result.cost_after_ms / result.cost_before_ms,
        "steps": len(result.trace or ()),
        "stop_reason": str(result.stop_reason),
        **result.counts._asdict(),
    }


def peak_mb() -> float:
    return machine.peak_bytes() / 2**20


def table(rows: list[dict[str, Any]]) -> str:
    nodes = sorted({row["nodes"] for row in rows})
    lines = [f"| strategy | {' | '.join(f'{n:,} nodes' for n in nodes)} |", "|---|" + "--:|" * len(nodes)]
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        mine = {row["nodes"]: row for row in rows if row["strategy"] == strategy}
        cells = [cell(mine[n]) if n in mine else "" for n in nodes]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Gain, CPU seconds, megabytes of the search; * where the budget ended it."])


def cell(row: dict[str, Any]) -> str:
    ended = "*" if row["stop_reason"].startswith("budget") else ""
    return f"{100 * row['gain']:.1f} %, {row['cpu_seconds']:.1f} s{ended}, {row['search_mb']:.0f} MB"


def plot(rows: list[dict[str, Any]], path: str) -> None:
    from rlflow.report.plots import lines_against_size

    lines_against_size(
        rows, path, x="nodes", series="strategy", panels={"cpu_seconds": "CPU s", "search_mb": "MB", "gain": "gain"}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS)
    parser.add_argument("--search", nargs="*", default=STRATEGIES)
    parser.add_argument("--budget", default="10s", help="of a search, seconds of the processor (10s)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the runs that the file already has")
    parser.add_argument("--plot", metavar="FILE", help="draw the curves (extra [report])")
    results.add_options(parser)
    parser.add_argument("--one", nargs=2, metavar=("LAYERS", "STRATEGY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(int(options.one[0]), options.one[1], options.budget)))
        return 0
    own = ["python", "reproduce/scaling/run.py", "--budget", options.budget]
    kept = results.Results(options.out, own, resume=options.resume, dirty=options.dirty)
    done = {(row["layers"], row["strategy"]) for row in kept.rows}
    for layers, strategy in ((n, s) for n in options.layers for s in options.search if (n, s) not in done):
        command = [sys.executable, __file__, "--budget", options.budget, "--one", str(layers), strategy]
        row = kept.add(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(f"{row['nodes']} nodes, {strategy}: {cell(row)}", file=sys.stderr, flush=True)
    rows = sorted(kept.rows, key=lambda row: row["layers"])
    text = f"{kept.about()}\n\n{table(rows)}"
    options.out.with_name("table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
