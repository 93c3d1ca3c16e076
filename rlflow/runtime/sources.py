"""Models on their way to a worker: small ones as bytes, large ones as files of ours, files as they are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rlflow.errors import ModelError
from rlflow.files import ScratchFolder
from rlflow.runtime.messages import ModelSource

#: Models larger than this go to the worker as a file.
_PIPE_BYTES = 4 << 20


class Sources:
    """What is sent for a model, and the files that were written for it: equal models share one, and the last user
    removes it.
    """

    def __init__(self) -> None:
        self._folder: ScratchFolder | None = None
        self.spilled: dict[str, int] = {}

    def of(self, model: ModelSource) -> bytes | str:
        """Bytes or a path; to be released. Raises :class:`ModelError` for a file that is not there."""
        if isinstance(model, (bytes, bytearray, memoryview)):
            data = bytes(model)
            return data if len(data) <= _PIPE_BYTES else self._spill(data)
        path = os.path.abspath(os.fspath(model))
        if not os.path.isfile(path):
            raise ModelError(f"The model file {path} does not exist.")
        return path

    def release(self, source: bytes | str) -> None:
        """One user less; a file of ours that has none is removed."""
        if isinstance(source, str) and source in self.spilled:
            self.spilled[source] -= 1
            if self.spilled[source] == 0:
                del self.spilled[source]
                Path(source).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all files."""
        self.spilled.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _spill(self, data: bytes) -> str:
        if self._folder is None:
            self._folder = ScratchFolder("rlflow-models-")
        path = os.path.join(self._folder.name, hashlib.blake2b(data, digest_size=16).hexdigest() + ".onnx")
        if path not in self.spilled:
            Path(path).write_bytes(data)
        self.spilled[path] = self.spilled.get(path, 0) + 1
        return path
