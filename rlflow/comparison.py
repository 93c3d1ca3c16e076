"""Strategies against each other: equal budgets, several seeds, winners timed end to end, and no claim without proof.

Every search is a row of a JSON-lines file as soon as it is done, so that a comparison that was interrupted goes on
where it stopped. Where the cost model measures, all distinct winners of a model and the model itself are then timed
interleaved, with the sampler of the final gate (:mod:`rlflow.race.gate`): new process and new sessions for every block,
and the block is the unit of evidence.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow import search as _search
from rlflow.errors import UsageError
from rlflow.files import write_atomically
from rlflow.search import Budget, InterruptGuard, Problem, StopToken

__all__ = ["Comparison", "Difference", "compare", "differences"]

#: Costs that differ by less than this part are equal.
_EQUAL = 1e-6
#: Blocks of interleaved timings: fewer than six cannot bound a 95 % interval.
BLOCKS = 10
ALPHA = 0.05


class Difference(NamedTuple):
    """How much cheaper or faster ``better`` is than ``worse``: the ratio, above 1, with its 95 % interval.

    ``measure``: ``cost`` (the cost model's figure, over seeds) or ``time`` (end to end, over blocks). ``significant``
    is False where nothing may be said; then the order of the two means nothing.
    """

    model: str
    measure: str
    better: str
    worse: str
    ratio: float
    low: float
    high: float
    significant: bool


@dataclass
class Comparison:
    """``runs``: a row a search. ``timings``: a row a model, ``log_ms`` [blocks] of each distinct winner, by digest, and
    of the ``baseline``. ``differences``: what may be said, and what not.
    """

    strategies: Sequence[str]
    runs: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, Any]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def summary(self) -> list[dict[str, Any]]:
        """A row a model and strategy: means over seeds with the half-widths of their 95 % intervals."""
        rows = []
        for model, strategy in itertools.product(self.models, self.strategies):
            runs = _runs(self.runs, model, strategy)
            costs = [run["cost_after_ms"] / run["cost_before_ms"] for run in runs]
            rows.append(
                {
                    "model": model,
                    "strategy": strategy,
                    "seeds": len(runs),
                    "cost_before_ms": runs[0]["cost_before_ms"],
                    "relative_cost": statistics.fmean(costs),
                    "relative_cost_ci": half_width(costs),
                    "seconds": statistics.fmean(run["seconds"] for run in runs),
                    "expansions": statistics.fmean(run["expansions"] for run in runs),
                    "measurements": statistics.fmean(run["measurements"] for run in runs),
                    **self._speedup(model, runs),
                }
            )
        return rows

    def _speedup(self, model: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        timing = next((row for row in self.timings if row["model"] == model), None)
        if timing is None:
            return {"speedup": None, "speedup_ci95": None}
        from rlflow.price.timing import speedup

        found = speedup(np.array(timing["log_ms"]["baseline"]) - _of_strategy(timing, runs))
        return {"speedup": found.value, "speedup_ci95": [found.low, found.high]}

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(run["model"] for run in self.runs))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "summary": self.summary(),
            "differences": [difference._asdict() for difference in self.differences],
            "runs": self.runs,
            "timings": self.timings,
        }

    def csv(self) -> str:
        """A line a search, without traces and curves."""
        columns = ["model", "strategy", "seed", "cost_before_ms", "cost_after_ms", "digest", "stop_reason", "seconds"]
        columns += ["candidates", "expansions", "measurements"]
        stream = io.StringIO()
        writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.runs)
        return stream.getvalue()


def compare(
    models: Sequence[str | os.PathLike[str]],
    strategies: Sequence[str],
    *,
    budget: str | Budget = "60s",
    seeds: int = 3,
    cost: str = "onnxruntime",
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    rules: Any = None,
    gate_seconds: float = 60.0,
    keep: str | os.PathLike[str] | None = None,
    on_stage: Callable[[str], None] | None = None,
    stop: StopToken | None = None,
) -> Comparison:
    """Run every strategy on every model with seeds 0, 1, …, and say which is better where that can be said.

    ``budget`` is each search's; a strategy that ends earlier has used less. ``gate_seconds``: for timing the winners of
    a model (nothing is timed with a cost model that does not measure). ``keep``: file of the rows; what it has of this
    comparison already is not run again. Ctrl-C ends the search in progress, whose row is then not kept, and the rest.

    Raises :class:`UsageError` for less than two strategies, or names that are not there.
    """
    specs = [_search.describe(_search.make(spec)) for spec in strategies]
    if len(set(specs)) < 2 or len(set(specs)) != len(specs):
        raise UsageError(f"A comparison needs two or more different strategies; got {', '.join(specs) or 'none'}.")
    if seeds < 1:
        raise UsageError(f"The number of seeds is {seeds}; expected at least 1.")
    paths = {Path(model).stem: os.fspath(model) for model in models}
    if len(paths) != len(models):
        raise UsageError("Two of the models have the same file name; give them different ones, the tables use these.")
    run = _Run(
        specs, Budget.parse(budget), seeds, cost, threads, dict(dims or {}), rules, gate_seconds,
        None if keep is None else Path(keep), on_stage or (lambda sentence: None), stop or StopToken(),
    )  # fmt: skip
    for name, path in paths.items():
        if not run.stop.stopped:
            run.model(name, path)
    found = Comparison(specs, run.rows("search", paths), run.rows("timing", paths))
    complete = {model for model in found.models if all(_runs(found.runs, model, spec) for spec in specs)}
    found.runs = [row for row in found.runs if row["model"] in complete]
    found.differences = differences(found)
    return found


@dataclass
class _Run:
    specs: list[str]
    budget: Budget
    seeds: int
    cost: str
    threads: int
    dims: dict[str, int]
    rules: Any
    gate_seconds: float
    keep: Path | None
    on_stage: Callable[[str], None]
    stop: StopToken
    kept: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep.exists():
            self.kept = [json.loads(line) for line in self.keep.read_text(encoding="utf-8").splitlines()]

    @property
    def settings(self) -> dict[str, Any]:
        """What a kept row must agree with to be used again."""
        return {"budget": str(self.budget), "cost": self.cost, "threads": self.threads, "dims": self.dims}

    def rows(self, kind: str, models: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of this comparison, in order of model, strategy and seed."""
        order = {name: place for place, name in enumerate(models)}
        rows = [row for row in self.kept if row["kind"] == kind and row["model"] in order and self._is_mine(row)]
        if kind == "search":
            return sorted(rows, key=lambda row: (order[row["model"]], self.specs.index(row["strategy"]), row["seed"]))
        return sorted(rows, key=lambda row: order[row["model"]])

    def _is_mine(self, row: Mapping[str, Any]) -> bool:
        same = all(row[key] == value for key, value in self.settings.items())
        return same and (row["kind"] == "timing" or (row["strategy"] in self.specs and row["seed"] < self.seeds))

    def _add(self, row: dict[str, Any]) -> None:
        self.kept.append(row)
        if self.keep is not None:
            write_atomically(self.keep, "".join(json.dumps(one) + "\n" for one in self.kept).encode())

    def model(self, name: str, path: str) -> None:
        from rlflow import price
        from rlflow.frontends import load_model
        from rlflow.rulesets import load_library

        imported = load_model(path)
        library = load_library(self.rules)
        pricer = price.make(self.cost, threads=self.threads, dims=self.dims)
        done = {(row["strategy"], row["seed"], row["graph"]) for row in self.rows("search", [name])}
        with ExitStack() as stack:
            stack.callback(pricer.close)
            for seed, spec in itertools.product(range(self.seeds), self.specs):
                if (spec, seed, imported.graph.digest) in done or self.stop.stopped:
                    continue
                self.on_stage(f"{name}: {spec}, seed {seed}")
                self._search(name, imported.graph, library, pricer, spec, seed)
            if pricer.measures and not self.stop.stopped:
                self._time(name, path, imported, library)

    def _search(self, name: str, graph: Any, library: Any, pricer: Any, spec: str, seed: int) -> None:
        problem = Problem(graph, library, pricer, self.budget, seed=seed, stop=self.stop)
        same = self._another_seed(name, spec, graph.digest, pricer)
        if same is not None:
            self._add(same | {"seed": seed})
            return
        with InterruptGuard(self.stop):
            result = _search.solve(problem, spec)
        if not self.stop.stopped:
            row = {"kind": "search", "model": name, "graph": graph.digest, **self.settings, **result.to_dict()}
            self._add(row | {"strategy": spec})

    def _another_seed(self, name: str, spec: str, digest: str, pricer: Any) -> dict[str, Any] | None:
        """The row of another seed, where the seed makes no difference: neither the strategy nor a clock is random."""
        if getattr(_search.make(spec), "randomised", True) or pricer.measures or not self.budget.counts_only:
            return None
        rows = (row for row in self.rows("search", [name]) if row["strategy"] == spec and row["graph"] == digest)
        return next(rows, None)

    def _time(self, name: str, path: str, imported: Any, library: Any) -> None:
        """Blocks of interleaved timings of the model and of every distinct graph that was found."""
        runs = self.rows("search", [name])
        winners = {run["digest"]: run["trace"] for run in runs if run["digest"] != imported.graph.digest}
        before = self.rows("timing", [name])
        if before and set(before[-1]["log_ms"]) == {"baseline", *winners}:
            return
        self.kept = [row for row in self.kept if row not in before]
        self.on_stage(f"{name}: timing {len(winners)} different results")
        self._add({"kind": "timing", "model": name, **self.settings, **self._blocks(path, imported, library, winners)})

    def _blocks(self, path: str, imported: Any, library: Any, winners: Mapping[str, Any]) -> dict[str, Any]:
        from rlflow.deployment import Inputs, open_worker, source_of
        from rlflow.frontends import save_model
        from rlflow.price.sampler import WorkerSampler

        def exported(trace: Any) -> bytes:
            graph = imported.graph if trace is None else _search.replay(imported.graph, library, trace)
            return bytes(save_model(imported, graph).SerializeToString(deterministic=True))

        sources: dict[str, Any] = {"baseline": exported(None), **{d: exported(trace) for d, trace in winners.items()}}
        with ExitStack() as stack:
            worker = stack.enter_context(open_worker(self.threads))
            inputs = Inputs.of(worker, source_of(imported, path), imported.graph, self.dims, None, 0)
            sampler = stack.enter_context(WorkerSampler(worker, sources, inputs.feeds[0]))
            dropped = sampler.screen("baseline")
            names = [one for one in sampler.names if one not in dropped]
            blocks = [
                np.median(sampler.block(names, seed, self.gate_seconds / BLOCKS).by(sampler.clock), axis=0)
                for seed in range(BLOCKS)
                if not self.stop.stopped
            ]
        columns = np.log(np.array(blocks)).T.tolist()
        return {"clock": sampler.clock, "log_ms": dict(zip(names, columns, strict=True)), "dropped": dropped}


def differences(found: Comparison) -> list[Difference]:
    """Every pair of strategies on every model: by cost, and by time where there are timings.

    Differences of time are tested by the signed-rank test over blocks, those of cost by Student's t over seeds (equal
    for all seeds: no randomness, no test), corrected for the number of pairs of one model (Holm 1979; Bonferroni).
    """
    rows = []
    for model in found.models:
        timing = next((row for row in found.timings if row["model"] == model), None)
        pairs = list(itertools.combinations(found.strategies, 2))
        rows += [_by_cost(model, *pair, found.runs, ALPHA / len(pairs)) for pair in pairs]
        if timing is not None and len(timing["log_ms"]["baseline"]) > 1:
            rows += _by_time(model, pairs, found.runs, timing)
    return rows


def _by_cost(model: str, one: str, other: str, runs: Sequence[Mapping[str, Any]], alpha: float) -> Difference:
    costs = [{run["seed"]: run["cost_after_ms"] for run in _runs(runs, model, spec)} for spec in (one, other)]
    seeds = sorted(costs[0].keys() & costs[1].keys())
    ratios = np.array([math.log(costs[1][seed] / costs[0][seed]) for seed in seeds])  # above 0: `one` is cheaper
    centre, spread = float(ratios.mean()), _half_width_at(ratios, alpha)
    certain = len(ratios) > 1 and abs(centre) > _EQUAL and abs(centre) > spread
    return _ordered(model, "cost", one, other, centre, centre - spread, centre + spread, certain)


def _by_time(
    model: str, pairs: Sequence[tuple[str, str]], runs: Sequence[Mapping[str, Any]], timing: Mapping[str, Any]
) -> list[Difference]:
    from rlflow.price.timing import hodges_lehmann, signed_rank_p

    tested = []
    for one, other in pairs:
        log_ms = [_of_strategy(timing, _runs(runs, model, spec)) for spec in (one, other)]
        ratios = log_ms[1] - log_ms[0]
        p = min(1.0, 2 * min(signed_rank_p(ratios), signed_rank_p(-ratios)))
        tested.append((p, one, other, hodges_lehmann(ratios)))
    rows, passing = [], True
    for place, (p, one, other, centre) in enumerate(sorted(tested, key=lambda row: row[0])):
        passing = passing and p < ALPHA / (len(pairs) - place)
        rows.append(_ordered(model, "time", one, other, centre.value, centre.low, centre.high, passing))
    return rows


def _ordered(
    model: str, measure: str, one: str, other: str, centre: float, low: float, high: float, certain: bool
) -> Difference:
    if centre < 0:
        one, other, centre, low, high = other, one, -centre, -high, -low
    return Difference(model, measure, one, other, _exp(centre), _exp(low), _exp(high), certain)


def _exp(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))


def _of_strategy(timing: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Mean over the seeds of the log time of what they found, by block; where nothing was found, the model's own."""
    log_ms = timing["log_ms"]
    return np.mean([log_ms.get(run["digest"], log_ms["baseline"]) for run in runs], axis=0)


def _runs(runs: Sequence[Mapping[str, Any]], model: str, strategy: str) -> list[Mapping[str, Any]]:
    return [run for run in runs if run["model"] == model and run["strategy"] == strategy]


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of a mean (Student's t); ``None`` for less than two values."""
    return None if len(values) < 2 else _half_width_at(np.array(values), ALPHA)


def _half_width_at(values: np.ndarray, alpha: float) -> float:
    """Half of the interval of a mean at level ``alpha``."""
    if len(values) < 2:
        return math.inf
    from rlflow.price.student import student_quantile

    deviation = float(values.std(ddof=1))
    if deviation <= 1e-12:
        return 0.0
    return student_quantile(len(values) - 1, alpha) * deviation / math.sqrt(len(values))
