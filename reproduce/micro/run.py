"""The micro-benchmarks of the native core, each beside the bar that docs/architecture.md sets for it.

    python reproduce/micro/run.py [--json FILE] [--only NAME ...] [--seconds 3] [--rules everything]

One core, CPU time of this process (the core is single-threaded, and CPU time is not stretched by a neighbour); a figure
is the median over repetitions, the spread their quartiles. Memory is measured in processes of their own. Exit status 1
when a bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import machine  # from the folder "common"
import results

BERT_BASE_LAYERS = 12
GROWTH_LAYERS = (42, 84, 168, 336)  # about 30 nodes a layer: up to 10,000 nodes
BIG_NODES = 10_000
SEARCH_BUDGET = "60s"
GIB = 2**30


@dataclass(frozen=True)
class Figure:
    """One measured figure. ``bar`` with ``at_most`` says which side is good; without a bar it is information."""

    name: str
    what: str
    value: float
    unit: str
    bar: float | None = None
    at_most: bool = True
    low: float | None = None
    high: float | None = None
    details: dict[str, Any] | None = None

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


# --- measuring ----------------------------------------------------------------------


def seconds_of(body: Callable[[], Any], budget: float, least: int = 5, most: int = 200) -> list[float]:
    """CPU seconds of each call of ``body``, repeated for about ``budget`` seconds, after one call to warm up."""
    body()
    samples: list[float] = []
    end = time.process_time() + budget
    gc.collect()
    gc.disable()
    try:
        while len(samples) < least or (time.process_time() < end and len(samples) < most):
            start = time.process_time()
            kept = body()
            samples.append(time.process_time() - start)
            del kept
    finally:
        gc.enable()
    return samples


def quartiles(samples: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else (samples[0],) * 3
    return low, middle, high


def time_figure(name: str, what: str, samples: list[float], bar: float | None = None, **details: Any) -> Figure:
    low, middle, high = (1e3 * value for value in quartiles(samples))
    return Figure(name, what, middle, "ms", bar, True, low, high, {"repeats": len(samples), **details})


def rate_figure(name: str, what: str, count: int, samples: list[float], bar: float | None, **details: Any) -> Figure:
    low, middle, high = quartiles(samples)
    details = {"repeats": len(samples), "per_repeat": count, **details}
    return Figure(name, what, count / middle, "per second", bar, False, count / high, count / low, details)


def shipped(which: str) -> Any:
    """The rules that load by default ("core"), or with them those that load by name ("everything")."""
    from rlflow.rewrite import load_rules
    from rlflow.rewrite.library import all_shipped

    return {"core": load_rules, "everything": all_shipped}[which]()


# --- what is measured ---------------------------------------------------------------


class Bench:
    """The models and the compiled library; a model is made when it is first needed."""

    def __init__(self, seconds: float, rules: str = "core") -> None:
        from rlflow.price import make
        from rlflow.rewrite import compiled

        self.seconds = seconds
        self.which = rules
        self.library = shipped(rules)
        self.rules = compiled(self.library)
        self.pricer = make("analytic").pricer
        self._graphs: dict[str, Any] = {}

    def graph(self, name: str, **sizes: Any) -> Any:
        from rlflow import zoo
        from rlflow.frontends import load_model

        key = f"{name} {sizes}"
        if key not in self._graphs:
            self._graphs[key] = load_model(zoo.build(name, **sizes)).graph
        return self._graphs[key]

    def bert(self) -> Any:
        return self.graph("bert6-classifier", layers=BERT_BASE_LAYERS)

    def state(self, graph: Any, priced: bool = True, rules: Any = None) -> Any:
        from rlflow.rewrite import State

        return State(graph, rules or self.rules, self.pricer if priced else None)

    def figures(self, only: list[str]) -> Iterator[Figure]:
        for name, measure in FIGURES.items():
            if not only or name in only:
                yield from measure(self)


def enumeration(bench: Bench) -> Iterator[Figure]:
    graph = bench.bert()
    samples = seconds_of(lambda: bench.state(graph, priced=False), bench.seconds)
    candidates = len(bench.state(graph).moves())
    what = "BERT-base, full library: every match of every rule, from nothing"
    yield time_figure(
        "enumeration", what, samples, 20.0, nodes=graph.num_nodes, rules=len(bench.rules), candidates=candidates
    )


def incremental(bench: Bench) -> Iterator[Figure]:
    state = bench.state(bench.bert())
    count = len(state.moves())
    samples = [sample for i in range(count) for sample in seconds_of(lambda i=i: state.open(i), 0, least=3)]
    what = "BERT-base: after one rewrite, the child built and its matches complete"
    yield time_figure("incremental", what, samples, 2.0, moves=count)


def candidates(bench: Bench) -> Iterator[Figure]:
    graph = bench.bert()
    samples: list[float] = []
    end = time.process_time() + bench.seconds
    count = 0
    while len(samples) < 5 or time.process_time() < end:
        state = bench.state(graph)  # a new one: a state keeps its candidates
        start = time.process_time()
        count = len(state.moves())
        samples.append(time.process_time() - start)
    yield rate_figure("candidates", "BERT-base: candidates checked, priced and hashed", count, samples, 20_000.0)


def opening(bench: Bench) -> Iterator[Figure]:
    state = bench.state(bench.bert())
    count = len(state.moves())
    samples = seconds_of(lambda: [state.child(i) for i in range(count)], bench.seconds)
    yield rate_figure("opening", "BERT-base: graphs built, typed and hashed", count, samples, 2_000.0)


def policy(bench: Bench) -> Iterator[Figure]:
    """Everything that a policy sees of the candidates is made anew: features, the graph's code, the candidates'."""
    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.env import Episode, Improvement, Place, ProblemSpec, Walks

    native, _ = load_policy()
    problem = ProblemSpec.of("bert-base").load().problem()
    walks, rows = Walks(problem), native.vocabulary.rule_rows(problem.rule_names)
    root = walks.root

    def score() -> None:
        episode = Episode(walks, Improvement(), 100, at=Place(root.node, root.table))
        native.scores(native.vocabulary.translate(episode.observe(), rows))

    samples, count = seconds_of(score, bench.seconds), 1 + len(root.table)
    what = f"BERT-base, {root.node.size} working nodes: candidates that the shipped policy scores"
    yield rate_figure("policy", what, count, samples, 5_000.0, candidates=count, nodes=root.node.size)


def growth(bench: Bench) -> Iterator[Figure]:
    points = []
    for layers in GROWTH_LAYERS:
        graph = bench.graph("bert6-classifier", layers=layers, hidden=16, heads=2, feed_forward=32, vocab=64, seq=16)
        samples = seconds_of(lambda graph=graph: bench.state(graph, priced=False), bench.seconds / 2)
        points.append((graph.num_nodes, statistics.median(samples)))
    if points[-1][0] < BIG_NODES:
        raise SystemExit(
            f"the largest graph has {points[-1][0]} nodes, but {BIG_NODES} were promised: raise GROWTH_LAYERS"
        )
    logs = [(math.log(nodes), math.log(seconds)) for nodes, seconds in points]
    exponent = statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope
    details = {"points": [{"nodes": nodes, "ms": 1e3 * seconds} for nodes, seconds in points]}
    what = f"enumeration time over nodes, up to {points[-1][0]:,}: the exponent (1 is linear)"
    yield Figure("growth", what, exponent, "", 1.15, True, details=details)


def unique(bench: Bench) -> Iterator[Figure]:
    """TASO makes 320-560 unique graphs a CPU second on 140-320 nodes, 1-90 on 450-660: aim at 50 and 500 times that."""
    cases = (("nasrnn", {}, 50 * 560.0), ("bert6-classifier", {"layers": 10}, 500 * 90.0))
    for name, sizes, bar in cases:
        graph = bench.graph(name, **sizes)
        rate, seen, opened = walk(bench, graph)
        what = f"{name}, {graph.num_nodes} nodes: distinct graphs a CPU second, in a search that opens the cheapest"
        yield Figure(
            f"unique-{graph.num_nodes}", what, rate, "per second", bar, False, details={"seen": seen, "opened": opened}
        )


def walk(bench: Bench, graph: Any) -> tuple[float, int, int]:
    """Best-first over everything for ``seconds``: (distinct digests a CPU second, distinct digests, graphs opened)."""
    import heapq

    root = bench.state(graph)
    seen = {bytes.fromhex(graph.digest)}
    queue = [(root.cost, 0, root, -1)]
    opened = 0
    start = time.process_time()
    while queue and time.process_time() - start < bench.seconds:
        _, _, state, i = heapq.heappop(queue)
        if i >= 0:
            state = state.open(i)
        opened += 1
        moves = state.moves()
        for i in range(len(moves)):
            key = moves.digest[i].tobytes()
            if key not in seen:
                seen.add(key)
                heapq.heappush(queue, (state.cost + float(moves.delta_ms[i]), len(seen), state, i))
    return len(seen) / (time.process_time() - start), len(seen), opened


def doubling(bench: Bench) -> Iterator[Figure]:
    """Twice as many rules must not take twice as long to match.

    The second half of the doubled sets: the same rules under other names (every match is found twice, the worst case),
    and the same rules with a condition that never holds (all of the work up to the conditions, nothing found).
    """
    graph = bench.bert()
    sets = rule_sets(bench.rules, list(bench.library.values()))
    times = {name: [] for name in sets}
    for _ in range(max(5, int(20 * bench.seconds))):  # interleaved, so that a neighbour disturbs all alike
        for name, rules in sets.items():
            start = time.process_time()
            found = bench.state(graph, priced=False, rules=rules)
            times[name].append(time.process_time() - start)
            del found
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    details = {"ms": {name: 1e3 * median for name, median in medians.items()}} | {
        "rules": {name: len(rules) for name, rules in sets.items()}
    }
    medians["half"] = (medians["even"] + medians["odd"]) / 2  # either may hold most of the rules that match here
    for larger, smaller in (("whole", "half"), ("never", "whole"), ("twice", "whole")):
        ratio = medians[larger] / medians[smaller]
        what = f"BERT-base: enumeration with {SETS[larger]}, over that with {SETS[smaller]}"
        yield Figure(f"rules-{larger}", what, ratio, "times", 2.0, details=details)


SETS = {
    "half": "every second rule (the mean of both halves)",
    "whole": "the library",
    "never": "as many rules again that fail at their conditions",
    "twice": "every rule twice",
}


def rule_sets(whole: Any, library: list[Any]) -> dict[str, Any]:
    """The sets of :func:`doubling`, from a library and what it is compiled to."""
    from rlflow.rewrite import Rule, RuleSet

    def again(rule: Rule, where: tuple[str, ...], suffix: str) -> Any:
        return replace(rule, name=f"{rule.name}-{suffix}", where=(*rule.where, *where)).core

    return {
        "even": RuleSet(whole.rules[::2]),
        "odd": RuleSet(whole.rules[1::2]),
        "whole": whole,
        "never": RuleSet([*whole.rules, *(again(rule, ("1 == 2",), "never") for rule in library)]),
        "twice": RuleSet([*whole.rules, *(again(rule, (), "again") for rule in library)]),
    }


def memory(bench: Bench) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="rlflow-micro-") as folder:
        path = os.path.join(folder, "bert-base.onnx")
        write = f"zoo.build('bert6-classifier', layers={BERT_BASE_LAYERS})"
        child(
            "-c", f"import onnx; from rlflow import zoo; onnx.save({write}, {path!r})"
        )  # its memory is not the search's
        report = json.loads(child(os.fspath(Path(__file__).resolve()), "--search-memory", path, "--rules", bench.which))
        report["model_bytes"] = os.path.getsize(path)
    what = f"BERT-base: peak resident memory of the default search (at most {SEARCH_BUDGET}), weights included"
    yield Figure("memory", what, report["peak"] / GIB, "GiB", 1.0, True, details=report)


def child(*arguments: str) -> str:
    """The output of a Python process that sees the same modules as this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def search_memory(path: str, which: str) -> None:
    """In a process of its own: load, search with the default strategy and budget, and say what that took.

    Prices come from the formula: a search that never waits for a measurement opens more graphs, and so keeps more.
    """
    from rlflow.frontends import load_model
    from rlflow.price import make
    from rlflow.search import Backtracking, Budget, Problem, patience_of, solve

    imported = load_model(path)
    report: dict[str, Any] = {"loaded": machine.peak_bytes()}
    strategy, budget = Backtracking(), Budget.parse(SEARCH_BUDGET)
    patience = patience_of("auto", budget, strategy.patience_by_default)
    result = solve(Problem(imported.graph, shipped(which), make("analytic"), budget, patience=patience), strategy)
    report |= {"peak": machine.peak_bytes(), **result.counts._asdict()}
    print(json.dumps(report))


