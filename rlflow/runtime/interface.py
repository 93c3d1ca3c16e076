"""Names of a serialized ONNX model's inputs and outputs, and its metadata, read from the wire format: the runtimes' own
files are free of ONNX libraries, and a model of gigabytes need not be parsed for a few names.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlflow.errors import RuntimeRefused

_GRAPH, _INPUT, _OUTPUT, _NAME = 7, 11, 12, 1  # field numbers of ModelProto, GraphProto and ValueInfoProto
_METADATA, _KEY, _VALUE = 14, 1, 2  # of ModelProto and StringStringEntryProto
_INITIALIZER, _EXTERNAL = 5, 13  # of GraphProto and TensorProto


def interface_names(source: bytes | str) -> tuple[list[str], list[str]]:
    """Input names (listed initialisers included) and output names, in the model's order."""
    with _content(source) as content:
        return _names(content)


def metadata_entry(source: bytes | str, key: str) -> str | None:
    """The value of one of a model's metadata entries, ``None`` where it has no such entry."""
    with _content(source) as data, _ending_well():
        pairs = (_pair(data, begin, end) for number, begin, end in _fields(data, 0, len(data)) if number == _METADATA)
        return next((value for name, value in pairs if name == key), None)


def data_files(source: bytes | str) -> list[str]:
    """Names of the files that hold weights of the model's main graph, sorted."""
    with _content(source) as data, _ending_well():
        pairs = {
            _pair(data, *entry)
            for graph in _within(data, (0, len(data)), _GRAPH)
            for tensor in _within(data, graph, _INITIALIZER)
            for entry in _within(data, tensor, _EXTERNAL)
        }
    return sorted(value for name, value in pairs if name == "location")


@contextmanager
def _content(source: bytes | str) -> Iterator[Any]:
    if isinstance(source, bytes):
        yield source
        return
    with open(source, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:  # cannot be mapped
            yield b""
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


@contextmanager
def _ending_well() -> Iterator[None]:
    """What is no ONNX is refused in a sentence."""
    try:
        yield
    except (IndexError, UnicodeDecodeError) as error:
        raise RuntimeRefused("The model is not ONNX: its serialized form ends half-way.") from error


def _within(data: Any, part: tuple[int, int], number: int) -> Iterator[tuple[int, int]]:
    return ((begin, end) for found, begin, end in _fields(data, *part) if found == number)


def _pair(data: Any, begin: int, end: int) -> tuple[str, str]:
    texts = {number: bytes(data[low:high]).decode() for number, low, high in _fields(data, begin, end)}
    return texts.get(_KEY, ""), texts.get(_VALUE, "")


def _names(data: Any) -> tuple[list[str], list[str]]:
    found: dict[int, list[str]] = {_INPUT: [], _OUTPUT: []}
    with _ending_well():
        for graph in _within(data, (0, len(data)), _GRAPH):
            for inner, low, high in _fields(data, *graph):
                if inner in found:
                    found[inner] += _texts(data, low, high)
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
