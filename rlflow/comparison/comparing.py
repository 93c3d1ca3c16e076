"""A comparison from end to end: which searches are left to do, who does them, and which rows are kept."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlflow import price
from rlflow import search as _search
from rlflow.comparison.differences import Comparison, differences, runs_of
from rlflow.comparison.searcher import Conditions, Searcher, SearchTask, TimingTask
from rlflow.crew import Crew, Workers
from rlflow.equivalence.sizes import require_open
from rlflow.errors import UsageError, brief
from rlflow.files import write_atomically
from rlflow.frontends import load_model
from rlflow.search import Budget, InterruptGuard, StopToken
from rlflow.specs import check_names, check_seconds, check_whole

#: What every row that is kept says.
_KEPT = {"kind", "model", "budget", "cost", "threads", "dims"}


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
    workers: Workers | str = "0",
) -> Comparison:
    """Run every strategy on every model with seeds 0, 1, …, and say which is better where that can be said.

    ``budget`` is each search's; a strategy that ends earlier has used less. ``gate_seconds``: for timing the winners of
    a model (nothing is timed with a cost model that does not measure). ``keep``: file of the rows; what it has of this
    comparison already is not run again. Ctrl-C ends the searches in progress, whose rows are then not kept, and the
    rest.

    ``workers``: who searches (:class:`rlflow.crew.Workers`). With a cost model that measures, they are machines of a
    Ray cluster that joined under one name and are alike, because prices of different machines are never compared.

    Raises :class:`UsageError` for less than two strategies, or names that are not there.
    """
    if isinstance(models, (str, os.PathLike)) or not models:
        raise UsageError(f"A comparison takes a list of models, one or more; got {models!r}.")
    specs = [_search.describe(_search.make(spec)) for spec in strategies]
    if len(set(specs)) < 2 or len(set(specs)) != len(specs):
        raise UsageError(f"A comparison needs two or more different strategies; got {', '.join(specs) or 'none'}.")
    _check_numbers(seeds, threads, gate_seconds)
    sizes, crew = _sizes(dims), _crew(workers)
    if stop is not None and not isinstance(stop, StopToken):
        raise UsageError(f"What stops the work is {stop!r}; expected a rlflow.search.StopToken.")
    paths = {Path(model).stem: os.fspath(model) for model in models}
    if len(paths) != len(models):
        raise UsageError("Two of the models have the same file name; give them different ones, the tables use these.")
    measures = _measures(cost)
    if measures:
        _check_workers(crew, cost)
    limits = Budget.parse(budget)
    limits.require_end(measures)
    run = _Run(
        specs, seeds, paths, Conditions(limits, cost, threads, sizes, rules, gate_seconds),
        measures, None if keep is None else Path(keep), on_stage or (lambda sentence: None), stop or StopToken(),
    )  # fmt: skip
    if sizes:
        require_open(sizes, [load_model(path) for path in paths.values()])
    if crew.alone:
        run.here()
    else:
        run.elsewhere(crew)
    found = Comparison(specs, run.rows("search", paths), run.rows("timing", paths), interrupted=run.stop.stopped)
    complete = {model for model in found.models if all(runs_of(found.runs, model, spec) for spec in specs)}
    found.differences = differences(replace(found, runs=[row for row in found.runs if row["model"] in complete]))
    return found


def _check_numbers(seeds: int, threads: int, gate_seconds: float) -> None:
    check_whole(seeds, "The number of seeds", 1)
    check_whole(threads, "The number of threads", 1)
    check_seconds(gate_seconds, "The time for timing the winners")


def _sizes(dims: Mapping[str, int] | None) -> dict[str, int]:
    sizes = check_names(dims, "The sizes of dimensions", '{"N": 8}')
    for name, size in sizes.items():
        check_whole(size, f"The size of the dimension {name!r}", 1)
    return sizes


def _crew(workers: Workers | str) -> Workers:
    if not isinstance(workers, (str, Workers)):
        raise UsageError(f"The workers are {workers!r}; expected text, such as '3' or 'ray', or a rlflow.crew.Workers.")
    return Workers.parse(workers) if isinstance(workers, str) else workers


def _check_workers(workers: Workers, cost: str) -> None:
    if workers.alone or workers.device is not None:
        return
    raise UsageError(
        f"The cost model {cost!r} measures, and searches on one machine at a time disturb each other's clock; use "
        "--cost analytic, or machines of a Ray cluster that measure one search at a time: rlflow worker --device NAME "
        "there, and --workers ray://HOST:PORT --device NAME here."
    )


def _measures(cost: str) -> bool:
    with price.make(cost) as model:
        return model.measures


@dataclass
class _Run:
    specs: list[str]
    seeds: int
    paths: Mapping[str, str]
    conditions: Conditions
    measures: bool  # whether prices do
    keep: Path | None
    on_stage: Callable[[str], None]
    stop: StopToken
    kept: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep.exists():
            self.kept = _kept_rows(self.keep)

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, kind: str, models: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of this comparison, in order of model, strategy and seed."""
        order = {name: place for place, name in enumerate(models)}
        rows = [row for row in self.kept if row["kind"] == kind and row["model"] in order and self._is_mine(row)]
        if kind == "search":
            return sorted(rows, key=lambda row: (order[row["model"]], self.specs.index(row["strategy"]), row["seed"]))
        return sorted(rows, key=lambda row: order[row["model"]])

    def _is_mine(self, row: Mapping[str, Any]) -> bool:
        same = all(row[key] == value for key, value in self.conditions.settings.items())
        return same and (row["kind"] == "timing" or (row["strategy"] in self.specs and row["seed"] < self.seeds))

    def _add(self, row: dict[str, Any]) -> None:
        self._check_machine(row)
        self.kept.append(row)
        if self.keep is not None:
            write_atomically(self.keep, "".join(json.dumps(one) + "\n" for one in self.kept).encode())

    def _check_machine(self, row: Mapping[str, Any]) -> None:
        """Raises :class:`UsageError` where this row was measured on another kind of machine than those before."""
        mine = row["measured_on"]
        for other in (one.get("measured_on") for one in self.kept if self._is_mine(one)):
            if mine is not None and other not in (None, mine):
                raise UsageError(
                    f"Part of this comparison was measured on {other!r}, and part on {mine!r}: prices of different "
                    "machines are never compared. Give machines that differ different device names, or keep the rows "
                    "in another file."
                )

    # --- who does it ------------------------------------------------------------------------------------------------

    def here(self) -> None:
        """All of it in this process; Ctrl-C ends the search in progress and the rest."""
        with InterruptGuard(self.stop), closing(Searcher(self.paths, self.conditions, self.stop)) as searcher:
            for name in self.paths:
                if self.stop.stopped:
                    return
                for task in self._tasks(name, searcher.digest(name)):
                    if not self.stop.stopped:
                        self._begun(task)
                        row = searcher(task)
                        if not self.stop.stopped:
                            self._add(row)
                self._same_for_all_seeds(name)
                timing = None if self.stop.stopped else self._timing(name)
                if timing is not None:
                    self._begun(timing)
                    row = searcher(timing)
                    if not self.stop.stopped:
                        self._add(row)

    def elsewhere(self, workers: Workers) -> None:
        """All searches by a crew, which is sent the models' files where it is not on this machine."""
        sources: Mapping[str, Any] = self.paths
        if workers.cluster is not None:
            sources = {name: _whole_file(path) for name, path in self.paths.items()}
        tasks = [task for name, path in self.paths.items() for task in self._tasks(name, _digest(path))]
        with workers.crew(partial(Searcher, sources, self.conditions)) as crew:
            try:
                self._done_by(crew, tasks)
                for name in self.paths:
                    self._same_for_all_seeds(name)
                timings = [self._timing(name) for name in self.paths]
                self._done_by(crew, [one for one in timings if one is not None])
            except KeyboardInterrupt:
                self.stop.stop()

    def _done_by(self, crew: Crew, tasks: Sequence[SearchTask | TimingTask]) -> None:
        with closing(crew.as_done(tasks, begun=lambda number: self._begun(tasks[number]))) as ended:
            for _, row in ended:
                self._add(row)

    def _begun(self, task: SearchTask | TimingTask) -> None:
        if isinstance(task, SearchTask):
            self.on_stage(f"{task.model}: {task.strategy}, seed {task.seed}")
        else:
            self.on_stage(f"{task.model}: timing {len(task.winners)} different results")

    # --- what is left to do -----------------------------------------------------------------------------------------

    def _tasks(self, name: str, digest: str) -> Iterator[SearchTask]:
        """The searches of a model that have no row, but for those that another seed's row stands for."""
        done = {(row["strategy"], row["seed"], row["graph"]) for row in self.rows("search", [name])}
        for seed, spec in itertools.product(range(self.seeds), self.specs):
            if (spec, seed, digest) not in done and (seed == 0 or not self._one_seed(spec)):
                yield SearchTask(name, spec, seed)

    def _one_seed(self, spec: str) -> bool:
        """Whether the seed makes no difference: neither the strategy nor a clock is random."""
        drawn = getattr(_search.make(spec), "randomised", True)
        return not drawn and not self.measures and self.conditions.budget.counts_only

    def _same_for_all_seeds(self, name: str) -> None:
        """Rows for the seeds that make no difference."""
        rows = self.rows("search", [name])
        for spec in self.specs:
            of_spec = [row for row in rows if row["strategy"] == spec]
            if of_spec and self._one_seed(spec):
                seeds = set(range(self.seeds)) - {row["seed"] for row in of_spec}
                for seed in sorted(seeds):
                    self._add(of_spec[0] | {"seed": seed})

    def _timing(self, name: str) -> TimingTask | None:
        """What is left to time of a model; rows of what is not wanted any more are dropped."""
        if not self.measures:
            return None
        runs = self.rows("search", [name])
        winners = {run["digest"]: run["trace"] for run in runs if run["digest"] != run["graph"]}
        before = self.rows("timing", [name])
        if before and set(before[-1]["log_ms"]) == {"baseline", *winners}:
            return None
        self.kept = [row for row in self.kept if row not in before]
        return TimingTask(name, winners)


def _kept_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier comparison. Raises :class:`UsageError` for a file that holds something else."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UsageError(f"The file {path} of kept searches cannot be read: {brief(error)}.") from error
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row.keys() >= _KEPT:
            raise UsageError(f"The file {path} does not hold the searches of a comparison, in line {number}.")
    return rows


def _digest(path: str) -> str:
    return str(load_model(path).graph.digest)


def _whole_file(path: str) -> bytes:
    """A model as it is sent to another machine. Raises :class:`UsageError` where it keeps weights in other files."""
    from rlflow.frontends.storage import data_files

    beside = data_files(path)
    if beside:
        raise UsageError(
            f"The model {path} keeps weights in {beside[0]!r}; workers on other machines are sent one file. Save it "
            "without external data, or use processes of this machine."
        )
    return Path(path).read_bytes()
