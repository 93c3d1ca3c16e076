"""What the methods of a taso graph share: its store, activations and axes."""

from __future__ import annotations

from typing import Any

from rlflow.compat.taso.arguments import Sizes, in_range, integers, is_integer
from rlflow.compat.taso.names import ACTIVATION_OPERATORS, get_activation_mode
from rlflow.compat.taso.store import PyTensor, Store
from rlflow.errors import UsageError


class Calls:
    """A graph that grows by method calls; its operators are in :attr:`_store`."""

    _store: Store

    def _pointwise(self, op: str, input: PyTensor) -> PyTensor:
        return self._store.add(op, {}, [self._store.as_float(input)])[0]

    def _activated(self, tensor: PyTensor, activation: str) -> PyTensor:
        op = ACTIVATION_OPERATORS[get_activation_mode(activation)]
        return tensor if op is None else self._pointwise(op, tensor)

    def _axis(self, axis: Any, tensor: PyTensor) -> int:
        self._store.value_of(tensor, "input")
        if not is_integer(axis):
            raise UsageError(f"axis {axis!r} is not an integer.")
        return in_range(int(axis), tensor.nDim, "the input")

    def _axes(self, axes: Sizes, tensor: PyTensor) -> list[int]:
        found = sorted(self._axis(axis, tensor) for axis in integers(axes, "axes"))
        if len(set(found)) != len(found) or not found:
            raise UsageError(f"axes {axes!r} must name at least one axis, and each once.")
        return found
