"""Whole graphs by the clock: the time of one run, end to end, in the deployment runtime or on your own device.

A price by regions is a sum of parts; this is the thing itself. It is also three orders of magnitude dearer, so a search
ranks candidates by the roofline (scaled to the clock) and times those that it opens. Noise is handled as in the final
comparison (:mod:`rlflow.race.gate`), by the same samplers:

* Every graph is timed *interleaved* with the one that the search started from, in blocks of fresh sessions. What is
  learnt is the ratio of the two, so that a machine that slows down meanwhile slows both; the drift is watched and told.
* Blocks are added until the interval of the ratio is tight (``tolerance``, or ``share`` of the difference itself), or
  the seconds of a graph are spent.
* First of all the starting graph is timed against itself. What that interval is wide decides which differences count
  as none; where it is wider than ``max_noise``, the machine cannot tell graphs apart, and that is said.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import CostError, RuntimeUnavailable, UsageError
from rlflow.price import calibration
from rlflow.price.allowance import PricingProgress
from rlflow.price.analytic import AnalyticCost
from rlflow.price.bench import FLUSH_MB, Bench, Caches, mega
from rlflow.price.command import CommandSampler, DeviceCommand
from rlflow.price.database import Price, PriceDatabase
from rlflow.price.feed_specs import input_specs
from rlflow.price.lookup import Lookup
from rlflow.price.protocol import CostModel, CostReport, FillReport, GraphTime, RegionCost
from rlflow.price.sampler import WorkerSampler
from rlflow.price.whole import Aim, WholeSampler, WholeTimer
from rlflow.runtime import CPU_PROVIDER, ModelSource, RuntimeOptions, Worker, random_array, runtime, unavailable_reason

if TYPE_CHECKING:
    from rlflow._core import Pricer
    from rlflow.graph import Graph

#: Graphs that are timed beside the baseline in one block: more of them share its cost, but stop together.
TOGETHER = 4
#: Weights that the graphs of one block may have between them.
MEMORY_BYTES = 1 << 30
#: A change of the machine's speed that is told.
DRIFT = 0.10


class EndToEndCost(CostModel):
    """The time of a whole run as the cost of a graph.

    ``threads``, ``runtime`` (``onnxruntime`` or ``openvino``) and ``provider`` say where; ``measure_cmd`` puts a
    device's command in their place. ``tolerance``: how well a ratio to the baseline is wanted (0.01 is one per cent);
    ``seconds`` what one graph may take for it; ``share``: the part of the difference to the baseline that is enough (a
    search wants to know by how much a graph is better, to a quarter; 0 where graphs are compared with each other).
    ``max_noise``: the interval of the baseline against itself above which
    the machine is refused. ``dims``: values of symbolic dimensions, others count as 1. How graphs are written and what
    they are fed is said by :meth:`attach`, else there are seeded stand-ins for both. ``database``: where prices of
    regions are, an open :class:`PriceDatabase`, a path, or ``None`` for the user's own.

    The first graph that is priced is the baseline that all others are timed beside. Times are not kept in the database:
    they belong to one model, its weights and its inputs. What regions took that were timed alone is read from there.
    """

    name = "end-to-end"
    measures = True
    whole = True

    def __init__(
        self,
        *,
        threads: int = 1,
        dims: Mapping[str, int] | None = None,
        runtime: str = "onnxruntime",
        provider: str = CPU_PROVIDER,
        measure_cmd: str | DeviceCommand | None = None,
        database: PriceDatabase | str | os.PathLike[str] | None = None,
        worker: Worker | None = None,
        sampler: WholeSampler | None = None,
        tolerance: float = 0.01,
        seconds: float = 6.0,
        max_noise: float = 0.05,
        share: float = 0.25,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        for name, value in (("tolerance", tolerance), ("seconds", seconds), ("max_noise", max_noise)):
            if not value > 0:
                raise UsageError(f"The option {name} of the end-to-end cost is {value!r}; expected above zero.")
        if not 0 <= share < 1:
            raise UsageError(f"The option share of the end-to-end cost is {share!r}; expected 0 or more, and below 1.")
        self.options = RuntimeOptions(provider=provider, threads=threads, runtime=runtime)
        self.dims = dict(dims or {})
        self.command = DeviceCommand(measure_cmd) if isinstance(measure_cmd, str) else measure_cmd
        self.tolerance = float(tolerance)
        self.totals = FillReport()
        self._database, self._given_worker = database, worker
        self._own_worker: Worker | None = None
        self._sampler: WholeSampler | None = sampler
        self._clock = clock
        self._timer = WholeTimer(Aim(self.tolerance, float(seconds), float(max_noise), float(share)), seed, clock)
        self.refusals, self.times = self._timer.refusals, self._timer.times
        self._ranker = AnalyticCost(dims=self.dims)
        self._export: Callable[[Graph], ModelSource] = _stand_in
        self._feeds: Mapping[str, Any] | None = None

    def attach(self, export: Callable[[Graph], ModelSource], feeds: Callable[[], Mapping[str, Any]] | None) -> None:
        """Say how graphs are written for deployment, and what they are fed; before the first price."""
        self._export = export
        if feeds is not None and self.command is None:
            self._feeds = feeds()

    def bind(self, dims: Mapping[str, int]) -> None:
        super().bind(dims)
        self._ranker.bind(dims)

    # --- the protocol ----------------------------------------------------------------------------------------------

    @property
    def pricer(self) -> Pricer:
        """The roofline that ranks graphs before they are timed."""
        return self._ranker.pricer

    @property
    def relative_noise(self) -> float:
        baseline = self._timer.baseline
        return max(self.tolerance, 0.0 if baseline is None else self.times[baseline].half_width)

    @property
    def drift(self) -> float:
        """By how much the machine's speed changed at most while graphs were timed (0.1 is a tenth slower)."""
        return self._timer.drift

    @property
    def device(self) -> str:
        return self.command.name if self.command is not None else str(self._opened().describe()["device"])

    @property
    def runtime(self) -> str:
        if self.command is not None:
            return "command"
        found = self._opened().describe()
        return f"{found['runtime']} {found['version']}"

    def available(self) -> str | None:
        """Why whole graphs cannot be timed here, in a sentence, or ``None``; starts the worker."""
        if self.command is not None:
            return None
        reason = unavailable_reason(self.options.runtime)
        if reason is not None:
            return reason
        try:
            self._opened().require_provider()
        except (RuntimeUnavailable, CostError) as error:
            return str(error)
        return None

    def graph_time(self, digest: str) -> GraphTime | None:
        return self.times.get(digest)

    def timed_regions(self) -> Sequence[Price]:
        """From the database, by the runtime, version, provider and number of threads at hand. A device that a command
        stands for has none there.
        """
        if self.command is not None:
            return ()
        with contextlib.closing(Lookup(self._bench(), self._database)) as lookup:
            return [one for one in lookup.alike() if one.ms and one.samples and one.operators]

    def channel_block(self) -> int | None:
        """As the runtime shows it; nothing is timed."""
        options = self.options
        if self.command is not None or runtime(options.runtime).fusion_table(options.provider) != "onnxruntime":
            return None
        return calibration.channel_block(self._bench().changes_layout)

    def cost(self, graph: Graph) -> CostReport:
        """The time of ``graph``, measured now where it is not known."""
        self.fill([graph])
        found = self.times.get(graph.digest, GraphTime(None))
        whole = self._ranker.cost(graph).per_region
        flops, size = sum(row.flops for row in whole), sum(row.bytes for row in whole)
        spread = None if found.ms is None else 2 * found.half_width * found.ms
        row = RegionCost(graph.digest, "whole graph", (), found.ms, flops, size, spread, found.refusal)
        return CostReport(
            total_ms=found.ms or 0.0,
            per_region=(row,),
            source="end-to-end",
            device=self.device,
            runtime=self.runtime,
            spread_ms=spread,
            unmeasured=int(found.ms is None),
            refusals={graph.digest: found.refusal} if found.refusal else {},
            weight_bytes=self.pricer.summary(graph)["weight_bytes"],
        )

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[PricingProgress], None] | None = None,
    ) -> FillReport:
        """Time the graphs that were not timed yet, at most ``limit`` of them; ``stop`` is asked between blocks.
        ``seconds`` is not looked at, because nothing short of a comparison says what a graph takes.

        Raises :class:`CostError` where the first graph of all cannot be run, or the machine is too noisy.
        """
        started, stop = self._clock(), stop or (lambda: False)
        waiting = {graph.digest: graph for graph in graphs if graph.digest not in self.times}
        allowed = list(waiting.values()) if limit is None else list(waiting.values())[: max(limit, 0)]
        before = len(self.times)
        if allowed and self._timer.baseline is None:
            self._begin(allowed.pop(0))
        together = self._together(allowed)
        for begin in range(0, len(allowed), together):
            if stop():
                break
            self._timer.time(self._opened_sampler(), allowed[begin : begin + together], self._export, stop)
        refused = sum(self.times[d].ms is None for d in waiting if d in self.times)
        remaining = sum(digest not in self.times for digest in waiting)
        report = FillReport(len(self.times) - before, 0, refused, remaining, self._clock() - started)
        self.totals = self.totals + report
        return report

    def notes(self) -> list[str]:
        if abs(self.drift) <= DRIFT:
            return []
        note = (
            f"The machine's speed changed by up to {self.drift:+.0%} while graphs were timed; "
            "costs are ratios to the original, timed beside each of them."
        )
        return [note]

    def close(self) -> None:
        """End the worker process; may be called twice."""
        if isinstance(self._sampler, CommandSampler):
            self._sampler.close()
        if self._own_worker is not None:
            self._own_worker.close()
            self._own_worker = None

    # --- what it runs on -------------------------------------------------------------------------------------------

    def _begin(self, graph: Graph) -> None:
        source = self._export(graph)
        if self._feeds is None and self.command is None:
            self._feeds = _stand_in_feeds(graph, self.dims)
        self._timer.begin(self._opened_sampler(), graph, source)

    def _together(self, graphs: Sequence[Graph]) -> int:
        """How many graphs are timed in one block: of large ones fewer, because all of them are in memory."""
        if not graphs:
            return 1
        weights = max(self.pricer.summary(graph)["weight_bytes"] for graph in graphs)
        return int(max(1, min(TOGETHER, MEMORY_BYTES // max(weights, 1))))

    def _opened(self) -> Worker:
        if self._given_worker is not None:
            return self._given_worker
        if self._own_worker is None:
            self._own_worker = Worker(self.options)
        return self._own_worker

    def _bench(self) -> Bench:
        """What regions are timed alone with."""
        return Bench(self.options, self._opened(), caches=Caches(mega(FLUSH_MB)))

    def _opened_sampler(self) -> WholeSampler:
        if self._sampler is None:
            if self.command is not None:
                self._sampler = CommandSampler(self.command)
            else:
                self._sampler = WorkerSampler(self._opened(), {}, self._feeds or {})
        return self._sampler


def _stand_in(graph: Graph) -> bytes:
    from rlflow.frontends import graph_to_model

    return graph_to_model(graph).SerializeToString()


def _stand_in_feeds(graph: Graph, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Random inputs that the graph accepts."""
    rng = np.random.default_rng(0)
    return {name: random_array(spec, rng) for name, spec in input_specs(graph, dims).items()}
