"""The weights of a convolution as Winograd's algorithm multiplies by them, made once instead of in every call.

The points are those of the kernels: ``cext/kernels/stages_body.h`` has the reasons, and the other two transforms.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

#: Where polynomials are interpolated, by their number without 0 and infinity: at these and at their negatives.
_PAIRS = {2: (1.0,), 4: (0.75, 1.5), 6: (0.5, 1.0, 1.5)}


def filter_transform(tile: int, taps: int) -> np.ndarray:
    """G of F(``tile``, ``taps``), float64 [points, taps]: a row of powers of each point over its distances to all other
    points (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016); points are 0, p and -p for each
    pair, infinity. For one tap it is one. Raises KeyError for forms that the kernels do not have.
    """
    if taps == 1:
        return np.ones((1, 1))
    pairs = _PAIRS[tile + taps - 3]
    points = [0.0, *(sign * point for point, sign in product(pairs, (1.0, -1.0)))]
    distances = [prod(point * point - other * other for other in pairs if other != abs(point)) for point in points]
    rows = [
        [point**tap / (distance * (2.0 * point * point if point else 1.0)) for tap in range(taps)]
        for point, distance in zip(points, distances, strict=True)
    ]
    if len(pairs) == 1:
        rows[0] = [1.0, *[0.0] * (taps - 1)]  # the kernels have 0, ±1 and infinity without a sign to turn
    return np.array([*rows, [*[0.0] * (taps - 1), 1.0]])


def transformed(weights: np.ndarray, tile: int, block: int) -> np.ndarray:
    """``weights``, float32 [out, in, taps, taps] in the runtime's blocked order, as the kernels take them:
    float32 [out / block, points, in, block], computed in double precision.
    """
    out, into, *taps = weights.shape
    down, across = (filter_transform(tile, count) for count in taps)
    filters = weights.reshape(out // block, into // block, *taps, block, block)
    found = np.empty((out // block, len(down) * len(across), into, block), np.float32)
    for number, one in enumerate(filters):  # one after the other: in double precision all of them take much room
        points = np.einsum("iyxab,py,qx->pqiab", one.astype(np.float64), down, across, optimize=True)
        found[number] = points.reshape(found.shape[1:])
    return found
