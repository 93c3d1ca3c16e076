"""The e-graph against its bars: published sizes, new nodes a second, seconds to the proof of an optimum.

    python reproduce/eqsat/run.py --data ../shared/data [--json FILE] [--seconds 60]

Tensat's models and rules, from its own files (`--data`; see docs/eqsat.md). One core; seconds are CPU time of this
process, of saturation the best of five runs; `--seconds` limits the clock. Exit status 1 when a size differs or a bar
is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results  # from the folder "common"

from rlflow.search import eqsat

# Name, k_multi, cycles, published (e-nodes, e-classes), bar of the saturation in seconds, bar of the proof in seconds.
CASES: list[tuple[str, int, str, tuple[int, int], float | None, float | None]] = [
    ("vgg", 2, "none", (2726, 1408), None, None),
    ("vgg", 2, "efficient", (112, 96), None, 5),
    ("resnet50", 2, "none", (4350, 2656), None, None),
    ("resnet50", 2, "efficient", (266, 242), None, 5),
    ("squeezenet", 2, "efficient", (640, 423), None, 5),
    ("resnext50", 2, "efficient", (431, 327), None, 5),
    ("mobilenetv2", 2, "efficient", (2949, 1728), None, 5),
    ("inceptionv3", 2, "efficient", (4294, 2974), None, 5),
    ("nasrnn", 1, "efficient", (1990, 1345), None, 5),
    ("bert", 1, "efficient", (1569, 625), None, 5),
    ("bert", 2, "efficient", (19229, 7000), 1.5, 5),
    ("nasneta", 0, "efficient", (5022, 2675), None, 5),
    ("nasneta", 2, "efficient", (57000, 34940), 3.0, 20),
    ("nasrnn", 2, "efficient", (33045, 19960), None, None),
]
RATE_BAR = 300_000  # new e-nodes a second


def main() -> int:
    options = arguments()
    kept = results.Results(options.json, ["python", *sys.argv], dirty=options.dirty) if options.json else None
    rows = [run(case, options) for case in CASES if not options.only or case[0] in options.only]
    best = max(row["new_nodes_per_second"] for row in rows)
    print(f"new e-nodes a second, best model: {best:,.0f} (bar {RATE_BAR:,})")
    if kept is not None:
        kept.extend(rows)
    return int(not all(row["met"] for row in rows) or (not options.only and best < RATE_BAR))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The e-graph against its bars.")
    parser.add_argument("--data", type=Path, required=True, help="folder with tensat_converted.txt and tensat_models/")
    parser.add_argument("--json", type=Path, help="write the figures there, one JSON object a line")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of one extraction (default 60)")
    parser.add_argument("--only", nargs="*", help="these models only")
    results.add_options(parser)
    return parser.parse_args()


def run(case: tuple[str, int, str, tuple[int, int], float | None, float | None], options: Any) -> dict[str, Any]:
    name, k, cycles, published, saturation_bar, proof_bar = case
    seconds, saturation, start = min(
        (saturated(name, k, cycles, options.data) for _ in range(5)), key=lambda outcome: outcome[0]
    )
    reached = saturation.egraph.reachable(saturation.roots)
    created = saturation.egraph.node_count - start
    row = {
        "model": name, "k_multi": k, "cycles": cycles, "nodes": reached[0], "classes": reached[1],
        "published": list(published), "saturation_seconds": round(seconds, 4),
        "new_nodes_per_second": round(created / seconds), "filtered": saturation.egraph.filtered_count,
    }  # fmt: skip
    row |= extraction(saturation, options.seconds) if cycles != "none" else {}
    proved = proof_bar is None or (row["status"] == "optimal" and row["extraction_seconds"] <= proof_bar)
    row["met"] = reached == published and proved and (saturation_bar is None or seconds <= saturation_bar)
    print(line(row), flush=True)
    return row


def saturated(name: str, k: int, cycles: str, data: Path) -> tuple[float, eqsat.Saturation, int]:
    """(CPU seconds, the run, e-nodes at the start)"""
    egraph = eqsat.EGraph("tensat")
    built = name in eqsat.BENCHMARKS
    graph = eqsat.BENCHMARKS[name]() if built else eqsat.read_model(data / "tensat_models" / f"{name}.model")
    root = graph.add_to(egraph)
    files = [eqsat.read_rule_lines(data / f"tensat_converted{part}.txt") for part in ("", "_multi")]
    run = eqsat.Saturation(egraph, eqsat.tensat_rules(egraph, *files), [root], multi_iterations=k, cycles=cycles)
    start, before = egraph.node_count, time.process_time()
    run.run()
    return time.process_time() - before, run, start


def extraction(saturation: eqsat.Saturation, seconds: float) -> dict[str, Any]:
    problem = saturation.egraph.snapshot(saturation.roots)
    problem.set_cost(saturation.egraph.tensat_costs(problem.node_ids))
    greedy = eqsat.extract(problem, "greedy-dag")
    before = time.process_time()
    found = eqsat.extract(problem, "ilp", seconds=seconds, order="none")
    spent = time.process_time() - before
    return {
        "greedy_ms": round(greedy.cost, 5), "ilp_ms": round(found.cost, 5), "gap": round(found.gap, 6),
        "status": found.status, "extraction_seconds": round(spent, 2), "variables": found.variables,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    text = (
        f"{row['model']:12} k {row['k_multi']} {row['cycles']:9} {row['nodes']:6}/{row['classes']:<6} "
        f"{row['saturation_seconds']:7.3f} s {row['new_nodes_per_second']:9,}/s"
    )
    if "status" in row:
        text += (
            f"  greedy {row['greedy_ms']:8.4f} ilp {row['ilp_ms']:8.4f} ms {row['status']}"
            f" gap {row['gap']:.2%} in {row['extraction_seconds']:.2f} s"
        )
    return text + ("" if row["met"] else "   MISSED")


if __name__ == "__main__":
    sys.exit(main())
