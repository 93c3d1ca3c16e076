"""Integers as machines hold them: widths, wrapping, and the values at which casts change their mind."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Element types by ONNX's numbers; 64-bit unsigned integers are held by their signed pattern.
_TYPES: dict[int, type] = {
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    12: np.uint32,
    13: np.uint64,
}
U64 = 13
#: Ends of the widths, and the first whole numbers that float16, float32 and float64 cannot hold.
_ENDS = (2**7, 2**8, 2**11 + 1, 2**15, 2**16, 2**24 + 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63)
EDGES: tuple[int, ...] = tuple(
    sorted({e for end in _ENDS for v in (end - 1, end, end + 1) for e in (v, -v) if -(2**63) <= e < 2**63} | {-1, 0, 1})
)
#: Numbers that a cast from a float rounds, cannot hold, or takes for true.
CAST_EDGES = (
    0.0,
    0.5,
    -0.5,
    127.0,
    128.0,
    -129.0,
    255.5,
    256.0,
    65505.0,
    2.0**24 + 1,
    2.0**31,
    -(2.0**31) - 1,
    2.0**40,
)


def wrapped(values: Array, dtype: int) -> Array:
    """Whole numbers as an integer type holds them: modulo its width."""
    kind = _TYPES.get(dtype)
    return values if kind in (None, np.int64, np.uint64) else values.astype(kind).astype(np.int64)


def unsigned(values: Array, dtype: int) -> Array:
    """What the numbers of a 64-bit unsigned type are, and not the signed pattern that holds them."""
    return values.view(np.uint64) if dtype == U64 and values.dtype == np.int64 else values


def limits(dtype: int) -> tuple[int, int] | None:
    """Least and largest element of an integer type; ``None`` for any other type."""
    if dtype not in _TYPES:
        return None
    info = np.iinfo(_TYPES[dtype])
    return int(info.min), int(info.max)


def edges_of(dtype: int) -> list[int]:
    """The edge values that the type holds."""
    if dtype == U64:  # by their patterns
        return [e - 2**64 if e >= 2**63 else e for e in (*(e for e in EDGES if e >= 0), 2**63, 2**64 - 2, 2**64 - 1)]
    ends = limits(dtype)
    return [] if ends is None else [e for e in EDGES if ends[0] <= e <= ends[1]]
