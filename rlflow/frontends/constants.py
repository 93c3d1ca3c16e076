"""Content that the core refers to by digest only: constant tensors, and the nodes behind opaque operators.

A tensor's digest is BLAKE2b-128 over element type, shape and elements, so equal tensors are one constant whatever their
names. The weights of an outline have no elements, and are told apart by their names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from rlflow.errors import GraphError, ModelError
from rlflow.frontends.lean import ir
from rlflow.graph import Graph

Array = npt.NDArray[Any]
Facts = tuple[float, float, bool, bool]

INLINE_LIMIT = 1024
# Integers from here on have another meaning in the core (symbols).
_SYMBOLIC = (1 << 62) - 1
# A digest of zeros asks the core for its own, so that a small constant of a file and one that a rule makes are the
# same.
CORE_DIGEST = "0" * 32
#: Says of a tensor without elements that this is meant.
OUTLINED = "outline: no values"
_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_CHUNK = 1 << 22
_FAST = frozenset(
    {"float32", "float64", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)
_FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23})
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 9, 12, 13, 21, 22, 25, 26})
_STRING = int(onnx.TensorProto.STRING)


def is_float(dtype: int) -> bool:
    """Whether an ONNX element type number is a real floating-point one."""
    return dtype in _FLOATS


def numpy_dtype(dtype: int) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) type of an ONNX element type number; raises GraphError where there is none."""
    try:
        return np.dtype(ir.DataType(dtype).numpy())
    except (ValueError, TypeError) as error:
        raise GraphError(f"While making a tensor: element type {dtype} has no array type here.") from error


def onnx_dtype(array: Array) -> int:
    """The ONNX element type number of an array; object and unicode arrays are strings."""
    if array.dtype.kind in "OUS":
        return _STRING
    return int(ir.DataType.from_numpy(array.dtype))


class Content(NamedTuple):
    """One tensor of the store: ONNX element type, shape, and where the elements are."""

    dtype: int
    shape: tuple[int, ...]
    tensor: ir.TensorProtocol


@dataclass(frozen=True)
class Template:
    """The node that an opaque operator stands for.

    ``inputs`` explicit operands come first, then one for each name of ``captured`` that its bodies read from outside.
    """

    node: onnx.NodeProto
    inputs: int
    captured: tuple[str, ...]
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[onnx.FunctionProto, ...] = ()


