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
from rlflow.protobuf_wire import NotProtobuf, fields, parts

_GRAPH, _INPUT, _OUTPUT, _NAME = 7, 11, 12, 1  # field numbers of ModelProto, GraphProto and ValueInfoProto
_METADATA, _KEY, _VALUE = 14, 1, 2  # of ModelProto and StringStringEntryProto
_INITIALIZER, _EXTERNAL = 5, 13  # of GraphProto and TensorProto


def interface_names(source: bytes | str) -> tuple[list[str], list[str]]:
    """Input names (listed initialisers included) and output names, in the model's order."""
    found: dict[int, list[str]] = {_INPUT: [], _OUTPUT: []}
    with _content(source) as data, _ending_well():
        for graph in parts(data, (0, len(data)), _GRAPH):
            for inner in fields(data, *graph):
                if inner.number in found:
                    found[inner.number] += _texts(data, inner.begin, inner.end)
    return found[_INPUT], found[_OUTPUT]


def metadata_entry(source: bytes | str, key: str) -> str | None:
    """The value of one of a model's metadata entries, ``None`` where it has no such entry."""
    with _content(source) as data, _ending_well():
        pairs = (_pair(data, entry) for entry in parts(data, (0, len(data)), _METADATA))
        return next((value for name, value in pairs if name == key), None)


def data_files(source: bytes | str) -> list[str]:
    """Names of the files that hold weights of the model's main graph, sorted."""
    with _content(source) as data, _ending_well():
        pairs = {
            _pair(data, entry)
            for graph in parts(data, (0, len(data)), _GRAPH)
            for tensor in parts(data, graph, _INITIALIZER)
            for entry in parts(data, tensor, _EXTERNAL)
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
    except (NotProtobuf, UnicodeDecodeError) as error:
        raise RuntimeRefused("The model is not ONNX: its serialized form ends half-way.") from error


def _pair(data: Any, part: tuple[int, int]) -> tuple[str, str]:
    texts = {one.number: bytes(data[one.begin : one.end]).decode() for one in fields(data, *part)}
    return texts.get(_KEY, ""), texts.get(_VALUE, "")


def _texts(data: Any, begin: int, end: int) -> list[str]:
    return [bytes(data[low:high]).decode() for low, high in parts(data, (begin, end), _NAME)][:1]
