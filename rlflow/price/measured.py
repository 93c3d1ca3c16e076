"""Measured prices: every fused region is timed alone in ONNX Runtime, once, and remembered.

Regions are those of the "onnxruntime" fusion table. A region's price is the time of the region as a model of its own
(from sessions that agree, :mod:`rlflow.price.repeats`), less what an empty run takes, plus one dispatch. Four things
differ inside a model, and are put right:

* *Caches.* In a loop of its own a region finds its weights, its code and the buffers of its results in the near caches,
  where the rest of a model leaves none of them. So before every sample some megabytes are walked through, and then the
  region's inputs, which are fresh in a model too. (Measured warm, concatenations, poolings and products with few rows
  came out at half of their time.) They are more in a model that streams its weights
  (:func:`rlflow.price.partition.streams`).
* *Weights.* Alone, a region finds its weights in the cache. Inside a model that is larger than the caches it does not,
  so a price is never less than the time that reading the region's weights takes, at the speed measured for models with
  so many bytes of them (``Calibration.bytes_per_ms``).
* *Layout.* Regions in the runtime's blocked layout are measured with the changes of layout that stand-alone inputs and
  outputs need; their cost, measured apart, is taken off, and added again only where the graph at hand needs them.
* *Company.* In a model every kernel is dispatched cold, and shares the caches: some microseconds a region and a factor,
  learnt from whole models (:mod:`rlflow.price.in_model`), are added to what the database holds.

Regions of which the runtime makes the same program (a convolution with a normalisation behind it, and one with a bias)
are timed once and have one price: what is left of two measurements of the same kernels is noise, and a search would
find gains in it.

Whole models are compared by :mod:`rlflow.race.gate`, which has the last word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rlflow._core import Pricer
from rlflow.errors import CostError, RuntimeUnavailable, UsageError
from rlflow.price import regions
from rlflow.price.allowance import Allowance, PricingProgress
from rlflow.price.batches import Batches
from rlflow.price.bench import FLUSH_MB, Bench, Caches, mega
from rlflow.price.coverage import Coverage
from rlflow.price.database import Price, PriceContext, PriceDatabase
from rlflow.price.estimates import Estimates
from rlflow.price.in_model import InModel
from rlflow.price.lookup import Lookup
from rlflow.price.machine import Machine
from rlflow.price.partition import Job, Partition
from rlflow.price.protocol import CostModel, CostReport, FillReport, RegionCost
from rlflow.price.region_prices import RegionPrices
from rlflow.price.renewal import Renewal
from rlflow.runtime import CPU_PROVIDER, Runtime, RuntimeOptions, Worker, runtime, unavailable_reason

if TYPE_CHECKING:
    from rlflow._core import Region
    from rlflow.graph import Graph


class OnnxRuntimeCost(CostModel):
    """Prices as ONNX Runtime on this machine's CPU pays them.

    ``threads``: intra-operator threads; ``provider``: an execution provider; ``dims``: values of symbolic dimensions,
    others count as 1 (measuring needs numbers); ``database``: an open :class:`PriceDatabase`, a path, or ``None`` for
    the user's own; ``worker``: an open worker to share, whose options then decide. ``repeats`` samples of ``min_time``
    seconds make a price; ``time_limit`` seconds end a region that hangs.

    ``measure="lazy"``: once the first graph is measured, a region that is like measured ones in operators and size is
    priced by interpolation (:mod:`rlflow.price.interpolate`), which is marked in every report. ``fusion``: another
    fusion table, for comparison; ``none`` prices every operator by itself, warm, as the first tools of this kind did.
    ``flush_mb``: megabytes that are walked through before each sample (0: what a region reads stays in the caches);
    ``None``: ``FLUSH_MB``, or ``STREAMING_FLUSH_MB`` for a model that streams more than that.

    One object prices one model and what it is rewritten to: the first graph says how many bytes of weights a run reads,
    and whether it streams them (``streams_weights``).

    It is put together from a clock (:class:`Bench`), kept prices (:class:`Lookup`), what is known about the machine
    (:class:`Machine`), the regions (:class:`Partition`), their prices in the model (:class:`RegionPrices`),
    :class:`Estimates`, and what times the rest (:class:`Batches`).
    """

    name = "onnxruntime"
    measures = True
    dims: dict[str, int]
    runtime_name: ClassVar[str] = "onnxruntime"

    def __init__(
        self,
        *,
        threads: int = 1,
        dims: Mapping[str, int] | None = None,
        database: PriceDatabase | str | os.PathLike[str] | None = None,
        worker: Worker | None = None,
        repeats: int = 9,
        min_time: float = 2e-4,
        time_limit: float = 30.0,
        provider: str = CPU_PROVIDER,
        measure: str = "eager",
        fusion: str | None = None,
        flush_mb: float | None = None,
    ) -> None:
        if measure not in ("eager", "lazy"):
            raise UsageError(f"Regions are measured 'eager' or 'lazy', not {measure!r}.")
        self._bench = self._bench_of(
            self._options(provider, threads),
            worker,
            caches=_caches(flush_mb, fusion),
            repeats=repeats,
            min_time=min_time,
            time_limit=time_limit,
        )
        self.options = self._bench.options
        self.threads = self.options.threads
        self.dims = dict(dims or {})
        table = fusion or self._own_fusion()
        self._lookup = Lookup(self._bench, database)
        # Only the processor's own kernels of ONNX Runtime have the blocked layout that its table describes.
        self._machine = self._machine_of(self._bench, self._lookup, table == "onnxruntime")
        self._partition = Partition(table, self._machine, self.dims)
        shared = (self._bench, self._lookup, self._machine, self._partition)
        self._prices = RegionPrices(*shared, flush_given=flush_mb is not None)
        self._estimates = Estimates(measure == "lazy", self._lookup, self._prices)
        self._batches = Batches(*shared, self._priced)
        self._renewal = Renewal(self._lookup, self._partition, self._batches)
        self.refusals = self._prices.refusals

    _bench_of: ClassVar[type[Bench]] = Bench
    _machine_of: ClassVar[type[Machine]] = Machine

    def _options(self, provider: str, threads: int) -> RuntimeOptions:
        return RuntimeOptions(provider, threads, runtime=self.runtime_name)

    def _own_fusion(self) -> str:
        """The fusion table of the runtime and provider."""
        return runtime(self.options.runtime).fusion_table(self.options.provider)

    def _priced(self, job: Job, price: Price) -> None:
        self._prices.set(job, price)
        self._estimates.learn(price)

    def bind(self, dims: Mapping[str, int]) -> None:
        self.dims.update(dims)

    # --- what it runs on -------------------------------------------------------------------------------------------

    def available(self) -> str | None:
        """Why the runtime cannot measure here, in a sentence, or ``None``; starts the worker."""
        reason = unavailable_reason(self.runtime_name)
        if reason is not None:
            return reason
        try:
            self.worker.require_provider()
            self._bench.description  # noqa: B018 - asks the worker
        except (RuntimeUnavailable, CostError) as error:
            return str(error)
        return None

    @property
    def worker(self) -> Worker:
        return self._bench.worker

    @property
    def database(self) -> PriceDatabase:
        return self._lookup.database

    @property
    def place(self) -> PriceContext:
        return self._bench.place

    @property
    def device(self) -> str:
        """The processor, as the operating system names it."""
        return self.place.device

    @property
    def runtime(self) -> str:
        """Name and version of the runtime."""
        return f"{self.place.runtime} {self.place.version}"

    @property
    def pricer(self) -> Pricer:
        """The native pricer; made, and the machine calibrated, on first use."""
        return self._partition.pricer

    def hurry(self, after: float = 0.0) -> None:
        """Learn about the machine by fewer and shorter probes after so many seconds from now, where it is not known
        then; nothing of that is kept. (Beside other programs the probes take several times as long.)
        """
        self._machine.hurry(after)

    def close(self) -> None:
        """End the worker process and close the database, where they are this object's own."""
        self._bench.close()
        self._lookup.close()

    # --- what was found --------------------------------------------------------------------------------------------

    @property
    def relative_noise(self) -> float:
        """Median over the prices in use of interquartile range divided by price."""
        return self._prices.relative_noise

    @property
    def in_model(self) -> InModel:
        """What regions cost inside the model at hand beyond what they cost alone; known after the first graph."""
        return self._prices.in_model

    @property
    def streams_weights(self) -> bool:
        return self._prices.streams_weights

    def used(self) -> dict[str, float | None] | None:
        """The prices that this object went by, milliseconds by their key in the database (``None``: refused); ``None``
        where some were estimates, or measured in haste.
        """
        return None if self._estimates.found or self._lookup.hasty else dict(self._lookup.used)

    def still_holds(self, used: Mapping[str, float | None]) -> bool:
        return self._lookup.still_holds(used)

    def notes(self) -> list[str]:
        told = [self.coverage.sentence] if self.coverage.unpriced else []
        if self._lookup.hasty:
            told.append(
                f"{len(self._lookup.hasty)} of {len(self._lookup.used)} prices are of a few short sessions each, "
                "because the time did not reach for more; they are not kept, and only the final comparison decided."
            )
        return [*told, *self._estimates.notes()]

    # --- prices ----------------------------------------------------------------------------------------------------

    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph`` in milliseconds; regions that lack a price are measured first."""
        self.fill([graph])
        summary = self.pricer.summary(graph)
        found = self.pricer.regions(graph)
        rows = [_row(graph, region, self._prices, self._estimates) for region in found]
        refused = {row.signature: self.refusals[row.signature] for row in rows if row.signature in self.refusals}
        without = [row for row, region in zip(rows, found, strict=True) if region.opaque or row.signature in refused]
        return CostReport(
            total_ms=summary["ms"],
            per_region=tuple(rows),
            source="measured",
            device=self.device,
            runtime=self.runtime,
            spread_ms=float(np.sqrt(sum((row.spread_ms or 0.0) ** 2 for row in rows))),
            unmeasured=summary["unknown"],
            unpriced=tuple(dict.fromkeys(name for row in without for name in row.operators)),
            refusals=refused,
            weight_bytes=summary["weight_bytes"],
            estimated=sum(row.signature in self._estimates.found for row in rows),
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
        """Supply the prices that ``graphs`` lack, from the database or by measuring, at most ``limit`` measurements.

        ``stop`` is asked between batches, ``tell`` is told after each. Where ``seconds`` are given and do not reach,
        regions are timed in haste from there on, also in later calls, and kept for this run only; what is left without
        a price then is ``remaining``. What the runtime refuses to run alone is priced as zero, and named in
        ``refusals`` and in every report.
        """
        started, graphs = time.perf_counter(), list(graphs)
        first = bool(graphs) and self.coverage.regions == 0
        self._meet(graphs)
        jobs = self._partition.jobs(graphs)
        cached = _kept(jobs, self._lookup)
        cached |= self._batches.known(jobs, cached)
        for key, price in cached.items():
            self._prices.set(jobs[key], price)
        missing = [job for job in jobs.values() if job.key not in cached]
        waiting = self._estimates.rest(missing)
        left = None if seconds is None else max(seconds - (time.perf_counter() - started), 0.0)
        allowed = _allowed(waiting, limit, left)
        batches, least = self._batches, self._batches.least_seconds(allowed)
        allowance = Allowance(left, len(allowed), hasty=batches.hasty, each=batches.each, least=least, tell=tell)
        looked = self._batches.measure(allowed, allowance, stop or (lambda: False))
        looked_at = {job.key for job in allowed[: looked.done]}
        remaining = sum(len(job.waiting) for job in waiting if job.key not in looked_at)
        if first and not remaining:
            self.coverage = Coverage.of(self.pricer.regions(graphs[0]), self.refusals)
        took, known = time.perf_counter() - started, len(cached) + looked.shared
        counts = (looked.done - looked.shared, known, looked.refused, remaining)
        report = FillReport(*counts, took, len(missing) - len(waiting))
        self.totals = self.totals + report
        return report

    @property
    def in_haste(self) -> bool:
        return self._batches.hasty or bool(self._batches.rushed)

    def firm(self, graphs: Sequence[Graph], seconds: float, stop: Callable[[], bool] | None = None) -> int:
        report = self._batches.firm(graphs, seconds, stop or (lambda: False), self._prices.has)
        self.totals = self.totals + report
        return report.measured

    def renew(self, graph: Graph, seconds: float, stop: Callable[[], bool] | None = None) -> int:
        return self._renewal.renew(graph, seconds, stop or (lambda: False))

    def _meet(self, graphs: Sequence[Graph]) -> bool:
        """Look at the first graphs, which say what kind of model it is; whether these were the first ones."""
        return self._prices.meet(graphs)


def _caches(flush_mb: float | None, fusion: str | None) -> Caches:
    """What is walked through before each sample. Raises :class:`UsageError` for what is no number of megabytes."""
    usual = FLUSH_MB if fusion != "none" else 0.0
    megabytes = usual if flush_mb is None else float(flush_mb)
    if not 0 <= megabytes <= 1024:
        raise UsageError(f"The option flush_mb of a cost model is {megabytes:g}; expected 0 to 1024 megabytes.")
    return Caches(mega(megabytes))


def _kept(jobs: Mapping[str, Job], lookup: Lookup) -> dict[str, Price]:
    """The prices in the database. What an earlier version kept without saying what the region is, is told it there."""
    found = lookup.find(jobs)
    bare = {key: replace(price, **jobs[key].described) for key, price in found.items() if not price.traits}
    if bare:
        lookup.keep(bare)
    return {**found, **bare}


def _row(graph: Graph, region: Region, prices: RegionPrices, estimates: Estimates) -> RegionCost:
    """A region as a report shows it."""
    signature, operators = region.signature, regions.operators(graph, region)
    note = "carried opaquely: counted as zero" if region.opaque else prices.refusals.get(signature)
    note = note or estimates.note(signature)
    spread = prices.spread.get(signature)
    return RegionCost(signature, region.kind, operators, region.ms, region.flops, region.bytes, spread, note)


def regions_in(kind: type[Runtime]) -> type[OnnxRuntimeCost]:
    """The cost model of another runtime, by the same method. Where nothing is known about what the runtime fuses,
    regions are those of the "generic" table (pointwise work behind a product or behind other pointwise work is free),
    and changes of layout are not told apart from the regions that pay them: such prices rank. How well, ``rlflow cost
    calibrate --cost NAME`` says for a model at hand; the final comparison decides.
    """
    doc = f"Prices as {kind.title} pays them, region by region, by the method of ``onnxruntime``."
    own = {"name": kind.name, "runtime_name": kind.name, "__doc__": doc, "__module__": __name__}
    return type(f"{kind.__name__}Cost", (OnnxRuntimeCost,), own)


def _allowed(waiting: Sequence[Job], limit: int | None, seconds: float | None) -> list[Job]:
    """Those that are measured now: at most ``limit``; where time is short the most for the time first, and what takes
    too long to load is left to be estimated.
    """
    allowed = list(waiting) if limit is None else list(waiting[: max(limit, 0)])
    if seconds is None:
        return allowed
    return [job for job in sorted(allowed, key=lambda job: job.worth, reverse=True) if job.load_seconds < seconds / 2.0]
