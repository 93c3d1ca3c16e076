"""The parts of a model one after the other, where a whole model is taken: what the check of outputs compares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlflow.equivalence import WorkerRunner
from rlflow.runtime import Handle, ModelSource, Worker
from rlflow.splitting.manifest import Manifest


class OpenModels(NamedTuple):
    """What is open in the worker: a model, or the parts of one."""

    handles: list[Handle]
    is_chain: bool


class ChainWorker:
    """A worker's ``load``, ``run`` and ``unload``, for models and for a ``folder`` with the parts of one.

    Parts are loaded together and run in turn; a run gives what the whole would give.
    """

    def __init__(self, worker: Worker, folder: str, manifest: Manifest) -> None:
        self._worker, self.folder, self._manifest = worker, folder, manifest

    def load(self, model: ModelSource, *, level: str | None = None, time_limit: float | None = None) -> OpenModels:
        """Open a model, or all parts of the one in the folder."""
        chain = model == self.folder
        found = OpenModels([], chain)
        try:
            for source in self._files() if chain else [model]:
                found.handles.append(self._worker.load(source, level=level, time_limit=time_limit))
        except BaseException:
            self.unload(found)
            raise
        return found

    def _files(self) -> list[str]:
        return [os.fspath(Path(self.folder) / part.file) for part in self._manifest.parts]

    def unload(self, loaded: OpenModels) -> None:
        """Free them all."""
        for handle in loaded.handles:
            self._worker.unload(handle)

    def run(self, loaded: OpenModels, feeds: Mapping[str, Any], *, time_limit: float | None = None) -> dict[str, Any]:
        """Outputs of the whole by name."""
        if not loaded.is_chain:
            return self._worker.run(loaded.handles[0], feeds, time_limit=time_limit)
        known = self.values(loaded, feeds, time_limit)
        return {info.name: known[info.name] for info in self._manifest.outputs}

    def values(self, loaded: OpenModels, feeds: Mapping[str, Any], time_limit: float | None = None) -> dict[str, Any]:
        """Everything that a run of the parts hands over, and its inputs and outputs, by name."""
        known = dict(feeds)
        for handle, part in zip(loaded.handles, self._manifest.parts, strict=True):
            given = {info.name: known[info.name] for info in part.inputs}
            known |= self._worker.run(handle, given, time_limit=time_limit)
        return known


def chain_runner(worker: Worker, folder: str, manifest: Manifest) -> WorkerRunner:
    """Runs models, and the parts in ``folder`` as one, to compare their outputs."""
    # It loads, runs and unloads, which is all that a runner asks of a worker.
    return WorkerRunner(ChainWorker(worker, folder, manifest))  # type: ignore[arg-type]
