"""The fields of a plan, checked one by one: each of these raises ModelError with the reason for what may not be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlflow.errors import ModelError

_MOST_NAME = 1024


def fields_of(given: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    """Exactly these fields."""
    if not isinstance(given, dict):
        raise refused(f"{what} is no object")
    for name in names:
        if name not in given:
            raise refused(f"{what} has no field {name!r}")
    for name in given:
        if name not in names:
            raise refused(f"{what} has an unknown field {str(name)[:60]!r}")
    return given


def text_of(value: Any, name: str) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_NAME:
        raise refused(f"the field {name!r} is no text of 1 to {_MOST_NAME} characters")
    return value


def integer_of(value: Any, name: str, allowed: Sequence[int]) -> int:
    """A number that is allowed."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        raise refused(f"the field {name!r} is {str(value)[:40]}, which it may not be")
    return value


def ratio_of(value: Any, name: str) -> float:
    """A factor by which something is faster."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0.0 < value <= 1000.0:
        raise refused(f"the field {name!r} is {str(value)[:40]}; expected a number above 0")
    return float(value)


def refused(why: str) -> ModelError:
    """The error that says why."""
    return ModelError(f"The plan of kernels in the model's metadata is refused: {why}.")
