"""What is asked of a model before any of it is believed: text that is text, tensors that are as long as they say, data
files in the model's own folder, functions that end.

The data files of tensors that are no initialisers of the main graph (in bodies, functions and Constant nodes) are read
into the model here, so that everything after this carries them without knowing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from rlflow.errors import ModelError
from rlflow.frontends import scopes, storage, walk
from rlflow.frontends.lean import ir

#: Nodes that the functions of a model may become where each call is replaced by what is called, as runtimes do.
MOST_NODES = 1_000_000
#: Characters of a name; shapes repeat the names of dimensions many times over.
LONGEST_NAME = 10_000
_Tensor = onnx.TensorProto
_EXTERNAL = onnx.TensorProto.EXTERNAL


def admit(model: onnx.ModelProto, base_dir: str, place: str) -> bool:
    """Checks a model and reads its inner tensors from their files, in place; whether it came with data files.

    Raises ModelError, whose sentence calls the model ``place``.
    """
    parts = walk.parts(model)
    _require_text(model, parts, place)
    _require_ending_functions(model, place)
    external = False
    inner_bytes = 0
    for tensor, inner in parts.tensors:
        size = _checked_size(tensor, base_dir)
        if tensor.data_location == _EXTERNAL:
            external = True
            inner_bytes += size if inner else 0
    if inner_bytes > storage.LARGEST_FILE:
        raise ModelError(
            f"While loading a model: the bodies, functions and Constant nodes of {place} have {inner_bytes} bytes in "
            f"other files; at most {storage.LARGEST_FILE} can be carried. Make them initialisers of the main graph."
        )
    for tensor, inner in parts.tensors:
        if inner:
            storage.embed_tensor(tensor, base_dir)
    return external


def _require_text(model: onnx.ModelProto, parts: walk.ModelParts, place: str) -> None:
    """Names in a file are bytes, and protobuf hands out those that are no text as such: they would fail anywhere."""
    infos = [info for graph in parts.graphs for info in (*graph.input, *graph.output, *graph.value_info)]
    for texts in _texts(model, parts, infos):
        try:
            "".join(texts)  # the fastest way to see that all of them are text
        except TypeError as error:
            found = next(bytes(text[:40]) for text in texts if isinstance(text, bytes))
            raise ModelError(
                f"While loading a model: {place} has a name that is not UTF-8 text, {found!r}; expected text."
            ) from error
    longest = max((len(dim) for info in infos for dim in _dim_names(info)), default=0)
    if longest > LONGEST_NAME:
        raise ModelError(
            f"While loading a model: {place} names a dimension with {longest} characters; expected {LONGEST_NAME} at "
            "most. Give it a shorter name."
        )


def _texts(model: onnx.ModelProto, parts: walk.ModelParts, infos: Iterable[onnx.ValueInfoProto]) -> Iterator[list[Any]]:
    """All texts of a model (bytes where they are no text), in handfuls."""
    yield [model.producer_name, model.producer_version, model.domain, model.doc_string, *_pairs(model.metadata_props)]
    yield [entry.domain for entry in model.opset_import]
    for function in model.functions:
        yield [function.domain, function.name, function.overload, function.doc_string, *function.attribute]
        yield [*function.input, *function.output, *(entry.domain for entry in function.opset_import)]
        yield [attribute.name for attribute in function.attribute_proto]
    for graph in parts.graphs:
        yield [graph.name, graph.doc_string, *_pairs(graph.metadata_props)]
    for info in infos:
        yield [info.name, info.doc_string, *_dim_names(info)]
    for node in parts.nodes:
        yield [node.name, node.op_type, node.domain, node.overload, node.doc_string, *node.input, *node.output]
        yield [*_pairs(node.metadata_props), *(attribute.name for attribute in node.attribute)]
        yield [text for one in node.attribute for text in (one.doc_string, one.ref_attr_name)]
    for tensor, _ in parts.tensors:
        yield [tensor.name, tensor.doc_string, *_pairs(tensor.external_data)]


def _pairs(entries: Iterable[onnx.StringStringEntryProto]) -> list[str]:
    return [text for entry in entries for text in (entry.key, entry.value)]


def _dim_names(info: onnx.ValueInfoProto) -> list[str]:
    return [dim.dim_param for dim in info.type.tensor_type.shape.dim]


# -- tensors


def _checked_size(tensor: _Tensor, base_dir: str) -> int:
    """Bytes of a tensor whose data is outside, 0 for others. Raises ModelError for what cannot be so."""
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(
            f"While reading tensor '{tensor.name}': its shape is {list(tensor.dims)}; expected no negative dimension."
        )
    if tensor.data_location != _EXTERNAL:
        return 0
    where = {entry.key: entry.value for entry in tensor.external_data}
    path = _require_inside(tensor, where.get("location", ""), base_dir)
    size = _bytes_of(tensor)
    offset, length = (_count(tensor, key, where[key]) if key in where else None for key in ("offset", "length"))
    if length is not None and length != size:
        raise ModelError(
            f"While reading tensor '{tensor.name}': its data is said to be {length} bytes long, and its type and shape "
            f"{list(tensor.dims)} need {size}."
        )
    there = os.path.getsize(path)
    if (offset or 0) + size > there:
        raise ModelError(
            f"While reading tensor '{tensor.name}': its data ends at byte {(offset or 0) + size} of "
            f"'{where.get('location')}', which has {there}; the file is truncated, or belongs to another model."
        )
    return size


def _bytes_of(tensor: _Tensor) -> int:
    try:
        if tensor.data_type in (_Tensor.STRING, _Tensor.UNDEFINED):
            raise ValueError
        bits = int(ir.DataType(tensor.data_type).itemsize * 8)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"While reading tensor '{tensor.name}': its data is in another file, and element type {tensor.data_type} "
            "has no fixed size there."
        ) from error
    return -(-math.prod(tensor.dims) * bits // 8)


def _count(tensor: _Tensor, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ModelError(
            f"While reading tensor '{tensor.name}': the {key} of its data is '{text[:40]}'; expected a number of bytes."
        )
    return int(text)


def _require_inside(tensor: _Tensor, location: str, base_dir: str) -> str:
    """The path of a data file. Refuses those outside the model's directory, as onnx does: a model must not name any
    file it likes.
    """
    root = os.path.realpath(base_dir or os.curdir)
    path = os.path.realpath(os.path.join(root, location)) if "\0" not in location else ""
    if not path or os.path.commonpath([root, path]) != root:
        raise ModelError(
            f"While reading tensor '{tensor.name}': its data is in {location!r}, outside the model's directory; "
            "expected a file inside."
        )
    if not os.path.isfile(path):
        raise ModelError(
            f"While reading tensor '{tensor.name}': its data file '{location}' is not beside the model (in '{root}'). "
            "Keep the data file with the model, or load the model from its path."
        )
    return path


# -- functions


def _require_ending_functions(model: onnx.ModelProto, place: str) -> None:
    """Refuses functions that call themselves, and those that call each other until nothing can hold the result."""
    table = scopes.function_table(model)
    sizes: dict[scopes.FunctionKey, int] = {}
    for key in table:
        _expand(key, table, sizes, place)
    total = sum(sizes.get(scopes.key_of(node), 1) for node in scopes.all_nodes(model.graph.node)) if table else 0
    most = max([total, *sizes.values()])
    if most > MOST_NODES:
        raise ModelError(
            f"While loading a model: with its functions written out, {place} has {_rounded(most)} nodes; expected "
            f"{MOST_NODES} at most."
        )


def _expand(
    first: scopes.FunctionKey,
    table: dict[scopes.FunctionKey, onnx.FunctionProto],
    sizes: dict[scopes.FunctionKey, int],
    place: str,
) -> None:
    """Notes how many nodes each function becomes, the called ones before their callers."""
    waiting, open_ones = [first], set[scopes.FunctionKey]()
    while waiting:
        key = waiting[-1]
        if key in sizes:
            waiting.pop()
            continue
        called = [scopes.key_of(node) for node in scopes.all_nodes(table[key].node)]
        missing = [other for other in called if other in table and other not in sizes]
        if key in open_ones and missing:
            raise ModelError(
                f"While loading a model: the function {key[1]} of {place} calls itself; expected functions that end."
            )
        open_ones.add(key)
        if not missing:
            sizes[key] = sum(sizes.get(other, 1) for other in called) + 1
        waiting.extend(missing)


def _rounded(count: int) -> str:
    return str(count) if count < 10**9 else f"more than 10^{len(str(count)) - 1}"
