"""Stage 4: does the winner compute what the original computes?"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rlflow.deployment import verified
from rlflow.deployment.inputs import USUAL
from rlflow.equivalence.runners import counted, with_known_outputs
from rlflow.errors import GraphError, VerificationFailed
from rlflow.pipeline.precision import Accuracy, accuracy, rounds_otherwise
from rlflow.report import OutputFigures, Verified
from rlflow.search import TraceStep, Visited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlflow.deployment import Inputs
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced

__all__ = ["are_roundings", "check", "culprit_of", "seconds_each", "without_winner"]

#: Relative differences that roundings may explain; a wrong rewrite is seldom nearer.
_ROUNDINGS = 1e-3


def check(
    loaded: Loaded, raced: Raced, context: Context, seconds: float | None = None
) -> tuple[Raced, Verified | None]:
    """``raced``, and the figures of the comparison of outputs; ``None`` where there is nothing to compare or nobody
    wants it. ``seconds`` (else the check's part of the budget) bounds the inputs beyond the usual ones.

    Where roundings differ by more than the model's noise or the tolerance allows, there is no winner any more, and the
    reason names the step. Raises :class:`VerificationFailed`, naming the step, where outputs differ otherwise.
    """
    if raced.winner is None or not context.options.verify:
        return raced, None
    each = seconds_each(seconds or context.parts.verifying())
    context.stage("verifying", "comparing the outputs with the original's")
    from rlflow import equivalence
    from rlflow.equivalence.outputs import K

    # In a hurry the time is for what shows most, not for a second usual input.
    inputs = context.inputs(loaded, USUAL if seconds is None else 1)
    source, seed = raced.winner.export.source, context.options.seed
    if seconds is not None and inputs.plan is not None:
        inputs = replace(inputs, feeds=inputs.feeds[:1])
    known = {loaded.source: raced.outputs.get("baseline"), source: raced.outputs.get("optimised")}
    runs = counted(context.runner, context.on_checking, None if each is None else 2.0 * each)
    run = with_known_outputs(runs, inputs.feeds, known)
    how: dict[str, Any] = {"seed": seed, "plan": inputs.plan, "seconds": each}
    # In a hurry, noise is looked for where roundings show only.
    noise = equivalence.calibrate(run, loaded.source, inputs.feeds, **how, moved=seconds is None)
    others = rounds_otherwise(loaded, raced.winner)
    times = max(1.0, context.options.tolerated / K) if others else 1.0
    found = verified(run, inputs, loaded.source, source, seed, noise, each, times)
    if not found.passed and not are_roundings(found):
        culprit = culprit_of(raced.winner.visited, found, loaded, inputs, noise, context)
        raise VerificationFailed(f"{culprit} {found.failure()} Nothing was written.")
    context.notes.extend(found.notes)
    if not found.passed and not others:
        return without_winner(raced, found, loaded, inputs, noise, context, each), None
    if not others:
        return raced, figures(found)
    exact = accuracy(loaded, raced.winner, run, noise, each, context)
    context.notes.append(str(exact))
    refusal = _too_inexact(found, exact, context.options.tolerated)
    if refusal is None:
        return raced, figures(found, exact)
    names = ", ".join(others)
    reason = f"{refusal}, because of {names}; --skip-rule leaves a rule out, --tolerance N allows more"
    return _refused(raced, reason), None


def without_winner(
    raced: Raced, failed: Any, loaded: Loaded, inputs: Inputs, noise: Any, context: Context, seconds: float | None
) -> Raced:
    """``raced`` with the original kept, because the winner's roundings on ``inputs`` are not the original's.
    ``seconds``: of each comparison that looks for the step.
    """
    assert raced.winner is not None
    trace = raced.winner.visited.trace or ()
    step = _breaking_step(trace, loaded, inputs, noise, context, seconds) if trace else 0
    reason = f"the candidate's roundings show: {(failed.failure() or '').rstrip('.')}"
    if step:
        rule = trace[step - 1].rule
        reason += f"; from step {step} of {len(trace)} on, rule {rule!r}; --skip-rule {rule} leaves it out"
    return _refused(raced, reason)


def _refused(raced: Raced, reason: str) -> Raced:
    decision = None if raced.decision is None else replace(raced.decision, winner=None)
    return replace(raced, reason=reason, winner=None, decision=decision)


def are_roundings(found: Any) -> bool:
    """Whether outputs that are not equal enough differ by so little that other roundings may explain it."""
    return bool(found.tight) and all(one.max_rel < _ROUNDINGS for one in found.tight + found.deployed)


def _too_inexact(found: Any, exact: Accuracy | str, tolerated: float) -> str | None:
    """Why the result's roundings are more than is tolerated, as the beginning of a sentence; ``None`` where not."""
    if isinstance(exact, Accuracy) and exact.times > tolerated:
        return (
            f"the candidate's rounding error, against float64, is {exact.times:.1f} times the original's, where "
            f"{tolerated:g} times is tolerated"
        )
    return None if found.passed else f"the candidate's roundings show: {(found.failure() or '').rstrip('.')}"


def seconds_each(seconds: float | None) -> float | None:
    """Of ``seconds``, those of the original's runs, and of the result's: never more than they have without a budget."""
    from rlflow import equivalence

    return None if seconds is None else min(seconds / 2.0, equivalence.SECONDS)


def figures(found: Any, exact: Accuracy | str | None = None) -> Verified:
    """A verification as the report holds it; ``exact``: how its outputs compare with float64, where that was asked."""
    outputs = [
        OutputFigures(check.name, check.max_abs, check.max_rel, check.tolerance, check.passed, check.vacuous)
        for check in found.outputs
    ]
    detail = found.to_dict()
    if isinstance(exact, Accuracy):
        detail["float64"] = asdict(exact)
    return Verified(found.passed, outputs, tuple(found.notes), detail)


def culprit_of(chosen: Visited, failed: Any, loaded: Loaded, inputs: Inputs, noise: Any, context: Context) -> str:
    """A sentence about the smallest prefix of the trace whose result differs on ``inputs``.

    What the runtime does not run says nothing about a rule: there are no outputs that could differ.
    """
    if not failed.tight:
        return "The model that was exported does not run, which is a fault of the export and not of a rule."
    intro = "The optimised model does not compute what the original computes."
    trace = chosen.trace
    if not trace:
        return intro
    bad = _breaking_step(trace, loaded, inputs, noise, context)
    if bad == 0:
        return f"{intro} The import and export alone, without any rewrite, change it."
    step = trace[bad - 1]
    return (
        f"{intro} The smallest prefix of the trace that breaks it ends with step {bad} of {len(trace)}, "
        f"rule {step.rule!r} at {list(step.match)}."
    )


def _breaking_step(
    trace: Sequence[TraceStep],
    loaded: Loaded,
    inputs: Inputs,
    noise: Any,
    context: Context,
    seconds: float | None = None,
) -> int:
    """How many steps the smallest prefix of ``trace`` has whose result differs on ``inputs``, found by bisection; 0
    where import and export differ already.
    """

    def agrees(graph: Any) -> bool:
        try:
            source = loaded.exports.export(graph).source
        except GraphError:  # the opset cannot express what is between two steps
            return True
        found = verified(context.runner, inputs, loaded.source, source, context.options.seed, noise, seconds)
        return found.passed or not found.tight

    graphs = [loaded.graph, *loaded.exports.prefixes(trace)]
    good, bad = 0, len(graphs) - 1
    if not agrees(graphs[0]):
        return 0
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if agrees(graphs[middle]) else (good, middle)
    return bad
