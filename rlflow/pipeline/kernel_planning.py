"""Stage 6, where it is asked for: which nodes of the result, as ONNX Runtime runs it, a kernel of ours does faster,
measured here, and the plan that says so in the model's metadata. The model itself stays as it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlflow.deployment import verified
from rlflow.errors import CostError, ModelError, VerificationFailed
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.kernels.plan import KEY, Choice, KernelPlan
from rlflow.kernels.shared_library import library_path
from rlflow.kernels.site_times import chosen, measured
from rlflow.pipeline.parts import ModelTimes, Timing

if TYPE_CHECKING:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced
    from rlflow.pipeline.writing import Written
    from rlflow.runtime import Worker

__all__ = ["with_kernels"]

#: All weights together may become so many times their own bytes larger. Prepared, they are mapped and not copied, which
#: saves as much.
_GROWTH = 1.0
#: Seconds of the comparison of whole models, and of the check, at most; and which parts of the stage's seconds each is
#: left, at least and at most. Measuring has the rest.
_RACE_SECONDS, _CHECK_SECONDS = 20.0, 8.0
_RACE_PART, _CHECK_PART = (0.35, 0.5), (0.15, 0.25)
#: The algorithms to try, the least exact one among them first; where the outputs differ too much, the others.
_ATTEMPTS = (
    tuple(ALGORITHMS),
    tuple(name for name, one in ALGORITHMS.items() if not one.coarse),
    tuple(name for name, one in ALGORITHMS.items() if one.exact),
)


def with_kernels(loaded: Loaded, raced: Raced, written: Written, context: Context) -> Written:
    """What was ``written``, with a plan in its metadata where one makes the model faster; a note says which."""
    from rlflow.frontends import blocked

    context.stage("kernels", "measuring the kernels")
    source = loaded.source if raced.winner is None else raced.winner.export.source
    try:
        pace = _pace(loaded, context)
        given = _Time(context.parts.kernels(), pace)
        plan = _Planning(blocked.whole(source), loaded, context, given).plan()
    except (CostError, ModelError, VerificationFailed) as error:
        context.notes.append(f"There is no plan of kernels: {str(error).rstrip('.')}.")
        plan = None
    return _marked(written, plan, context)


def _pace(loaded: Loaded, context: Context) -> ModelTimes:
    """That of the model as it came; prices that no clock made did not ask for it."""
    known = context.parts.pace
    if context.parts.seconds is None or (known is not None and known.run > 0.0):
        return known or ModelTimes()
    return context.pace(loaded)


def _marked(written: Written, plan: KernelPlan | None, context: Context) -> Written:
    """``written`` with this plan and no other."""
    from rlflow.frontends import blocked
    from rlflow.runtime.interface import metadata_entry

    text = None if plan is None else plan.text()
    if context.output is not None and (text is not None or metadata_entry(str(context.output), KEY) is not None):
        blocked.write_metadata(str(context.output), KEY, text)

    def make() -> Any:
        model = written.make()
        blocked.set_metadata(model, KEY, text)
        return model

    return replace(written, make=make)


class _Time:
    """The seconds of the stage, which begins now. ``given``: of the budget, ``None``: there is none. ``pace``: of the
    model as it came.
    """

    def __init__(self, given: Timing | None, pace: ModelTimes) -> None:
        self._given, self._pace, self._began = given, pace, time.monotonic()

    @property
    def _taken(self) -> float:
        return time.monotonic() - self._began

    @property
    def _left(self) -> float:
        """Until the latest end."""
        return math.inf if self._given is None else (self._given.at_most or 0.0) - self._taken

    def need(self, what: str, seconds: float = 0.0) -> None:
        """Raises CostError, with ``what`` could not be done, where not even so many seconds are left."""
        if self._left <= seconds:
            raise CostError(f"the budget was over before {what}")

    def need_check(self) -> None:
        """Raises CostError where outputs can be compared no more."""
        self.need("their outputs could be compared", self._pace.check)

    def measuring(self) -> float | None:
        """What the race and the check will not need."""
        if self._given is None:
            return None
        seconds = self._given.seconds
        race = min(max(self._pace.race(models=2), _RACE_PART[0] * seconds), _RACE_PART[1] * seconds)
        check = min(max(self._pace.check, _CHECK_PART[0] * seconds), _CHECK_PART[1] * seconds)
        return max(seconds - race - check - self._taken, 0.0)

    def checking(self) -> float:
        """For what is checked beyond the usual inputs."""
        return _CHECK_SECONDS if self._given is None else min(_CHECK_SECONDS, _CHECK_PART[0] * self._given.seconds)

    def racing(self) -> dict[str, Any]:
        """As :class:`rlflow.race.track.Terms` has it."""
        if self._given is None:
            return {"seconds": _RACE_SECONDS}
        self.need("the whole models could be compared")
        left, planned = self._left, max(self._given.seconds - self._taken, _RACE_PART[0] * self._given.seconds)
        return {"seconds": min(planned, _RACE_SECONDS, left), "at_most": left}


@dataclass
class _Planning:
    """The making of one plan, for the model that ``source`` is."""

    source: bytes
    loaded: Loaded
    context: Context
    time: _Time
    _noise: Any = None  # what the model does by itself, once it is known

    def plan(self) -> KernelPlan:
        """The plan; a note says what it gains. Raises CostError where there is none, with the reason."""
        from rlflow.frontends.blocked import BlockedGraph
        from rlflow.kernels.preparing import block_here
        from rlflow.runtime import RuntimeOptions, Worker

        if self.context.options.tolerated <= 1.0:
            raise CostError("--tolerance strict allows no algorithm that rounds otherwise")
        self.time.need("they could be measured")
        graph = BlockedGraph(self.context.worker.optimized(self.source), block_here())
        if not graph.sites():
            raise CostError("ONNX Runtime's graph of the model has no node that a kernel can do")
        options = RuntimeOptions(threads=self.context.options.threads, library=library_path())
        with Worker(options) as worker:
            return self._among(graph, measured(graph, worker, self._feeds, self.time.measuring()), worker)

    @property
    def _feeds(self) -> Mapping[str, Any]:
        return self.context.inputs(self.loaded).feeds[0]

    def _among(self, graph: BlockedGraph, times: Mapping[str, Mapping[str, float]], worker: Worker) -> KernelPlan:
        """The fastest choices whose outputs are near enough, if they win the race."""
        if not any(algorithm for one in times.values() for algorithm in one):
            raise CostError("none is for operands of these sizes")
        differs, before = "", None
        for algorithms in _ATTEMPTS:
            choices = chosen(graph.sites(), times, algorithms, _GROWTH * graph.weight_bytes)
            if not choices:
                raise CostError(differs or "ONNX Runtime's own kernels are as fast")
            if choices == before:
                continue
            before, model = choices, graph.with_kernels({one.node: one.attributes for one in choices})
            difference = self._difference(model, worker)
            if difference is None:
                return self._raced(model, choices, graph, worker)
            differs = f"the outputs differ by more than the model's own noise allows ({difference})"
        raise CostError(differs)

    def _difference(self, model: bytes, worker: Worker) -> str | None:
        from rlflow import equivalence

        self.time.need_check()
        context, seconds = self.context, self.time.checking()
        run, inputs, seed = equivalence.WorkerRunner(worker), context.inputs(self.loaded), context.options.seed
        if self._noise is None:
            how: dict[str, Any] = {"seed": seed, "plan": inputs.plan, "seconds": seconds}
            self._noise = equivalence.calibrate(run, self.source, inputs.feeds, **how)
        found = verified(run, inputs, self.source, model, seed, self._noise, seconds)
        return None if found.passed else (found.failure() or "no reason was given").rstrip(".")

    def _raced(self, model: bytes, choices: Sequence[Choice], graph: BlockedGraph, worker: Worker) -> KernelPlan:
        from rlflow.race import gate

        options, how = self.context.options, self.time.racing()
        decision = gate.choose(
            worker, self.source, {"kernels": model}, self._feeds, **how, seed=options.seed, only=True
        )  # fmt: skip
        if decision.winner is None:
            raise CostError(decision.reason)
        version = str(worker.describe()["version"])
        self.context.notes.append(
            f"With kernels for {len(choices)} of its nodes the model is {decision.speedup:.2f} times as fast "
            "here; the plan is in its metadata, and rlflow.kernels.session uses it."
        )
        speedup = round(float(decision.speedup or 1.0), 4)
        return KernelPlan(version, graph.block, options.threads, speedup, tuple(choices))
