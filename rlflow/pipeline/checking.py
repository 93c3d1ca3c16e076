"""Stage 4: does the winner compute what the original computes?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlflow.deployment import verified
from rlflow.equivalence.runners import with_known_outputs
from rlflow.errors import GraphError, VerificationFailed
from rlflow.report import OutputFigures, Verified
from rlflow.search import Visited

if TYPE_CHECKING:
    from rlflow.deployment import Inputs
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced

__all__ = ["check", "culprit_of", "seconds_each"]


def check(loaded: Loaded, raced: Raced, context: Context, seconds: float | None = None) -> Verified | None:
    """The figures of the comparison of outputs; ``None`` where there is nothing to compare or nobody wants it.
    ``seconds`` (else the check's part of the budget) bounds the inputs beyond the usual ones.

    Raises :class:`VerificationFailed`, naming the step that breaks, where outputs differ.
    """
    if raced.winner is None or not context.options.verify:
        return None
    each = seconds_each(seconds or context.parts.verifying())
    context.stage("verifying", "comparing the outputs with the original's")
    from rlflow import equivalence

    inputs, source, seed = context.inputs(loaded), raced.winner.export.source, context.options.seed
    known = {loaded.source: raced.outputs.get("baseline"), source: raced.outputs.get("optimised")}
    run = with_known_outputs(context.runner, inputs.feeds, known)
    noise = equivalence.calibrate(run, loaded.source, inputs.feeds, seed=seed, plan=inputs.plan, seconds=each)
    found = verified(run, inputs, loaded.source, source, seed, noise, each)
    if not found.passed:
        culprit = culprit_of(raced.winner.visited, found, loaded, inputs, noise, context)
        raise VerificationFailed(f"{culprit} {found.failure()} Nothing was written.")
    context.notes.extend(found.notes)
    return figures(found)


def seconds_each(seconds: float | None) -> float | None:
    """Of ``seconds``, those of the original's runs, and of the result's: never more than they have without a budget."""
    from rlflow import equivalence

    return None if seconds is None else min(seconds / 2.0, equivalence.SECONDS)


def figures(found: Any) -> Verified:
    """A verification as the report holds it."""
    outputs = [
        OutputFigures(check.name, check.max_abs, check.max_rel, check.tolerance, check.passed, check.vacuous)
        for check in found.outputs
    ]
    return Verified(found.passed, outputs, tuple(found.notes), found.to_dict())


def culprit_of(chosen: Visited, failed: Any, loaded: Loaded, inputs: Inputs, noise: Any, context: Context) -> str:
    """A sentence about the smallest prefix of the trace whose result differs on ``inputs``, found by bisection.

    What the runtime does not run says nothing about a rule: there are no outputs that could differ.
    """
    if not failed.tight:
        return "The model that was exported does not run, which is a fault of the export and not of a rule."
    intro = "The optimised model does not compute what the original computes."
    if not chosen.trace:
        return intro

    def agrees(graph: Any) -> bool:
        try:
            source = loaded.exports.export(graph).source
        except GraphError:  # the opset cannot express what is between two steps
            return True
        found = verified(context.runner, inputs, loaded.source, source, context.options.seed, noise)
        return found.passed or not found.tight

    graphs = [loaded.graph, *loaded.exports.prefixes(chosen.trace)]
    good, bad = 0, len(graphs) - 1
    if not agrees(graphs[0]):
        return f"{intro} The import and export alone, without any rewrite, change it."
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if agrees(graphs[middle]) else (good, middle)
    step = chosen.trace[bad - 1]
    return (
        f"{intro} The smallest prefix of the trace that breaks it ends with step {bad} of {len(chosen.trace)}, "
        f"rule {step.rule!r} at {list(step.match)}."
    )
