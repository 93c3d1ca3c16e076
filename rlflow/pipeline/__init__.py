"""The stages between a model and a faster one: load → search → race → check → write.

Each stage is a function from the values of the earlier ones to a value of its own; what they open is in one
:class:`Context`, what the user chose in one :class:`rlflow.Options`. Every stage may end the run with one typed
exception; the model that was passed in is never changed, and nothing is written unless all stages agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlflow.pipeline.account import report
from rlflow.pipeline.allowances import advise
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.ends import check_at_ends, race_at_ends
from rlflow.pipeline.found import Found
from rlflow.pipeline.kernel_wishes import kernels_alone, wants_kernels
from rlflow.pipeline.loading import Loaded, load
from rlflow.pipeline.peaks import peak_memory
from rlflow.pipeline.racing import Raced, race
from rlflow.pipeline.searching import price, search, sentence, settle_sizes
from rlflow.pipeline.writing import OptimizeResult, write
from rlflow.search import InterruptGuard

__all__ = ["Context", "OptimizeResult", "Stages", "found", "loaded", "run"]


def run(model: Any, context: Context) -> OptimizeResult:
    """All stages in order."""
    came = loaded(model, context)
    if came.library is None:
        best, raced = None, Raced(f"the model is carried through as it came: {came.imported.passthrough}")
    else:
        settle_sizes(came, context)
        with context.blaming_guesses():
            best, raced = _searched(came, context)
    with context.blaming_guesses():
        raced, checked = check(came, raced, context)
        raced = check_at_ends(came, raced, context)
        checked = None if raced.winner is None else checked
    peaks = peak_memory(came, raced, context)
    if wants_kernels(context.options):
        from rlflow.pipeline.kernel_planning import with_kernels

        written = with_kernels(came, raced, context)
    else:
        written = write(came, raced, context)
    told = report(came, best, raced, checked, written, context, context.stage.seconds())
    if peaks is not None:
        told = replace(told, peak_bytes_before=peaks[0], peak_bytes_after=peaks[1])
    return OptimizeResult(told, written.make)


def _searched(came: Loaded, context: Context) -> tuple[Found | None, Raced]:
    """What the search found and the clock made of it."""
    reason = kernels_alone(came, context)
    if reason is not None:
        return None, Raced(reason)
    best = found(came, context)
    return best, race_at_ends(came, race(came, best, context), context)


def loaded(model: Any, context: Context) -> Loaded:
    """The model, once it is clear that nothing else is in the way."""
    context.stage = Stages(context.on_stage)
    context.preflight(model)
    context.stage("loading", "loading the model")
    return load(model, context)


def found(came: Loaded, context: Context) -> Found:
    """What pricing and searching find; Ctrl-C ends them with the best so far."""
    context.stage("pricing", "pricing the model")
    with InterruptGuard(context.stop, context.interrupted):
        problem = price(came, context)
        context.stage("searching", sentence(problem, context.options))
        best = search(problem, came, context)
        advise(came, best, context)
    return best


class Stages:
    """Tells what happens next, and how long each stage took: ``loading``, ``pricing``, ``searching``, ``timing`` (the
    final comparison), ``verifying``, ``memory`` (its peak), ``writing`` and ``kernels``; ``starting`` is what
    comes before the first.
    """

    def __init__(self, tell: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell or (lambda sentence: None), clock
        self._begun = [("starting", clock())]

    def __call__(self, stage: str, sentence: str) -> None:
        """``stage`` begins now, and the one before it ends."""
        self._begun.append((stage, self._clock()))
        self._tell(sentence)

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, the last one up to now; a stage that began twice counts as one."""
        ends = [begun for _, begun in self._begun[1:]] + [self._clock()]
        found: dict[str, float] = {}
        for (stage, begun), end in zip(self._begun, ends, strict=True):
            found[stage] = found.get(stage, 0.0) + end - begun
        return found
