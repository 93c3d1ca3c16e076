"""Inputs, weights, and the operators that work element by element; the matrix product is with the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlflow.compat.taso.arguments import explained, extents, float32, integers, new_name, number
from rlflow.compat.taso.calls import Calls
from rlflow.compat.taso.names import BOOL, onnx_datatype
from rlflow.compat.taso.store import Dim, PyTensor
from rlflow.errors import UsageError


class Pointwise(Calls):
    """Methods that add an operator and return its result."""

    # --- inputs and weights -----------------------------------------------------------------------------------------

    @explained
    def new_input(self, dims: Sequence[Dim], *, dtype: str | int = "FLOAT", name: str | None = None) -> PyTensor:
        """A graph input. A string in ``dims`` is a symbolic dimension."""
        return self._store.input(extents(dims), onnx_datatype(dtype), new_name(name))

    @explained
    def new_weight(self, dims: Sequence[int], data: Any = None, *, name: str | None = None) -> PyTensor:
        """A float32 weight. ``data``: an array of shape ``dims`` or as many numbers in row-major order; without it,
        seeded random numbers scaled by fan-in (vectors: uniform in [0.5, 1.5)).
        """
        shape, name = integers(dims, "dims"), new_name(name)
        extents(shape)
        if data is None:
            return self._store.weight(self._store.drawn(shape), name)
        if isinstance(data, np.ndarray) and data.shape != tuple(shape):
            raise UsageError(f"data has shape {list(data.shape)}; expected {shape}.")
        array = float32(data)
        if array.size != prod(shape):
            raise UsageError(f"data has {array.size} elements; a weight of {shape} has {prod(shape)}.")
        return self._store.weight(array.reshape(shape), name)

    # --- two operands -----------------------------------------------------------------------------------------------

    @explained
    def add(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x + y, broadcast."""
        return self._pairwise("Add", x, y)

    @explained
    def sub(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x - y, broadcast."""
        return self._pairwise("Sub", x, y)

    @explained
    def mul(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x · y elementwise, broadcast."""
        return self._pairwise("Mul", x, y)

    @explained
    def div(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x / y, broadcast; integers are divided as floats."""
        return self._pairwise("Div", x, y, integers=False)

    @explained
    def max(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """The larger of x and y, broadcast."""
        return self._pairwise("Max", x, y)

    @explained
    def min(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """The smaller of x and y, broadcast."""
        return self._pairwise("Min", x, y)

    @explained
    def equal(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x == y, broadcast: truth values."""
        return self._pairwise("Equal", x, y)

    @explained
    def greater(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x > y, broadcast: truth values."""
        return self._pairwise("Greater", x, y)

    @explained
    def less(self, x: PyTensor, y: PyTensor) -> PyTensor:
        """x < y, broadcast: truth values."""
        return self._pairwise("Less", x, y)

    @explained
    def prelu(self, x: PyTensor, slope: PyTensor) -> PyTensor:
        """x where it is not negative, slope · x elsewhere; ``slope`` broadcasts to x."""
        return self._store.add("PRelu", {}, self._store.alike(x, slope, integers=False))[0]

    @explained
    def matmul(self, input: PyTensor, weight: PyTensor, activation: str = "NONE") -> PyTensor:
        """Matrix product over the last two axes, the others broadcast; then the activation."""
        product = self._store.add("MatMul", {}, self._store.alike(input, weight, integers=False))[0]
        return self._activated(product, activation)

    # --- one operand ------------------------------------------------------------------------------------------------

    @explained
    def relu(self, input: PyTensor, inplace: bool = False) -> PyTensor:
        """max(x, 0). ``inplace`` is a wish that has no effect: tensors are values."""
        return self._pointwise("Relu", input)

    @explained
    def sigmoid(self, input: PyTensor, inplace: bool = False) -> PyTensor:
        """1 / (1 + exp(-x))."""
        return self._pointwise("Sigmoid", input)

    @explained
    def tanh(self, input: PyTensor, inplace: bool = False) -> PyTensor:
        """Hyperbolic tangent."""
        return self._pointwise("Tanh", input)

    @explained
    def leakyrelu(self, input: PyTensor, alpha: float, inplace: bool = False) -> PyTensor:
        """x where it is not negative, alpha · x elsewhere."""
        return self._store.add("LeakyRelu", {"alpha": number(alpha, "alpha")}, [self._store.as_float(input)])[0]

    @explained
    def ceil(self, input: PyTensor) -> PyTensor:
        """The next integer that is not smaller."""
        return self._pointwise("Ceil", input)

    @explained
    def round(self, input: PyTensor) -> PyTensor:
        """The nearest integer, halves to the even one."""
        return self._pointwise("Round", input)

    @explained
    def exp(self, input: PyTensor) -> PyTensor:
        """e to the x."""
        return self._pointwise("Exp", input)

    @explained
    def log(self, input: PyTensor) -> PyTensor:
        """Natural logarithm."""
        return self._pointwise("Log", input)

    @explained
    def sqrt(self, input: PyTensor) -> PyTensor:
        """Square root."""
        return self._pointwise("Sqrt", input)

    @explained
    def logical_not(self, input: PyTensor) -> PyTensor:
        """Whether x is zero (false): truth values."""
        return self._store.add("Not", {}, [self._store.cast(input, BOOL)])[0]

    @explained
    def dropout(self, input: PyTensor, rate: float = 0) -> PyTensor:
        """x: inference drops nothing."""
        ratio = number(rate, "rate")
        if not 0 <= ratio <= 1:
            raise UsageError(f"rate is {rate!r}; expected 0 to 1.")
        return self._store.record("Dropout", {"ratio": ratio}, [input], [self._store.value_of(input, "input")])[0]

    @explained
    def identity(self, input: PyTensor) -> PyTensor:
        """x."""
        return self._store.record("Identity", {}, [input], [self._store.value_of(input, "input")])[0]

    @explained
    def cast(self, input: PyTensor, datatype: str | int) -> PyTensor:
        """x in another element type: FLOAT, DOUBLE, FLOAT16, INT8, UINT8, INT32, INT64, BOOL."""
        return self._store.add("Cast", {"to": onnx_datatype(datatype)}, [input])[0]

    @explained
    def shape(self, input: PyTensor) -> PyTensor:
        """The extents, int64 [rank]."""
        return self._store.add("Shape", {}, [input])[0]

    @explained
    def size(self, input: PyTensor) -> PyTensor:
        """The number of elements, int64 [1]."""
        return self._store.add("Reshape", {"shape": [1]}, self._store.add("Size", {}, [input]))[0]

    def _pairwise(self, op: str, x: PyTensor, y: PyTensor, integers: bool = True) -> PyTensor:
        return self._store.add(op, {}, self._store.alike(x, y, integers=integers))[0]
