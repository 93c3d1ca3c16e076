"""Who runs the searches of a comparison and times what they found: this process, or a worker elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlflow import search as _search
from rlflow.search import Budget, InterruptGuard, Problem, StopToken

#: Blocks of interleaved timings: fewer than six cannot bound a 95 % interval.
BLOCKS = 10


@dataclass(frozen=True)
class Conditions:
    """What all searches of a comparison share; see :func:`rlflow.comparison.compare`."""

    budget: Budget
    cost: str
    threads: int
    dims: Mapping[str, int]
    rules: Any
    gate_seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """What a kept row must agree with to be used again."""
        return {"budget": str(self.budget), "cost": self.cost, "threads": self.threads, "dims": dict(self.dims)}


class SearchTask(NamedTuple):
    """Search ``model`` with a strategy and a seed."""

    model: str
    strategy: str
    seed: int


class TimingTask(NamedTuple):
    """Time ``model`` beside what was found, traces by digest."""

    model: str
    winners: Mapping[str, Any]


class _Opened(NamedTuple):
    name: str
    imported: Any
    library: Any
    pricer: Any
    measured_on: str | None


class Searcher:
    """Does the tasks of a comparison, one after the other; one model is open at a time.

    ``models``: paths, or the bytes of files, by name. ``stop``: ends a search, as Ctrl-C does then.
    """

    def __init__(
        self, models: Mapping[str, str | bytes], conditions: Conditions, stop: StopToken | None = None
    ) -> None:
        self._models, self._conditions, self._stop = dict(models), conditions, stop
        self._open: _Opened | None = None

    def __call__(self, task: SearchTask | TimingTask) -> dict[str, Any]:
        """The row of a task."""
        model = self._opened(task.model)
        row = self._searched(model, task) if isinstance(task, SearchTask) else self._timed(model, task)
        return {"model": task.model, **self._conditions.settings, **row, "measured_on": model.measured_on}

    def digest(self, name: str) -> str:
        """Of a model's graph."""
        return str(self._opened(name).imported.graph.digest)

    def _opened(self, name: str) -> _Opened:
        """A model, and what its graphs are priced with."""
        if self._open is None or self._open.name != name:
            from rlflow import price
            from rlflow.frontends import load_model
            from rlflow.rulesets import load_library

            self.close()
            with_ = self._conditions
            imported, library = load_model(self._models[name]), load_library(with_.rules)
            pricer = price.make(with_.cost, threads=with_.threads, dims=dict(with_.dims))
            self._open = _Opened(name, imported, library, pricer, _fingerprint(pricer, with_.threads))
        return self._open

    def close(self) -> None:
        """End what measures."""
        if self._open is not None:
            self._open.pricer.close()
            self._open = None

    def _searched(self, model: _Opened, task: SearchTask) -> dict[str, Any]:
        graph, stop = model.imported.graph, self._stop or StopToken()
        problem = Problem(graph, model.library, model.pricer, self._conditions.budget, seed=task.seed, stop=stop)
        guard: AbstractContextManager[Any] = nullcontext() if self._stop is None else InterruptGuard(stop)
        with guard:
            result = _search.solve(problem, task.strategy)
        return {"kind": "search", "graph": graph.digest, **result.to_dict(), "strategy": task.strategy}

    def _timed(self, model: _Opened, task: TimingTask) -> dict[str, Any]:
        """Blocks of interleaved timings of the model and of every distinct graph that was found."""
        from rlflow.deployment import Inputs, open_worker, source_of
        from rlflow.frontends import save_model
        from rlflow.price.sampler import WorkerSampler

        imported, with_ = model.imported, self._conditions

        def exported(trace: Any) -> bytes:
            graph = imported.graph if trace is None else _search.replay(imported.graph, model.library, trace)
            return bytes(save_model(imported, graph).SerializeToString(deterministic=True))

        sources: dict[str, Any] = {"baseline": exported(None), **{d: exported(t) for d, t in task.winners.items()}}
        with ExitStack() as stack:
            worker = stack.enter_context(open_worker(with_.threads))
            source = source_of(imported, self._models[task.model])
            inputs = Inputs.of(worker, source, imported.graph, dict(with_.dims), None, 0)
            sampler = stack.enter_context(WorkerSampler(worker, sources, inputs.feeds[0]))
            dropped = sampler.screen("baseline")
            names = [one for one in sampler.names if one not in dropped]
            blocks = [
                np.median(sampler.block(names, seed, with_.gate_seconds / BLOCKS).by(sampler.clock), axis=0)
                for seed in range(BLOCKS)
                if self._stop is None or not self._stop.stopped
            ]
        columns = np.log(np.array(blocks)).T.tolist() if blocks else [[] for _ in names]
        log_ms = dict(zip(names, columns, strict=True))
        return {"kind": "timing", "clock": sampler.clock, "log_ms": log_ms, "dropped": dropped}


def _fingerprint(pricer: Any, threads: int) -> str | None:
    """What a cost model measures on; ``None`` for one that does not measure."""
    if not pricer.measures:
        return None
    place = pricer.place
    if place is None:
        from rlflow.deployment import open_worker
        from rlflow.price.database import PriceContext

        with open_worker(threads) as worker:
            place = PriceContext.of(worker.describe(), "all")
    return "; ".join(map(str, place.row))
