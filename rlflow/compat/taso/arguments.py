"""The arguments of a taso call: read into plain numbers, refused with a sentence, and shown in that sentence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from rlflow.compat.taso.store import Dim, PyTensor
from rlflow.errors import GraphError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Sizes = int | Sequence[int]
_EXTENT_BOUND = 2**62  # the core keeps larger ones for itself


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
    return value is not None and not (isinstance(value, Sized) and len(value) == 0)


def integers(values: Any, what: str) -> list[int]:
    found = [values] if is_integer(values) else values
    try:
        items = list(found)
    except TypeError:
        items = [None]
    if isinstance(values, str) or not all(is_integer(item) for item in items):
        raise UsageError(f"{what}={values!r} is not a list of integers.")
    return [int(item) for item in items]


def extents(dims: Any, least: int = 0) -> list[Dim]:
    """Integers from ``least`` on, and names."""
    items: list[Any] = [dims] if is_integer(dims) else list(dims) if isinstance(dims, Iterable) else [None]
    if isinstance(dims, str) or not all(is_integer(item) or (isinstance(item, str) and item) for item in items):
        raise UsageError(f"{dims!r} is not a list of extents, which are integers or names.")
    for item in items:
        if not isinstance(item, str) and not least <= item < _EXTENT_BOUND:
            raise UsageError(f"there is an extent {item}; expected {least} or more, below 2**62.")
    return [item if isinstance(item, str) else int(item) for item in items]


def new_name(name: Any) -> str | None:
    """A name, or None where none is wanted."""
    if name is not None and not (isinstance(name, str) and name):
        raise UsageError(f"name={name!r}: expected a name that is not empty.")
    return name


def number(value: Any, what: str) -> float:
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(f"{what}={value!r} is not a number.")


def natural(value: Any, what: str) -> int:
    if not is_integer(value) or value < 0:
        raise UsageError(f"{what}={value!r}; expected an integer of 0 or more.")
    return int(value)


def tensors(values: Any, what: str) -> list[PyTensor]:
    """A list, not empty, of what the call will check one by one."""
    if not isinstance(values, Iterable):
        raise UsageError(f"{what}={shape_text(values)} is not a list of tensors.")
    found = list(values)
    if not found:
        raise UsageError(f"{what} is empty; expected at least one tensor.")
    return found


def float32(data: Any) -> npt.NDArray[np.float32]:
    """A copy of numbers: the caller may go on writing into theirs."""
    try:
        return np.array(data, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"data is not an array of numbers: {error}") from error


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
