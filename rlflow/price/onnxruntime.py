"""Measured prices: every fused region is timed alone in ONNX Runtime, once, and remembered.

Regions are those of the "onnxruntime" fusion table. A region's price is the time of the region as a model of its own
(from sessions that agree, :mod:`rlflow.price.repeats`), less what an empty run takes, plus one dispatch. Four things
differ inside a model, and are put right:

* *Caches.* In a loop of its own a region finds its weights, its code and the buffers of its results in the near caches,
  where the rest of a model leaves none of them. So before every sample some megabytes are walked through, and then the
  region's inputs, which are fresh in a model too. (Measured warm, concatenations, poolings and products with few rows
  came out at half of their time.) They are more in a model that streams its weights (:func:`streams`).
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

import functools
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlflow._core import Pricer
from rlflow.errors import (
    CostError,
    GraphError,
    ModelError,
    RuntimeCrashed,
    RuntimeRefused,
    RuntimeUnavailable,
    UsageError,
)
from rlflow.price import calibration, in_model, regions
from rlflow.price.allowance import HASTY_REPEATS, Allowance, PricingProgress
from rlflow.price.calibration import Calibration
from rlflow.price.coverage import Coverage
from rlflow.price.database import Price, PriceContext, PriceDatabase
from rlflow.price.in_model import InModel
from rlflow.price.interpolate import Estimate, Interpolation, Sample
from rlflow.price.pace import Pace, at_pace, pace_of, reference
from rlflow.price.protocol import CostReport, FillReport, RegionCost
from rlflow.price.repeats import repeated
from rlflow.price.specs import input_specs
from rlflow.runtime import (
    CPU_PROVIDER,
    FeedSpec,
    Measurement,
    RuntimeOptions,
    Worker,
    random_array,
    unavailable_reason,
)

if TYPE_CHECKING:
    from rlflow._core import Region
    from rlflow.graph import Graph

#: The best pace of a machine is that while the regions of a first graph are timed, or for so many seconds of it.
PACE_SECONDS = 30.0
_LEVEL = "all"
#: What a profile calls changes of layout.
_REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
_PROFILE_RUNS = 15
#: Part of a stand-alone time beyond which what is beside the region is told apart by a profile.
_LARGE_PART = 0.25
#: Part of the key of every kept price; raise it when the way of measuring changes.
_METHOD = "7"
#: Memory that is walked through before each sample: more than a second-level cache holds, less than a shared one.
FLUSH_MB = 4.0
#: The same for a model that :func:`streams` more weights than that: as much as a shared cache holds. (On a decoder
#: step, 64 gave the times of a profile of the whole model, but less steadily; 16 ranked worse.)
STREAMING_FLUSH_MB = 32.0
#: Sessions that the regions of such a model are timed in, of which the median counts: from memory, one and the same
#: product took 0.13 to 0.30 ms in sessions of which the two fastest agreed. (Of five, the prices of two databases
#: ranked the variants of a decoder step as alike as 0.92.)
STREAMING_SESSIONS = 7
#: The speed of memory differs so much from one moment to another: a megabyte of weights took 0.047 to 0.069 ms within
#: two hours.
MEMORY_SPREAD = 1.5
#: Operations for each byte of weights below which reading it takes longer (a core does 60 to 100 operations in the time
#: that it reads 16 bytes from memory).
STREAMING_FLOPS = 4.0


_COMPUTING, _WALKING = "pace-computing", "pace-walking"


@dataclass
class _Job:
    """A region that needs a price: its first-seen graph, and the signatures (layout contexts) that wait for it."""

    key: str
    graph: Graph
    region: Region
    waiting: dict[str, Region]
    fronted: Sequence[int] = ()
    model: Graph | None = None
    source: bytes = b""
    feeds: Mapping[str, FeedSpec] = field(default_factory=dict)


@dataclass
class _Timings:
    """Regions that were timed and are not priced yet: the programs that the runtime makes of them (by key), what those
    that nobody had timed took (the first region of each), and why others cannot be. ``hasty``: not to be kept.
    """

    jobs: Sequence[_Job]
    programs: dict[str, str]
    took: dict[str, tuple[_Job, Measurement | str]]
    refusals: dict[str, str]
    hasty: bool = False


class OnnxRuntimeCost:
    """Prices as ONNX Runtime on this machine's CPU pays them.

    ``threads``: intra-operator threads; ``provider``: an execution provider; ``dims``: values of symbolic dimensions,
    others count as 1 (measuring needs numbers); ``database``: an open :class:`PriceDatabase`, a path, or ``None`` for
    the user's own; ``worker``: an open worker to share, whose options then decide. ``repeats`` samples of ``min_time``
    seconds make a price; ``time_limit`` seconds end a region that hangs.

    ``measure="lazy"``: once the first graph is measured, a region that is like measured ones in operators and size is
    priced by interpolation (:mod:`rlflow.price.interpolate`), which is marked in every report. ``fusion``: another
    fusion table, for comparison; ``none`` prices every operator by itself, warm, as the first tools of this kind did.
    ``flush_mb``: megabytes that are walked through before each sample (0: what a region reads stays in the caches);
    ``None``: ``FLUSH_MB``, or ``STREAMING_FLUSH_MB`` for a model that :func:`streams` more than that.

    One object prices one model and what it is rewritten to: the first graph says how many bytes of weights a run reads,
    and whether it streams them (``streams_weights``).
    """

    name = "onnxruntime"
    measures = True
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
        self.options = (
            worker.options if worker is not None else RuntimeOptions(provider, threads, runtime=self.runtime_name)
        )
        self.threads = self.options.threads
        self.lazy, self.estimates = measure == "lazy", dict[str, Estimate]()
        self._fusion = fusion or self._own_fusion()
        self._in_model = in_model.ONNXRUNTIME if self._fusion == "onnxruntime" else in_model.NONE
        self._interpolation: Interpolation | None = None
        usual = FLUSH_MB if self._fusion != "none" else 0.0
        megabytes = usual if flush_mb is None else float(flush_mb)
        if not 0 <= megabytes <= 1024:
            raise UsageError(f"The option flush_mb of a cost model is {megabytes:g}; expected 0 to 1024 megabytes.")
        self._flush, self._flush_given = int(megabytes * (1 << 20)), flush_mb is not None
        self.dims = dict(dims or {})
        self.refusals: dict[str, str] = {}
        #: What part of the first graph has prices.
        self.coverage = Coverage(0, 0)
        self.totals = FillReport()
        self._given_worker = worker
        self._own_worker: Worker | None = None
        self._given_database = database
        self._own_database: PriceDatabase | None = None
        self._repeats, self._min_time, self._time_limit = repeats, min_time, time_limit
        self._pricer: Pricer | None = None
        self._spread: dict[str, float] = {}
        self._used: dict[str, float | None] = {}
        self._working_set: float | None = None
        self.streams_weights = False
        self._calibration: Calibration | None = None
        self._pace: Pace | None = None
        self._hurry_at, self._hasty, self._hasty_keys = math.inf, False, set[str]()
        self._context: PriceContext | None = None
        self._described: dict[str, Any] | None = None

    def bind(self, dims: Mapping[str, int]) -> None:
        """Say what sizes symbolic dimensions have; before the first price."""
        self.dims.update(dims)

    # --- what it runs on -------------------------------------------------------------------------------------------

    def available(self) -> str | None:
        """Why ONNX Runtime cannot measure here, in a sentence, or ``None``; starts the worker."""
        reason = unavailable_reason(self.runtime_name)
        if reason is not None:
            return reason
        try:
            self.worker.require_provider()
            self._description()
        except (RuntimeUnavailable, CostError) as error:
            return str(error)
        return None

    @property
    def worker(self) -> Worker:
        """The worker process that measures."""
        if self._given_worker is not None:
            return self._given_worker
        if self._own_worker is None:
            self._own_worker = Worker(self.options)
        return self._own_worker

    @property
    def database(self) -> PriceDatabase:
        """Where prices are kept."""
        if isinstance(self._given_database, PriceDatabase):
            return self._given_database
        if self._own_database is None:
            self._own_database = PriceDatabase(self._given_database)
        return self._own_database

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
        if self._pricer is None:
            # Only the processor's own kernels of ONNX Runtime have the blocked layout that its table describes.
            known = self._fusion == "onnxruntime"
            block = calibration.channel_block(self._changes_layout) if known else 0
            self._pricer = Pricer.table(self._fusion, block=block)
            self._pricer.set_view_price(max(self._view_ms(block), 1e-5))
        return self._pricer

    def _view_ms(self, block: int) -> float:
        return calibration.view_ms(self._probed(calibration.probes(block), cold=False))

    def _own_fusion(self) -> str:
        """The fusion table of the runtime and provider; that of any serious runtime where there is none."""
        plain = self.options.runtime == "onnxruntime" and self.options.provider == CPU_PROVIDER
        return "onnxruntime" if plain else "generic"

    @property
    def relative_noise(self) -> float:
        """Median over the prices in use of interquartile range divided by price."""
        shares = [spread / ms for signature, spread in self._spread.items() if (ms := self.pricer.find(signature))]
        return float(np.median(shares)) if shares else 0.0

    def close(self) -> None:
        """End the worker process and close the database, where they are this object's own."""
        if self._own_worker is not None:
            self._own_worker.close()
            self._own_worker = None
        if self._own_database is not None:
            self._own_database.close()
            self._own_database = None

    def __enter__(self) -> OnnxRuntimeCost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- prices ----------------------------------------------------------------------------------------------------

    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph`` in milliseconds; regions that lack a price are measured first."""
        self.fill([graph])
        summary = self.pricer.summary(graph)
        rows: list[RegionCost] = []
        opaque: list[str] = []
        for region in self.pricer.regions(graph):
            operators = regions.operators(graph, region)
            note = self.refusals.get(region.signature)
            if region.opaque:
                note = "carried opaquely: counted as zero"
                opaque.extend(operators)
            elif note is not None:
                opaque.extend(operators)
            elif region.signature in self.estimates:
                guess = self.estimates[region.signature]
                note = f"estimated from {guess.samples} measured regions like it (±{100 * guess.error:.0f} %)"
            figures = (region.ms, region.flops, region.bytes, self._spread.get(region.signature))
            rows.append(RegionCost(region.signature, region.kind, operators, *figures, note))
        return CostReport(
            total_ms=summary["ms"],
            per_region=tuple(rows),
            source="measured",
            device=self.device,
            runtime=self.runtime,
            spread_ms=float(np.sqrt(sum((row.spread_ms or 0.0) ** 2 for row in rows))),
            unmeasured=summary["unknown"],
            unpriced=tuple(dict.fromkeys(opaque)),
            refusals={row.signature: self.refusals[row.signature] for row in rows if row.signature in self.refusals},
            weight_bytes=summary["weight_bytes"],
            estimated=sum(row.signature in self.estimates for row in rows),
        )

    def notes(self) -> list[str]:
        """What a report has to say about how these prices came about."""
        told = [self.coverage.sentence] if self.coverage.unpriced else []
        if self._hasty_keys:
            told.append(
                f"{len(self._hasty_keys)} of {len(self._used)} prices are of one short session each, because the time "
                "did not reach for more; they are not kept, and only the final comparison decided."
            )
        return [*told, *self._estimated()]

    def _estimated(self) -> list[str]:
        if not self.estimates:
            return []
        error = 100 * float(np.median([guess.error for guess in self.estimates.values()]))
        count = f"{len(self.estimates)} regions were priced by interpolation, not by the clock"
        return [f"{count} (such estimates are off by ±{error:.0f} % in the median); only the final comparison decided."]

    @property
    def in_model(self) -> InModel:
        """What regions cost inside the model at hand beyond what they cost alone; known after the first graph."""
        return self._in_model

    def used(self) -> dict[str, float | None] | None:
        """The prices that this object went by, milliseconds by their key in the database (``None``: refused); ``None``
        where some were estimates, or measured in haste.
        """
        return None if self.estimates or self._hasty_keys else dict(self._used)

    def still_holds(self, used: Mapping[str, float | None]) -> bool:
        """Whether the database has these prices, as they were."""
        found = self.database.get_many(used, self.place)
        return all(key in found and found[key].ms == ms for key, ms in used.items())

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
        started = time.perf_counter()
        graphs = list(graphs)
        first = bool(graphs) and self.coverage.regions == 0
        if self._working_set is None and graphs:
            self._working_set = max(float(self.pricer.summary(graph)["weight_bytes"]) for graph in graphs)
            self._meet(graphs[0])
        jobs = self._jobs(graphs)
        cached = self._from_database(jobs)
        missing = [job for job in jobs.values() if job.key not in cached]
        waiting = self._not_estimated(missing)
        allowed = waiting if limit is None else waiting[: max(limit, 0)]
        left = None if seconds is None else max(seconds - (time.perf_counter() - started), 0.0)
        if left is not None:  # the most for the time first; what takes too long to load is left to be estimated
            allowed = [job for job in sorted(allowed, key=_worth, reverse=True) if _load_seconds(job) < left / 2.0]
        allowance = Allowance(left, len(allowed), hasty=self._hasty, tell=tell)
        done, shared, refused = self._measured(allowed, allowance, stop or (lambda: False))
        looked_at = {job.key for job in allowed[:done]}
        remaining = sum(len(job.waiting) for job in waiting if job.key not in looked_at)
        estimated = len(missing) - len(waiting)
        if first and not remaining:
            self.coverage = Coverage.of(self.pricer.regions(graphs[0]), self.refusals)
        took = time.perf_counter() - started
        report = FillReport(done - shared, len(cached) + shared, refused, remaining, took, estimated)
        self.totals = self.totals + report
        return report

    def _measured(self, jobs: Sequence[_Job], allowance: Allowance, stop: Callable[[], bool]) -> tuple[int, int, int]:
        """Time and price ``jobs``, as far as the time reaches: how many were looked at, how many of these had the
        program of another, and how many the runtime refused.
        """
        done = shared = refused = 0
        started = time.perf_counter()
        pending: list[_Timings] = []  # until the pace of the machine is known
        while done < len(jobs) and not allowance.over() and not stop():
            if allowance.hasty and not self._hasty:
                refused, pending, self._hasty = refused + self._keep(pending), [], True
            begun = time.perf_counter()
            one = self._time(jobs[done : done + allowance.batch()], pending)
            pending.append(one)
            done, shared = done + len(one.jobs), shared + len(one.programs) - len(one.took)
            known = not self._paced or self._known_pace() is not None
            if known or time.perf_counter() - started >= PACE_SECONDS:
                refused, pending = refused + self._keep(pending), []
            allowance.took(len(one.jobs), time.perf_counter() - begun)
        return done, shared, refused + self._keep(pending)

    def hurry(self) -> None:
        """Time is short: learn about the machine by fewer and shorter probes, where it is not known; nothing of that is
        kept.
        """
        self._hurry_at = 0.0

    def learn_within(self, seconds: float) -> None:
        """Learn about the machine in full for so many seconds from here on, and as :meth:`hurry` says after them:
        beside other programs the probes take several times as long.
        """
        self._hurry_at = time.perf_counter() + seconds

    @property
    def _hurried(self) -> bool:
        return time.perf_counter() >= self._hurry_at

    def _meet(self, graph: Graph) -> None:
        """Choose how the regions of this model are priced: whether it streams its weights, and through which caches."""
        if self._fusion != "onnxruntime" or not streams(graph, self.pricer, self.dims):
            return
        self.streams_weights, self._in_model = True, in_model.STREAMING
        if not self._flush_given and (self._working_set or 0.0) > STREAMING_FLUSH_MB * (1 << 20):
            self._flush, self._calibration, self._pace = int(STREAMING_FLUSH_MB * (1 << 20)), None, None

    # --- estimates -------------------------------------------------------------------------------------------------

    def _not_estimated(self, jobs: list[_Job]) -> list[_Job]:
        """Price by interpolation what can be, where that was asked for; the rest. The first graph is always measured:
        it is on both sides of every comparison, and it is what estimates follow from.
        """
        if not self.lazy:
            return jobs
        if self._interpolation is None:
            self._interpolation = Interpolation()
            usual, own = f"{_METHOD}:flush-", self._kept_as("")
            for key, price in self.database.all_here(self.place).items():
                if key.startswith(own) and (own.startswith(usual) or not key.startswith(usual)):
                    self._learn(price)
            return jobs
        rest = []
        for job in jobs:
            what = _described(job)
            guess = self._interpolation.estimate(what["kind"], what["operators"], what["flops"], what["bytes"])
            if guess is None:
                rest.append(job)
                continue
            self._set(job, Price(guess.ms))
            self.estimates.update(dict.fromkeys(job.waiting, guess))
        return rest

    def _learn(self, price: Price) -> None:
        if self._interpolation is not None and price.ms is not None and price.samples:
            self._interpolation.add(Sample(price.kind, price.operators, price.flops, price.bytes, price.ms))

    # --- which regions ---------------------------------------------------------------------------------------------

    def _jobs(self, graphs: Iterable[Graph]) -> dict[str, _Job]:
        jobs: dict[str, _Job] = {}
        for graph in graphs:
            for region in self.pricer.regions(graph, unpriced_only=True):
                key = self._key(graph, region)
                job = jobs.setdefault(key, _Job(key, graph, region, {}))
                job.waiting.setdefault(region.signature, region)
        return jobs

    def _key(self, graph: Graph, region: Region) -> str:
        """The region's identity without its layout context, and with the sizes that symbols have.

        Of a region in the blocked layout it matters whether it is: pointwise ones are measured there too.
        """
        names = regions.dimension_names(graph, [*region.inputs, *region.outputs])
        sizes = ",".join(f"{name}={self.dims.get(name, 1)}" for name in names)
        if not sizes and not region.blocked:
            return region.base_signature
        text = f"{region.base_signature}|{'blocked' if region.blocked else ''}|{sizes}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _kept_as(self, key: str, cold: bool = True) -> str:
        usual = not cold or self._flush == int(FLUSH_MB * (1 << 20))
        return f"{_METHOD}:{key}" if usual else f"{_METHOD}:flush-{self._flush}:{key}"

    def _from_database(self, jobs: Mapping[str, _Job]) -> set[str]:
        if not jobs:
            return set()
        names = {self._kept_as(key): key for key in jobs}
        found = self.database.get_many(names, self.place)
        for name, price in found.items():
            self._set(jobs[names[name]], price)
        return {names[name] for name in found}

    def _set(self, job: _Job, price: Price) -> None:
        """Price every layout context of a region."""
        least = 0.0
        if self._fusion != "none":
            least = self._calibrated_now().weights_ms(
                regions.weight_bytes(job.graph, job.region), self._working_set or 0.0
            )
        self._used[self._kept_as(job.key)] = price.ms
        for signature, region in job.waiting.items():
            if price.ms is None:
                self.refusals[signature] = price.refusal or "the runtime refused it"
                self.pricer.set_prices([signature], [0.0])
                continue
            self._spread[signature] = price.spread_ms or 0.0
            alone = self._with_weights(price.ms, least) + self._layout_changes(job.graph, region)
            self.pricer.set_prices([signature], [self._in_model.ms(alone)])

    def _with_weights(self, ms: float, least: float) -> float:
        """A region's time, which is not below that of reading its weights; from memory, not above it for a little."""
        return least if self._far and least <= ms < MEMORY_SPREAD * least else max(ms, least)

    @property
    def _far(self) -> bool:
        """Whether regions are measured with empty caches."""
        return self.streams_weights and self._flush >= int(STREAMING_FLUSH_MB * (1 << 20))

    def _layout_changes(self, graph: Graph, region: Region) -> float:
        if not region.blocked:
            return 0.0
        plain = [self._bytes(graph, value) for value in self._plain_inputs(graph, region)[: region.reorder_inputs]]
        if region.reorder_output:
            plain.append(self._bytes(graph, region.outputs[0]))
        return sum(self._calibrated_now().reorder_ms(size) for size in plain)

    @staticmethod
    def _plain_inputs(graph: Graph, region: Region) -> list[int]:
        """Computed operands of rank 4: those whose layout may have to be changed come first in a region."""
        return [v for v in region.inputs if not graph.is_const(graph.producer(v)) and len(graph.shape(v) or ()) == 4]

    def _bytes(self, graph: Graph, value: int) -> float:
        from rlflow.frontends import symbolic

        shape = graph.shape(value) or []
        values = {name: self.dims.get(name, 1) for name in symbolic.names(shape)}
        return 4.0 * float(np.prod([symbolic.evaluate(dim, values) if dim is not None else 1 for dim in shape]))

    # --- measuring -------------------------------------------------------------------------------------------------

    def _time(self, jobs: Sequence[_Job], before: Sequence[_Timings]) -> _Timings:
        """Time these regions, but for those whose programs are known or were timed just ``before``."""
        programs: dict[str, str] = {}
        refusals: dict[str, str] = {}
        for job in jobs:
            try:
                self._prepare(job)
            except (CostError, GraphError) as error:
                refusals[job.key] = str(error)
                continue
            if job.model is not None:
                programs[job.key] = job.key if self._hasty else self._program(job.source) or job.key
        known = {*self._known_programs(programs.values()), *(program for one in before for program in one.took)}
        first: dict[str, _Job] = {}
        for job in jobs:
            if job.key in programs and programs[job.key] not in known:
                first.setdefault(programs[job.key], job)
        items = [(job.key, job.source, job.feeds) for job in first.values()]
        results = self._timed(items, True, STREAMING_SESSIONS if self._far else None, hasty=self._hasty)
        took = {key: (job, results[job.key]) for key, job in first.items()}
        return _Timings(jobs, programs, took, refusals, self._hasty)

    def _keep(self, pending: Sequence[_Timings]) -> int:
        """Price what was timed, by region and by program; the number of regions that the runtime refused."""
        refused = 0
        self._settle_pace(found for one in pending for _, found in one.took.values())
        for one in pending:
            known = self._known_programs(one.programs.values())
            known |= {program: self._price(job, found) for program, (job, found) in one.took.items()}
            prices = {key: known[program] for key, program in one.programs.items()}
            prices |= {key: Price(None, refusal=why) for key, why in one.refusals.items()}
            clock = self._clock_state()
            for job in one.jobs:
                price = prices.get(job.key) or self._folded(job)
                prices[job.key] = replace(price, clock=clock, **_described(job))
                self._set(job, prices[job.key])
                self._learn(prices[job.key])
                refused += prices[job.key].ms is None
            prices |= {program: prices[job.key] for program, (job, _) in one.took.items()}
            if one.hasty:
                self._hasty_keys.update(key for key in prices if key in one.programs)
            else:
                self.database.put_many({self._kept_as(key): price for key, price in prices.items()}, self.place)
        return refused

    def _folded(self, job: _Job) -> Price:
        """A region whose result is known, so that the runtime computes it beforehand."""
        return Price(self._calibrated_now().dispatch * len(job.region.nodes), 0.0, 0)

    @property
    def _paced(self) -> bool:
        """Whether references are timed beside long regions: where regions are timed cold, but not from memory."""
        return self._flush > 0 and not self._far

    def _known_pace(self) -> Pace | None:
        """The best pace of the machine, if this object or an earlier one found it out."""
        if self._pace is None:
            names = [self._kept_as(name) for name in (_COMPUTING, _WALKING)]
            kept = self.database.get_many(names, self.place)
            found = [kept[name].ms for name in names if name in kept]
            if len(found) == 2 and all(found):
                self._pace = Pace(*(ms or 0.0 for ms in found))
        return self._pace

    def _settle_pace(self, timed: Iterable[Measurement | str]) -> None:
        """The pace while these were timed is the best one, if none is known."""
        if self._known_pace() is not None:
            return
        self._pace = pace_of(one for one in timed if isinstance(one, Measurement))
        if self._pace is not None:
            kept = zip((_COMPUTING, _WALKING), self._pace, strict=True)
            self.database.put_many({self._kept_as(name): Price(ms, 0.0, 1) for name, ms in kept}, self.place)

    def _program(self, model: bytes) -> str | None:
        """The key of the kernels that ONNX Runtime makes of a model; ``None`` where that cannot be told."""
        from rlflow.frontends.program import program_digest

        if self.options.runtime != "onnxruntime":
            return None
        try:
            return f"program:{program_digest(self.worker.optimized(model, level=_LEVEL))}"
        except (ModelError, RuntimeRefused, RuntimeCrashed):
            return None

    def _known_programs(self, programs: Iterable[str]) -> dict[str, Price]:
        names = {self._kept_as(program): program for program in programs}
        return {names[key]: price for key, price in self.database.get_many(names, self.place).items()}

    def _clock_state(self) -> str:
        state = self._description().get("clock_state", "")
        return f"{self.options.effective_clock} time{'; ' if state else ''}{state}"

    def _prepare(self, job: _Job) -> None:
        """Make the region a model with random inputs; no model where its result is known beforehand. Raises CostError
        or GraphError where it cannot stand alone: an operand of unknown rank or extent, an opaque operator.
        """
        if job.region.blocked:
            job.model, job.fronted = regions.surrounded(job.graph, job.region, self.pricer.block, self.dims)
        else:
            job.model = regions.extract(job.graph, job.region, self.dims)
        if all(job.model.is_const(job.model.producer(value)) for value in job.model.outputs()):
            job.model = None
        else:
            job.source, job.feeds = _serialized(job.model), input_specs(job.model)

    def _price(self, job: _Job, result: Measurement | str) -> Price:
        if isinstance(result, str):
            return Price(None, refusal=result)
        machine, result = self._calibrated_now(), at_pace(result, self._pace)
        ms = result.ms - machine.overhead + machine.dispatch
        if job.region.blocked:
            beside = self._stand_alone_changes(job)
            # The small difference of large times says little; the runtime's profiler can tell them apart.
            share = self._kernel_share(job) if beside > _LARGE_PART * ms and not self._hasty else None
            ms = ms - beside if share is None else ms * share
        return Price(max(ms, machine.dispatch, 1e-5), result.spread_ms, result.samples)

    def _kernel_share(self, job: _Job) -> float | None:
        """Part of the stand-alone model's kernel time that is the region's own, by the runtime's profiler.

        ``None`` where the profile cannot tell it apart from what was put in front.
        """
        if job.model is None or any((job.graph.shape(v) or [0, 1])[1] % self.pricer.block for v in job.fronted):
            return None
        rng = np.random.default_rng(0)
        feeds = {name: random_array(spec, rng) for name, spec in job.feeds.items()}
        try:
            nodes = self.worker.profile(job.source, feeds, runs=_PROFILE_RUNS, level=_LEVEL)
        except (RuntimeRefused, RuntimeCrashed):
            return None
        beside = _REORDERS | {"MaxPool"} if job.fronted else _REORDERS
        own = sum(node.us for node in nodes if node.op_type not in beside)
        total = sum(node.us for node in nodes)
        return own / total if total > 0 and own > 0 else None

    def _stand_alone_changes(self, job: _Job) -> float:
        """What the stand-alone model does besides the region: changes of layout, and what was put in front."""
        machine, graph, region = self._calibrated_now(), job.graph, job.region
        turned = [self._bytes(graph, value) for value in job.fronted]
        total = sum(machine.pool_ms(size) for size in turned)
        first = next(iter(self._plain_inputs(graph, region)), None)
        starts = graph.op(region.nodes[0]) in regions.LAYOUT_STARTERS
        if starts and first is not None and not regions.reads_plain(graph, region, self.pricer.block):
            turned += [self._bytes(graph, first)] if first not in job.fronted else []
        turned.append(self._bytes(graph, region.outputs[0]))
        return total + sum(machine.reorder_ms(size) for size in turned)

    def _timed(
        self, items: Sequence[tuple[str, bytes, Any]], cold: bool, sessions: int | None = None, hasty: bool = False
    ) -> dict[str, Measurement | str]:
        """The times of sessions that agree, or the median of ``sessions`` of them; ``hasty``: of a short one."""

        repeats = HASTY_REPEATS if hasty else self._repeats
        sessions = None if hasty else sessions

        def once(some: Sequence[Any], beside: bytes | None = None) -> dict[str, Measurement | str]:
            return self.worker.measure_many(
                some,
                level=_LEVEL,
                repeats=repeats * (sessions or 1),
                min_time=self._min_time,
                flush_bytes=self._flush if cold else 0,
                sessions=sessions or 1,
                time_limit=self._time_limit,
                reference=beside,
            )

        if not items:
            return {}
        if sessions is not None or hasty:
            return once(items)
        paced = functools.partial(once, beside=_serialized(reference())) if cold and self._paced else None
        return repeated(once, items, paced)

    # --- the machine -----------------------------------------------------------------------------------------------

    @property
    def place(self) -> PriceContext:
        """Where these prices hold."""
        if self._context is None:
            self._context = PriceContext.of(self._description(), _LEVEL)
        return self._context

    def _description(self) -> dict[str, Any]:
        if self._described is None:
            self._described = dict(self.worker.describe())
        return self._described

    def _changes_layout(self, graph: Graph) -> bool:
        return b"ReorderInput" in self.worker.optimized(_serialized(graph), level=_LEVEL)

    def _calibrated_now(self) -> Calibration:
        if self._calibration is None:
            self._calibration = self._calibrated(self.pricer.block)
        return self._calibration

    def _calibrated(self, block: int) -> Calibration:
        graphs = calibration.probes(block)
        ms = {**self._probed(graphs, cold=False), **self._probed(graphs, cold=True)}
        return calibration.calibrate(ms, block)

    def _probed(self, probes: Mapping[str, Graph], cold: bool) -> dict[str, float]:
        """The times of the cold or of the other ones of the probes; kept like any other price."""
        graphs = {name: graph for name, graph in probes.items() if calibration.is_cold(name) == cold}
        names = {name: self._kept_as(f"probe:{name}", cold) for name in graphs}
        if cold:
            names[calibration.OVERHEAD] = self._kept_as(f"probe:{calibration.OVERHEAD}")
        kept = self.database.get_many(names.values(), self.place)
        if any(key not in kept or kept[key].ms is None for key in names.values()):
            graphs = calibration.brief(graphs) if self._hurried else graphs
            found = calibration.measured(graphs, self._timed_by_haste)
            if cold:
                self._settle_pace(found.values())
                found = {name: at_pace(one, self._pace) for name, one in found.items()}
                found[calibration.OVERHEAD] = calibration.overhead(self.worker, self._flush, _LEVEL, self._hurried)
            kept = {names[name]: Price(one.ms, one.spread_ms, one.samples) for name, one in found.items()}
            if self._hurried:
                self._hasty_keys.update(kept)
            else:
                self.database.put_many(kept, self.place)
        self._used |= {key: price.ms for key, price in kept.items()}
        return {name: kept[key].ms or 0.0 for name, key in names.items() if key in kept}

    def _timed_by_haste(self, items: Sequence[tuple[str, bytes, Any]], **how: Any) -> Mapping[str, Measurement | str]:
        return self._timed(items, hasty=self._hurried, **how)


