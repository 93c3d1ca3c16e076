"""Stage 4c: how much memory the original and the winner need at their peak, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.errors import RuntimeCrashed, RuntimeRefused

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced
    from rlflow.runtime import Worker

__all__ = ["peak_memory"]


def peak_memory(loaded: Loaded, raced: Raced, context: Context) -> tuple[int, int] | None:
    """Bytes before and after; ``None`` where no clock was used, nothing was gained, the time is over, or the system
    does not say.
    """
    if raced.winner is None or raced.decision is None or context.options.place.command is not None:
        return None
    if not context.worker.runtime.on_processor or not context.parts.allows_memory():
        return None
    context.stage("memory", "measuring the peak memory")
    feeds = context.inputs(loaded).feeds[0]
    sources = {"before": loaded.source, "after": raced.winner.export.source}
    try:
        before, after = (
            peak(context.worker, in_file(source, context.folder / f"{name}.onnx"), feeds)
            for name, source in sources.items()
        )
    except (RuntimeCrashed, RuntimeRefused):  # both ran a moment ago; a report without this figure is still right
        return None
    return None if before is None or after is None else (before, after)


def peak(worker: Worker, model: str, feeds: Any) -> int | None:
    """Bytes that opening a model's file and running it once add to the largest size of a fresh process."""
    worker.restart()
    before = worker.peak_memory()
    if before is None:
        return None
    handle = worker.load(model)
    try:
        worker.run(handle, feeds)
        after = worker.peak_memory()
    finally:
        worker.unload(handle)
    return None if after is None else after - before


def in_file(source: bytes | str, path: Path) -> str:
    """The model as a file, as it is deployed: a message in memory would be counted, too."""
    if isinstance(source, bytes):
        path.write_bytes(source)
        return str(path)
    return source
