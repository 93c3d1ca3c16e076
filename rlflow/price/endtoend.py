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

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlflow.errors import CostError, GraphError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.price.allowance import PricingProgress
from rlflow.price.analytic import AnalyticCost
from rlflow.price.command import CommandSampler, DeviceCommand
from rlflow.price.protocol import CostReport, FillReport, RegionCost
from rlflow.price.sampler import WorkerSampler
from rlflow.price.student import student_quantile
from rlflow.price.timing import log_ratios
from rlflow.runtime import (
    CPU_PROVIDER,
    ModelSource,
    RuntimeOptions,
    Samples,
    Worker,
    random_array,
    unavailable_reason,
)

if TYPE_CHECKING:
    from rlflow._core import Pricer
    from rlflow.graph import Graph

#: Graphs that are timed beside the baseline in one block: more of them share its cost, but stop together.
TOGETHER = 4
#: Weights that the graphs of one block may have between them.
MEMORY_BYTES = 1 << 30
MIN_BLOCKS, MAX_BLOCKS = 3, 16
#: A machine is not called too noisy on fewer blocks than these.
BLOCKS_TO_REFUSE = 10
#: A change of the machine's speed that is told.
DRIFT = 0.10
_BASELINE, _AGAIN = "baseline", "baseline again"


class GraphTime(NamedTuple):
    """A graph's time: milliseconds (the baseline's, times the ratio to it), half the 95 % interval of the ratio's
    logarithm, and the number of blocks; or, with ``ms`` ``None``, why there is none.
    """

    ms: float | None
    half_width: float = 0.0
    blocks: int = 0
    refusal: str | None = None


class WholeSampler(Protocol):
    """What :class:`rlflow.price.sampler.WorkerSampler` and :class:`CommandSampler` have in common."""

    clock: str

    def add(self, name: str, source: ModelSource) -> Any: ...

    def drop(self, name: str) -> None: ...

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples: ...


@dataclass
class _Candidate:
    """A graph that is being timed."""

    digest: str
    name: str
    ratios: list[float] = field(default_factory=list)

    @property
    def centre(self) -> float:
        return centre(self.ratios)

    @property
    def half_width(self) -> float:
        return half_width(self.ratios)


def half_width(ratios: Sequence[float]) -> float:
    """Half the 95 % interval of :func:`centre` (Yuen 1974): of every eight values the extreme ones on either side are
    replaced by their neighbours, so that one block in which something else ran does not spoil the others. Infinite for
    fewer than ``MIN_BLOCKS``.
    """
    count = len(ratios)
    if count < MIN_BLOCKS:
        return math.inf
    cut = count // 8
    ordered = np.sort(np.asarray(ratios, dtype=float))
    ordered[:cut], ordered[count - cut :] = ordered[cut], ordered[count - cut - 1]
    part = 1.0 - 2.0 * cut / count
    return student(count - 2 * cut) * float(np.std(ordered, ddof=1)) / (part * math.sqrt(count))


def centre(ratios: Sequence[float]) -> float:
    """The mean without one of every eight values on either side."""
    cut = len(ratios) // 8
    return float(np.mean(np.sort(np.asarray(ratios, dtype=float))[cut : len(ratios) - cut]))


def student(count: int) -> float:
    """Half a 95 % interval in standard errors, for so many values (at least ``MIN_BLOCKS``)."""
    return student_quantile(max(count, MIN_BLOCKS) - 1, 0.05)


