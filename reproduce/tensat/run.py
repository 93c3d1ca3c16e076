"""Tensat's eight models with its shapes: time and result of the strategies, and Tensat's ablations.

    python reproduce/tensat/run.py --data ../shared/data [--budget 60] [--seeds 3] [--only NAME ...] [--models NAME ...]

A search a row, with the analytic cost or ``--cost``. ``taso`` is backtracking with everything that TASO does not have
switched off; ``eqsat`` has a tenth of the budget, and is held against both; the tree searches and the portfolio,
which draw random numbers or need many extractions, have a third of it. Seconds, those of the budget too, are the
processor's, and with a cost model that measures they leave measuring out, of which a search gets ``--measurements``
(prices are kept: those of an earlier run are free). results/runs.jsonl keeps every finished row, so that an interrupted
run goes on where it stopped (``--again NAME`` throws a strategy's rows away); results/table.md (or
table-onnxruntime.md) is what is printed. Exit status 1 where `eqsat` reaches backtracking's cost on fewer than seven of
the models.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common"), os.fspath(HERE.parents[1])]

import results  # from the folder "common"
from models import MODELS, build  # from this folder

import taso
from rlflow import price, search
from rlflow.frontends import load_model
from rlflow.rewrite import compiled, load_rules


class Entry(NamedTuple):
    """A strategy of the table: the specification, and which part of the budget it gets."""

    spec: str
    share: float = 1.0


#: "All off is TASO's search": no descents, no causal chains, the queue in the order of cost alone.
TASO = "backtracking:alpha=1.05,macro=false,causal=false,step=0,chain=1000000,queue=2000"
STRATEGIES = {
    "greedy": Entry("greedy"),
    "eqsat": Entry("eqsat", 0.1),
    "tensat": Entry("tensat"),
    "backtracking": Entry("backtracking"),
    "taso": Entry(TASO),
    "mcts": Entry("mcts", 1 / 3),
    "portfolio": Entry("portfolio", 1 / 3),
    "eqsat, all seconds": Entry("eqsat"),
    "eqsat, scheduler=mcts": Entry("eqsat:scheduler=mcts", 1 / 3),
}
ABLATIONS = {
    "tensat, k_multi 0": Entry("tensat:multi=0"),
    "tensat, k_multi 2": Entry("tensat:multi=2"),
    "tensat, greedy extraction": Entry("tensat:extraction=greedy-dag"),
    "tensat, no cycle filter": Entry("tensat:cycles=none"),
    "eqsat, k_multi 0": Entry("eqsat:multi=0", 0.1),
    "eqsat, k_multi 2": Entry("eqsat:multi=2", 0.1),
    "eqsat, greedy extraction": Entry("eqsat:extraction=greedy-dag", 0.1),
    "eqsat, no cycle filter": Entry("eqsat:cycles=none", 0.1),
    "eqsat, no descent": Entry("eqsat:descent=false", 0.1),
}
ENTRIES = STRATEGIES | ABLATIONS
#: Costs this close are the same cost.
EQUAL = 1 + 1e-6
BAR, PART = 7, 0.1
#: Seconds that count as none: where the other search is over in a moment, a tenth of that cannot be told apart.
INSTANT = 0.05


def main() -> int:
    options = arguments()
    command = ["python", "reproduce/tensat/run.py", *sys.argv[1:]]
    path = options.results / "runs.jsonl"
    kept = results.Results(path, command, resume=True, dirty=options.dirty, bulky=("trace", "curve"))
    kept.drop(lambda row: row["label"] in options.again)
    done = {key(row) for row in kept.rows}
    graphs: dict[str, Any] = {}
    for label, seed, model in jobs(options):
        row = {"label": label, "seed": seed, "model": model, "cost": options.cost, "budget": options.budget}
        if key(row) in done:
            continue
        if model not in graphs:
            graphs[model] = loaded(model, options)
        row = kept.add(row | searched(ENTRIES[label], seed, graphs[model], options))
        print(f"{model}: {label}, seed {seed}: {cell([row])}", file=sys.stderr, flush=True)
    wanted = [row for row in kept.rows if row["cost"] == options.cost and row["budget"] == options.budget]
    rivals = ("backtracking", "taso") if options.cost == "analytic" else ()
    verdicts = [verdict(wanted, against) for against in rivals]
    tables = [
        table(wanted, entries) for entries in (STRATEGIES, ABLATIONS) if any(r["label"] in entries for r in wanted)
    ]
    text = "\n\n".join([kept.about(), about(wanted, options), *tables, *(words for _, words in verdicts)])
    name = "table.md" if options.cost == "analytic" else f"table-{options.cost}.md"
    (options.results / name).write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(not all(met for met, _ in verdicts))


def about(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    """What the reader of the table has to know."""
    labels: dict[str, list[str]] = {}
    for label in dict.fromkeys(row["label"] for row in rows if ENTRIES[row["label"]].share < 1):
        labels.setdefault(f"{options.budget * ENTRIES[label].share:g}", []).append(f"`{label}`")
    shares = [f"{seconds} of {', '.join(mine)}" for seconds, mine in labels.items()]
    measured = (
        f" A search measures at most {options.measurements} regions, which its seconds leave out."
        if options.cost != "analytic"
        else ""
    )
    return (
        f"Cost model: {options.cost}. CPU seconds of a search: {options.budget:g}, but {'; '.join(shares)}.{measured} "
        f"What draws random numbers: mean ± standard deviation of {options.seeds} seeds; the others find the same with "
        "every seed and ran once."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with tensat_models/")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a search (default 60)")
    parser.add_argument("--seeds", type=int, default=3, help="of the strategies that draw random numbers (default 3)")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS, metavar="NAME")
    parser.add_argument("--only", nargs="*", default=list(ENTRIES), choices=list(ENTRIES), metavar="NAME")
    parser.add_argument("--again", nargs="*", default=[], choices=list(ENTRIES), metavar="NAME")
    parser.add_argument("--cost", default="analytic", help="analytic, or a cost model that measures: onnxruntime")
    parser.add_argument("--measurements", type=int, default=300, help="of a search, where a clock decides (300)")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    results.add_options(parser)
    return parser.parse_args()


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Strategies outermost, so that a table that was interrupted has whole rows; the seed where it can matter."""
    for label, seed, model in itertools.product(options.only, range(options.seeds), options.models):
        if seed == 0 or getattr(search.make(ENTRIES[label].spec), "randomised", True):
            yield label, seed, model


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("label", "seed", "model", "cost", "budget"))


