"""What the runtime loads for a model as it came."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlflow.deployment.place import Deployment
    from rlflow.frontends.storage import SharedWeights

#: Models with more weights than this share them in a file when they are timed and compared.
_SHARED_BYTES = 16 << 20


def shared_weights(imported: Any, place: Deployment, folder: Callable[[], Path]) -> SharedWeights | None:
    """A file for the weights of a model and its rewrites; ``None`` where they are few, or where the model runs in
    something else than ONNX Runtime here, which maps such files.
    """
    from rlflow.frontends import storage
    from rlflow.runtime import runtime

    if place.command is not None or storage.weight_bytes(imported.origin.model) < _SHARED_BYTES:
        return None
    if not runtime(place.runtime).maps_weights:
        return None
    return storage.SharedWeights(folder(), imported.origin.base_dir)


def as_source(model: Any) -> bytes | str:
    """What the runtime can load: a path, or serialized ONNX."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    return bytes(model.SerializeToString())


def source_of(imported: Any, model: Any) -> bytes | str:
    return as_source(model) if imported.source_path is None else os.fspath(imported.source_path)
