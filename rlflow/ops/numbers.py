"""What numbers in attributes stand for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

__all__ = ["meant"]

#: Fractions with denominators up to here are farther apart than single precision rounds (below 2048).
_DENOMINATORS = 64


def meant(value: float) -> Fraction:
    """The number that a float attribute stands for. ONNX keeps attributes in single precision, which rounds 1/6.

    It is the fraction with a denominator up to 64 that single precision rounds to the same number, or else the number
    as it is. So an alpha of 0.16666667 is the 1/6 of HardSwish's definition, and 0.2 the 1/5 of HardSigmoid's.
    ``value`` is finite.
    """
    near = Fraction(value).limit_denominator(_DENOMINATORS)
    with np.errstate(over="ignore"):
        return near if np.float32(float(near)) == np.float32(value) else Fraction(value)
