"""The wire format of protocol buffers, read in place: for a few names in a file of gigabytes, which need not be parsed,
and for files whose schema is ours to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


class NotProtobuf(Exception):  # noqa: N818 - a finding, which each reader turns into its own error
    """Why bytes are no message, as the end of a sentence."""


class WireField(NamedTuple):
    """One field of a message: its number, and the integer that it holds or where its bytes lie."""

    number: int
    integer: int | None
    begin: int
    end: int


def fields(data: Any, begin: int = 0, end: int | None = None) -> Iterator[WireField]:
    """The fields of the message in ``data[begin:end]`` (bytes, or a mapped file), in order. Integers are signed;
    fields of fixed width have neither integer nor sense here, only their place. Raises :class:`NotProtobuf`.
    """
    end = len(data) if end is None else end
    while begin < end:
        tag, begin = _varint(data, begin, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, after = _varint(data, begin, end)
            yield WireField(number, value - (1 << 64) if value >> 63 else value, begin, after)
            begin = after
            continue
        if kind == _BYTES:
            size, begin = _varint(data, begin, end)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise NotProtobuf(f"a field has wire type {kind}, which is out of use")
        if begin + size > end:
            raise NotProtobuf(f"it ends after {end - begin} of the {size} bytes of a field: the file is cut")
        yield WireField(number, None, begin, begin + size)
        begin += size


def parts(data: Any, part: tuple[int, int], number: int) -> Iterator[tuple[int, int]]:
    """Where the values of one field lie that are bytes (texts, messages) in the message at ``part``, in order."""
    return ((one.begin, one.end) for one in fields(data, *part) if one.number == number and one.integer is None)


# Field numbers of ModelProto.graph, GraphProto.initializer and TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
#: How an entry of TensorProto.external_data begins that says in which file the elements are.
_LOCATION = re.compile(rb"\n\x08location\x12")


def locations(data: Any) -> set[str]:
    """The names of the files in which tensors of an ONNX model lie, as the model has them, wherever in it the tensors
    stand. The elements of its weights are passed over unread. For other kinds of files: what looks like such names.
    """
    found = set[str]()
    for begin, end in _outside_weights(data):
        for entry in _LOCATION.finditer(data, begin, end):
            try:
                size, at = _varint(data, entry.end(), end)
                found.add(bytes(data[at : at + size]).decode())
            except (NotProtobuf, UnicodeDecodeError):  # it only looked like an entry
                continue
    return found


def _outside_weights(data: Any) -> Iterator[tuple[int, int]]:
    """The stretches of a model between the elements of its initialisers; all of a file that is cut or no model."""
    begin, end = 0, len(data)
    try:
        for graph in parts(data, (0, end), _GRAPH):
            for tensor in parts(data, graph, _INITIALIZER):
                for low, high in parts(data, tensor, _RAW_DATA):
                    yield begin, low
                    begin = high
    except NotProtobuf:
        pass
    yield begin, end


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        if shift > 63:
            raise NotProtobuf("a number has more than ten bytes: this is another kind of file")
    raise NotProtobuf("it ends inside a number: the file is cut, or another kind of file")
