"""Who runs models to compare their outputs, as deployed and with the runtime's optimisations off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlflow.equivalence.noise import Feeds, Outputs, Runner, WorkerRunner
from rlflow.runtime import Handle, ModelIO, ModelSource, Worker


def runner(reference: Worker, deployed: Worker) -> Runner:
    """Runs models to compare their outputs: as deployed where they are deployed, and tightly in the reference, whose
    optimisations can be switched off.
    """
    if reference is deployed:
        return WorkerRunner(reference)
    tight, loose = WorkerRunner(reference), WorkerRunner(deployed)

    def run(model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        return (tight if level == "disable" else loose)(model, feeds, level)

    return run


class KeptSessions:
    """A worker that opens ``model`` once at each level and keeps these sessions as long as it lives: for comparisons,
    where nothing is timed. Other models come and go as ever.
    """

    def __init__(self, worker: Worker, model: ModelSource) -> None:
        self._worker, self._model = worker, model
        self._kept: dict[str, Handle] = {}

    def load(self, model: ModelSource, *, level: str | None = None, time_limit: float | None = None) -> Handle:
        """A session, new or kept."""
        wanted = level or self._worker.options.level
        if model != self._model:
            return self._worker.load(model, level=wanted, time_limit=time_limit)
        if wanted not in self._kept:
            self._kept[wanted] = self._worker.load(model, level=wanted, time_limit=time_limit)
        return self._kept[wanted]

    def unload(self, handle: Handle) -> None:
        """Free a model that is not kept."""
        if all(handle is not one for one in self._kept.values()):
            self._worker.unload(handle)

    def interface(self, model: ModelSource) -> ModelIO:
        """Inputs and outputs; of the model that is kept, from the session that its outputs will come from."""
        return self.load(model, level="disable").io if model == self._model else self._worker.interface(model)

    def run(self, handle: Handle, feeds: Feeds, *, time_limit: float | None = None) -> Outputs:
        """Outputs by name."""
        return self._worker.run(handle, feeds, time_limit=time_limit)


class CheckProgress(NamedTuple):
    """How far a comparison of outputs is: inputs run so far by either model, and seconds; those that are left at most
    (``None``: no limit).
    """

    inputs: int
    seconds: float
    seconds_left: float | None


def counted(runs: Runner, tell: Callable[[CheckProgress], None] | None, seconds: float | None) -> Runner:
    """``runs``, which tells how many inputs it ran; ``seconds`` is what the whole comparison has."""
    if tell is None:
        return runs
    began, count = time.monotonic(), 0

    def told(feeds: Any) -> Iterator[Feeds]:
        nonlocal count
        for one in feeds:
            yield one
            count += 1
            taken = time.monotonic() - began
            tell(CheckProgress(count, taken, None if seconds is None else max(seconds - taken, 0.0)))

    def run(model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        return runs(model, told(feeds), level)

    return run


def with_known_outputs(runs: Runner, feeds: Sequence[Feeds], known: Mapping[Any, list[Outputs] | None]) -> Runner:
    """``runs``, but for models of which it is known what they compute on ``feeds`` as deployed."""

    ours = feeds

    def run(model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        outputs = known.get(model) if level == "all" and feeds is ours else None
        return runs(model, feeds, level) if outputs is None else outputs

    return run


def run_once(runs: Runner, model: ModelSource) -> Runner:
    """``runs``, for a ``model`` that is deployed with the runtime's optimisations off, because its graph has been
    optimised already: what it computes so is what it computes as deployed, and is not computed again.
    """
    found: list[tuple[Feeds, Outputs]] = []

    def known(feeds: Any) -> list[Outputs]:
        outputs = [next((out for one, out in found if one is wanted), None) for wanted in feeds]
        return [one for one in outputs if one is not None]

    def noted(feeds: Any, taken: list[Feeds]) -> Iterator[Feeds]:
        for one in feeds:
            taken.append(one)
            yield one

    ours = model

    def run(model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        if model != ours:
            return runs(model, feeds, level)
        if level == "all" and len(outputs := known(feeds)) == len(feeds):
            return outputs
        taken: list[Feeds] = []
        outputs = runs(model, noted(feeds, taken), "disable")
        found.extend(zip(taken, outputs, strict=False))  # of what was asked last there may be no answer
        return outputs

    return run