def loaded(model: str, options: argparse.Namespace) -> Any:
    """The graph; for a cost model that measures, as it comes out of the file that the runtime would get."""
    built = build(model, options.data)
    if options.cost == "analytic":
        return built.to_rlflow()
    with tempfile.TemporaryDirectory(prefix="rlflow-tensat-") as folder:
        path = Path(folder) / f"{model}.onnx"
        path.write_bytes(taso.export_onnx(built).SerializeToString())
        return load_model(path).graph


def searched(entry: Entry, seed: int, graph: Any, options: argparse.Namespace) -> dict[str, Any]:
    model = price.make(options.cost)
    try:
        budget = f"{options.budget * entry.share:g}s" + (f",{options.measurements}m" if model.measures else "")
        # Seconds of this process: what a worker process measures meanwhile is not counted.
        problem = search.Problem(graph, compiled(load_rules()), model, budget, seed=seed, clock=time.process_time)
        result = search.solve(problem, entry.spec)
    finally:
        model.close()
    row = {"nodes": graph.num_nodes, "spec": entry.spec, "best_at": result.curve[-1].seconds, **result.to_dict()}
    # When it came to each cost: the verdict asks that of `eqsat` alone.
    return row | ({"pace": [[p.seconds, p.cost_ms] for p in result.curve]} if entry == STRATEGIES["eqsat"] else {})


def table(rows: Sequence[dict[str, Any]], entries: dict[str, Entry]) -> str:
    labels = [label for label in entries if any(row["label"] == label for row in rows)]
    lines = [f"| strategy | {' | '.join(MODELS)} | mean |", "|---|" + "--:|" * (len(MODELS) + 1)]
    for label in labels:
        cells = [cell(of(rows, label, model)) for model in MODELS]
        lines.append(f"| {label} | {' | '.join([*cells, mean(rows, label)])} |")
    return "\n".join([*lines, "", "Cost after, as a part of that before; seconds to the best graph / of the search."])


def of(rows: Sequence[dict[str, Any]], label: str, model: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["label"] == label and row["model"] == model]


def relative(rows: Sequence[dict[str, Any]]) -> float:
    return statistics.fmean(row["cost_after_ms"] / row["cost_before_ms"] for row in rows)


def cell(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    best_at, seconds = (statistics.fmean(row[name] for row in rows) for name in ("best_at", "seconds"))
    costs = [relative([row]) for row in rows]
    spread = f" ± {statistics.stdev(costs):.4f}" if len(rows) > 1 and statistics.stdev(costs) >= 5e-5 else ""
    return f"{relative(rows):.4f}{spread} ({best_at:.1f} / {seconds:.1f} s)"


def mean(rows: Sequence[dict[str, Any]], label: str) -> str:
    found = [relative(mine) for mine in (of(rows, label, model) for model in MODELS) if mine]
    return f"{math.exp(statistics.fmean(map(math.log, found))):.4f}" if len(found) == len(MODELS) else ""


def is_reached(rows: Sequence[dict[str, Any]], model: str, against: str) -> bool:
    """Whether `eqsat` came to a graph as cheap as the other's best in a tenth of the other's seconds."""
    mine, others = of(rows, "eqsat", model), of(rows, against, model)
    if not mine or not others:
        return False
    target = min(row["cost_after_ms"] for row in others) * EQUAL
    moments = [next((seconds for seconds, cost_ms in row["pace"] if cost_ms <= target), math.inf) for row in mine]
    return max(moments) <= max(PART * min(row["seconds"] for row in others), INSTANT)


def verdict(rows: Sequence[dict[str, Any]], against: str) -> tuple[bool, str]:
    missed = [model for model in MODELS if not is_reached(rows, model, against)]
    text = f"`eqsat` comes to the cost of `{against}` in a tenth of its seconds on {len(MODELS) - len(missed)} of 8"
    return len(MODELS) - len(missed) >= BAR, f"{text}{'; not on ' + ', '.join(missed) if missed else ''} (bar: {BAR})."


if __name__ == "__main__":
    sys.exit(main())
