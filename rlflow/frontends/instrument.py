"""Variants of a model that tell about the model itself: one that shows the range of values inside it, and one whose
weights are moved by a rounding.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlflow.errors import ModelError, OutputError
from rlflow.files import ScratchFolder
from rlflow.frontends import storage
from rlflow.frontends.opening import parse_model, read_model

#: Models with more bytes of weights than this are not copied to be watched.
MOST_BYTES = 1 << 28
#: Of models with more than the first figure only small tensors are moved, scales, biases and normalisations, which
#: reach all elements: the others are written once, for all variants to map. Of those beyond the second nothing is.
MOVED_BYTES, MOVED_IN_PART = 1 << 26, 1 << 29
#: Elements of a small tensor, at most.
SMALL = 1 << 16


def opened(source: bytes | str | os.PathLike[str], most: int = MOST_BYTES) -> onnx.ModelProto | None:
    """The model with its weights inside, or ``None`` where they have more than ``most`` bytes or cannot be read."""
    try:
        if isinstance(source, bytes):
            return parse_model(source, "the model") if len(source) <= most else None
        if os.path.getsize(source) > most:
            return None
        model = read_model(os.fspath(source))
        if storage.weight_bytes(model) > most:
            return None
        return storage.embed(model, os.path.dirname(os.path.abspath(source)))
    except (ModelError, OSError):
        return None


@contextlib.contextmanager
def moving(source: bytes | str | os.PathLike[str]) -> Iterator[Callable[[int], bytes | str | None]]:
    """Gives a variant of the model with its weights moved by a rounding (:func:`nudged`), by a seed: serialized, or a
    path that is good until the context ends. ``None`` where the model is too large or has nothing to move.
    """
    if (model := opened(source, MOVED_BYTES)) is not None:
        yield lambda seed: _moved(model, seed)
        return
    with ScratchFolder() as folder:
        slim = _slim(source, folder)

        def variant(seed: int) -> str | None:
            found = None if slim is None else _moved(slim, seed)
            return None if found is None else _written(found, os.path.join(folder, f"{seed}.onnx"))

        yield variant


def _moved(model: onnx.ModelProto, seed: int) -> bytes | None:
    variant = onnx.ModelProto()
    variant.CopyFrom(model)
    return variant.SerializeToString() if nudged(variant, seed) else None


def _written(data: bytes, path: str) -> str:
    Path(path).write_bytes(data)
    return path


def _slim(source: bytes | str | os.PathLike[str], folder: str) -> onnx.ModelProto | None:
    """The model with its small tensors inside and the others in a file in ``folder``; ``None`` if it is too large."""
    try:
        path = None if isinstance(source, bytes) else os.path.abspath(source)
        if (len(source) if isinstance(source, bytes) else os.path.getsize(source)) > MOVED_IN_PART:
            return None
        model = parse_model(source, "the model") if isinstance(source, bytes) else read_model(os.fspath(source))
        if storage.weight_bytes(model) > MOVED_IN_PART:
            return None
        if path is not None and _copied(model, os.path.dirname(path), folder):
            return model
        return storage.SharedWeights(folder, "" if path is None else os.path.dirname(path)).without(model, SMALL)
    except (ModelError, OutputError, OSError):
        return None


def _copied(model: onnx.ModelProto, home: str, folder: str) -> bool:
    """Copy the files with the large tensors to ``folder``, as they are, and read the small ones into ``model``; False
    where some are in no file, or in one of another folder.
    """
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > SMALL]
    names = {entry.value for tensor in large for entry in tensor.external_data if entry.key == "location"}
    inside = any(tensor.data_location != TensorProto.EXTERNAL for tensor in large)
    if inside or not names or any(os.path.basename(name) != name or _is_ours(name) for name in names):
        return False
    if sum(os.path.getsize(os.path.join(home, name)) for name in names) > MOVED_IN_PART:
        return False  # the file may be that of other models, too
    for name in names:
        shutil.copyfile(os.path.join(home, name), os.path.join(folder, name))
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            storage.embed_tensor(tensor, home)
    return True


def _is_ours(name: str) -> bool:
    """Whether a file of this name may be one of the folder's own: a variant, or the mark of its owner."""
    return name.endswith(".onnx") or name.startswith(".")


