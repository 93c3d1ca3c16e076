"""Less memory at a bounded slowdown: load, fold, rewrite, search for stretches to put in bands, measure, check, write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlflow.errors import CostError, RlflowError, UsageError
from rlflow.footprint import footprint
from rlflow.pipeline import OptimizeResult, found, loaded, run
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.designing import Designing, LookedAt, Seen, Wish
from rlflow.pipeline.loading import Loaded
from rlflow.pipeline.racing import Entrant, Raced
from rlflow.pipeline.searching import settle_sizes
from rlflow.pipeline.simplifying import BUDGET, folding_rules
from rlflow.pipeline.writing import write
from rlflow.report.shrunk import MemoryUse, ShrinkReport, Tried, size_text
from rlflow.rulesets import TARGETS, with_algorithms
from rlflow.search import Visited

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.options import Options
    from rlflow.race.bound import Slowdown
    from rlflow.runtime.residence import Resident

__all__ = ["ShrinkResult", "Wish", "shrink"]

#: The cost model by which a model is rewritten first.
CLOCK = "onnxruntime"


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


def shrink(model: Any, context: Context, wish: Wish) -> ShrinkResult:
    """All stages in order. Raises as an optimisation does, and :class:`CostError` where ``wish.memory`` cannot be met;
    then nothing is written.
    """
    faster = None
    if wish.search is not None:
        faster = replace(context.options, cost=CLOCK, search=wish.search, budget=wish.budget)
        if faster.rules is None and not faster.only_rules:
            # Not Winograd's algorithm as operators: tiles need several times the memory, and no bands go through them.
            faster = replace(faster, rules=with_algorithms(*TARGETS))
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
        self._designing = Designing(came, context, wish)
        self._base = self._designing.add(came.exports.export(folded.graph, folded.trace), False)

    def result(self, rewrite: Callable[[], OptimizeResult | None] | None) -> ShrinkResult:
        """Rewrite, search, look, time, check, write."""
        from rlflow.frontends.schedule import UnknownOrder

        if not self._base.flow.jobs:
            return self._as_it_came("Every output is an input or a constant, so nothing is computed.")
        try:
            original = self._designing.seen(self._came.source)
        except UnknownOrder as error:
            if self._wish.memory is not None:  # nobody can say whether it is met
                raise
            return self._as_it_came(
                f"{error} It does so where a model has branches or loops. What the model needs is an estimate, and "
                "nothing was tried."
            )
        rewritten = None if rewrite is None else rewrite()
        if rewritten is not None:
            self._designing.add(self._came.exports.edited(rewritten.make), True, rewritten.report.gain)
        looked = self._designing.looked(original)
        least = min([original, *(one.seen for one in looked)], key=lambda one: one.peak)
        self._refuse_too_large(least, looked, ", whatever time it takes")
        self._context.stage("resident", "watching the memory of fresh processes")
        resident = self._designing.resident(self._came.source)
        chosen, slowdown, front = self._designing.chosen(looked, original, resident)
        self._refuse_too_large(original if chosen is None else chosen.seen, looked)
        raced = Raced("shrunk", None if chosen is None else self._entrant(chosen))
        with self._context.blaming_guesses():
            raced, checked = check(self._came, raced, self._context)
        chosen = None if raced.winner is None else chosen  # its roundings may be larger than is tolerated
        before = self._use(original, resident)
        after = before if chosen is None else self._use(chosen.seen, chosen.resident)
        written = write(self._came, raced, self._context)
        exact = original.exact and (chosen is None or chosen.seen.exact)
        report = self._report(before, after, chosen, slowdown, front, checked, exact)
        return ShrinkResult(report, written.make, original if chosen is None else chosen.seen)

    def _as_it_came(self, why: str) -> ShrinkResult:
        """The original, of which nothing but an estimate says what it needs; the note says why."""
        self._context.notes.append(why)
        flow = self._base.flow
        seen = Seen(flow, footprint(flow), exact=False)
        self._refuse_too_large(seen, [])
        use = self._use(seen, self._designing.resident(self._came.source))
        written = write(self._came, Raced("shrunk", None), self._context)
        return ShrinkResult(self._report(use, use, None, None, [], None, exact=False), written.make, seen)

    def _refuse_too_large(self, seen: Seen, looked: Sequence[LookedAt], bound: str | None = None) -> None:
        limit = self._wish.memory
        if limit is None or seen.peak <= limit:
            return
        least = min([one.seen.peak for one in looked], default=seen.peak)
        slower = "" if least >= seen.peak else f" ({size_text(least)} at more than the time that --slower allows)"
        bound = bound or f" within {self._wish.slower:g} times its time{slower}"
        raise CostError(
            f"The model needs {size_text(seen.peak)} beside its weights at best{bound}, and at most {size_text(limit)} "
            "were asked for; nothing was written."
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def _entrant(self, one: LookedAt) -> Entrant:
        written = one.base.is_edited or one.design.stretches
        return Entrant(self._folded._replace(trace=()) if written else self._folded, one.export)

    def _use(self, seen: Seen, resident: Resident | None) -> MemoryUse:
        needs = seen.needs
        return MemoryUse(
            needs.block, needs.outputs, max((job.workspace for job in seen.flow.jobs), default=0), needs.peak,
            None if resident is None else resident.growth, None if resident is None else resident.peak,
        )  # fmt: skip

    def _report(
        self, before: MemoryUse, after: MemoryUse, chosen: LookedAt | None, slowdown: Slowdown | None,
        front: Sequence[Tried], checked: Any, exact: bool,
    ) -> ShrinkReport:  # fmt: skip
        from rlflow import __version__
        from rlflow.frontends.storage import weight_bytes

        context, wish = self._context, self._wish
        if chosen is not None and chosen.base.copies:
            context.notes.append(f"{chosen.base.copies} cheap values are computed again for those who read them late.")
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
