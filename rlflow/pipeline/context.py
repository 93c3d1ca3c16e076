"""The resources of one optimisation: workers, the cost model, a temporary folder, what is told to the user."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.deployment import Inputs, open_worker
from rlflow.deployment.inputs import USUAL
from rlflow.equivalence.runners import KeptSessions, WorkerRunner, runner
from rlflow.equivalence.sizes import usual
from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError, VerificationFailed
from rlflow.files import ScratchFolder, check_output
from rlflow.pipeline.given import check_given
from rlflow.pipeline.kernel_wishes import check_kernels, wants_kernels
from rlflow.pipeline.parts import ModelTimes, Parts
from rlflow.search import Progress, StopToken

if TYPE_CHECKING:
    from rlflow.options import Options
    from rlflow.pipeline import Stages
    from rlflow.pipeline.loading import Loaded
    from rlflow.price import CostModel
    from rlflow.runtime import Worker


def stop_token(stop: Any) -> StopToken:
    """The token itself, or a new one for ``None``. Raises :class:`UsageError` for what is no token."""
    if stop is not None and not isinstance(stop, StopToken):
        raise UsageError(f"What stops the work is {stop!r}; expected a rlflow.search.StopToken.")
    return stop or StopToken()


class Context:
    """What the stages of one optimisation share; closing it gives everything back but ``worker``, which is used where
    it fits.

    Nothing of it is part of a result: a stage reads ``options`` and values of earlier stages, opens here what it needs,
    and leaves sentences for the report in ``notes``. ``stage`` is called with the name of each stage that begins.
    """

    stage: Stages
    parts: Parts

    def __init__(
        self,
        options: Options,
        *,
        output: str | os.PathLike[str] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_stage: Callable[[str], None] | None = None,
        on_pricing: Callable[[Any], None] | None = None,
        on_timing: Callable[[Any], None] | None = None,
        on_checking: Callable[[Any], None] | None = None,
        stop: StopToken | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.options = options
        self.output = None if output is None else Path(output)
        self.on_progress, self.on_pricing = on_progress, on_pricing
        self.on_timing, self.on_checking = on_timing, on_checking
        self.on_stage, self.stop = on_stage, stop_token(stop)
        self.interrupted = StopToken()  # by Ctrl-C, in whichever stage
        self.notes: list[str] = []
        self.started = time.monotonic()
        self._stack = ExitStack()
        self._worker: Worker | None = None
        self._given_worker = worker
        self._kept: KeptSessions | None = None
        self._inputs: Inputs | None = None
        #: Whether results may be for an older opset than the model, where ONNX Runtime is faster by that.
        self.lowers_opset = False

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def preflight(self, model: Any) -> None:
        """Say what cannot work before any work begins: options that cannot be read or do not go together, an output
        that cannot be written, files that cannot be read, what is not installed, a cost model that cannot be used here.
        """
        options = self.options
        options.strategy, options.limits, options.chosen_patience, options.extents, options.place  # noqa: B018
        options.tolerated  # noqa: B018
        check_given(model, options)
        options.chosen_rules  # noqa: B018
        if self.output is not None:
            self.output = check_output(self.output, model)
        check_kernels(options, self.output)
        self.cost_model  # noqa: B018
        self.parts = Parts(options.limits.seconds, options.gate_seconds, kernels=wants_kernels(options))
        self.lowers_opset = options.place.is_default and not options.keep_opset

    def opened(self, resource: Any) -> Any:
        """A context manager that is closed with this one."""
        return self._stack.enter_context(resource)

    @functools.cached_property
    def cost_model(self) -> CostModel:
        """The cost model; raises :class:`RuntimeUnavailable` where it cannot be used here."""
        from rlflow import price

        options = self.options
        if not isinstance(options.cost, str):
            return options.cost
        own = options.place.cost_options(options.cost, options.measure)
        model = price.make(options.cost, threads=options.threads, dims=options.sizes, **own)
        self._stack.callback(model.close)
        reason = model.available()
        if reason is not None:
            raise RuntimeUnavailable(f"The cost model {options.cost!r} cannot be used here: {reason}")
        return model

    @functools.cached_property
    def folder(self) -> Path:
        """A temporary folder."""
        return Path(self.opened(ScratchFolder()))

    @property
    def worker(self) -> Worker:
        """Where the model will run; a command's device is stood in for by ONNX Runtime here."""
        if self._worker is None:
            place = self.options.place
            measures = self.cost_model.measures and place.is_default
            pricing = self.cost_model.worker if measures else None
            # That of the prices is the cost model's to close, and one that was given the giver's.
            there = [one for one in (self._given_worker, pricing) if place.fits(one)]
            self._worker = there[0] if there else self.opened(place.worker())
        assert self._worker is not None
        return self._worker

    @functools.cached_property
    def reference(self) -> Worker:
        """ONNX Runtime on the processor: names the inputs, and computes what outputs are compared with."""
        place = self.options.place
        return self.worker if place.is_default else self.opened(open_worker(self.options.threads))

    @property
    def runner(self) -> Any:
        """Runs models to compare their outputs."""
        return runner(self.reference, self.worker) if self._kept is None else WorkerRunner(self._kept)

    @property
    def runtime(self) -> dict[str, Any] | None:
        """What the deployment worker says of itself; ``None`` where none was opened."""
        return None if self._worker is None else self._worker.describe()

    def keep_sessions(self, loaded: Loaded) -> None:
        """Let the model as it came be opened once for all that it is run for, if it is small and nobody times it."""
        if self.options.place.is_default and loaded.weights is None:
            self._kept = KeptSessions(self.reference, loaded.source)

    def pace(self, loaded: Loaded) -> ModelTimes:
        """How long the model as it came takes here. Nothing is said of one that cannot be run: the stage that needs it
        will.
        """
        try:
            feeds = self.inputs(loaded).feeds[0]
            handle = self.worker.load(loaded.source)
            begun = time.monotonic()
            self.worker.run(handle, feeds)
            found = ModelTimes(handle.load_seconds, time.monotonic() - begun)
            self.worker.unload(handle)
        except (RuntimeCrashed, RuntimeRefused):
            return ModelTimes()
        return found

    def inputs(self, loaded: Loaded, count: int = USUAL) -> Inputs:
        """What the model is timed and verified with, at the usual sizes: ``count`` random ones, drawn once."""
        if self._inputs is None:
            options = self.options
            said = {**usual(loaded.extents), **options.freeze}
            self._inputs = Inputs.of(
                self._kept or self.reference,
                loaded.source,
                loaded.graph,
                said,
                options.input_data,
                options.seed,
                options.freeze,
                count,
            )
            self.notes.extend(self._inputs.notes)
        return self._inputs

    @contextlib.contextmanager
    def blaming_guesses(self) -> Iterator[None]:
        """Failures inside that may come of a guessed size say so."""
        try:
            yield
        except RuntimeUnavailable:
            raise  # no size would help
        except (CostError, VerificationFailed) as error:
            blame = "" if self._inputs is None else self._inputs.sizes.blame
            if blame and blame not in str(error):
                error.args = (f"{error} {blame}",)
            raise
