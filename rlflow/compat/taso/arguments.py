"""The arguments of a taso call: read into plain numbers, refused with a sentence, and shown in that sentence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from rlflow.compat.taso.store import Dim, PyTensor
from rlflow.errors import GraphError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Sizes = int | Sequence[int]


def explained(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Puts the call and its shapes in front of every refusal."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except (GraphError, UsageError) as error:
            given = signature.bind(self, *args, **kwargs).arguments
            shown = ", ".join(f"{name}={shape_text(value)}" for name, value in given.items() if name != "self")
            raise type(error)(f"taso: {method.__name__}({shown}): {error}") from error

    return call


def shape_text(value: Any) -> str:
    """A tensor's shape, a list of them, or any other argument as Python writes it."""
    if isinstance(value, PyTensor):
        return "tensor[?]" if value.shape is None else f"tensor{list(value.shape)}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, PyTensor) for item in value):
        return f"[{', '.join(shape_text(item) for item in value)}]"
    if isinstance(value, np.ndarray):
        return f"array{list(value.shape)}"
    return repr(value)


def in_range(axis: int, rank: int | None, what: str) -> int:
    if rank is None and axis >= 0:
        return axis
    if rank is None or not -rank <= axis < rank:
        raise UsageError(f"axis {axis} does not exist in {what}, which has rank {'unknown' if rank is None else rank}.")
    return axis % rank


def is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def given(value: Any) -> bool:
    return value is not None and (is_integer(value) or len(value) > 0)


def integers(values: Any, what: str) -> list[int]:
    found = [values] if is_integer(values) else values
    try:
        items = list(found)
    except TypeError:
        items = [None]
    if isinstance(values, str) or not all(is_integer(item) for item in items):
        raise UsageError(f"{what}={values!r} is not a list of integers.")
    return [int(item) for item in items]


def extents(dims: Any) -> list[Dim]:
    items = [dims] if is_integer(dims) else list(dims)
    if not all(is_integer(item) or isinstance(item, str) for item in items):
        raise UsageError(f"{dims!r} is not a list of extents, which are integers or names.")
    return [item if isinstance(item, str) else int(item) for item in items]


def pair(values: Any, what: str) -> list[int]:
    found = integers(values, what)
    if len(found) == 1:
        found *= 2
    if len(found) != 2:
        raise UsageError(f"{what}={values!r} has {len(found)} numbers; expected (vertical, horizontal).")
    return found


def four(padding: Any) -> list[int]:
    found = integers(padding, "padding")
    pads = {1: found * 4, 2: found * 2, 4: found}.get(len(found))
    if pads is None or min(pads) < 0:
        raise UsageError(f"padding={padding!r}: expected SAME, VALID, or 1, 2 or 4 numbers of zero or more.")
    return pads
