"""Model files: written beside their destination and renamed, with large weights in a second file where one cannot hold
them.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import onnx
import onnx_ir as ir

from rlflow.files import replacing, write_atomically
from rlflow.frontends.constants import array_to_proto, read

# Protobuf refuses messages of 2 GB; half a quarter is left for everything that is not a weight.
LARGEST_FILE = 1_750_000_000
# A model whose weights came in another file keeps them in one from this size on.
_LARGE = 100_000_000
# Tensors below this stay in the model (ONNX's own threshold).
_EXTERNAL_FROM = 1024
_ALIGNMENT = 4096


def write(model: onnx.ModelProto, path: str | os.PathLike[str], base_dir: str, was_external: bool) -> onnx.ModelProto:
    """Writes ``model`` to ``path``, weights to ``<path>.data`` where they are too many; returns the model as written.

    ``base_dir``: where external data of ``model`` is now. Both files appear whole or not at all. Raises OutputError.
    """
    target = os.fspath(path)
    total = weight_bytes(model)
    if total < LARGEST_FILE and not (was_external and total >= _LARGE):
        embedded = embed(model, base_dir)
        write_atomically(target, embedded.SerializeToString(deterministic=True))
        return embedded
    return _write_external(model, target, base_dir)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all initialisers of the main graph, wherever they are."""
    return sum(_tensor_bytes(tensor) for tensor in model.graph.initializer)


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        length = next((entry.value for entry in tensor.external_data if entry.key == "length"), None)
        if length is not None:
            return int(length)
        return int(ir.serde.deserialize_tensor(tensor).nbytes)
    return len(tensor.raw_data) or tensor.ByteSize()


def embed(model: onnx.ModelProto, base_dir: str) -> onnx.ModelProto:
    """The model with all weights inside; itself where they are already. Raises ModelError for a missing data file."""
    if not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        _embed_tensor(tensor, base_dir)
    return whole


def _embed_tensor(tensor: onnx.TensorProto, base_dir: str) -> None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        doc = tensor.doc_string
        tensor.CopyFrom(
            array_to_proto(read(ir.serde.deserialize_tensor(tensor, base_dir)), tensor.name, tensor.data_type)
        )
        tensor.doc_string = doc


def _write_external(model: onnx.ModelProto, target: str, base_dir: str) -> onnx.ModelProto:
    data_path = target + ".data"
    slim = onnx.ModelProto()
    slim.CopyFrom(model)
    with replacing(data_path) as data:
        for tensor in slim.graph.initializer:
            if _tensor_bytes(tensor) >= _EXTERNAL_FROM and tensor.data_type != onnx.TensorProto.STRING:
                _move_out(tensor, data, base_dir, os.path.basename(data_path))
            else:
                _embed_tensor(tensor, base_dir)
    write_atomically(target, slim.SerializeToString(deterministic=True))
    return slim


def _move_out(tensor: onnx.TensorProto, data: BinaryIO, base_dir: str, location: str) -> None:
    raw = array_to_proto(read(ir.serde.deserialize_tensor(tensor, base_dir)), tensor.name, tensor.data_type).raw_data
    data.write(b"\0" * (-data.tell() % _ALIGNMENT))
    place = {"location": location, "offset": str(data.tell()), "length": str(len(raw))}
    data.write(raw)
    shape, dtype, name, doc = list(tensor.dims), tensor.data_type, tensor.name, tensor.doc_string
    tensor.Clear()
    tensor.dims.extend(shape)
    tensor.data_type, tensor.name, tensor.doc_string = dtype, name, doc
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in place.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
