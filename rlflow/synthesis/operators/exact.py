"""What meanings share: refusals, extremes, means, and functions of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Field, OfNothing, Ordered, Unsupported
from rlflow.synthesis.operators.facets import Call, NeedsOrder, facets_of, flags_of


def floats_only(c: Call) -> None:
    if not c.is_float():
        raise Unsupported(f"{c.op} of integers")


def extreme_over(c: Call, x: Array, axes: tuple[int, ...], largest: bool) -> Array:
    if not isinstance(c.domain, Ordered):
        raise NeedsOrder(c.op)
    if any(x.shape[a] == 0 for a in axes):
        raise OfNothing("an extreme of nothing")
    for a in sorted(axes, reverse=True):
        pieces = [x.take(k, axis=a) for k in range(x.shape[a])]
        best = pieces[0]
        for piece in pieces[1:]:
            best = c.domain.extreme(best, piece, largest)
        x = np.asarray(best, dtype=object)
    return x


def mean_over(d: Domain, x: Array, axes: tuple[int, ...]) -> Array:
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        raise OfNothing("a mean of nothing")
    return d.div(d.total(x, axes), d.constant(count))


def rows_over(c: Call, x: Array, axes: list[int], key: int) -> Array:
    """A keyed function of the elements along ``axes`` (flattened, in order) and the position among them."""
    kept = [a for a in range(x.ndim) if a not in axes]
    order = kept + axes
    moved = np.transpose(x, order)
    rows = moved.reshape(*moved.shape[: len(kept)], math.prod(x.shape[a] for a in axes))
    out = c.domain.rows(key, rows).reshape(moved.shape)
    return np.transpose(out, np.argsort(order))


def no_tensor_operands(c: Call) -> None:
    if any(a is not None for a in c.inputs[1:]):
        raise Unsupported(f"{c.op} with tensor operands for its shape")


def plain(values: list[Any]) -> list[int]:
    if any(not isinstance(v, int) for v in values):
        raise Unsupported("a symbolic attribute")
    return values


def applied(d: Domain, op: str, key: int, x: Array) -> Array:
    """A pointwise operator of one float operand: what its facets say for the domain, else a keyed function with the
    flags and the symmetry that the operator has.
    """
    facets, flags = facets_of(op), flags_of(op)
    if facets.ordered is not None and isinstance(d, Ordered):
        return facets.ordered(d, x)
    if facets.by_sign is not None and isinstance(d, Field) and d.signs:
        return facets.by_sign(d, x)
    if facets.in_field is not None and isinstance(d, Field):
        return facets.in_field(d, x)
    return d.unary(
        key,
        x,
        zero="zero_preserving" in flags,
        monotone="monotone" in flags,
        symmetry=facets.symmetry,
        positive=facets.positive,
    )


def function_of(d: Domain, op: str, x: Array) -> Array:
    """The same keyed function that the operator without attributes is."""
    return applied(d, op, field.key_of(op, []), x)
