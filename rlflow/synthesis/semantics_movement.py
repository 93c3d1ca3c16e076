"""Exact meaning of views, data movement, indexing and shape operators (registered with :mod:`semantics`)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.semantics import BOOL, FLOATS, Call, meaning


def _static(c: Call) -> None:
    if any(a is not None for a in c.inputs[1:]):
        raise Unsupported(f"{c.op} with tensor operands for its shape")


def _plain(values: list[Any]) -> list[int]:
    if any(not isinstance(v, int) for v in values):
        raise Unsupported("a symbolic attribute")
    return values


# ---- views ----------------------------------------------------------------------------------------------------------


@meaning("Reshape")
def _reshape(c: Call) -> Array:
    _static(c)
    x, target = c.arg(0), _plain(c.attrs["shape"])
    if not c.attrs.get("allowzero"):
        target = [x.shape[k] if e == 0 else e for k, e in enumerate(target)]
    return x.reshape(target)


@meaning("Flatten")
def _flatten(c: Call) -> Array:
    x, a = c.arg(0), c.attrs["axis"]
    return x.reshape(math.prod(x.shape[:a]), math.prod(x.shape[a:]))


@meaning("Squeeze")
def _squeeze(c: Call) -> Array:
    _static(c)
    return np.squeeze(c.arg(0), axis=tuple(c.attrs["axes"]))


@meaning("Unsqueeze")
def _unsqueeze(c: Call) -> Array:
    _static(c)
    return np.expand_dims(c.arg(0), tuple(c.attrs["axes"]))


@meaning("Transpose")
def _transpose(c: Call) -> Array:
    return np.transpose(c.arg(0), c.attrs["perm"])


@meaning("Expand")
def _expand(c: Call) -> Array:
    _static(c)
    x = c.arg(0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(_plain(c.attrs["shape"]))))


@meaning("Tile")
def _tile(c: Call) -> Array:
    _static(c)
    return np.tile(c.arg(0), c.attrs["repeats"])


@meaning("DepthToSpace", "SpaceToDepth")
def _blocks(c: Call) -> Array:
    x, b = c.arg(0), c.attrs["blocksize"]
    n, ch, h, w = x.shape
    if c.op == "SpaceToDepth":
        return x.reshape(n, ch, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, ch * b * b, h // b, w // b)
    if c.attrs["mode"] == "DCR":
        return x.reshape(n, b, b, ch // b // b, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, ch // b // b, h * b, w * b)
    return x.reshape(n, ch // b // b, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, ch // b // b, h * b, w * b)


# ---- joining, cutting -----------------------------------------------------------------------------------------------


@meaning("Concat")
def _concat(c: Call) -> Array:
    return np.concatenate([c.arg(k) for k in range(len(c.inputs))], axis=c.attrs["axis"])


@meaning("Split")
def _split(c: Call) -> list[Array]:
    _static(c)
    if "split" not in c.attrs:
        raise Unsupported("Split without explicit sizes")
    return list(np.split(c.arg(0), np.cumsum(c.attrs["split"])[:-1], axis=c.attrs["axis"]))


@meaning("Slice")
def _slice(c: Call) -> Array:
    _static(c)
    x = c.arg(0)
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        c.attrs["axes"], c.attrs["starts"], c.attrs["ends"], c.attrs["steps"], strict=True
    ):
        d = x.shape[axis]
        stop: int | None = end
        if step < 0:
            stop = None if end < -d else end
            start = min(start, d - 1)
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


@meaning("Pad")
def _pad(c: Call) -> Array:
    _static(c)
    x, pads, mode = c.arg(0), c.attrs["pads"], c.attrs["mode"]
    width = [(pads[k], pads[x.ndim + k]) for k in range(x.ndim)]
    if any(e < 0 for pair in width for e in pair):
        raise Unsupported("negative pads")
    if mode == "constant":
        fill = (
            c.domain.constant(c.attrs.get("value", 0.0)) if c.is_float() else np.asarray(int(c.attrs.get("value", 0)))
        )
        out = np.empty([b + d + e for (b, e), d in zip(width, x.shape, strict=True)], dtype=x.dtype)
        out[...] = fill
        out[tuple(slice(b, b + d) for (b, _), d in zip(width, x.shape, strict=True))] = x
        return out
    if mode == "reflect" and any(max(pair) >= d for pair, d in zip(width, x.shape, strict=True)):
        raise Unsupported("reflecting more than there is")
    return np.pad(x, width, mode={"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])  # type: ignore[call-overload]


# ---- indexing -------------------------------------------------------------------------------------------------------


def _indices(c: Call, k: int, extent: int) -> Array:
    index = c.arg(k)
    if np.any(index < -extent) or np.any(index >= extent):
        raise Unsupported("an index that is out of range")
    return index


@meaning("Gather")
def _gather(c: Call) -> Array:
    x, axis = c.arg(0), c.attrs["axis"]
    return np.take(x, _indices(c, 1, x.shape[axis]), axis=axis)


@meaning("GatherElements")
def _gather_elements(c: Call) -> Array:
    x, axis = c.arg(0), c.attrs["axis"]
    index = _indices(c, 1, x.shape[axis])
    at = list(np.indices(index.shape))
    at[axis] = index
    return x[tuple(at)]


@meaning("Trilu")
def _trilu(c: Call) -> Array:
    x = c.arg(0)
    k = int(np.asarray(c.arg(1)).reshape(())) if c.present(1) else 0
    row, col = np.indices(x.shape[-2:])
    keep = col - row >= k if c.attrs["upper"] else col - row <= k
    zero = c.domain.zeros(()) if c.is_float() else np.asarray(0, dtype=x.dtype)
    return np.where(keep, x, zero)


# ---- shapes and made tensors ----------------------------------------------------------------------------------------


@meaning("Shape")
def _shape(c: Call) -> Array:
    dims = c.arg(0).shape
    start, end = c.attrs.get("start", 0), c.attrs.get("end", len(dims))
    return np.array(dims[slice(start, end)], np.int64)


@meaning("Size")
def _size(c: Call) -> Array:
    return np.asarray(c.arg(0).size, np.int64)


@meaning("EyeLike")
def _eye_like(c: Call) -> Array:
    rows, cols = c.arg(0).shape
    eye = np.eye(rows, cols, k=c.attrs.get("k", 0), dtype=np.int64)
    dtype = c.out_dtypes[0]
    return c.domain.from_integers(eye) if dtype in FLOATS else eye.astype(bool) if dtype == BOOL else eye


# ---- Resize ---------------------------------------------------------------------------------------------------------


def _source_position(mode: str, k: int, scale: Fraction, length_in: int, length_out: int) -> Fraction:
    """The input coordinate of output coordinate ``k`` (ONNX Resize, coordinate_transformation_mode)."""
    if mode == "asymmetric":
        return Fraction(k) / scale
    if mode == "align_corners":
        return Fraction(0) if length_out == 1 else Fraction(k * (length_in - 1), length_out - 1)
    if mode == "pytorch_half_pixel" and length_out == 1:
        return Fraction(-1, 2) / scale * 0
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (Fraction(k) + Fraction(1, 2)) / scale - Fraction(1, 2)
    raise Unsupported(f"Resize with coordinate_transformation_mode={mode}")


def _nearest(how: str, x: Fraction) -> int:
    floor = math.floor(x)
    if x == floor:
        return floor
    down = {
        "floor": True,
        "ceil": False,
        "round_prefer_floor": x - floor <= Fraction(1, 2),
        "round_prefer_ceil": x - floor < Fraction(1, 2),
    }
    return floor if down[how] else floor + 1


def _axis_weights(c: Call, length_in: int, length_out: int, scale: Fraction) -> list[list[tuple[int, Fraction]]]:
    """For each output coordinate the input coordinates and weights it is made of."""
    mode, rows = c.attrs.get("mode", "nearest"), []
    for k in range(length_out):
        x = _source_position(
            c.attrs.get("coordinate_transformation_mode", "half_pixel"), k, scale, length_in, length_out
        )
        if mode == "nearest":
            at = _nearest(c.attrs.get("nearest_mode", "round_prefer_floor"), x)
            rows.append([(min(max(at, 0), length_in - 1), Fraction(1))])
        elif mode == "linear":
            low = math.floor(x)
            ends = [(low, 1 - (x - low)), (low + 1, x - low)]
            rows.append([(min(max(at, 0), length_in - 1), weight) for at, weight in ends if weight])
        else:
            raise Unsupported(f"Resize with mode={mode}")
    return rows


def _resample(c: Call, x: Array, axis: int, rows: list[list[tuple[int, Fraction]]]) -> Array:
    if not rows:
        raise Unsupported("an empty result of Resize")
    d = c.domain
    pieces = []
    for row in rows:
        if len(row) == 1 and row[0][1] == 1:
            pieces.append(x.take(row[0][0], axis=axis))
            continue
        if not c.is_float():
            raise Unsupported("interpolated integers")
        total = d.zeros(())
        for at, weight in row:
            total = d.add(total, d.mul(x.take(at, axis=axis), d.constant(weight)))
        pieces.append(total)
    return np.stack(pieces, axis=axis)


@meaning("Resize")
def _resize(c: Call) -> Array:
    _static(c)
    if c.attrs.get("antialias") or c.attrs.get("exclude_outside"):
        raise Unsupported("Resize with antialias or exclude_outside")
    x = c.arg(0)
    shape = c.out_shapes[0]
    if shape is None or any(not isinstance(e, int) for e in shape):
        raise Unsupported("Resize with an unknown extent")
    scales = c.attrs.get("scales") or []
    for axis in range(x.ndim):
        if x.shape[axis] == shape[axis] and (not scales or scales[axis] == 1):
            continue
        scale = Fraction(scales[axis]) if scales else Fraction(shape[axis], x.shape[axis])
        x = _resample(c, x, axis, _axis_weights(c, x.shape[axis], shape[axis], scale))
    return x
