"""How the native evaluator is told about an ONNX operator: the facet of :mod:`rlflow.synthesis.operators`."""

from __future__ import annotations

import math

from rlflow.errors import UsageError
from rlflow.synthesis.operators import facets_of, native_of
from rlflow.synthesis.operators.native import Attributes, NativeKind


def of(op: str, attributes: Attributes) -> NativeKind:
    """The native form. Raises UsageError for operators and modes that the generator declines."""
    form = native_of(op)
    if form is None or (facets_of(op).native is None and attributes):
        raise UsageError(
            f"The generator declines the operator '{op}' {attributes or ''}: its evaluator has no exact meaning for it."
        )
    return form(attributes)


def count(shape: list[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
