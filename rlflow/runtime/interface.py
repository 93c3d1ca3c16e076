"""Names of a serialized ONNX model's inputs and outputs, read from the wire format: the runtimes' own files are free of
ONNX libraries, and a model of gigabytes need not be parsed for a few names.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from rlflow.errors import RuntimeRefused

_GRAPH, _INPUT, _OUTPUT, _NAME = 7, 11, 12, 1  # field numbers of ModelProto, GraphProto and ValueInfoProto


def interface_names(source: bytes | str) -> tuple[list[str], list[str]]:
    """Input names (listed initialisers included) and output names, in the model's order."""
    if isinstance(source, bytes):
        return _names(source)
    with open(source, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _names(content)


def _names(data: Any) -> tuple[list[str], list[str]]:
    found: dict[int, list[str]] = {_INPUT: [], _OUTPUT: []}
    try:
        for number, begin, end in _fields(data, 0, len(data)):
            if number == _GRAPH:
                for inner, low, high in _fields(data, begin, end):
                    if inner in found:
                        found[inner] += _texts(data, low, high)
    except (IndexError, UnicodeDecodeError) as error:
        raise RuntimeRefused("The model is not ONNX: its serialized form ends half-way.") from error
    return found[_INPUT], found[_OUTPUT]


def _texts(data: Any, begin: int, end: int) -> list[str]:
    return [bytes(data[low:high]).decode() for number, low, high in _fields(data, begin, end) if number == _NAME][:1]


def _fields(data: Any, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, begin, end) of each length-delimited field; others are skipped."""
    while begin < end:
        tag, begin = _varint(data, begin)
        kind = tag & 7
        if kind == 0:
            _, begin = _varint(data, begin)
        elif kind == 2:
            size, begin = _varint(data, begin)
            if begin + size > end:
                raise IndexError
            yield tag >> 3, begin, begin + size
            begin += size
        elif kind in (1, 5):
            begin += 8 if kind == 1 else 4
        else:
            raise IndexError


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
