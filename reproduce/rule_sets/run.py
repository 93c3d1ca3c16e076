"""How large the search space is with TASO's rules, with the core set, and with everything; and what greedy makes of it.

    python reproduce/rule_sets/run.py [--models NAME ...] [--set NAME=FILE[,FILE...] ...] [--measure] [--out FILE]

Per model and set: distinct graphs within two rewrites of the model (itself included), and greedy's best cost by the
analytic formula; with --measure also greedy on measured prices, with the ratio of its own end-to-end race. Sets: `taso`
(the core rules whose origin names TASO, or the file given as --set taso=…), `core` (substitutions/core), those given
with --set, and `everything`, which is all of them and substitutions/generated. A count that reached --most or --seconds
is written with a '+' and is a lower bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results  # from the folder "common"

from rlflow import zoo
from rlflow.frontends import load_model
from rlflow.price import make
from rlflow.rewrite import RuleLibrary, State, compiled
from rlflow.rewrite.paths import substitutions_dir
from rlflow.search import Problem, solve
from rlflow.synthesis import load_rules

#: Six of the papers' models.
MODELS = ("bert6-classifier", "nasrnn", "nasnet-a", "resnext-50", "squeezenet1.1", "inception-v3")
DEPTH = 2


def rule_sets(given: list[str]) -> dict[str, RuleLibrary]:
    """The sets by name, the smallest first."""
    shipped = substitutions_dir()  # of the package: rules from elsewhere would be proved again first, for minutes
    core = load_rules([shipped / "core"])
    sets = {"taso": RuleLibrary(rule for rule in core.values() if "TASO" in rule.origin), "core": core}
    for item in given:
        name, _, files = item.partition("=")
        sets[name] = load_rules(files.split(","))
    everything = {rule.digest: rule for library in sets.values() for rule in library.values()}
    generated = sorted((shipped / "generated").glob("*.json"))
    if generated:
        everything |= {rule.digest: rule for rule in load_rules(generated).values()}
    return {**sets, "everything": RuleLibrary(distinct(everything.values()))}


def distinct(rules: Any) -> Iterator[Any]:
    """Rules of several files under names of their own."""
    from dataclasses import replace

    seen: set[str] = set()
    for rule in rules:
        name, number = rule.name, 2
        while name in seen:
            name, number = f"{rule.name}-{number}", number + 1
        seen.add(name)
        yield replace(rule, name=name)


def graphs_within(graph: Any, rules: Any, depth: int, most: int, seconds: float) -> tuple[int, bool, int]:
    """(distinct graphs at most ``depth`` rewrites away, whether all were counted, moves of the graph itself)."""
    end = time.process_time() + seconds
    root = State(graph, rules)
    seen = {bytes.fromhex(graph.digest)}
    level, first = [(root, None)], len(root.moves())
    for number in range(depth):
        following = []
        for state, i in level:
            state = state if i is None else state.open(i)
            moves = state.moves()
            for k, row in enumerate(moves.digest):
                digest = row.tobytes()
                if digest not in seen:
                    seen.add(digest)
                    if number + 1 < depth:
                        following.append((state, k))
            if len(seen) >= most or time.process_time() > end:
                return len(seen), False, first
        level = following
    return len(seen), True, first


def greedy(graph: Any, library: RuleLibrary) -> dict[str, float]:
    result = solve(Problem(graph, library, make("analytic"), "1000x"), "greedy")
    return {"before_ms": result.cost_before_ms, "greedy_ms": result.cost_after_ms, "steps": len(result.trace or ())}


def measured(model: Any, library: RuleLibrary, budget: str) -> dict[str, Any]:
    """Greedy on measured prices, through the façade: its own race against the model as imported."""
    import rlflow

    report = rlflow.optimize(model, search="greedy", cost="onnxruntime", budget=budget, rules=library).report
    return {"speedup": report.speedup, "speedup_ci95": report.speedup_ci95, "measured_steps": len(report.trace or ())}


def row_of(name: str, set_name: str, library: RuleLibrary, model: Any, graph: Any, options: Any) -> dict[str, Any]:
    count, complete, moves = graphs_within(graph, compiled(library), DEPTH, options.most, options.seconds)
    row = {"kind": "row", "model": name, "set": set_name, "rules": len(library), "nodes": graph.num_nodes}
    row |= {"moves": moves, "graphs": count, "complete": complete, **greedy(graph, library)}
    return row | (measured(model, library, options.budget) if options.measure else {})


def table(rows: list[dict[str, Any]]) -> str:
    heading = ("model", "set", "rules", "rewrites", "graphs within 2", "analytic ms", "greedy ms", "gain", "measured")
    lines = [f"| {' | '.join(heading)} |", "|---|---|" + "--:|" * 7]
    for row in rows:
        graphs = f"{row['graphs']:,}{'' if row['complete'] else '+'}"
        gain = f"{100 * (1 - row['greedy_ms'] / row['before_ms']):.1f} %"
        speedup = f"{row['speedup']:.3f}" if row.get("speedup") else ""
        cells = [row["model"], row["set"], str(row["rules"]), f"{row['moves']:,}", graphs]
        cells += [f"{row['before_ms']:.3f}", f"{row['greedy_ms']:.3f}", gain, speedup]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=zoo.names(), metavar="NAME")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=FILE[,FILE...]")
    parser.add_argument("--most", type=int, default=1_000_000, help="stop counting at so many graphs")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds for one count")
    parser.add_argument("--measure", action="store_true", help="greedy on measured prices too")
    parser.add_argument("--budget", default="60s", help="of a greedy search on measured prices")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/rule_sets/run.py", *sys.argv[1:]]
    kept = results.Results(options.out, command, dirty=options.dirty)
    sets = rule_sets(options.sets)
    for name in options.models:
        model = zoo.build(name)
        graph = load_model(model).graph
        for set_name, library in sets.items():
            row = kept.add(row_of(name, set_name, library, model, graph, options))
            print(f"{name}, {set_name}: {row['graphs']:,} graphs", file=sys.stderr, flush=True)
    print(kept.about())
    print(table(kept.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
