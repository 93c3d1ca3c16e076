"""Degrees of results as rational functions: (of the numerator, of the denominator), from those of the operands."""

from __future__ import annotations

from collections.abc import Callable

Degree = tuple[int, int]
DegreeRule = Callable[[list[Degree]], Degree]


def total(operands: list[Degree]) -> Degree:
    """Of a sum of fractions: the common denominator is bounded by the product."""
    below = sum(b for _, b in operands)
    return max(a + below - b for a, b in operands), below


def product(operands: list[Degree]) -> Degree:
    """Of a product of two, with an addend where there is a third."""
    first, second = operands[0], operands[1]
    out = (first[0] + second[0], first[1] + second[1])
    return out if len(operands) < 3 else total([out, operands[2]])


def quotient(operands: list[Degree]) -> Degree:
    """Of a quotient of two."""
    (a, b), (c, d) = operands[0], operands[1]
    return a + d, b + c


def reciprocal(operands: list[Degree]) -> Degree:
    """Of 1 over the operand."""
    return operands[0][1], operands[0][0]


def normalised(operands: list[Degree]) -> Degree:
    """Of a batch normalisation: the root of the variance is a new indeterminate."""
    return total([(operands[0][0] + operands[1][0], 1 + operands[0][1] + operands[1][1]), operands[2]])


def same(operands: list[Degree]) -> Degree:
    """The greatest of the operands'."""
    return max(operands, key=sum)
