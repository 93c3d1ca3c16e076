"""What runs over a connection between a coordinator and a worker: frames of tensors, each as long as it says.

    b"RLF1" | length of the header, uint32 | length of the tensors, uint64 | header, JSON | tensors

The header names the kind of the frame, and dtype and shape of each tensor; the tensors are their plain elements, little
endian and row-major, each begun at a multiple of 64 bytes. Nothing in a frame is code: there is no pickle. Lengths are
held against limits before a byte of what they announce is read or memory for it is taken.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import secrets
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlflow.errors import RlflowError, brief
from rlflow.files import parse_json

_MAGIC = b"RLF1"
_START = struct.Struct("<4sIQ")
_ALIGNMENT = 64
_MOST_HEADER, _MOST_TENSORS, _MOST_RANK, _MOST_NAME, _MOST_EXTENT = 1 << 20, 4096, 32, 10_000, 1 << 48
#: Seconds that stand for "as long as it takes": a socket without a limit would block its other end's thread, too.
_FOR_EVER = 1e6
#: Bytes of tensors in one frame.
MOST_BYTES = 1 << 32
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("bool", "float16", "float32", "float64", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)))
}
_HELLO_BYTES = 4096


class BrokenConnection(RlflowError):  # noqa: N818 - it says what happened
    """The other end closed, kept silent for too long, or sent what is no frame."""


@dataclass(frozen=True)
class Frame:
    """One message: its ``kind`` (``run``, ``done``, ``failed``, …), plain values, and tensors by name."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)


