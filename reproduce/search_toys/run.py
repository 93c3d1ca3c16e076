"""Which strategy finds which known optimum: every strategy on every toy of ``rlflow.testing``, several seeds.

    python reproduce/search_toys/run.py [--budget 2000x] [--seeds 5] [--search a,b:option=1,c] [--resume]

The optima are enumerated here, not looked up. results/latest.jsonl holds the machine and a line a toy and strategy
(``--resume`` keeps those of strategies that are not asked for, such as slow ones with another budget);
results/table.md the table that is printed: in how many of the seeds the optimum was found, and after how many opened
graphs (median).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results  # from the folder "common"

from rlflow import search
from rlflow.testing import TOYS, TinyProblem, optimum


def rows_of(toy: TinyProblem, strategies: list[str], budget: str, seeds: int) -> list[dict[str, Any]]:
    known = optimum(toy)
    return [
        {
            "kind": "toy",
            "toy": toy.name,
            "difficulty": toy.difficulty,
            "graphs": known.graphs,
            "optimum_ms": known.cost_ms,
            "strategy": strategy,
            "budget": budget,
            "runs": [one_run(toy, strategy, budget, seed, known.cost_ms) for seed in range(seeds)],
        }
        for strategy in strategies
    ]


def one_run(toy: TinyProblem, strategy: str, budget: str, seed: int, known_ms: float) -> dict[str, Any]:
    result = search.solve(toy.problem(budget, seed=seed), strategy)
    found = [point.expansions for point in result.curve if point.cost_ms <= known_ms * (1 + 1e-9)]
    return {
        "seed": seed,
        "cost_ms": result.cost_after_ms,
        "found_after": found[0] if found else None,
        "expansions": result.counts.expansions,
        "stop_reason": str(result.stop_reason),
    }


def cell(row: dict[str, Any]) -> str:
    found = [run["found_after"] for run in row["runs"] if run["found_after"] is not None]
    if not found:
        return "–"
    share = "" if len(found) == len(row["runs"]) else f"{len(found)}/{len(row['runs'])}: "
    return f"{share}{statistics.median_low(found)}"


def table(rows: list[dict[str, Any]], strategies: list[str]) -> str:
    lines = [f"| toy | graphs | {' | '.join(strategies)} |", "|---|--:|" + "--:|" * len(strategies)]
    for toy in TOYS:
        mine = {row["strategy"]: row for row in rows if row["toy"] == toy.name}
        cells = [cell(mine[strategy]) for strategy in strategies]
        lines.append(f"| {toy.name}: {toy.difficulty} | {mine[strategies[0]]['graphs']} | {' | '.join(cells)} |")
    found = [
        sum(cell(row)[0].isdigit() and "/" not in cell(row) for row in rows if row["strategy"] == s) for s in strategies
    ]
    lines.append(f"| **found in every run** | | {' | '.join(map(str, found))} |")
    return "\n".join([*lines, "", "; ".join(conditions(rows, strategies)) + "."])


def conditions(rows: list[dict[str, Any]], strategies: list[str]) -> list[str]:
    """Budget and number of seeds, with the strategies that had them."""
    mine = {row["strategy"]: (row["budget"], len(row["runs"])) for row in rows}
    shared: dict[tuple[str, int], list[str]] = {}
    for strategy in strategies:
        shared.setdefault(mine[strategy], []).append(strategy)
    return [
        f"{budget} and {seeds} seed{'s' * (seeds > 1)}: {', '.join(names)}" for (budget, seeds), names in shared.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="2000x")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--search", default=",".join(search.names()), help="strategies, separated by commas")
    parser.add_argument("--resume", action="store_true", help="keep the lines of strategies that are not asked for")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    results.add_options(parser)
    options = parser.parse_args()
    strategies = options.search.split(",")
    command = ["python", "reproduce/search_toys/run.py", "--budget", options.budget, "--seeds", str(options.seeds)]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty)
    kept.drop(lambda row: row["strategy"] in strategies)
    for toy in TOYS:
        kept.extend(rows_of(toy, strategies, options.budget, options.seeds))
        print(toy.name, file=sys.stderr, flush=True)
    text = f"{kept.about()}\n\n{table(kept.rows, sorted({row['strategy'] for row in kept.rows}))}"
    options.out.with_name("table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