@dataclass
class ConstantStore:
    """Digest (32 hex digits) -> tensor. Tensors in external files are memory-mapped when they are first read."""

    _contents: dict[str, Content] = field(default_factory=dict)
    _templates: dict[str, Template] = field(default_factory=dict)

    def __contains__(self, digest: object) -> bool:
        return digest in self._contents

    def __len__(self) -> int:
        return len(self._contents)

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __getitem__(self, digest: str) -> Array:
        """The elements, read-only. Raises KeyError for an unknown digest, ModelError where an external file is gone."""
        return read(self._contents[digest].tensor)

    def get(self, digest: str) -> Array | None:
        """Like ``store[digest]``, but None for an unknown digest."""
        return self[digest] if digest in self._contents else None

    def content(self, digest: str) -> Content:
        """Type, shape and source of a tensor. Raises KeyError for an unknown digest."""
        return self._contents[digest]

    def put(self, array: npt.ArrayLike) -> str:
        """Adds an array (copied only if it is not contiguous) and returns its digest."""
        elements = np.asarray(array)
        if elements.dtype.kind in "OUS":
            flat = [text if isinstance(text, bytes) else str(text).encode() for text in elements.reshape(-1)]
            return self.put_tensor(ir.StringTensor(flat, shape=ir.Shape(elements.shape)))
        contiguous = np.ascontiguousarray(elements).reshape(elements.shape)
        return self.put_tensor(ir.Tensor(contiguous, dtype=ir.DataType.from_numpy(elements.dtype)))

    def put_proto(self, proto: onnx.TensorProto, base_dir: str = "") -> str:
        """Adds the tensor of a TensorProto; external data is looked for under ``base_dir``. Returns its digest.

        Raises ModelError where the elements cannot be read, or are not there.
        """
        if _hollow(proto):
            return self._put_outlined(proto)
        try:
            tensor = ir.serde.deserialize_tensor(proto, base_dir)
        except (ValueError, TypeError, ir.serde.SerdeError) as error:
            raise ModelError(f"While reading tensor '{proto.name}': {error}") from error
        return self.put_tensor(tensor)

    def put_tensor(self, tensor: ir.TensorProtocol) -> str:
        """Adds an onnx-ir tensor and returns its digest."""
        elements = read(tensor)
        shape = tuple(int(dim) for dim in elements.shape)
        digest = digest_of(int(tensor.dtype), elements)
        self._contents.setdefault(digest, Content(int(tensor.dtype), shape, tensor))
        return digest

    def _put_outlined(self, proto: onnx.TensorProto) -> str:
        """Adds a tensor that has a name, a type and a shape only: its name tells it from others."""
        shape = tuple(proto.dims)
        if proto.doc_string != OUTLINED:
            raise ModelError(
                f"While reading tensor '{proto.name}': it declares {math.prod(shape)} elements and holds none; "
                "expected its data in the file or beside it."
            )
        digest = hashlib.blake2b(repr((OUTLINED, proto.data_type, shape, proto.name)).encode(), digest_size=16)
        tensor = ir.LazyTensor(_no_elements, dtype=ir.DataType(proto.data_type), shape=ir.Shape(shape), name=proto.name)
        self._contents.setdefault(digest.hexdigest(), Content(proto.data_type, shape, tensor))
        return digest.hexdigest()

    def outlined(self, digest: str) -> bool:
        """Whether the tensor has no elements. Raises KeyError for an unknown digest."""
        return isinstance(self._contents[digest].tensor, ir.LazyTensor)

    def alias(self, digest: str, existing: str) -> None:
        """Lets another digest (the core's, of a small constant) name a tensor of the store.

        Raises KeyError where it has none.
        """
        self._contents.setdefault(digest, self._contents[existing])

    def put_template(self, payload: str, template: Template) -> None:
        """Remembers the node behind an opaque operator's payload; the first one stays."""
        self._templates.setdefault(payload, template)

    def template(self, payload: str) -> Template | None:
        """The node behind a payload, or None where it is unknown."""
        return self._templates.get(payload)

    def to_proto(self, digest: str, name: str) -> onnx.TensorProto:
        """The tensor as a TensorProto with its elements inside. Raises KeyError for an unknown digest."""
        return array_to_proto(self[digest], name, self._contents[digest].dtype)

    def nbytes(self, digest: str) -> int:
        """Size of the elements in bytes, as stored in a model. Raises KeyError for an unknown digest."""
        return int(self._contents[digest].tensor.nbytes)


def outlined(name: str, shape: Sequence[int], dtype: int) -> onnx.TensorProto:
    """A tensor without elements, for models that are searched over and never run; see ``rlflow.zoo.outline``."""
    return onnx.TensorProto(name=name, dims=shape, data_type=dtype, doc_string=OUTLINED)


def _hollow(proto: onnx.TensorProto) -> bool:
    """Whether a tensor that has elements by its shape holds none."""
    if proto.data_location == onnx.TensorProto.EXTERNAL or 0 in proto.dims:
        return False
    return not any(getattr(proto, name) for name in _DATA_FIELDS)


def _no_elements() -> ir.TensorProtocol:
    raise ModelError("the model is an outline, whose large weights have no values; build it to run it")


def read(tensor: ir.TensorProtocol) -> Array:
    """The elements of an onnx-ir tensor.

    Raises ModelError where they cannot be read, for example from a missing file.
    """
    try:
        elements = tensor.numpy()
    except Exception as error:  # onnx-ir, numpy and the file system each have their own family here
        where = f" in '{tensor.path}'" if isinstance(tensor, ir.ExternalTensor) else ""
        raise ModelError(
            f"While reading the elements of tensor '{tensor.name}'{where}: {error}. "
            "If its data is in another file, keep that file beside the model."
        ) from error
    view = elements.view()
    view.flags.writeable = False
    return view


