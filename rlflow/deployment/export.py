"""Graphs written as ONNX, for the runtime and for the user."""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.files import write_atomically

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.frontends.storage import SharedWeights

#: Models larger than this go to the runtime as files, because a protobuf message may not exceed 2 GB.
_FILE_BYTES = 1_500_000_000


class Export:
    """A graph written as ONNX: the message, and what the runtime loads.

    ``build`` makes the message when it is first needed, without the large weights where ``weights`` holds them; then
    the runtime maps them from there, and ``write`` writes these same bytes. Else ``save`` writes the model to a path,
    of use where the message is too large for one piece. ``external``: the weights of the original were in another
    file.
    """

    def __init__(
        self,
        build: Callable[[], ModelProto],
        folder: Callable[[], Path],
        save: Callable[[str], Any],
        external: bool,
        weights: SharedWeights | None = None,
    ) -> None:
        self._build, self._weights = build, weights
        self._folder, self._save, self._external = folder, save, external
        self._source: bytes | str | None = None
        self._whole: ModelProto | None = None
        self._size: int | None = None

    @functools.cached_property
    def model(self) -> ModelProto:
        """The message. Raises :class:`GraphError` where the model's opset cannot express the graph."""
        return self._build()

    @functools.cached_property
    def _in_file(self) -> bool:
        return self._weights is None and (self._external or self.model.ByteSize() >= _FILE_BYTES)

    @property
    def source(self) -> bytes | str:
        """Serialized ONNX or the path of a temporary file."""
        if self._source is None:
            if self._weights is not None:
                self._source = self._weights.write(self.model, f"{uuid.uuid4().hex}.onnx")
            elif self._in_file:
                self._source = os.path.join(tempfile.mkdtemp(dir=self._folder()), "model.onnx")
                self._save(self._source)
            else:
                self._source = self.model.SerializeToString(deterministic=True)
        return self._source

    def whole(self) -> ModelProto:
        """The message with all weights inside."""
        if self._weights is None:
            return self.model
        if self._whole is None:
            self._whole = self._weights.whole(self.model)
        return self._whole

    @property
    def in_one_file(self) -> bool:
        """Whether the model is written with all of its weights inside."""
        from rlflow.frontends import storage

        if self._weights is not None:
            return not storage.needs_data_file(self.model, self._external)
        return not self._in_file

    def size(self) -> int:
        """Bytes of the message with all weights inside."""
        return self.whole().ByteSize() if self._size is None else self._size

    def write(self, path: Path) -> None:
        """Write the model, with its weights beside it where they were outside the original's file or are too large for
        one.
        """
        from rlflow.frontends import storage

        if self._weights is not None and storage.needs_data_file(self.model, self._external):
            storage.write(self.model, path, self._weights.folder, self._external)
        elif self._weights is not None:
            self._size = self._weights.write_whole(self.model, path)
        elif self._in_file:
            self._save(os.fspath(path))
        else:
            write_atomically(path, self.whole().SerializeToString(deterministic=True))