def watching(model: onnx.ModelProto, values: Sequence[str]) -> onnx.ModelProto:
    """``model`` with two outputs per value and no others: its least and its greatest element (``rlflow.least.0``)."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    for number, value in enumerate(values):
        wide = f"rlflow.float.{number}"
        watched.graph.node.append(helper.make_node("Cast", [value], [wide], to=TensorProto.FLOAT))
        for kind, reduction in (("least", "ReduceMin"), ("greatest", "ReduceMax")):
            name = f"rlflow.{kind}.{number}"
            watched.graph.node.append(helper.make_node(reduction, [wide], [name], keepdims=0))
            watched.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))
    return watched


def nudged(model: onnx.ModelProto, seed: int) -> int:
    """Move every weight of ``model`` that is inside it to one of its two neighbours, at random, in place; how many.

    Zeros stay, and so does what Pow and Resize read, and scalars (an exponent of 2, say) but for those that only scale:
    a rewrite that multiplies by the reciprocal, or folds a scale into weights, rounds it anew, and that one rounding is
    in all elements alike. A power of two stays, because its reciprocal is exact.
    """
    rng = np.random.default_rng(seed)
    readers = _readers(model.graph)
    kept = {name for name, kinds in readers.items() if kinds & _KEPT}
    scales = {name for name, kinds in readers.items() if kinds <= _SCALING}
    tensors = [(tensor.name, tensor) for tensor in model.graph.initializer]
    tensors += [
        (node.output[0], attribute.t) for node in model.graph.node if node.op_type == "Constant"
        for attribute in node.attribute if attribute.name == "value"
    ]  # fmt: skip
    return sum(_nudge(tensor, rng, 1 if name in scales else 2) for name, tensor in tensors if name not in kept)


def _readers(graph: onnx.GraphProto) -> dict[str, set[str]]:
    """The kinds of operators that read each value, in bodies too."""
    found: dict[str, set[str]] = {value.name: {"an output"} for value in graph.output}
    for node in graph.node:
        for name in node.input:
            found.setdefault(name, set()).add(node.op_type)
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else [])):
                for name, kinds in _readers(body).items():
                    found.setdefault(name, set()).update(kinds)
    return found


#: By element type: how numpy reads values, and words; and the bits of a word that are zero in powers of two.
_WORDS: dict[int, tuple[type, type, int]] = {
    TensorProto.FLOAT: (np.float32, np.int32, (1 << 23) - 1),
    TensorProto.FLOAT16: (np.float16, np.int16, (1 << 10) - 1),
    TensorProto.BFLOAT16: (np.uint16, np.int16, (1 << 7) - 1),
    TensorProto.DOUBLE: (np.float64, np.int64, (1 << 52) - 1),
}
#: Operators that read sizes or exponents, which a rounding would spoil.
_KEPT = frozenset({"Pow", "Resize", "Upsample"})
#: Operators that scale by a scalar.
_SCALING = frozenset({"Mul", "Div"})


def _nudge(tensor: onnx.TensorProto, rng: np.random.Generator, least: int) -> int:
    """Move a tensor of ``least`` elements or more; returns how many there are."""
    kind = _WORDS.get(tensor.data_type)
    outside = tensor.data_location == TensorProto.EXTERNAL
    if kind is None or outside or int(np.prod(tensor.dims, dtype=np.int64)) < least:
        return 0
    if not tensor.raw_data:  # elements of the protobuf's own kinds
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    words: Any = np.frombuffer(tensor.raw_data, kind[1]).copy()
    values: Any = words.view(kind[0])
    # Neighbouring floats of one sign are neighbouring words; zeros have no neighbour of their own sign below.
    steps = rng.integers(0, 2, words.size, dtype=np.int8) * 2 - 1
    if values.dtype.kind == "f":
        still = (values == 0) | ~np.isfinite(values)
    else:
        still = ((words & 0x7FFF) == 0) | ((words & 0x7F80) == 0x7F80)
    if words.size == 1:
        still = still | ((words & kind[2]) == 0)
    steps[still] = 0
    words += steps.astype(words.dtype)
    tensor.raw_data = words.tobytes()
    return words.size
