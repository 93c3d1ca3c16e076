"""Methods of tuning against one another: the best program against trials and processor seconds.

    python reproduce/harl/run.py [--stage tables live] [--methods harl evolutionary ...] [--seeds 5] [--trials 128]

`tables`: on recorded tables, where the optimum is known and every machine gives the same. `live`: on TVM, measured.
A method's row says how near it came to the table's optimum (or how fast its best program is), after how many trials it
was within 3 % of the optimum, and what processor time that took: its own and, for tables, what the trials took when the
table was made.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results

from rlflow.search import Budget
from rlflow.tuner import METHODS, Engine, RecordedEngine, Tuner, method

TABLES = HERE.parents[1] / "tests" / "data" / "tuner"
RESULTS = HERE / "results" / "curves.jsonl"
#: What is compared by default; the others are HARL without one part.
MAIN = ("harl", "fixed-tracks", "untrained", "uniform-sketches", "evolutionary", "evolutionary-2048", "random")
#: A program this near to the optimum counts as it.
NEAR = 1.03


def one_run(engine: Engine, title: str, name: str, seed: int, trials: int, optimum: float | None) -> dict[str, Any]:
    """A method's run on one subgraph: a row."""
    found = Tuner(engine, method(name), seed).run(Budget(measurements=trials))
    best = found.rounds[-1].best
    curve = [[one.trials, round(one.best * 1e6, 3), round(one.cpu_seconds, 3)] for one in found.rounds]
    row: dict[str, Any] = {
        "kind": "run", "key": f"{title} {name} {seed}", "title": title, "method": name, "seed": seed,
        "trials": found.trials, "us": round(best * 1e6, 3),
        "cpu_seconds": round(found.rounds[-1].cpu_seconds, 2), "curve": curve,
    }  # fmt: skip
    if optimum is not None:
        programs = [(seconds, one) for one in found.rounds for seconds in one.seconds]
        at = next((number for number, (seconds, _) in enumerate(programs, 1) if seconds <= NEAR * optimum), None)
        row |= {"of_optimum": round(optimum / best, 4), "near_after": at}
    return row


def tables() -> Iterator[tuple[str, Path]]:
    """Recorded tables by name."""
    for path in sorted(TABLES.glob("*.json")):
        yield path.stem, path


def on_tables(kept: results.Results, options: argparse.Namespace) -> None:
    for stem, path in tables():
        for number, subgraph in enumerate(RecordedEngine.read(path).subgraphs):
            title = f"{stem}: {subgraph.name}"
            for name in options.methods:
                for seed in range(options.seeds):
                    if kept.have(f"{title} {name} {seed}"):
                        continue
                    engine = RecordedEngine.read(path).only(number)
                    kept.add(one_run(engine, title, name, seed, options.trials, engine.optimum(0)[1]))


def summary(kept: results.Results) -> list[str]:
    """Medians over seeds, a line for each subgraph and method."""
    lines = list(results.heading("Operator", "Method", "Of the optimum", "Within 3 % after", "CPU s", "Seeds"))
    rows = kept.of("run")
    for title in dict.fromkeys(row["title"] for row in rows):
        for name in dict.fromkeys(row["method"] for row in rows):
            some = [row for row in rows if row["title"] == title and row["method"] == name]
            if not some:
                continue
            best = some[0].get("of_optimum") is not None
            value = (
                f"{statistics.median(row['of_optimum'] for row in some):.3f}"
                if best
                else f"{statistics.median(row['us'] for row in some):.1f} µs"
            )
            after = [row.get("near_after") or float("inf") for row in some]
            near = statistics.median(after) if best else float("inf")
            seconds = statistics.median(row["cpu_seconds"] for row in some)
            lines.append(
                f"| {title} | {name} | {value} | {'' if near == float('inf') else f'{near:.0f}'} | {seconds:.1f} | "
                f"{len(some)} |"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", nargs="*", choices=("tables",), default=("tables",))
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=MAIN, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/harl/run.py", *sys.argv[1:]]
    kept = results.Results(options.output, command, resume=options.resume, dirty=options.dirty, bulky=("curve",))
    if "tables" in options.stage:
        on_tables(kept, options)
    print(kept.about())
    print("\n".join(summary(kept)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
