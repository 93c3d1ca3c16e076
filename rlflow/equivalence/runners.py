"""Who runs models to compare their outputs, as deployed and with the runtime's optimisations off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlflow.equivalence.noise import Feeds, Outputs, Runner, WorkerRunner
from rlflow.runtime import ModelSource, Worker


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
