"""Stage 3: the cheapest graphs against the original by the clock, end to end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rlflow.deployment import Export, kept_comparisons
from rlflow.errors import GraphError, RuntimeCrashed, RuntimeRefused
from rlflow.pipeline.parts import Timing
from rlflow.price.timing import signed_rank_p
from rlflow.search import InterruptGuard, StopToken, Visited

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.found import Found
    from rlflow.pipeline.loading import Loaded

__all__ = ["Entrant", "Raced", "race"]

#: What a model that cannot be compared by the clock is called in the sentences of a report.
NOTHING_CHEAPER = "the search found no cheaper graph"
#: The name of the model as imported, without rewrites, where it is a candidate itself.
CLEANUP = "clean-up"
#: That of the model as imported, written for an older opset.
OLDER = "opset {opset}"
#: What a report says where the model as imported was not timed.
TOGETHER = (
    "The candidates were compared with the model as it came, because three models could not be compared in the time: "
    "what the clean-up gains and what the rewrites gain are one figure."
)
#: The same where the clean-up alone was not compared either.
NO_TIME_FOR_CLEANUP = "The clean-up of import was not compared by itself: two models could not be compared in the time."
#: Nothing is begun that takes so many times as long as there is, by one run of the model, which may have been slow.
HOPELESS = 2.0
#: Part of the time that the candidates of the search have, where the clean-up may be compared after them; they have
#: the rest too where what is timed beside says that it will not be.
FIRST_RACE = 0.6
#: The level at which the model as it came is faster than the winner, so that nothing is written.
ORIGINAL_ALPHA = 0.05


@dataclass(frozen=True)
class Entrant:
    """A graph of the search as it would be deployed."""

    visited: Visited
    export: Export


@dataclass(frozen=True)
class Raced:
    """What the comparison decided. ``decision`` is the gate's own record, ``None`` where no clock was used.

    ``cleanup`` is its record of the clean-up against the original, where that was compared by itself.
    ``outputs``: what the original ("baseline") and the winner ("optimised") computed as deployed, where it was kept
    while they were loaded.
    """

    reason: str
    winner: Entrant | None = None
    decision: Any = None
    cleanup: Any = None
    outputs: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)


def race(loaded: Loaded, found: Found, context: Context) -> Raced:
    """Compare the finalists of the search with the original where the model will run."""
    entrants = _entrants(found.finalists, loaded, context) | _older(loaded, found, context)
    if not context.cost_model.measures and context.options.place.command is None:
        winner = next(iter(entrants.values()), None)
        reason = NOTHING_CHEAPER if winner is None else "the analytic cost is lower; no clock was used"
        return Raced(reason, winner)
    context.stage("timing", "timing the candidates against the original" if entrants else "timing the model")
    outputs: dict[str, list[dict[str, Any]]] = {}
    decision = _decision(loaded, entrants, outputs, context)
    if decision.earlier is not None:
        context.notes.append(decision.earlier["sentence"])
    context.notes.extend(
        f"{name} took no part in the final comparison: {why}" for name, why in decision.dropped.items()
    )
    raced = Raced(decision.reason if entrants else NOTHING_CHEAPER, None, decision, outputs=outputs)
    if decision.winner is None:
        return _with_cleanup(raced, loaded, found, context)
    if _original_is_faster(decision):
        return replace(raced, reason="the candidate is faster than the model as imported, but not than the original")
    return replace(raced, winner=entrants[decision.winner])


def _original_is_faster(decision: Any) -> bool:
    """Whether the winner is slower than the model as it came, which was timed beside: block by block, because the
    machine may have been faster in those that both were in.
    """
    ratios = decision.beside.get("original", ())
    slower = [-one for one in ratios]
    return bool(ratios) and (signed_rank_p(slower) <= ORIGINAL_ALPHA or all(one > 0.0 for one in slower))


def _with_cleanup(raced: Raced, loaded: Loaded, found: Found, context: Context) -> Raced:
    """``raced``, won by the model as imported where that is faster than the model as it came."""
    from rlflow.race.track import WORTH_A_RACE

    timings = raced.decision.timings
    original, baseline = timings.get("original"), timings.get("baseline")
    if original is not None and baseline is not None and original.ms < baseline.ms * WORTH_A_RACE:
        return raced
    result = found.result
    visited = Visited(loaded.graph, loaded.graph.digest, result.cost_before_ms, ())
    cleanup = Entrant(visited, loaded.exports.as_imported())
    if cleanup.export.source == loaded.source:
        return raced
    given = context.parts.timing()
    if _takes_too_long(2, given, context, HOPELESS):
        context.notes.append(NO_TIME_FOR_CLEANUP)
        return raced
    context.stage("timing", "timing the clean-up against the original")
    decision = _compared(loaded.source, {CLEANUP: cleanup}, {}, given, loaded, context, only=True)
    if decision.winner is None:
        return replace(raced, cleanup=decision)
    reason = f"the model as imported, without rewrites, is faster than the original: {decision.reason}"
    return replace(raced, reason=reason, winner=cleanup, cleanup=decision, outputs={})


def _entrants(finalists: Sequence[Visited], loaded: Loaded, context: Context) -> dict[str, Entrant]:
    """The cheapest graphs as ONNX, by a name; what the model's opset cannot express is left out, and that is said."""
    entrants = {}
    for number, one in enumerate(finalists, 1):
        export = loaded.exports.export(one.graph, one.trace)
        try:
            if loaded.weights is None:  # else the comparison may not need them all
                export.model  # noqa: B018 - makes it
        except GraphError as error:
            context.notes.append(f"Candidate {number} cannot be written: {error}")
            continue
        entrants[f"candidate {number}"] = Entrant(one, export)
    return entrants


