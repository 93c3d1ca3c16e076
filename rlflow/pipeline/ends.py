"""Stage 4b: the winner at the least and the most sizes of open dimensions, where the user gave them.

What was searched for at the usual sizes must hold at the others: outputs are compared there too, and a model that is
slower there than the original is not written, unless that is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlflow.deployment import Inputs, verified
from rlflow.equivalence.sizes import ends, told
from rlflow.errors import VerificationFailed
from rlflow.pipeline.checking import are_roundings, culprit_of, seconds_each, without_winner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced

__all__ = ["check_at_ends", "race_at_ends"]


def race_at_ends(loaded: Loaded, raced: Raced, context: Context) -> Raced:
    """``raced``, without its winner where the original is faster than it at the least or the most sizes."""
    options = context.options
    if raced.winner is None or raced.decision is None or options.only_usual or options.place.command is not None:
        return raced
    from rlflow.race import gate

    for where, inputs in _inputs_at_ends(loaded, context):
        context.stage("timing", f"timing the winner at {where}")
        given = context.parts.timing()
        # The other way round than usual: is the original faster than what would replace it?
        decision = gate.choose(
            context.worker,
            raced.winner.export.source,
            {"original": loaded.source},
            inputs.feeds[0],
            seconds=given.seconds / 2,
            at_most=given.at_most,
            for_least=given.for_least,
            seed=options.seed,
            on_progress=context.on_timing,
        )
        if decision.winner is not None:
            reason = (
                f"the candidate is faster at the usual sizes, but at {where} the original is "
                f"{decision.speedup:.3f} times as fast as it; --only-usual writes it all the same"
            )
            return replace(raced, reason=reason, winner=None, decision=replace(raced.decision, winner=None))
    return raced


def check_at_ends(loaded: Loaded, raced: Raced, context: Context) -> Raced:
    """``raced``, without its winner where its roundings show at the least or the most sizes; raises
    :class:`VerificationFailed` where its outputs differ otherwise.
    """
    if raced.winner is None or not context.options.verify:
        return raced
    from rlflow import equivalence

    for where, inputs in _inputs_at_ends(loaded, context):
        context.stage("verifying", f"comparing the outputs at {where}")
        source, seed = raced.winner.export.source, context.options.seed
        each = seconds_each(context.parts.verifying())
        noise = equivalence.calibrate(
            context.runner, loaded.source, inputs.feeds, seed=seed, plan=inputs.plan, seconds=each
        )
        found = verified(context.runner, inputs, loaded.source, source, seed, noise, each)
        if not found.passed and are_roundings(found):
            kept = without_winner(raced, found, loaded, inputs, noise, context, each)
            return replace(kept, reason=f"at {where} {kept.reason}")
        if not found.passed:
            culprit = culprit_of(raced.winner.visited, found, loaded, inputs, noise, context)
            raise VerificationFailed(f"At {where}: {culprit} {found.failure()} Nothing was written.")
        context.notes.append(f"The outputs were compared at {where}, too.")
    return raced


def _inputs_at_ends(loaded: Loaded, context: Context) -> Iterator[tuple[str, Inputs]]:
    """The sizes in words, and random inputs of them."""
    seed = context.options.seed
    for end, sizes in ends(loaded.extents).items():
        bound = {**context.inputs(loaded).sizes.values, **sizes}
        how = (loaded.source, loaded.graph, bound, None, seed, bound)
        yield told(end, sizes), Inputs.of(context.reference, *how)
