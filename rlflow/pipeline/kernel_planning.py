"""Stage 6, where it is asked for: which nodes of the result, as ONNX Runtime runs it, a kernel of ours does faster,
measured here, and the plan that says so in the model's metadata. The model itself stays as it is.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlflow.deployment import verified
from rlflow.equivalence.runners import run_once
from rlflow.errors import CostError, RlflowError
from rlflow.files import ScratchFolder
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.kernels.plan import KEY, Choice, KernelPlan
from rlflow.kernels.shared_library import library_path
from rlflow.kernels.site_times import GROWTH, chosen, measured
from rlflow.pipeline.parts import LONG_RUN, RACE_START, ModelTimes, Timing
from rlflow.pipeline.writing import write

if TYPE_CHECKING:
    from rlflow.frontends.blocked import MappedGraph
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced
    from rlflow.pipeline.writing import Written
    from rlflow.runtime import Worker

__all__ = ["with_kernels"]

#: Seconds of the comparison of whole models, and of what is checked beyond the usual inputs, at most.
_RACE_SECONDS, _CHECK_SECONDS = 20.0, 8.0
#: Parts of the stage's seconds: of the comparison at least, of what is checked beyond the usual inputs at most, and of
#: measuring at least, as long as what a claim needs ends in time.
_RACE_PART, _CHECK_PART, _MEASURING_PART = 0.35, 0.12, 0.3
#: Bytes of a file that are written in a second beside other programs.
_WRITTEN_IN_A_SECOND = 2e8
#: The algorithms to try, the least exact one among them first; where the outputs differ too much, the others.
_ATTEMPTS = (
    tuple(ALGORITHMS),
    tuple(name for name, one in ALGORITHMS.items() if not one.coarse),
    tuple(name for name, one in ALGORITHMS.items() if one.exact),
)


def with_kernels(loaded: Loaded, raced: Raced, context: Context) -> Written:
    """The result, written with a plan in its metadata where one makes it faster; a note says which. What the search
    found is written before the kernels are measured; the model as it came is copied once, with its plan.
    """
    if raced.winner is not None:
        written = write(loaded, raced, context)
        return _marked(written, _planned(loaded, raced, context), context)
    text = _planned(loaded, raced, context)
    return _marked(write(loaded, raced, context, None if text is None else (KEY, text)), text, context)


def _planned(loaded: Loaded, raced: Raced, context: Context) -> str | None:
    """The text of the plan; a note says why there is none."""
    context.stage("kernels", "measuring the kernels")
    source = loaded.source if raced.winner is None else raced.winner.export.source
    try:
        pace = _pace(loaded, context)
        given = _Time(_before_writing(context.parts.kernels(), loaded, raced), pace)
        return _Planning(source, loaded, context, given).plan().text()
    except (RlflowError, OSError) as error:
        why = str(error).rstrip(".")
    except KeyboardInterrupt:  # what was found before is kept
        why = "they were interrupted"
    context.notes.append(f"There is no plan of kernels: {why}.")
    return None


def _before_writing(given: Timing | None, loaded: Loaded, raced: Raced) -> Timing | None:
    """The seconds of the stage, less those of copying the model as it came, which follows where nothing was written."""
    if given is None or raced.winner is not None:
        return given
    writing = loaded.size / _WRITTEN_IN_A_SECOND
    at_most, for_least = (None if end is None else max(end - writing, 0.0) for end in (given.at_most, given.for_least))
    return Timing(given.seconds, at_most, for_least)


def _pace(loaded: Loaded, context: Context) -> ModelTimes:
    """That of the model as it came; prices that no clock made did not ask for it."""
    known = context.parts.pace
    if context.parts.seconds is None or (known is not None and known.run > 0.0):
        return known or ModelTimes()
    return context.pace(loaded)


def _marked(written: Written, text: str | None, context: Context) -> Written:
    """``written`` with this plan and no other."""
    from rlflow.frontends import blocked, storage
    from rlflow.runtime.interface import metadata_entry

    if context.output is not None and metadata_entry(str(context.output), KEY) != text:
        storage.write_metadata(str(context.output), KEY, text)

    def make() -> Any:
        model = written.make()
        blocked.set_metadata(model, KEY, text)
        return model

    return replace(written, make=make)


class _Time:
    """The seconds of the stage, which begins now. ``given``: of the budget, ``None``: there is none. ``pace``: of the
    model as it came. ``start``, ``load``: of a process and of a model in the comparison; what is measured is put there.
    """

    def __init__(self, given: Timing | None, pace: ModelTimes) -> None:
        self._given, self._pace, self._began = given, pace, time.monotonic()
        self.start, self.load = RACE_START, pace.load

    @property
    def _taken(self) -> float:
        return time.monotonic() - self._began

    @property
    def _left(self) -> float:
        """Until the latest end."""
        return math.inf if self._given is None else (self._given.at_most or 0.0) - self._taken

    @property
    def is_limited(self) -> bool:
        return self._given is not None

    @property
    def runs_are_long(self) -> bool:
        """Whether a run takes so long that it is made as seldom as can be."""
        return self.is_limited and self._pace.run >= LONG_RUN

    def need(self, what: str, seconds: float = 0.0) -> None:
        """Raises CostError, with ``what`` could not be done, where not even so many seconds are left."""
        if self._left <= seconds:
            raise CostError(f"the budget was over before {what}")

    def need_check(self) -> None:
        """Raises CostError where outputs can be compared no more."""
        self.need("their outputs could be compared", self._pace.kernels_check)

    def measuring(self) -> float | None:
        """What the race and the check will not need; a little more, where these then end late but in time."""
        if self._given is None:
            return None
        seconds, latest = self._given.seconds, self._given.for_least or self._given.at_most or 0.0
        claim = replace(self._pace, load=self.load).claim(self.start)
        after = max(claim, _RACE_PART * seconds) + self._pace.kernels_check + self.checking() / 2.0
        most = max(seconds - after, min(_MEASURING_PART * seconds, latest - after))
        return max(most - self._taken, 0.0)

    def checking(self) -> float:
        """For what is checked beyond the usual inputs; half of it is used where all is well."""
        return _CHECK_SECONDS if self._given is None else min(_CHECK_SECONDS, _CHECK_PART * self._given.seconds)

    def racing(self) -> dict[str, Any]:
        """As :class:`rlflow.race.track.Terms` has it."""
        if self._given is None:
            return {"seconds": _RACE_SECONDS}
        self.need("the whole models could be compared")
        left, taken = self._left, self._taken
        planned = max(self._given.seconds - taken, _RACE_PART * self._given.seconds)
        least = None if self._given.for_least is None else self._given.for_least - taken
        return {"seconds": min(planned, _RACE_SECONDS, left), "at_most": left, "for_least": least}


@dataclass
class _Planning:
    """The making of one plan, for the model that ``source`` is."""

    source: bytes | str
    loaded: Loaded
    context: Context
    time: _Time
    _noise: Any = None  # what the model does by itself, once it is known

    def plan(self) -> KernelPlan:
        """The plan; a note says what it gains. Raises CostError where there is none, with the reason."""
        from rlflow.runtime import RuntimeOptions, Worker

        if self.context.options.tolerated <= 1.0:
            raise CostError("--tolerance strict allows no algorithm that rounds otherwise")
        self.time.need("they could be measured")
        # As prepared files are opened: their graph is optimised.
        options = RuntimeOptions(threads=self.context.options.threads, level="disable", library=library_path())
        with ScratchFolder("rlflow-kernels-") as folder, Worker(options) as worker:
            graph = self._graph(folder)
            if not graph.sites():
                raise CostError("ONNX Runtime's graph of the model has no node that a kernel can do")
            self._start(worker, graph.with_kernels({}))
            times = measured(graph, worker, self._feeds, self.time.measuring(), self.time.runs_are_long)
            return self._among(graph, times, worker)

    def _graph(self, folder: str) -> MappedGraph:
        """The runtime's graph. Its weights, which may be hundreds of megabytes, stay in the file where those of the
        model are already, or come into one in ``folder``; ``source`` is a file beside them from now on.
        """
        from rlflow.frontends import blocked
        from rlflow.kernels.preparing import block_here

        weights, source = self.loaded.weights, self.source
        if weights is None or isinstance(source, bytes) or os.path.dirname(source) != weights.folder:
            self.source, weights = blocked.apart(source, folder)
        optimised = os.path.join(weights.folder, "optimised.onnx")
        self.context.worker.write_optimized(self.source, optimised)
        try:
            return blocked.MappedGraph(optimised, block_here(), weights, self.context.options.threads)
        finally:
            os.unlink(optimised)

    def _start(self, worker: Worker, plain: str) -> None:
        """Start the worker, and open the plain model in it, as each block of the comparison does."""
        began = time.monotonic()
        worker.describe()
        self.time.start = time.monotonic() - began
        if not self.time.runs_are_long:  # else it is not worth its time: the model as it came took about as long
            handle = worker.load(plain)
            self.time.load = handle.load_seconds
            worker.unload(handle)

    @property
    def _feeds(self) -> Mapping[str, Any]:
        return self.context.inputs(self.loaded).feeds[0]

    def _among(self, graph: MappedGraph, times: Mapping[str, Mapping[str, float]], worker: Worker) -> KernelPlan:
        """The fastest choices whose outputs are near enough, if they win the race."""
        if not any(algorithm for one in times.values() for algorithm in one):
            raise CostError("none is for operands of these sizes")
        differs, before = "", None
        for algorithms in _ATTEMPTS:
            choices = chosen(graph.sites(), times, algorithms, GROWTH * graph.weight_bytes)
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

    def _difference(self, model: str, worker: Worker) -> str | None:
        from rlflow import equivalence

        self.time.need_check()
        context, seconds = self.context, self.time.checking()
        run, inputs, seed = equivalence.WorkerRunner(worker), context.inputs(self.loaded), context.options.seed
        if self.time.runs_are_long and inputs.plan is not None:
            # The time is for what shows most, not for a second usual input.
            inputs = replace(inputs, feeds=inputs.feeds[:1])
        if self._noise is None:
            how: dict[str, Any] = {"seed": seed, "plan": inputs.plan, "seconds": seconds, "fused": True}
            # In a hurry, noise is looked for where roundings show only.
            self._noise = equivalence.calibrate(run, self.source, inputs.feeds, **how, moved=not self.time.is_limited)
        found = verified(run_once(run, model), inputs, self.source, model, seed, self._noise, seconds)
        return None if found.passed else (found.failure() or "no reason was given").rstrip(".")

    def _raced(self, model: str, choices: Sequence[Choice], graph: MappedGraph, worker: Worker) -> KernelPlan:
        from rlflow.race import gate

        options, how = self.context.options, self.time.racing()
        # The runtime's graph of the model, opened as the other is: of large models, loading is most of a block.
        plain = graph.with_kernels({})
        how |= {"seed": options.seed, "only": True, "reopened": True}
        decision = gate.choose(worker, plain, {"kernels": model}, self._feeds, **how)
        if decision.winner is None:
            raise CostError(decision.reason)
        version = str(worker.describe()["version"])
        self.context.notes.append(
            f"With kernels for {len(choices)} of its nodes the model is {decision.speedup:.2f} times as fast "
            "here; the plan is in its metadata, and rlflow.kernels.session uses it."
        )
        speedup = round(float(decision.speedup or 1.0), 4)
        return KernelPlan(version, graph.block, options.threads, speedup, tuple(choices))
