"""Model files: written beside their destination and renamed, with large weights in a second file where one cannot hold
them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from rlflow import files
from rlflow.errors import ModelError, OutputError
from rlflow.files import replacing, temporary_beside, write_atomically
from rlflow.frontends.constants import Array, array_to_proto, read
from rlflow.frontends.lean import ir
from rlflow.frontends.walk import parts
from rlflow.protobuf_wire import NotProtobuf, fields

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
    target = os.fspath(files.real_target(path))
    if files.is_stream(target) or not needs_data_file(model, was_external):
        _require_one_file(model, target)
        embedded = embed(model, base_dir)
        old = _own_data(target)
        write_atomically(target, embedded.SerializeToString(deterministic=True))
        _remove_unused(old, base_dir)
        return embedded
    return _write_external(model, target, base_dir)


def write_apart(model: onnx.ModelProto, path: str) -> None:
    """Writes ``model``, which has its weights inside, to ``path`` and them to ``<path>.data``. Raises OutputError."""
    _write_external(model, path, "")


def needs_data_file(model: onnx.ModelProto, was_external: bool) -> bool:
    """Whether weights go to a file of their own: too many for one file, or many and outside where they came from."""
    total = weight_bytes(model)
    return total >= LARGEST_FILE or (was_external and total >= _LARGE)


def _require_one_file(model: onnx.ModelProto, target: str) -> None:
    if weight_bytes(model) >= LARGEST_FILE:
        raise OutputError(f"The output {target} is a pipe or a device, and weights need a file beside it; name one.")


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
        embed_tensor(tensor, base_dir)
    return whole


def embed_tensor(tensor: onnx.TensorProto, base_dir: str) -> None:
    """Reads a tensor's data into it, in place, where it is in another file. Raises ModelError where that is missing."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        doc = tensor.doc_string
        tensor.CopyFrom(
            array_to_proto(read(ir.serde.deserialize_tensor(tensor, base_dir)), tensor.name, tensor.data_type)
        )
        tensor.doc_string = doc


def _write_external(model: onnx.ModelProto, target: str, base_dir: str) -> onnx.ModelProto:
    """The new data gets a name that no model refers to yet, the model is replaced last, and the data of the model that
    was there goes after that, if no other model needs it: at every moment there is a model with its own weights.
    """
    slim = onnx.ModelProto()
    slim.CopyFrom(model)
    with temporary_beside(target + ".data") as temporary:
        moved = _fill(slim, temporary, base_dir)
        data_path = _placed(temporary, target + ".data")
    for tensor in moved:
        next(entry for entry in tensor.external_data if entry.key == "location").value = os.path.basename(data_path)
    try:
        old = _own_data(target)
        write_atomically(target, slim.SerializeToString(deterministic=True))
    except BaseException:
        if os.path.abspath(data_path) not in _own_data(target):  # a Ctrl-C may come when the model is there already
            _remove(data_path)
        raise
    _remove_unused(old, base_dir)
    return slim


def _fill(slim: onnx.ModelProto, path: str, base_dir: str) -> list[onnx.TensorProto]:
    """Moves the large initialisers of a model, in place, to the file ``path``; those that moved."""
    moved = []
    with open(path, "wb") as data:
        for tensor in slim.graph.initializer:
            if _tensor_bytes(tensor) >= _EXTERNAL_FROM and tensor.data_type != onnx.TensorProto.STRING:
                _move_out(tensor, data, base_dir, "")
                moved.append(tensor)
            else:
                embed_tensor(tensor, base_dir)
    return moved


def _placed(temporary: str, wanted: str) -> str:
    """Moves a file to ``wanted`` or, where something has that name, to ``wanted.1``, ``wanted.2``, …; its new path."""
    for path in itertools.chain([wanted], (f"{wanted}.{number}" for number in itertools.count(1))):
        try:
            os.link(temporary, path)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            if os.path.lexists(path):
                continue
            os.rename(temporary, path)
            return path
        os.unlink(temporary)
        return path
    raise AssertionError("there are more numbers than files")


