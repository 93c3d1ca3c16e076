"""Earlier final comparisons, found again by what was compared: graphs, files, inputs and options."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlflow.runtime import Worker


def kept_comparisons(
    worker: Worker,
    feeds: Mapping[str, np.ndarray],
    models: Mapping[str, tuple[Any, Callable[[], Any]]],
    fresh: bool = False,
) -> Any:
    """Earlier final comparisons of these models in this place: a :class:`rlflow.race.evidence.ComparisonStore`.

    ``models``: by name, with that of the original as "baseline", the graph and what makes the model as it is timed. A
    comparison counts for the same contents only: graphs (which cover the weights), files, inputs, and options.
    ``fresh``: none is recalled.
    """
    from rlflow.price.database import PriceContext
    from rlflow.race.evidence import PROTOCOL, ComparisonStore

    def identity(name: str) -> str:
        found = hashlib.blake2b(digest_size=16)
        for part in (str(PROTOCOL), repr(worker.options), worker.options.effective_clock):
            found.update(part.encode() + b"\0")
        for input_name, array in sorted(feeds.items()):
            found.update(f"{input_name} {array.dtype} {array.shape}\0".encode())
            found.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
        for one in ("baseline", name):
            graph, source = models[one]
            found.update(str(graph.digest).encode() + b"\0")
            _hash_model(found, source())
        return found.hexdigest()

    return ComparisonStore(PriceContext.of(worker.describe(), worker.options.level), identity, fresh)


def _hash_model(found: Any, source: bytes | str | os.PathLike[str]) -> None:
    """The message, or the file; weights that are in a file beside it are the graph's digest's to cover."""
    if isinstance(source, bytes):
        found.update(source)
        return
    with open(source, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