def constant_array(graph: Graph, node: int, store: ConstantStore | None) -> Array | None:
    """The elements of a Constant node: from the store, or the small ones that the core keeps itself; None where nobody
    has them.
    """
    digest = graph.const_digest(node)
    if store is not None and digest in store:
        return store[digest]
    values = graph.const_values(node)
    if values is None:
        return None
    info = graph.attrs(node)["value"]
    return (
        np.asarray(values, np.float64 if is_float(info["dtype"]) else None)
        .astype(numpy_dtype(info["dtype"]))
        .reshape(info["shape"])
    )


def array_to_proto(array: Array, name: str, dtype: int | None = None) -> onnx.TensorProto:
    """An array as a TensorProto with raw elements (string tensors: a list of byte strings)."""
    if array.dtype.kind in "OUS":
        flat = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1)]
        return onnx.TensorProto(name=name, data_type=_STRING, dims=array.shape, string_data=flat)
    element = ir.DataType(onnx_dtype(array) if dtype is None else dtype)
    tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=element, name=name)
    proto = onnx.TensorProto(name=name, data_type=int(element), dims=array.shape)
    proto.raw_data = tensor.tobytes()
    return proto


def digest_of(dtype: int, elements: Array) -> str:
    """BLAKE2b-128 of element type, shape and elements, 32 hex digits."""
    state = hashlib.blake2b(digest_size=16)
    state.update(repr((int(dtype), tuple(int(dim) for dim in elements.shape))).encode())
    if elements.dtype.kind in "OUS":
        for text in elements.reshape(-1):
            raw = text if isinstance(text, bytes) else str(text).encode()
            state.update(len(raw).to_bytes(8, "little"))
            state.update(raw)
    elif elements.size:
        state.update(np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def inline_values(dtype: int, elements: Array) -> list[float] | list[int] | None:
    """The elements as a flat list where the core keeps them itself: at most 1,024, real, and no integer beyond 2^62."""
    if elements.size > INLINE_LIMIT:
        return None
    if dtype in _FLOATS:
        return [float(value) for value in elements.reshape(-1)]
    if dtype in _INTEGERS:
        integers = [int(value) for value in elements.reshape(-1)]
        return integers if all(-_SYMBOLIC < value < _SYMBOLIC for value in integers) else None
    return None


def facts(dtype: int, elements: Array) -> Facts | None:
    """(min, max, all equal, all finite) of a numeric tensor, or None where they make no sense (empty, strings,
    complex).

    A tensor with NaN or infinity reports the infinite range, which is true of it whatever its elements are.
    """
    if not elements.size or (dtype not in _FLOATS and dtype not in _INTEGERS):
        return None
    low, high = math.inf, -math.inf
    for piece in _pieces(elements, dtype):
        smallest, largest = float(piece.min()), float(piece.max())  # either is NaN if an element is
        if not (math.isfinite(smallest) and math.isfinite(largest)):
            return -math.inf, math.inf, False, False
        low, high = min(low, smallest), max(high, largest)
    # Beyond 2^53 two different integers can have one float value.
    uniform = low == high and (dtype in _FLOATS or abs(low) < 1 << 53)
    return low, high, uniform, True


def _pieces(elements: Array, dtype: int) -> Iterable[Array]:
    """Flat pieces in a type that numpy compares fast; 16- and 8-bit floats are widened a piece at a time."""
    flat = elements.reshape(-1)
    slow = elements.dtype.kind == "V" or elements.dtype.name not in _FAST
    for begin in range(0, flat.size, _CHUNK):
        piece = flat[begin : begin + _CHUNK]
        yield piece.astype(np.float32) if slow else piece
