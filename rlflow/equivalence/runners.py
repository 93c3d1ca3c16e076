"""Who runs models to compare their outputs, as deployed and with the runtime's optimisations off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def with_known_outputs(runs: Runner, feeds: Sequence[Feeds], known: Mapping[Any, list[Outputs] | None]) -> Runner:
    """``runs``, but for models of which it is known what they compute on ``feeds`` as deployed."""

    ours = feeds

    def run(model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        outputs = known.get(model) if level == "all" and feeds is ours else None
        return runs(model, feeds, level) if outputs is None else outputs

    return run