FIGURES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "enumeration": enumeration,
    "policy": policy,
    "incremental": incremental,
    "candidates": candidates,
    "opening": opening,
    "growth": growth,
    "unique": unique,
    "rules": doubling,
    "memory": memory,
}


def table(figures: list[Figure]) -> str:
    rows = [("figure", "measured", "bar", "")]
    for figure in figures:
        number = f"{figure.value:,.2f}" if figure.value < 100 else f"{figure.value:,.0f}"
        sign = "at most" if figure.at_most else "at least"
        bar = "" if figure.bar is None else f"{sign} {figure.bar:,g}"
        rows.append(
            (figure.what, f"{number} {figure.unit}".strip(), bar, {True: "met", False: "MISSED", None: ""}[figure.met])
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there, one JSON object a line after the machine's")
    parser.add_argument("--only", nargs="*", default=[], choices=list(FIGURES), help="only these")
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU seconds a figure")
    parser.add_argument(
        "--rules", choices=("core", "everything"), default="core", help="those loaded by default, or all"
    )
    parser.add_argument("--search-memory", metavar="MODEL", help=argparse.SUPPRESS)
    results.add_options(parser)
    options = parser.parse_args()
    if options.search_memory:
        search_memory(options.search_memory, options.rules)
        return 0
    command = ["python", "reproduce/micro/run.py", "--rules", options.rules]
    kept = results.Results(options.json, command, dirty=options.dirty) if options.json else None
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    figures = []
    for figure in Bench(options.seconds, options.rules).figures(options.only):
        figures.append(figure)
        print(f"{figure.name}: {figure.value:,.4g} {figure.unit}", file=sys.stderr, flush=True)
    print(machine.describe(kept.machine if kept else machine.header(command)))
    print(table(figures))
    if kept is not None:
        kept.extend([{"kind": "figure", **vars(figure), "met": figure.met} for figure in figures])
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