def _older(loaded: Loaded, found: Found, context: Context) -> dict[str, Entrant]:
    """The model without rewrites for an older opset, by a name, where the runtime may be faster by that alone."""
    if loaded.exports.older is None or not context.cost_model.measures:
        return {}
    visited = Visited(loaded.graph, loaded.graph.digest, found.result.cost_before_ms, ())
    return {OLDER.format(opset=loaded.exports.older): Entrant(visited, loaded.exports.export(loaded.graph))}


def _decision(
    loaded: Loaded, entrants: Mapping[str, Entrant], outputs: dict[str, list[dict[str, Any]]], context: Context
) -> Any:
    options, given = context.options, context.parts.timing()
    # Where three models take too long it is two, and more blocks of them: each is loaded again for every block.
    dear = loaded.weights is None and _takes_too_long(3, given, context)
    plain = (loaded.weights is None and not dear) or options.freeze
    baseline = loaded.exports.as_imported().source if plain else loaded.source
    if dear and not plain and entrants:
        context.notes.append(TOGETHER)
    keeps_outputs = options.verify and loaded.weights is not None and not options.freeze

    def keep_outputs(decision: Any, run: Callable[[str, Any], dict[str, Any]]) -> None:
        """What the check will ask for, while the models are loaded."""
        if decision.winner is None:
            return
        with contextlib.suppress(RuntimeCrashed, RuntimeRefused):  # the check will say what is wrong
            feeds = context.inputs(loaded).feeds
            computed = {name: [run(name, one) for one in feeds] for name in ("baseline", decision.winner)}
            outputs.update(baseline=computed["baseline"], optimised=computed[decision.winner])

    beside = {} if baseline == loaded.source else {"original": loaded.source}
    keep = keep_outputs if keeps_outputs else None
    if beside and given.at_most is not None:  # the clean-up may have to be compared too
        at_most = FIRST_RACE * given.at_most
        given = Timing(min(given.seconds, at_most), at_most, given.for_least, given.at_most - at_most)
    return _compared(baseline, entrants, beside, given, loaded, context, keep)


def _takes_too_long(models: int, given: Timing, context: Context, times: float = 1.0) -> bool:
    """Whether comparing so many models would take so many ``times`` as long as a claim may."""
    pace = context.parts.pace
    return given.for_least is not None and pace is not None and pace.race(models) > times * given.for_least


def _compared(
    baseline: bytes | str,
    entrants: Mapping[str, Entrant],
    beside: Mapping[str, Any],
    given: Timing,
    loaded: Loaded,
    context: Context,
    before_closing: Any = None,
    only: bool = False,
) -> Any:
    """The gate's decision; Ctrl-C ends it with what is known."""
    from rlflow.race import gate

    options = context.options
    token = StopToken()  # of its own: a search that was interrupted still has its best confirmed
    with InterruptGuard(token, context.interrupted):
        return gate.choose(
            options.place.command or context.worker,
            baseline,
            {name: _sourced(one.export) for name, one in entrants.items()},
            {} if options.place.command is not None else context.inputs(loaded).feeds[0],
            seconds=given.seconds,
            at_most=given.at_most,
            for_least=given.for_least,
            reserve=given.reserve,
            seed=options.seed,
            beside=beside,
            on_progress=context.on_timing,
            stop=lambda: token.stopped,
            memory=_memory(loaded, baseline, entrants, context),
            before_closing=before_closing,
            only=only,
        )


def _memory(loaded: Loaded, baseline: bytes | str, entrants: Mapping[str, Entrant], context: Context) -> Any:
    """Earlier comparisons of these models here; a device behind a command has no name to keep them under."""
    options = context.options
    if options.place.command is not None or not entrants:
        return None
    models: dict[str, Any] = {name: (one.visited.graph, _sourced(one.export)) for name, one in entrants.items()}
    models["baseline"] = (loaded.graph, lambda: baseline)
    return kept_comparisons(context.worker, context.inputs(loaded).feeds[0], models, options.fresh)


def _sourced(export: Export) -> Callable[[], bytes | str]:
    return lambda: export.source
