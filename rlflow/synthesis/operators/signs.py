"""What depends on a sign, over the prime field.

A prime field has no order. The sign is an arbitrary odd function to 1 and -1 there: an identity that holds for every
such function holds for the one that numbers have. So

    Abs(x) = Sign(x) · x,   Relu(x) = x where Sign(x) = 1, else 0

Cases over ordered rationals say more, and come first. This is for rules that need a sign and an exponential.
"""

from __future__ import annotations

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Field

_SIGN = field.key_of("Sign", [])


def negative(x: Array) -> Array:
    """Whether an element counts as below zero: of x and -x one does, of 0 neither."""
    mirrored = field.neg(x)
    least = np.minimum(x, mirrored)
    first = (field.oracle(_SIGN, least) & np.uint64(1)).astype(bool)
    return np.asarray(np.where(x == least, first, ~first) & (x != 0))


def magnitude(d: Field, x: Array) -> Array:
    return np.where(negative(x), field.neg(x), x)


def positive_part(d: Field, x: Array) -> Array:
    return np.where(negative(x), d.zeros(()), x)
