"""Resize: interpolation along axes."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.operators.drawing import image, spatial_rank
from rlflow.synthesis.operators.exact import no_tensor_operands
from rlflow.synthesis.operators.facets import Call, Drawn, register
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


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


@functools.lru_cache(maxsize=4096)
def _axis_weights(
    mode: str, positions: str, nearest: str, length_in: int, length_out: int, scale: Fraction
) -> list[list[tuple[int, Fraction]]]:
    """For each output coordinate the input coordinates and weights it is made of."""
    rows = []
    for k in range(length_out):
        x = _source_position(positions, k, scale, length_in, length_out)
        if mode == "nearest":
            at = _nearest(nearest, x)
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
    if all(len(row) == 1 and row[0][1] == 1 for row in rows):
        return x.take([row[0][0] for row in rows], axis=axis)
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


def _resize(c: Call) -> Array:
    no_tensor_operands(c)
    if c.attrs.get("antialias") or c.attrs.get("exclude_outside"):
        raise Unsupported("Resize with antialias or exclude_outside")
    x = c.arg(0)
    shape = c.out_shapes[0]
    if shape is None or any(not isinstance(e, int) for e in shape):
        raise Unsupported("Resize with an unknown extent")
    scales = c.attrs.get("scales") or []
    way = (
        c.attrs.get("mode", "nearest"),
        c.attrs.get("coordinate_transformation_mode", "half_pixel"),
        c.attrs.get("nearest_mode", "round_prefer_floor"),
    )
    for axis in range(x.ndim):
        if x.shape[axis] == shape[axis] and (not scales or scales[axis] == 1):
            continue
        scale = Fraction(scales[axis]) if scales else Fraction(shape[axis], x.shape[axis])
        x = _resample(c, x, axis, _axis_weights(*way, x.shape[axis], shape[axis], scale))
    return x


def _draw_resize(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = spatial_rank(d, term, want) if d.rng.random() < 0.8 else d.rng.randint(1, 2)
    x = d.child(term.children[0], Want(shape=image(d, n, want), rank=n + 2))
    rank = len(d.shape(x))
    spatial = d.rng.random() < 0.85
    factors = [1.0 if k < 2 and spatial else float(d.rng.choice([1, 2, 2, 3])) for k in range(rank)]
    attrs: dict[str, Any] = {
        "mode": d.attr(term, op, "mode", lambda: d.rng.choice(["nearest", "nearest", "nearest", "linear"])),
        "coordinate_transformation_mode": d.attr(
            term,
            op,
            "coordinate_transformation_mode",
            lambda: d.rng.choice(["half_pixel", "asymmetric", "align_corners"]),
        ),
        "nearest_mode": d.attr(term, op, "nearest_mode", lambda: d.rng.choice(["round_prefer_floor", "floor", "ceil"])),
    }
    by_scale = "scales" in term.attrs or ("sizes" not in term.attrs and d.rng.random() < 0.7)
    if by_scale:
        attrs["scales"] = d.attr(term, op, "scales", lambda: factors)
    else:
        attrs["sizes"] = d.attr(
            term, op, "sizes", lambda: [int(e * f) for e, f in zip(d.shape(x), factors, strict=True)]
        )
    return [x], attrs


def _native(a: Attributes) -> NativeKind:
    scales = a["scales"]
    nearest = a.get("mode", "nearest") == "nearest" and a.get("nearest_mode") == "floor"
    if not nearest or a.get("coordinate_transformation_mode") != "asymmetric" or any(s != int(s) for s in scales):
        raise UsageError("The generator declines Resize but for nearest, floor, asymmetric and whole scales.")
    return NativeKind("Upsample", 1, [int(s) for s in scales])


register("Resize", meaning=_resize, draw=_draw_resize, native=_native)
