"""Names of open dimensions: those of the file, those given to unnamed ones, and sizes set in their place."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import onnx

from rlflow.errors import UsageError

#: Name -> None for a name of the file; -> (input, axis) for one that was given here.
Symbols = dict[str, tuple[str, int] | None]


def name_dims(model: onnx.ModelProto) -> Symbols:
    """Name -> None for the file's own dimension names; -> (input, axis) for the unnamed ones, which are named here."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in initialised]
    symbols: Symbols = {}
    unnamed: list[tuple[str, int]] = []
    for info in inputs:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param and not dim.HasField("dim_value"):
                symbols[dim.dim_param] = None
            elif not dim.HasField("dim_value") or dim.dim_value < 0:
                unnamed.append((info.name, axis))
    for name, axis in unnamed:
        symbol = f"{name}.{axis}"
        while symbol in symbols:
            symbol += "_"
        symbols[symbol] = (name, axis)
    return symbols


def freeze(model: onnx.ModelProto, symbols: Symbols, freeze: Any) -> None:
    """Writes sizes (a mapping by name, or ``None``) in place of dimension names, in every value that names them, and
    forgets those names. Raises :class:`UsageError` for anything else.
    """
    if not isinstance(freeze, Mapping | None):
        raise UsageError(f'The dimensions to freeze are {freeze!r}; expected a dictionary by name, such as {{"N": 8}}.')
    for name, size in (freeze or {}).items():
        if name not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise UsageError(
                f"While freezing dimension '{name}': the model's inputs have no such dimension; they have {known}."
            )
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            raise UsageError(
                f"The size to freeze the dimension {name!r} at is {size!r}; expected a whole number of 1 or more."
            )
        place = symbols.pop(name)
        for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                here = (info.name, axis) == place if place is not None else dim.dim_param == name
                if here:
                    dim.dim_value = int(size)
