"""Times the regions that searches meet on the families, once, for `run.py --cost measured` and for learning.

    python reproduce/learning/record_prices.py [--families NAME ...] [--seconds 4]

For each family: searches by measured prices first, ``--seconds`` each. Then searches by what is recorded so far; what
the best graphs of these have and the table lacks is timed, and they search again, up to ROUNDS times. So a search that
is led by an estimate that was too good finds the real price there the next time. Both kinds of search are without
learning or with it, and with other seeds than the bench has. The rows are in results/prices.jsonl, of both halves; a
family that is there is not timed again (``--again`` does that). The clock is processor time, on one thread.

``--describe`` times nothing: it adds the traits of regions (rlflow.price.traits) to rows that have none, as far
as searches by the recorded prices meet these regions.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import results  # from the folder "common"
from families import CONFIG, PARTS, read  # from this folder
from mixtures import with_chains
from recorded import FUSION, TABLE, RecordedCost, kind_of, names_of
from run import RULES, WEIGHTS

from rlflow import search
from rlflow.graph import Graph
from rlflow.price import FillReport
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.price.traits import traits_of
from rlflow.search import Problem

#: The searches that meet regions: by the clock, and by what is recorded.
FIRST = ("greedy", "backtracking", "mcts")
THEN = ("greedy", "backtracking", "portfolio", "mixed", "xrlflow", "rlflow", "levin", with_chains())
ROUNDS, SEED = 3, 100


class Recorder(OnnxRuntimeCost):
    """Measured prices that are written down: ``found`` are rows of the table, by signature."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.found: dict[str, dict[str, Any]] = {}

    def fill(self, graphs: Iterable[Graph], **options: Any) -> FillReport:
        """As of the base; regions that have a price or a refusal afterwards are kept."""
        graphs = list(graphs)
        missing = [(graph, one) for graph in graphs for one in self.pricer.regions(graph, unpriced_only=True)]
        report = super().fill(graphs, **options)
        for graph, one in missing:
            why = self.refusals.get(one.signature)
            ms = None if why else self.pricer.find(one.signature)
            if why or ms is not None:
                self.found[one.signature] = {
                    "signature": one.signature, "region": kind_of(one), "operators": names_of(graph, one),
                    "flops": one.flops, "bytes": one.bytes, "ms": ms, "refusal": why,
                    "traits": traits_of(graph, one.nodes).plain,
                }  # fmt: skip
        return report


class Describer:
    """Adds traits to the rows that have none, of regions in the graphs that a search opens (a search.Observer)."""

    def __init__(self, rows: Iterable[dict[str, Any]], pricer: Any) -> None:
        self.lacking = {row["signature"]: row for row in rows if row["kind"] == "price" and "traits" not in row}
        self._pricer = pricer

    def enumerated(self, table: Any) -> None:
        """Candidates are not built, so they say nothing about their regions."""

    def opened(self, parent: Any, child: Any, rule: int, is_best: bool) -> None:
        """Look at the regions of the graph that was opened."""
        self.look(child.graph)

    def look(self, graph: Graph) -> None:
        """Describe the regions of ``graph`` whose rows lack it."""
        for one in self._pricer.regions(graph) if self.lacking else ():
            row = self.lacking.pop(str(one.signature), None)
            if row is not None:
                row["traits"] = traits_of(graph, one.nodes).plain


def timed(family: str, seconds: float) -> list[dict[str, Any]]:
    """The table's rows of one family."""
    graph = read(family)
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    with Recorder(threads=1, database=WEIGHTS / "prices.sqlite") as model:
        for spec in FIRST:
            search.solve(Problem(graph, RULES, model, f"{seconds:g}s", seed=SEED), spec)
        for _ in range(ROUNDS):
            lacking = list(_lacking(graph, family, rows_of(family, model)))
            if not lacking:
                break
            model.fill(lacking)
        return rows_of(family, model)


def rows_of(family: str, model: Recorder) -> list[dict[str, Any]]:
    """The rows of one family: about it, and one a region."""
    pricer = model.pricer
    view = next(one.ms for one in pricer.regions(_VIEW) if one.view)
    about = {"kind": "family", "key": family, "family": family, "block": pricer.block, "view_ms": view,
             "fusion": FUSION, "regions": len(model.found)}  # fmt: skip
    return [about, *({"kind": "price", "family": family, **row} for row in model.found.values())]


def _lacking(graph: Graph, family: str, rows: list[dict[str, Any]]) -> Iterable[Graph]:
    """The best graphs of searches by these rows that have a region which the rows lack."""
    for spec in THEN:
        search.require_ready(search.make(spec))
        model = RecordedCost(rows, family)
        found = search.solve(Problem(graph, RULES, model, "2s", seed=SEED, clock=time.process_time), spec)
        yield from (one.graph for one in (found.best, *found.runners_up) if model.guesses(one.graph)[0])


def described(family: str, rows: list[dict[str, Any]], seconds: float) -> int:
    """Add traits to the rows of a family; how many still have none."""
    graph = read(family)
    describer = Describer(rows, RecordedCost(rows, family).pricer)
    describer.look(graph)
    for spec in (*FIRST, "levin", "portfolio"):
        if describer.lacking:
            problem = Problem(graph, RULES, RecordedCost(rows, family), f"{seconds:g}s", seed=SEED)
            problem.observer = describer
            search.solve(problem, spec)
    return len(describer.lacking)


_VIEW = Graph.parse("x: f32[4,6] = input\ny = Reshape{shape=[24]}(x)\nz = Relu(y)\nreturn z")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [name for half in PARTS for name in CONFIG[half]]
    parser.add_argument("--families", nargs="*", choices=known, metavar="NAME", default=known)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each search by the clock")
    parser.add_argument("--again", action="store_true", help="time families that the file has, too")
    parser.add_argument("--describe", action="store_true", help="time nothing, add traits to rows that have none")
    results.add_options(parser)
    options = parser.parse_args()
    kept = results.Results(TABLE, ["python", "reproduce/learning/record_prices.py"], resume=True, dirty=options.dirty)
    for family in options.families if options.describe else ():
        rows = [row for row in kept.rows if row["family"] == family]
        left = described(family, rows, options.seconds)
        kept.write()
        print(f"{family}: {left} of {len(rows) - 1} regions without traits", file=sys.stderr, flush=True)
    if options.describe:
        return 0
    for family in options.families:
        if options.again or not kept.have(family):
            rows = timed(family, options.seconds)
            kept.drop(lambda row, family=family: row["family"] == family)
            kept.extend(rows)
            print(f"{family}: {rows[0]['regions']} regions", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