class Connection:
    """A socket that carries frames; ``name`` is what sentences call the other end.

    Raises :class:`BrokenConnection` wherever the other end is gone or does not keep to the form.
    """

    def __init__(self, link: socket.socket, name: str, *, most_bytes: int = MOST_BYTES) -> None:
        self.name, self.most_bytes = name, most_bytes
        # A socket has one time limit; sending and receiving, which two threads do at once, have one each.
        self._link, self._out = link, link.dup()
        if link.family in (socket.AF_INET, socket.AF_INET6):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def close(self) -> None:
        """End the connection; whoever waits on it in another thread is told."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()
        self._out.close()

    def send(self, frame: Frame, seconds: float | None = None) -> None:
        """Send a frame; ``seconds``: that it may take."""
        arrays = {name: _plain(name, array) for name, array in frame.tensors.items()}
        tensors = [
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()
        ]
        header = json.dumps({"kind": frame.kind, "values": frame.values, "tensors": tensors}).encode()
        pieces: list[Any] = [header]
        length = 0
        for array in arrays.values():
            padding = -length % _ALIGNMENT
            pieces += [b"\0" * padding, array.reshape(-1).view(np.uint8).data if array.size else b""]
            length += padding + array.nbytes
        try:
            self._out.settimeout(_FOR_EVER if seconds is None else seconds)
            self._out.sendall(_START.pack(_MAGIC, len(header), length) + header)
            for piece in pieces[1:]:
                self._out.sendall(piece)
        except TimeoutError as error:
            raise BrokenConnection(f"{self.name} took nothing for {seconds:g} s.") from error
        except (OSError, ValueError) as error:
            raise BrokenConnection(f"{self.name} closed the connection.") from error

    def receive(self, seconds: float | None = None, *, idle: float | None = None) -> Frame:
        """The next frame. ``seconds``: that it may take, from now; with ``idle`` (infinite for ever) from its first
        byte, which may be waited for that long.
        """
        start = bytearray(_START.size)
        if idle is not None:
            self._fill(memoryview(start)[:1], idle)
            end = _end(seconds)
            self._fill(memoryview(start)[1:], _left(end), seconds)
        else:
            end = _end(seconds)
            self._fill(memoryview(start), seconds, seconds)
        magic, header_bytes, length = _START.unpack(start)
        if magic != _MAGIC or header_bytes > _MOST_HEADER or length > self.most_bytes:
            raise BrokenConnection(f"{self.name} sent what is no frame of rlflow, or one of {length} bytes; refused.")
        header = bytearray(header_bytes)
        self._fill(memoryview(header), _left(end), seconds)
        kind, values, layout = _layout(bytes(header), length, self.name)
        body = np.empty(length, np.uint8)
        self._fill(body.data, _left(end), seconds)
        tensors = {
            name: body[at : at + count].view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
            for name, dtype, shape, at, count in layout
        }
        return Frame(kind, values, tensors)

    def _fill(self, view: memoryview, seconds: float | None, told: float | None = None) -> None:
        """Reads until ``view`` is full, for ``seconds`` in all."""
        end, got = _end(seconds), 0
        try:
            while got < len(view):
                self._link.settimeout(_left(end))
                count = self._link.recv_into(view[got:])
                if not count:
                    raise BrokenConnection(f"{self.name} closed the connection.")
                got += count
        except TimeoutError as error:
            limit = seconds if told is None else told
            raise BrokenConnection(f"{self.name} did not answer within {limit:g} s.") from error
        except (OSError, ValueError) as error:
            raise BrokenConnection(f"{self.name} closed the connection.") from error


def _end(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else time.monotonic() + seconds


def _left(end: float | None) -> float:
    """Seconds until ``end``; above zero, because a socket takes zero for "do not wait"."""
    return _FOR_EVER if end is None else max(1e-3, end - time.monotonic())


def _plain(name: str, array: Any) -> np.ndarray:
    found = np.asarray(array)
    if found.dtype.name not in _DTYPES:
        raise BrokenConnection(f"The value {name!r} is of the type {found.dtype}, which is not sent between processes.")
    return np.ascontiguousarray(found).reshape(found.shape).astype(_DTYPES[found.dtype.name], copy=False)


def _layout(
    header: bytes, length: int, sender: str
) -> tuple[str, dict[str, Any], list[tuple[str, np.dtype[Any], tuple[int, ...], int, int]]]:
    """(kind, values, (name, dtype, shape, offset, bytes) of each tensor) of a header that anybody may have sent."""
    try:
        found = parse_json(header)
        kind, values, tensors = found["kind"], found["values"], found["tensors"]
        if not (isinstance(kind, str) and isinstance(values, dict) and isinstance(tensors, list) and len(found) == 3):
            raise ValueError("its fields are of other kinds")
        if len(tensors) > _MOST_TENSORS:
            raise ValueError(f"it has {len(tensors)} tensors")
        layout, at = [], 0
        for one in tensors:
            name, dtype, shape = one["name"], _DTYPES[one["dtype"]], tuple(one["shape"])
            if not isinstance(name, str) or len(name) > _MOST_NAME or len(shape) > _MOST_RANK or len(one) != 3:
                raise ValueError("a tensor's name or shape is too long")
            if not all(type(extent) is int and 0 <= extent <= _MOST_EXTENT for extent in shape):
                raise ValueError(f"the extents {brief(shape, 60)} of a tensor make no sense")
            at += -at % _ALIGNMENT
            count = math.prod(shape) * dtype.itemsize
            layout.append((name, dtype, shape, at, count))
            at += count
        if at != length or len({name for name, *_ in layout}) < len(layout):
            raise ValueError(f"its tensors take {at} bytes, and {length} follow")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BrokenConnection(f"{sender} sent a frame that cannot be read: {brief(error)}.") from error
    return kind, values, layout


# -- who is who


def greet(link: Connection, token: bytes, seconds: float, *, as_worker: bool) -> None:
    """Both ends show that they know the token, which itself never crosses the connection (HMAC-SHA256 of fresh random
    numbers, compared in constant time). Until then frames are small and carry no tensors. Raises BrokenConnection.
    """
    usual, link.most_bytes = link.most_bytes, 0
    mine = secrets.token_hex(16)
    role, other = ("worker", "coordinator") if as_worker else ("coordinator", "worker")
    link.send(Frame("hello", {"number": mine}), seconds)
    theirs = _text(link, link.receive(seconds), "hello", "number")
    link.send(Frame("proof", {"proof": _proof(token, role, mine, theirs)}), seconds)
    proof = _text(link, link.receive(seconds), "proof", "proof")
    if not hmac.compare_digest(proof.encode(), _proof(token, other, theirs, mine).encode()):
        raise BrokenConnection(f"{link.name} does not know the token; both ends need the same token file.")
    link.most_bytes = usual


def _proof(token: bytes, role: str, own: str, other: str) -> str:
    return hmac.new(token, f"rlflow {role} {own} {other}".encode(), "sha256").hexdigest()


def _text(link: Connection, frame: Frame, kind: str, key: str) -> str:
    found = frame.values.get(key)
    if frame.kind != kind or not isinstance(found, str) or len(found) > _HELLO_BYTES:
        raise BrokenConnection(f"{link.name} does not speak as a worker of rlflow does.")
    return found


def listening(host: str, port: int) -> socket.socket:
    """A socket that waits for connections. Raises BrokenConnection, with the system's reason."""
    try:
        found = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise BrokenConnection(
            f"Nothing can listen on {host}:{port}: {getattr(error, 'strerror', None) or error}."
        ) from error
    return found


def connected(host: str, port: int, seconds: float, name: str) -> Connection:
    """A connection to who listens there. Raises BrokenConnection, with the system's reason."""
    try:
        link = socket.create_connection((host, port), timeout=seconds)
    except (OSError, OverflowError) as error:
        reason = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else error.args[-1]
        raise BrokenConnection(f"{name} cannot be reached at {host}:{port}: {reason}.") from error
    return Connection(link, name)


def token_of(path: str) -> bytes:
    """The token in a file. Raises RlflowError for a file that holds none, or one that can be guessed."""
    from rlflow.files import check_readable

    check_readable(path, "The token file", BrokenConnection)
    with open(path, "rb") as stream:
        token = stream.read(_HELLO_BYTES).strip()
    if len(token) < 16:
        raise BrokenConnection(
            f"The token in {path!r} has {len(token)} characters; expected at least 16, as `openssl rand -hex 32` makes."
        )
    return token
