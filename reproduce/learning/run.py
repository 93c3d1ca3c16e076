"""Does learning earn its place? Every strategy on sixteen families of graphs, half of which no agent ever saw.

    python reproduce/learning/run.py --size quick              the unseen half, a few minutes of one core
    python reproduce/learning/run.py --size full --resume      goes on where it was stopped
    python reproduce/learning/run.py --size full --tables      prints the tables of what is there
    python reproduce/learning/run.py --size full --families swin_t --budgets 1s 3s --resume
    python reproduce/learning/run.py --size reduced --cost measured --resume     by recorded prices, three CPU seconds

A family is a block of an exported architecture (families.py); config.json says which are for training and which are
not, and was written before any agent was trained on the first half. Costs are the analytic ones, of a CPU or (``--cost
gpu``) of a GPU, or (``--cost measured``) those of regions that record_prices.py timed. Seconds are CPU seconds of this
process, on one thread; "x" counts opened graphs. A search that draws runs once a seed; fresh weights are others with
every seed. Each search is a row of results/SIZE-COST.jsonl. ``--renew`` makes rows again of which the commit is none of
this branch's; the old ones stay until then.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import machine  # from the folder "common"
import recorded  # from this folder
import results
import tables
from families import CONFIG, PARTS, read

from rlflow import price, search
from rlflow.graph import Graph
from rlflow.rewrite import compiled
from rlflow.search import Problem
from rlflow.synthesis import load_rules

#: Options of the analytic cost: this package's CPU, and a mid-range GPU of 2020 on which launches count (15 TFLOP/s,
#: 1.4 TB/s, 4 us a launch).
COSTS: dict[str, dict[str, float]] = {
    "cpu": {},
    "gpu": {"gflops": 15000.0, "vector_gflops": 5000.0, "gbps": 1400.0, "overhead_us": 4.0, "view_us": 0.0},
}
#: Prices by the clock, from a table.
MEASURED = "measured"
WEIGHTS = machine.ROOT / "build" / "learning"


class Rows(results.Results):
    """The results file; searches are shown by their gain. ``renew``: rows of a commit that is none of this branch's
    count as missing, and go once they are made again.
    """

    def __init__(self, path: Path, command: list[str], *, renew: bool = False, **options: Any) -> None:
        super().__init__(path, command, **options)
        runs = self._machines.items() if renew else ()
        self._lost = {run for run, one in runs if run != self.run and not machine.is_ancestor(one["commit"])}

    def have(self, key: str) -> bool:
        return any(row.get("key") == key and row["run"] not in self._lost for row in self.rows)

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        self.drop(lambda old: old.get("key") == row["key"])
        return super().add(row)

    def show(self, row: dict[str, Any]) -> None:
        print(f"{row['key']}: {row['gain']:.4f} %, {row['expansions']} opened, {row['seconds']:.2f} s",
              file=sys.stderr, flush=True)  # fmt: skip


@functools.cache
def table() -> Any:
    """The rows of recorded prices, read once."""
    return recorded.table()


def priced(cost: str, family: str, otherwise: int = 0) -> price.CostModel:
    """A cost model that has priced nothing yet. ``otherwise``: recorded prices as another machine could have them."""
    if cost == MEASURED:
        return recorded.RecordedCost(table(), family, otherwise)
    return price.make("analytic", **COSTS[cost])


def searched(graph: Graph, spec: str, model: price.CostModel, budget: str, seed: int) -> dict[str, Any]:
    """One search, by the CPU clock; what it needs is read before the clock starts. ``guessed``: regions of the best
    graph that the recorded table lacks, and their part of its price.
    """
    search.require_ready(search.make(spec))
    problem = Problem(graph, RULES, model, budget, seed=seed, clock=time.process_time)
    begun = time.process_time()
    found = search.solve(problem, spec)
    return {
        "gain": 100 * (1 - found.cost_after_ms / found.cost_before_ms),
        "cost_before_ms": found.cost_before_ms,
        "cost_after_ms": found.cost_after_ms,
        "expansions": found.counts.expansions,
        "candidates": found.counts.candidates,
        "seconds": time.process_time() - begun,
        "stop_reason": str(found.stop_reason),
        **({"guessed": model.guesses(found.graph)} if isinstance(model, recorded.RecordedCost) else {}),
    }


def seeds_of(entrant: Any, seeds: int) -> range:
    """As many as asked for where something is drawn, else one. A portfolio draws what its members draw."""
    strategy = search.make(entrant.at(0))
    members = strategy.strategies() if hasattr(strategy, "strategies") else [strategy]
    drawn = entrant.drawn or any(getattr(one, "randomised", False) for one in members)
    return range(seeds if drawn else 1)


def play(kept: Rows, options: argparse.Namespace, size: dict[str, Any]) -> None:
    """All searches of a size that the file does not have yet, the entrants of a family in turn."""
    from entrants import entrants

    known = entrants(WEIGHTS, size["seeds"], options.checkpoint, options.chains)
    wanted = options.entrants or size.get("entrants") or [one.name for one in known]
    known = [one for one in known if one.name in wanted]
    for budget in options.budgets or size["budgets"]:
        for half in size["halves"]:
            for family in (name for name in CONFIG[half] if not options.families or name in options.families):
                for seed in range(size["seeds"]):
                    for one in (one for one in known if seed in seeds_of(one, size["seeds"])):
                        about = {"family": family, "half": half, "name": one.name, "role": one.role, "of": one.of}
                        cost = options.cost
                        key = f"{family}/{one.name}/{budget}/{seed}" + ("" if cost == "cpu" else f"/{cost}")
                        if not kept.have(key):
                            row = searched(read(family), one.at(seed), priced(cost, family), budget, seed)
                            where = {"cost": cost, "budget": budget, "seed": seed}
                            kept.add({"kind": "search", "key": key, **about, **where, **row})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(CONFIG["sizes"]), default="quick")
    every = [name for half in PARTS for name in CONFIG[half]]
    parser.add_argument("--families", nargs="*", choices=every, metavar="NAME")
    parser.add_argument("--budgets", nargs="*", metavar="BUDGET")
    parser.add_argument("--cost", choices=[*COSTS, MEASURED], default="cpu", help="what prices a graph")
    parser.add_argument("--entrants", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--checkpoint", type=Path, help="the policy (default: the one that ships)")
    parser.add_argument("--chains", type=Path, help="the policy of chains (default: the one that ships)")
    parser.add_argument("--out", type=Path, help="file of the rows (default: results/SIZE-COST.jsonl)")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--renew", action="store_true", help="as --resume, but rows of lost commits are made again")
    parser.add_argument("--tables", action="store_true", help="only print the tables of what is there")
    results.add_options(parser)
    options = parser.parse_args()
    out = options.out or HERE / "results" / f"{options.size}-{options.cost}.jsonl"
    if options.tables:
        rows, machines = results.read(out)
        print("\n".join([*results.about(rows, machines), *tables.lines(rows)]))
        return 0
    command = ["python", "reproduce/learning/run.py", "--size", options.size, "--cost", options.cost]
    kept = Rows(out, command, resume=options.resume or options.renew, renew=options.renew, dirty=options.dirty)
    play(kept, options, CONFIG["sizes"][options.size])
    print("\n".join([kept.about(), *tables.lines(kept.rows)]))
    return 0


RULES = compiled(load_rules())

if __name__ == "__main__":
    sys.exit(main())
