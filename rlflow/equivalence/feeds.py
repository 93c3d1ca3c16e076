"""Inputs to compare two models on: random ones that the model accepts, and the user's own."""

from __future__ import annotations

import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.files import mode_of
from rlflow.runtime import FeedSpec, TensorInfo, random_array
from rlflow.specs import bytes_text

Ranges = Mapping[str, tuple[float, float]]


def make_inputs(
    inputs: Sequence[TensorInfo],
    seed: int,
    ranges: Ranges | None = None,
    user_data: Mapping[str, np.ndarray] | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """One array per input, by name.

    Floats are standard normal, integers uniform over ``ranges[name]`` (both ends included; 0 and 1 where nothing is
    known, which any embedding table and any mask accepts), floats with a range uniform over it. Arrays of
    ``user_data`` are taken as they are, after a check of name, rank, known dimensions and type, and they bind the
    symbolic dimensions that they show. Those still open come from ``dims``: by the symbol's name, or as
    ``input.axis`` for a dimension without a name.

    bfloat16 inputs are float32 arrays (the worker rounds them). Raises :class:`UsageError` for an open dimension, a
    bad array, or an input of a kind that cannot be made up (strings, sequences, maps).
    """
    given = dict(user_data or {})
    known = {info.name for info in inputs}
    for name in [*given, *(ranges or {})]:
        if name not in known:
            raise UsageError(f"The model has no input {name!r}; its inputs are {', '.join(sorted(known)) or 'none'}.")
    bound = dict(dims or {})
    feeds = {info.name: _checked(info, given[info.name], bound) for info in inputs if info.name in given}
    rng = np.random.default_rng(seed)
    for info in inputs:
        low, high = (ranges or {}).get(info.name, (None, None))
        # Every input draws, given or not, so that giving one does not change the others.
        child = np.random.default_rng(rng.integers(0, 2**63))
        if info.name not in feeds:
            feeds[info.name] = _drawn(info, FeedSpec(_shape(info, bound), _dtype(info), low, high), child)
    return {info.name: feeds[info.name] for info in inputs}


def _drawn(info: TensorInfo, spec: FeedSpec, rng: np.random.Generator) -> np.ndarray:
    """A random array; raises :class:`UsageError` where there is no room for it."""
    size = math.prod(spec.shape) * 8  # it is drawn in 64 bits
    try:
        if size <= _memory():
            return random_array(spec, rng)
    except MemoryError:
        pass
    hint = "" if all(isinstance(dim, int) for dim in info.shape) else "; give smaller sizes with --dim"
    raise UsageError(
        f"The input {info.name!r} of the shape {list(spec.shape)} would take {bytes_text(size)} while it is drawn, "
        f"which this machine does not have{hint}."
    )


def _memory() -> float:
    """Bytes of this machine's memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def load_input_data(sources: Iterable[str | os.PathLike[str]]) -> dict[str, np.ndarray]:
    """Read ``--input-data``: an ``.npz`` file (arrays by input name), or ``name=file.npy`` each.

    A lone ``file.npy`` is returned under the empty name; :func:`for_single_input` gives it the model's only input's
    name. Raises :class:`UsageError` with the file's name where it cannot be read.
    """
    data: dict[str, np.ndarray] = {}
    for source in sources:
        name, path = _split(os.fspath(source))
        loaded = _load(path)
        if isinstance(loaded, np.ndarray):
            if name in data:
                raise UsageError(f"Input data were given twice for {name or 'the only input'!r}.")
            data[name] = loaded
        elif name:
            raise UsageError(
                f"{path} holds several arrays, which carry their own names; leave out {name!r}= before it."
            )
        else:
            for one in loaded:
                if one in data:
                    raise UsageError(f"Input data were given twice for {one!r}.")
            data.update(loaded)
    return data


def for_single_input(data: Mapping[str, np.ndarray], inputs: Sequence[TensorInfo]) -> dict[str, np.ndarray]:
    """Name an array that came without one; only a model with a single input makes that clear."""
    if "" not in data:
        return dict(data)
    if len(inputs) != 1:
        names = ", ".join(info.name for info in inputs)
        raise UsageError(
            f"The model has {len(inputs)} inputs ({names}), so say which one the data are for: name=file.npy."
        )
    return {name or inputs[0].name: array for name, array in data.items()}


def _split(source: str) -> tuple[str, str]:
    """``name=file`` into its parts; a file whose own name holds an equals sign wins."""
    if os.path.exists(source) or "=" not in source:
        return "", source
    name, _, path = source.partition("=")
    return name, path


def _load(path: str) -> np.ndarray | dict[str, np.ndarray]:
    if not path.endswith((".npy", ".npz")):
        raise UsageError(f"The input data {path} are neither .npy nor .npz; save them with numpy.save or numpy.savez.")
    if not stat.S_ISREG(mode_of(path, "The input data file", UsageError)):
        raise UsageError(f"The input data file {path} does not exist.")
    try:
        with open(path, "rb") as stream:
            loaded: Any = np.load(stream, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"The input data file {path} cannot be read: {error}.") from error


def _checked(info: TensorInfo, array: Any, bound: dict[str, int]) -> np.ndarray:
    array = np.asarray(array)
    if not info.is_tensor:
        raise UsageError(f"The input {info.name!r} is a {info.dtype}, not a tensor; only tensors can be given.")
    if len(info.shape) != array.ndim:
        raise UsageError(
            f"The data for {info.name!r} have the shape {list(array.shape)}; the model expects {list(info.shape)}."
        )
    for axis, (expected, found) in enumerate(zip(info.shape, array.shape, strict=True)):
        symbol = expected if isinstance(expected, str) else f"{info.name}.{axis}"
        wanted = expected if isinstance(expected, int) else bound.setdefault(symbol, found)
        if wanted != found:
            raise UsageError(
                f"The data for {info.name!r} have {found} in dimension {axis}, where {expected or symbol} is {wanted}."
            )
    return _cast(info, array)


def _cast(info: TensorInfo, array: np.ndarray) -> np.ndarray:
    if info.dtype == "string":
        return array.astype(object)
    target = np.dtype(_dtype(info))
    if array.dtype == target:
        return array
    same_kind = np.can_cast(array.dtype, target, casting="same_kind")
    if not same_kind or (target.kind in "iu" and not np.array_equal(array.astype(target), array)):
        raise UsageError(f"The data for {info.name!r} are {array.dtype}; the model expects {info.dtype}.")
    return array.astype(target)


def _shape(info: TensorInfo, bound: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for axis, dim in enumerate(info.shape):
        key = dim if isinstance(dim, str) else f"{info.name}.{axis}"
        if isinstance(dim, int):
            shape.append(dim)
        elif key in bound:
            shape.append(int(bound[key]))
        else:
            what = f"symbolic dimension {dim!r}" if dim else f"open dimension {axis}"
            raise UsageError(
                f"The input {info.name!r} has the {what}; say what to measure it at, for example --dim {key}=1."
            )
    return tuple(shape)


def _dtype(info: TensorInfo) -> str:
    if not info.is_tensor:
        raise UsageError(
            f"The input {info.name!r} is a {info.dtype}, not a tensor, so no random value can be made for it."
        )
    if info.dtype == "string":
        raise UsageError(
            f"The input {info.name!r} takes strings, for which no random value makes sense; give it with --input-data."
        )
    return "float32" if info.dtype == "bfloat16" else info.dtype
