"""Length-prefixed messages between a client and its own worker process.

Both ends are this package, started by the same user, so that a message is a pickle. Nothing else may be connected to
these pipes.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO

_HEADER = struct.Struct("<Q")


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message; raises ``OSError`` where the other end is gone."""
    payload = pickle.dumps(message, protocol=5)
    stream.write(_HEADER.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message; raises ``EOFError`` where the other end closed, or died half-way."""
    (length,) = _HEADER.unpack(_exactly(stream, _HEADER.size))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if data is None or len(data) < count:
        raise EOFError("the pipe was closed")
    return data
