"""Less memory at a bounded slowdown: load, fold, rewrite, search for stretches to put in bands, measure, check, write.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlflow.deployment import Export
from rlflow.errors import CostError, RlflowError, RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.footprint import Flow, Footprint, Stretch, footprint, in_bands
from rlflow.footprint.squeeze import Design, Squeeze
from rlflow.pipeline import OptimizeResult, found, loaded, run
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.loading import Loaded
from rlflow.pipeline.racing import Entrant, Raced
from rlflow.pipeline.searching import settle_sizes
from rlflow.pipeline.simplifying import BUDGET, folding_rules
from rlflow.pipeline.writing import write
from rlflow.report.shrunk import MemoryUse, ShrinkReport, Tried, size_text
from rlflow.search import Visited
from rlflow.specs import check_number, check_seconds, check_whole

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.options import Options
    from rlflow.race.bound import Slowdown

__all__ = ["ShrinkResult", "Wish", "shrink"]

#: The cost model by which a model is rewritten first.
CLOCK = "onnxruntime"
#: Designs of each front that are looked at in the runtime.
MOST_LOOKED_AT = 12
#: Runs in which the resident memory of a fresh process is watched: the first allocates otherwise than the later ones.
RUNS = 3
#: Sessions that are looked at of each model.
SESSIONS = 2
#: The estimate of a design's work may be so much above the bound: the clock decides, and bands are often faster.
SLACK = 0.25
#: A design whose first block is further above the bound than this is not timed again.
NEAR = 1.03


@dataclass(frozen=True)
class Wish:
    """What a caller wants: at most ``memory`` bytes beside the weights (``None``: as few as can be), at most ``slower``
    times the model's own time. ``seconds``: of each search for stretches; ``race_seconds``: of each comparison by the
    clock. ``search``: the strategy that rewrites the model first (``None``: none does), ``budget``: what it may take.
    """

    memory: int | None = None
    slower: float = 1.1
    seconds: float = 20.0
    race_seconds: float = 20.0
    search: Any = "mixed"
    budget: Any = "30s"

    def __post_init__(self) -> None:
        check_seconds(self.seconds, "The time for the search")
        check_seconds(self.race_seconds, "The time for one comparison by the clock")
        check_number(self.slower, "The slowdown that is allowed", 1e6)
        if not self.slower >= 1.0:
            raise UsageError(f"The slowdown that is allowed must be 1 or more, not {self.slower:g}.")
        if self.memory is not None:
            check_whole(self.memory, "The memory, in bytes,", 1)


@dataclass(frozen=True)
class Seen:
    """A model as the runtime runs it: its jobs in their order, and what they need. ``exact``: at every node the
    runtime's allocator had given out just the bytes that its rules say, and the block is as large as they say.
    """

    flow: Flow
    needs: Footprint
    exact: bool

    @property
    def peak(self) -> int:
        """Bytes beside the weights."""
        return self.needs.peak


@dataclass(frozen=True)
class ShrinkResult:
    """The report, what makes the smaller model (the original where nothing was gained), and how the runtime runs it."""

    report: ShrinkReport
    make: Callable[[], ModelProto]
    seen: Seen

    @functools.cached_property
    def model(self) -> ModelProto:
        """The message."""
        return self.make()


@dataclass(frozen=True)
class _Base:
    """A model that stretches are searched for in: as it came and folded, or rewritten first; then ``speedup`` says how
    many times as fast that made it. ``is_edited``: no trace of rules leads to it.
    """

    export: Export
    flow: Flow
    is_edited: bool
    speedup: float | None = None


@dataclass(frozen=True)
class _Candidate:
    """A design as the runtime runs it."""

    base: _Base
    design: Design
    export: Export
    seen: Seen

    @property
    def stretches(self) -> tuple[str, ...]:
        """In words: from which value to which, in how many bands."""
        return tuple(_said(self.base.flow, stretch) for stretch in self.design.stretches)


def shrink(model: Any, context: Context, wish: Wish) -> ShrinkResult:
    """All stages in order. Raises as an optimisation does, and :class:`CostError` where ``wish.memory`` cannot be met;
    then nothing is written.
    """
    faster = None
    if wish.search is not None:
        faster = replace(context.options, cost=CLOCK, search=wish.search, budget=wish.budget)
        faster.strategy, faster.limits  # noqa: B018 - raises
    context.options = replace(context.options, cost="analytic", search="greedy", budget=BUDGET, rules=folding_rules())
    came = loaded(model, context)
    if came.library is None:
        raise UsageError(
            f"This model cannot be shrunk, because it is only carried through: {came.imported.passthrough}"
        )
    settle_sizes(came, context)
    folded = found(came, context).result.best
    rewrite = None if faster is None else functools.partial(_rewritten, model, faster, context)
    return _Shrinking(came, folded, context, wish).result(rewrite)


def _rewritten(model: Any, options: Options, context: Context) -> OptimizeResult | None:
    """The model as an optimisation writes it; ``None`` where that gains no time."""
    context.stage("rewriting", "rewriting the model for speed first")
    try:
        with Context(options, stop=context.stop) as inner:
            result = run(model, inner)
    except RlflowError as error:
        context.notes.append(f"The model was not rewritten first: {error}")
        return None
    return result if result.report.improved else None


class _Shrinking:
    """The stages after the model is loaded and folded."""

    def __init__(self, came: Loaded, folded: Visited, context: Context, wish: Wish) -> None:
        self._came, self._folded, self._context, self._wish = came, folded, context, wish
        self._feeds = context.inputs(came).feeds[0]
        self._bases = [self._base(came.exports.export(folded.graph, folded.trace), False, None)]

    def _base(self, export: Export, is_edited: bool, speedup: float | None) -> _Base:
        from rlflow.frontends.flows import flow_of
        from rlflow.frontends.shuffles import with_gathers

        gathering = with_gathers(export.model)
        if gathering is not None:
            export, is_edited = self._came.exports.edited(lambda: gathering), True
        flow = flow_of(export.model, self._context.inputs(self._came).sizes.values)
        self._context.notes.extend(flow.notes)
        return _Base(export, flow, is_edited, speedup)

    def result(self, rewrite: Callable[[], OptimizeResult | None] | None) -> ShrinkResult:
        """Rewrite, search, look, time, check, write."""
        from rlflow.frontends.schedule import UnknownOrder

        if not self._bases[0].flow.jobs:
            return self._as_it_came("Every output is an input or a constant, so nothing is computed.")
        try:
            original = self._seen(self._came.source)
        except UnknownOrder as error:
            if self._wish.memory is not None:  # nobody can say whether it is met
                raise
            return self._as_it_came(
                f"{error} It does so where a model has branches or loops. What the model needs is an estimate, and "
                "nothing was tried."
            )
        rewritten = None if rewrite is None else rewrite()
        if rewritten is not None:
            export = self._came.exports.edited(rewritten.make)
            self._bases.append(self._base(export, True, rewritten.report.gain))
        self._context.stage("shrinking", "searching for stretches to run in bands of rows")
        designs = [(base, design) for base in self._bases for design in self._designs(base)]
        self._context.stage("looking", "looking at what the runtime makes of the smallest designs")
        seen = [self._candidate(*one) for one in designs]
        looked = [one for one in seen if one is not None and one.seen.peak < original.peak]
        looked.sort(key=lambda one: (one.seen.peak, one.design.work))
        self._refuse_too_large(min([original, *(one.seen for one in looked)], key=lambda one: one.peak), looked)
        self._context.stage("timing", "timing the smallest against the original")
        chosen, slowdown, front = self._chosen(looked)
        self._refuse_too_large(original if chosen is None else chosen.seen, looked)
        raced = Raced("shrunk", None if chosen is None else self._entrant(chosen))
        with self._context.blaming_guesses():
            raced, checked = check(self._came, raced, self._context)
        chosen = None if raced.winner is None else chosen  # its roundings may be larger than is tolerated
        self._context.stage("resident", "watching the memory of fresh processes")
        before = self._use(original, self._came.source)
        after = before if chosen is None else self._use(chosen.seen, chosen.export.source)
        written = write(self._came, raced, self._context)
        exact = original.exact and (chosen is None or chosen.seen.exact)
        report = self._report(before, after, chosen, slowdown, front, checked, exact)
        return ShrinkResult(report, written.make, original if chosen is None else chosen.seen)

    def _as_it_came(self, why: str) -> ShrinkResult:
        """The original, of which nothing but an estimate says what it needs; the note says why."""
        self._context.notes.append(why)
        flow = self._bases[0].flow
        seen = Seen(flow, footprint(flow), exact=False)
        self._refuse_too_large(seen, [])
        use = self._use(seen, self._came.source)
        written = write(self._came, Raced("shrunk", None), self._context)
        return ShrinkResult(self._report(use, use, None, None, [], None, exact=False), written.make, seen)

    # --- candidates ---------------------------------------------------------------------------------------------------

    def _designs(self, base: _Base) -> list[Design]:
        """The front of the search, thinned out where it is long; its smallest and the flow as it is stay."""
        most = self._wish.slower * (base.speedup or 1.0) + SLACK
        front = Squeeze(base.flow, most, self._wish.seconds, lambda: self._context.stop.stopped).run()
        step = max(1.0, len(front) / MOST_LOOKED_AT)
        return [front[int(place * step)] for place in range(min(len(front), MOST_LOOKED_AT))]

    def _candidate(self, base: _Base, design: Design) -> _Candidate | None:
        """A design as the runtime runs it; ``None`` where that refuses it."""
        from rlflow.frontends.banding import with_bands

        flow = in_bands(base.flow, design.stretches)
        assert flow is not None  # the search built it
        banded = self._came.exports.edited(lambda: with_bands(base.export.model, flow))
        export = banded if design.stretches else base.export
        try:
            return _Candidate(base, design, export, self._seen(export.source))
        except (RuntimeRefused, RuntimeCrashed) as error:
            self._context.notes.append(f"A design was left out: {error}")
            return None

    def _seen(self, source: Any) -> Seen:
        """What the runtime makes of a model; of several sessions, which may order it differently, the largest."""
        from rlflow.frontends.schedule import held, schedule_of
        from rlflow.runtime.residence import trace_of

        seen = []
        for _ in range(SESSIONS):
            trace = trace_of(self._context.worker, source, self._feeds)
            flow = schedule_of(trace.graph, trace.nodes, self._feeds)
            needs, counted = footprint(flow), [one.held for one in trace.nodes]
            seen.append(Seen(flow, needs, counted == held(flow) and trace.block == needs.block))
        return max(seen, key=lambda one: one.peak)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _chosen(self, looked: Sequence[_Candidate]) -> tuple[_Candidate | None, Slowdown | None, list[Tried]]:
        """The smallest candidate that is within the bound by the clock, and what is known of all."""
        from rlflow.race import bound

        if not looked:
            return None, None, []
        context, wish, seed = self._context, self._wish, self._context.options.seed
        sources = {str(place): one.export.source for place, one in enumerate(looked)}
        paces = bound.pace_of(context.worker, self._came.source, sources, self._feeds, seed)
        front = [self._tried(one, paces.get(str(place))) for place, one in enumerate(looked)]
        for place, one in enumerate(looked):
            if paces.get(str(place), math.inf) > wish.slower * NEAR:
                continue
            context.stage("timing", f"timing the design of {size_text(one.seen.peak)}")
            found = bound.within(
                context.worker, self._came.source, one.export.source, self._feeds, wish.slower,
                seconds=wish.race_seconds, seed=seed, stop=lambda: context.stop.stopped,
            )  # fmt: skip
            if found is not None:
                front[place] = self._tried(one, found.ratio)
                if found.within:
                    return one, found, front
        return None, None, front

    def _tried(self, one: _Candidate, pace: float | None) -> Tried:
        speedup, estimated = one.base.speedup, pace is None
        slowdown = one.design.work / (speedup or 1.0) if pace is None else pace
        return Tried(one.seen.peak, slowdown, estimated, one.stretches, speedup is not None)

    def _refuse_too_large(self, seen: Seen, looked: Sequence[_Candidate]) -> None:
        limit = self._wish.memory
        if limit is None or seen.peak <= limit:
            return
        least = min([one.seen.peak for one in looked], default=seen.peak)
        slower = "" if least >= seen.peak else f" ({size_text(least)} at more than the time that --slower allows)"
        raise CostError(
            f"The model needs {size_text(seen.peak)} beside its weights at best within {self._wish.slower:g} times its "
            f"time{slower}, and at most {size_text(limit)} were asked for; nothing was written."
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def _entrant(self, one: _Candidate) -> Entrant:
        written = one.base.is_edited or one.design.stretches
        return Entrant(self._folded._replace(trace=()) if written else self._folded, one.export)

    def _use(self, seen: Seen, source: Any) -> MemoryUse:
        from rlflow.runtime.residence import resident_of

        needs, resident = seen.needs, None
        try:
            resident = resident_of(self._context.worker, source, self._feeds, RUNS)
        except RuntimeRefused as error:
            self._context.notes.append(str(error))
        return MemoryUse(
            needs.block, needs.outputs, max((job.workspace for job in seen.flow.jobs), default=0), needs.peak,
            None if resident is None else resident.growth, None if resident is None else resident.peak,
        )  # fmt: skip

    def _report(
        self, before: MemoryUse, after: MemoryUse, chosen: _Candidate | None, slowdown: Slowdown | None,
        front: Sequence[Tried], checked: Any, exact: bool,
    ) -> ShrinkReport:  # fmt: skip
        from rlflow import __version__
        from rlflow.frontends.storage import weight_bytes

        context, wish = self._context, self._wish
        nothing = "no smaller design was found within the bound; the model is written as it came"
        return ShrinkReport(
            model=self._came.name,
            shrunk=chosen is not None,
            reason=nothing if chosen is None else "smaller",
            before=before,
            after=after,
            weights=weight_bytes(self._came.imported.origin.model),
            slower=wish.slower,
            limit=wish.memory,
            threads=context.options.threads,
            slowdown=None if slowdown is None else slowdown.ratio,
            slowdown_ci95=None if slowdown is None else (slowdown.low, slowdown.high),
            rewritten=None if chosen is None else chosen.base.speedup,
            stretches=() if chosen is None else chosen.stretches,
            front=front,
            exact=exact,
            verified=checked,
            notes=tuple(dict.fromkeys(context.notes)),
            written=None if context.output is None else str(context.output),
            version=__version__,
            seconds=context.stage.seconds(),
        )


def _said(flow: Flow, stretch: Stretch) -> str:
    """A stretch in words: from which value to which, in how many bands."""
    first, last = flow.jobs[stretch.first], flow.jobs[stretch.last]
    rows, steps = flow.height(last.outputs[0]), len(stretch.steps)
    parts = f" ({', '.join(map(str, stretch.rates))} parts of a band)" if max(stretch.rates, default=1) > 1 else ""
    return (
        f"{first.inputs[0]} to {last.outputs[0]}: {stretch.last - stretch.first + 1} operators, "
        f"{rows} rows in {stretch.bands} bands" + (f", in {steps} steps{parts}" if steps > 1 else "")
    )