def streams(graph: Graph, pricer: Pricer, dims: Mapping[str, int]) -> bool:
    """Whether reading weights is what a run of ``graph`` mostly does: more of them than the near caches hold, each for
    a few operations, as in a decoder that makes one token or a recurrent cell for one sequence. If they are more than
    a shared cache holds too, then between any two kernels, and between writing a buffer and reading it, more may go
    through the caches than they hold.
    """
    found = pricer.regions(graph)
    read = sum(regions.weight_bytes(graph, region) for region in found)
    if min(read, float(pricer.summary(graph)["weight_bytes"])) <= FLUSH_MB * (1 << 20):
        return False
    names = regions.dimension_names(graph, (v for node in graph.order() for v in graph.node_outputs(node)))
    if names:
        found = pricer.regions(graph.bind({name: dims.get(name, 1) for name in names}))
    return sum(region.flops for region in found) < STREAMING_FLOPS * read


def _load_seconds(job: _Job) -> float:
    """About what making and loading a region's constants takes, once."""
    graph = job.graph
    constants = (value for value in job.region.inputs if graph.is_const(graph.producer(value)))
    shapes = (graph.shape(value) or () for value in constants)
    return sum(4.0 * math.prod(extent if isinstance(extent, int) else 1 for extent in shape) for shape in shapes) / 2e7


def _worth(job: _Job) -> float:
    """How much of the graph's time a measurement says something about, roughly, for the time that it takes."""
    return (job.region.flops / 5.0 + job.region.bytes) / (0.2 + _load_seconds(job))


def _described(job: _Job) -> dict[str, Any]:
    """What a region is, for people and for interpolation: regions of the blocked layout are a kind of their own."""
    region = job.region
    layout = " blocked" if region.blocked else ""
    return {
        "kind": f"{region.kind}{layout}",
        "operators": " ".join(regions.operators(job.graph, region)),
        "flops": region.flops,
        "bytes": region.bytes,
    }


def _serialized(graph: Graph) -> bytes:
    from rlflow.frontends import graph_to_model

    return graph_to_model(graph).SerializeToString()