def _own_data(target: str) -> list[str]:
    """The data files of our naming that the model in ``target``, if there is one, refers to."""
    folder, name = os.path.split(os.path.abspath(target))
    ours = re.compile(rf"{re.escape(name)}\.data(\.\d+)?")
    try:
        neighbours = os.listdir(folder)
    except OSError:  # writing there says it better
        return []
    if not any(ours.fullmatch(there) for there in neighbours):
        return []
    return [os.path.join(folder, found) for found in data_files(target) if ours.fullmatch(found)]


def _remove_unused(data: Sequence[str], base_dir: str) -> None:
    """Removes data files of a model that is no more, but those of other models beside it or in ``base_dir``, where the
    model that was read is: a copy of a model has the same data file.
    """
    if not data:
        return
    used = set[str]()
    for folder in {os.path.dirname(data[0]), os.path.abspath(base_dir)}:
        try:
            with os.scandir(folder) as entries:
                beside = [entry.path for entry in entries if entry.is_file()]
        except OSError:  # who cannot look removes nothing
            return
        used |= {os.path.realpath(one) for path in beside for one in files.data_files(path)}
    for path in data:
        if os.path.realpath(path) not in used:
            _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def data_files(path: str) -> list[str]:
    """The files, relative to the model's folder, that hold tensors of the model in ``path``; none for other files."""
    if not os.path.isfile(path):
        return []
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, OSError, ValueError):
        return []
    outside = (tensor for tensor, _ in parts(model).tensors if tensor.data_location == onnx.TensorProto.EXTERNAL)
    return sorted({entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"})


def _move_out(tensor: onnx.TensorProto, data: BinaryIO, base_dir: str, location: str) -> None:
    raw = _raw(tensor, base_dir)
    data.write(b"\0" * (-data.tell() % _ALIGNMENT))
    offset = data.tell()
    data.write(raw)
    shape, dtype, name, doc = list(tensor.dims), tensor.data_type, tensor.name, tensor.doc_string
    tensor.Clear()
    tensor.dims.extend(shape)
    tensor.data_type, tensor.name, tensor.doc_string = dtype, name, doc
    _refer(tensor, location, offset, len(raw))


def write_metadata(
    path: str | os.PathLike[str], key: str, value: str | None, target: str | os.PathLike[str] | None = None
) -> None:
    """Give a model file's metadata entry its value (``None``: remove it), or write the model so to ``target``. All else
    is copied as it is, unread.

    Raises ModelError where it is no model, and OutputError; then the files are as they were.
    """
    with replacing(path if target is None else target) as stream, open(path, "rb") as file:
        with _content(file) as content:
            try:
                pieces = _with_entry(content, key, value) if content else [_parsed_with_entry(b"", key, value, path)]
            except (NotProtobuf, DecodeError):  # groups, say, which protobuf reads and our reader does not
                pieces = [_parsed_with_entry(content[:], key, value, path)]
        for piece in pieces:
            _pour(piece, file, stream)


@contextlib.contextmanager
def _content(file: BinaryIO) -> Iterator[mmap.mmap | bytes]:
    """The bytes of a file: mapped, or read where the file system maps none, or there are none."""
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        yield file.read()
        return
    with mapped:
        yield mapped


def _parsed_with_entry(content: bytes, key: str, value: str | None, path: str | os.PathLike[str]) -> bytes:
    model = onnx.ModelProto()
    try:
        if not content:
            raise DecodeError("it is empty")
        model.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(f"The file '{os.fspath(path)}' is not a serialised ONNX ModelProto.") from error
    others = [entry for entry in model.metadata_props if entry.key != key]
    del model.metadata_props[:]
    model.metadata_props.extend(others)
    if value is not None:
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _with_entry(content: mmap.mmap | bytes, key: str, value: str | None) -> list[_Piece]:
    """A serialised model with this value of a metadata entry, where a serialisation has it."""
    kept, begin, place = list[_Piece](), 0, 0
    for field in fields(content):
        entry = onnx.StringStringEntryProto()
        if field.number == _METADATA:
            entry.ParseFromString(content[field.begin : field.end])
        if field.number != _METADATA or entry.key != key:
            kept.append((begin, field.end - begin))
        place, begin = len(kept) if field.number <= _METADATA else place, field.end
    added = onnx.ModelProto()
    if value is not None:
        added.metadata_props.add(key=key, value=value)
    return [*kept[:place], added.SerializeToString(), *kept[place:]]


class SharedWeights:
    """The large weights of a model and of its rewrites, each once, in one file that all of them refer to.

    Written so, a model is some kilobytes beside weights that are there already, and a runtime maps them instead of
    parsing and copying them. ``base_dir``: where external data of the original is. Never shrinks.
    """

    _FILE = "weights.bin"

    def __init__(self, folder: str | os.PathLike[str], base_dir: str = "") -> None:
        self.folder, self._base_dir = os.fspath(folder), base_dir
        self._path = os.path.join(self.folder, self._FILE)
        self._places: dict[str, tuple[int, int]] = {}

    def slim(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """``model``, the original, without its large weights."""
        slim = _without_initializers(model)
        slim.graph.initializer.extend(
            self.moved(tensor, f"original:{tensor.name}") for tensor in model.graph.initializer
        )
        return slim

    def joined(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """``model``, what a runtime made of one that refers to these weights: those that it changed are put beside the
        others. There is one such model.
        """
        slim = _without_initializers(model)
        for tensor in model.graph.initializer:
            is_here = tensor.data_location == onnx.TensorProto.EXTERNAL
            slim.graph.initializer.append(tensor if is_here else self.moved(tensor, f"runtime:{tensor.name}"))
        return slim

    def without(self, model: onnx.ModelProto, most: int) -> onnx.ModelProto:
        """``model``, the original, with its tensors of up to ``most`` elements inside and without the others."""
        slim = _without_initializers(model)
        for tensor in model.graph.initializer:
            if math.prod(tensor.dims) > most:
                slim.graph.initializer.append(self.moved(tensor, f"original:{tensor.name}"))
            else:
                slim.graph.initializer.append(tensor)
                embed_tensor(slim.graph.initializer[-1], self._base_dir)
        return slim

    def moved(self, tensor: onnx.TensorProto, key: str) -> onnx.TensorProto:
        """``tensor`` with its elements in the file where they are many and plain bytes; itself otherwise.

        Equal keys, equal elements.
        """
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if not external and len(tensor.raw_data) < _EXTERNAL_FROM:
            return tensor
        if key not in self._places:
            raw = _raw(tensor, self._base_dir)
            self._places[key] = (self._append(raw), len(raw))
        moved = onnx.TensorProto()
        copy_fields(tensor, moved, skip=("raw_data", "external_data", "data_location"))
        _refer(moved, self._FILE, *self._places[key])
        return moved

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The elements of a tensor of a model that refers to these weights."""
        return read(ir.serde.deserialize_tensor(tensor, self.folder))

    def whole(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A model that refers to these weights, with them inside."""
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        with open(self._path, "rb") as file:
            for tensor in whole.graph.initializer:
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    place = {entry.key: entry.value for entry in tensor.external_data}
                    file.seek(int(place["offset"]))
                    tensor.raw_data = file.read(int(place["length"]))
                    del tensor.external_data[:]
                    tensor.ClearField("data_location")
        return whole

    def write_whole(self, model: onnx.ModelProto, path: str | os.PathLike[str]) -> int:
        """Writes what :meth:`whole` makes, the same bytes, without holding them; their number. Raises OutputError."""
        with open(self._path, "rb") as file, replacing(path) as stream:
            tensors = [_pieces(tensor, file) for tensor in model.graph.initializer]
            sizes = [sum(_length(piece) for piece in pieces) for pieces in tensors]
            before, after = _around(model.graph, _INITIALIZER)
            tags = [_tag(_INITIALIZER, size) for size in sizes]
            inside = len(before) + sum(map(len, tags)) + sum(sizes) + len(after)
            head, tail = _around(model, _GRAPH)
            stream.write(head + _tag(_GRAPH, inside) + before)
            for tag, pieces in zip(tags, tensors, strict=True):
                stream.write(tag)
                for piece in pieces:
                    _pour(piece, file, stream)
            stream.write(after + tail)
            return len(head + _tag(_GRAPH, inside) + tail) + inside

    def write(self, model: onnx.ModelProto, name: str) -> str:
        """Writes a model that refers to these weights into the folder; its path."""
        path = os.path.join(self.folder, name)
        write_atomically(path, model.SerializeToString(deterministic=True))
        return path

    def _append(self, raw: bytes) -> int:
        try:
            with open(self._path, "ab") as file:
                file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                offset = file.tell()
                file.write(raw)
        except OSError as error:
            raise OutputError(
                f"While writing weights for the runtime into '{self.folder}': {error.strerror or error}; "
                "point TMPDIR to a place with more room."
            ) from error
        return offset


#: Field numbers of ModelProto.graph, its metadata_props, GraphProto.initializer and TensorProto.raw_data.
_GRAPH, _METADATA, _INITIALIZER, _RAW_DATA = 7, 14, 5, 9
_STEP = 1 << 22

#: Serialised bytes, or (offset, length) in the file of the weights.
_Piece = bytes | tuple[int, int]


def _pieces(tensor: onnx.TensorProto, file: BinaryIO) -> list[_Piece]:
    """A tensor serialised, with its elements inside but still in their file where they are there."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return [tensor.SerializeToString(deterministic=True)]
    place = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key != "location"}
    plain = onnx.TensorProto()
    copy_fields(tensor, plain, skip=("external_data", "data_location"))
    before, after = _around(plain, _RAW_DATA)
    return [before + _tag(_RAW_DATA, place["length"]), (place["offset"], place["length"]), after]


def _around(message: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto, field: int) -> tuple[bytes, bytes]:
    """The serialised fields before and after one, of which nothing is written."""
    numbers = [descriptor.number for descriptor, _ in message.ListFields()]
    parts = []
    for wanted in ([n for n in numbers if n < field], [n for n in numbers if n > field]):
        part = type(message)()
        names = [d.name for d, _ in message.ListFields() if d.number not in wanted]
        copy_fields(message, part, skip=names)
        parts.append(part.SerializeToString(deterministic=True))
    return parts[0], parts[1]


def _tag(field: int, length: int) -> bytes:
    """What stands before the bytes of a field: number and kind, then their number, as base-128 integers."""
    found = bytearray()
    for value in (field << 3 | 2, length):
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        found.append(value)
    return bytes(found)


def _length(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece[1]


def _pour(piece: _Piece, file: BinaryIO, stream: BinaryIO) -> None:
    if isinstance(piece, bytes):
        stream.write(piece)
        return
    offset, left = piece
    file.seek(offset)
    while left > 0:
        part = file.read(min(left, _STEP))
        if not part:
            raise OSError("the file of the weights ended too early")
        stream.write(part)
        left -= len(part)


def _raw(tensor: onnx.TensorProto, base_dir: str) -> bytes:
    """The elements, little-endian and row-major, wherever and however they are stored."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.HasField("raw_data"):
        return tensor.raw_data
    return array_to_proto(read(ir.serde.deserialize_tensor(tensor, base_dir)), tensor.name, tensor.data_type).raw_data


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    slim = onnx.ModelProto()
    copy_fields(model, slim, skip=("graph",))
    copy_fields(model.graph, slim.graph, skip=("initializer",))
    return slim


def copy_fields(
    source: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto,
    target: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto,
    skip: Iterable[str],
) -> None:
    """Copies all set fields of a message but those in ``skip``."""
    for descriptor, value in source.ListFields():
        if descriptor.name in skip:
            continue
        current = getattr(target, descriptor.name)
        if hasattr(current, "extend"):
            current.extend(value)
        elif hasattr(current, "CopyFrom"):
            current.CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)