class EndToEndCost:
    """The time of a whole run as the cost of a graph.

    ``threads``, ``runtime`` (``onnxruntime`` or ``openvino``) and ``provider`` say where; ``measure_cmd`` puts a
    device's command in their place. ``tolerance``: how well a ratio to the baseline is wanted (0.01 is one per cent);
    ``seconds`` what one graph may take for it; ``share``: the part of the difference to the baseline that is enough (a
    search wants to know by how much a graph is better, to a quarter; 0 where graphs are compared with each other).
    ``max_noise``: the interval of the baseline against itself above which
    the machine is refused. ``dims``: values of symbolic dimensions, others count as 1. How graphs are written and what
    they are fed is said by :meth:`attach`, else there are seeded stand-ins for both.

    The first graph that is priced is the baseline that all others are timed beside. Times are not kept in the database:
    they belong to one model, its weights and its inputs.
    """

    name = "end-to-end"
    measures = True
    #: Prices belong to whole graphs, not to regions (see ``rlflow.search.prices``).
    whole = True

    def __init__(
        self,
        *,
        threads: int = 1,
        dims: Mapping[str, int] | None = None,
        runtime: str = "onnxruntime",
        provider: str = CPU_PROVIDER,
        measure_cmd: str | DeviceCommand | None = None,
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
        self.share = float(share)
        self.options = RuntimeOptions(provider=provider, threads=threads, runtime=runtime)
        self.dims = dict(dims or {})
        self.command = DeviceCommand(measure_cmd) if isinstance(measure_cmd, str) else measure_cmd
        self.tolerance, self.seconds, self.max_noise = float(tolerance), float(seconds), float(max_noise)
        self.refusals: dict[str, str] = {}
        self.totals = FillReport()
        self.times: dict[str, GraphTime] = {}
        self.drift = 0.0
        self._given_worker = worker
        self._own_worker: Worker | None = None
        self._sampler: WholeSampler | None = sampler
        self._clock = clock
        self._seeds = np.random.SeedSequence(seed)
        self._ranker = AnalyticCost(dims=self.dims)
        self._export: Callable[[Graph], ModelSource] = _stand_in
        self._feeds: Mapping[str, Any] | None = None
        self._baseline: str | None = None
        self._block_seconds = 0.0

    def attach(self, export: Callable[[Graph], ModelSource], feeds: Callable[[], Mapping[str, Any]] | None) -> None:
        """Say how graphs are written for deployment, and what they are fed; before the first price."""
        self._export = export
        if feeds is not None and self.command is None:
            self._feeds = feeds()

    def bind(self, dims: Mapping[str, int]) -> None:
        """Say what sizes symbolic dimensions have; before the first price."""
        self.dims.update(dims)
        self._ranker.bind(dims)

    # --- the protocol ----------------------------------------------------------------------------------------------

    @property
    def pricer(self) -> Pricer:
        """The roofline that ranks graphs before they are timed."""
        return self._ranker.pricer

    @property
    def relative_noise(self) -> float:
        """Part of a cost up to which differences count as none."""
        return max(self.tolerance, self.times[self._baseline].half_width if self._baseline in self.times else 0.0)

    @property
    def device(self) -> str:
        return self.command.name if self.command is not None else str(self._worker().describe()["device"])

    @property
    def runtime(self) -> str:
        if self.command is not None:
            return "command"
        found = self._worker().describe()
        return f"{found['runtime']} {found['version']}"

    def available(self) -> str | None:
        """Why whole graphs cannot be timed here, in a sentence, or ``None``; starts the worker."""
        if self.command is not None:
            return None
        reason = unavailable_reason(self.options.runtime)
        if reason is not None:
            return reason
        try:
            self._worker().require_provider()
        except (RuntimeUnavailable, CostError) as error:
            return str(error)
        return None

    def graph_ms(self, digest: str) -> float | None:
        """The time of a graph that was timed, by its digest; ``None`` for others, and for those that were refused."""
        found = self.times.get(digest)
        return None if found is None else found.ms

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
        if allowed and self._baseline is None:
            self._time_baseline(allowed.pop(0))
        together = self._together(allowed)
        for begin in range(0, len(allowed), together):
            if stop():
                break
            self._time(allowed[begin : begin + together], stop)
        refused = sum(self.times[d].ms is None for d in waiting if d in self.times)
        remaining = sum(digest not in self.times for digest in waiting)
        report = FillReport(len(self.times) - before, 0, refused, remaining, self._clock() - started)
        self.totals = self.totals + report
        return report

    def notes(self) -> list[str]:
        """What a report has to say about how these times came about."""
        if abs(self.drift) <= DRIFT:
            return []
        note = (
            f"The machine's speed changed by up to {self.drift:+.0%} while graphs were timed; "
            "costs are ratios to the original, timed beside each of them."
        )
        return [note]

    def hurry(self) -> None:
        """Nothing short of a comparison says what a graph takes."""

    def close(self) -> None:
        """End the worker process; may be called twice."""
        if isinstance(self._sampler, CommandSampler):
            self._sampler.close()
        if self._own_worker is not None:
            self._own_worker.close()
            self._own_worker = None

    def __enter__(self) -> EndToEndCost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- timing ----------------------------------------------------------------------------------------------------

    def _time_baseline(self, graph: Graph) -> None:
        """Time the baseline against itself: what it takes, and what this machine can tell."""
        source = self._export(graph)
        if self._feeds is None and self.command is None:
            self._feeds = _stand_in_feeds(graph, self.dims)
        sampler = self._whole_sampler()
        try:
            sampler.add(_BASELINE, source)
            sampler.add(_AGAIN, source)
            times, ratios = self._against_itself(sampler)
        except (RuntimeCrashed, RuntimeRefused) as error:
            raise CostError(f"The model cannot be timed end to end: {error}") from error
        sampler.drop(_AGAIN)
        found = half_width(ratios)
        if found > self.max_noise:
            raise CostError(
                f"This machine is too noisy to tell graphs apart by their whole time: two sessions of one and the same "
                f"model differed by ±{100 * found:.1f} % over {len(ratios)} blocks, and at most "
                f"±{100 * self.max_noise:.1f} % is of use. Close other programs, use one thread, or price by regions "
                "(--cost onnxruntime)."
            )
        self.times[graph.digest] = GraphTime(float(np.median(times)), found, len(ratios))
        self._baseline = graph.digest

    def _against_itself(self, sampler: WholeSampler) -> tuple[list[float], list[float]]:
        times: list[float] = []
        ratios: list[float] = []
        deadline = self._clock() + 2 * self.seconds
        while len(ratios) < MAX_BLOCKS:
            samples = self._block(sampler, [_BASELINE, _AGAIN])
            times.append(float(np.median(samples[:, 0])))
            ratios.append(_median_ratio(samples, 1))
            found, late = half_width(ratios), self._clock() >= deadline
            enough = found <= self.max_noise or len(ratios) >= BLOCKS_TO_REFUSE
            if len(ratios) > MIN_BLOCKS and (found <= self.tolerance or (late and enough)):
                break
        return times, ratios

    def _together(self, graphs: Sequence[Graph]) -> int:
        """How many graphs are timed in one block: of large ones fewer, because all of them are in memory."""
        if not graphs:
            return 1
        weights = max(self.pricer.summary(graph)["weight_bytes"] for graph in graphs)
        return int(max(1, min(TOGETHER, MEMORY_BYTES // max(weights, 1))))

    def _time(self, graphs: Sequence[Graph], stop: Callable[[], bool]) -> None:
        """Time some graphs beside the baseline, each until its interval is tight."""
        sampler = self._whole_sampler()
        active = [one for one in map(self._added, graphs) if one is not None]
        deadline = self._clock() + self.seconds * max(len(active), 1)
        while active and not stop():
            self._one_block(sampler, active)
            late = self._clock() >= deadline
            for one in list(active):
                if one.digest in self.times or (len(one.ratios) >= MIN_BLOCKS and (late or self._is_tight(one))):
                    active.remove(one)
                    self._settle(one)
        for one in active:  # stopped half-way: they stay without a time
            sampler.drop(one.name)

    def _one_block(self, sampler: WholeSampler, active: list[_Candidate]) -> None:
        try:
            samples = self._block(sampler, [_BASELINE, *(one.name for one in active)])
        except (RuntimeCrashed, RuntimeRefused) as error:
            self._refuse(self._culprit(sampler, active), str(error))
            return
        base = self.times[self._baseline].ms if self._baseline is not None else None
        if base:
            moved = float(np.median(samples[:, 0])) / base - 1.0
            self.drift = moved if abs(moved) > abs(self.drift) else self.drift
        for column, one in enumerate(active, 1):
            one.ratios.append(_median_ratio(samples, column))

    def _block(self, sampler: WholeSampler, names: Sequence[str]) -> np.ndarray:
        """One block of rounds, ``[rounds, models]`` in milliseconds."""
        seed = int(self._seeds.spawn(1)[0].generate_state(1)[0])
        samples = sampler.block(names, seed, self.seconds / (2 * MAX_BLOCKS))
        matrix = samples.by(sampler.clock)
        if not (np.isfinite(matrix).all() and (matrix > 0).all()):
            raise RuntimeRefused("The clock answered with something that is no duration.")
        return matrix

    def _is_tight(self, one: _Candidate) -> bool:
        return one.half_width <= max(self.tolerance, self.share * abs(one.centre))

    def _culprit(self, sampler: WholeSampler, active: Sequence[_Candidate]) -> _Candidate:
        for one in active:
            try:
                self._block(sampler, [one.name])
            except (RuntimeCrashed, RuntimeRefused):
                return one
        return active[-1]

    def _added(self, graph: Graph) -> _Candidate | None:
        one = _Candidate(graph.digest, f"graph {graph.digest[:12]}")
        try:
            self._whole_sampler().add(one.name, self._export(graph))
        except (RuntimeCrashed, RuntimeRefused, GraphError) as error:
            self._refuse(one, str(error))
            return None
        return one

    def _refuse(self, one: _Candidate, sentence: str) -> None:
        self.times[one.digest] = GraphTime(None, refusal=sentence)
        self.refusals[one.digest] = sentence

    def _settle(self, one: _Candidate) -> None:
        self._whole_sampler().drop(one.name)
        if one.digest in self.times or self._baseline is None:
            return
        base = self.times[self._baseline].ms or 0.0
        self.times[one.digest] = GraphTime(base * math.exp(-one.centre), one.half_width, len(one.ratios))

    # --- what it runs on -------------------------------------------------------------------------------------------

    def _worker(self) -> Worker:
        if self._given_worker is not None:
            return self._given_worker
        if self._own_worker is None:
            self._own_worker = Worker(self.options)
        return self._own_worker

    def _whole_sampler(self) -> WholeSampler:
        if self._sampler is None:
            if self.command is not None:
                self._sampler = CommandSampler(self.command)
            else:
                self._sampler = WorkerSampler(self._worker(), {}, self._feeds or {})
        return self._sampler


def _median_ratio(samples: np.ndarray, column: int) -> float:
    """Natural logarithm of baseline over model, median of the rounds."""
    return float(np.median(log_ratios(samples[:, 0], samples[:, column])))


def _stand_in(graph: Graph) -> bytes:
    from rlflow.frontends import graph_to_model

    return graph_to_model(graph).SerializeToString()


def _stand_in_feeds(graph: Graph, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Random inputs that the graph accepts."""
    from rlflow.price.specs import input_specs

    rng = np.random.default_rng(0)
    return {name: random_array(spec, rng) for name, spec in input_specs(graph, dims).items()}
