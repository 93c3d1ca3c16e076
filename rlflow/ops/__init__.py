"""The Python face of the operator table, which lives in the native core because shape rules are code.

A row is a dictionary: ``name``, ``since`` (first opset), ``min_inputs``, ``max_inputs`` (negative: any number),
``outputs``, ``flags`` (names such as ``pure``, ``unary``, ``commutative``), ``fusion`` (how a runtime treats it),
``defaults`` and ``attributes``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rlflow._core import op_names, op_row

__all__ = ["has_op", "op_names", "op_row", "rows"]


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(op_names())


def has_op(name: str) -> bool:
    """Whether the table knows the operator; others are carried opaquely."""
    return name in _known()


def rows() -> list[dict[str, Any]]:
    """All rows, in the table's order."""
    return [op_row(name) for name in op_names()]
