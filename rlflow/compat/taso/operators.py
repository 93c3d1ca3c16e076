"""The operators of a taso graph: TASO's names, parameters and defaults, computing what each is for.

Arguments go by position or by name; lists do for tuples; axes may be negative. Every refusal names the call and the
shapes it was made with.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from rlflow.compat.taso.names import (
    ACTIVATION_OPERATORS,
    BOOL,
    get_activation_mode,
    get_padding_mode,
    onnx_datatype,
)
from rlflow.compat.taso.store import Dim, PyTensor, Store
from rlflow.errors import GraphError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
Sizes = int | Sequence[int]

#: cuDNN's smallest epsilon of most versions, which TASO's -1 stands for; also ONNX's default.
DEFAULT_EPSILON = 1e-5
#: "To the end of the axis", as ONNX writes it.
_END = (1 << 62) - 1


def explained(method: Callable[Concatenate[Operators, P], R]) -> Callable[Concatenate[Operators, P], R]:
    """Puts the call and its shapes in front of every refusal."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Operators, *args: P.args, **kwargs: P.kwargs) -> R:
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


class Operators:
    """Methods that add an operator and return its result."""

    _store: Store

    # --- inputs and weights -----------------------------------------------------------------------------------------

    @explained
    def new_input(self, dims: Sequence[Dim], *, dtype: str | int = "FLOAT", name: str | None = None) -> PyTensor:
        """A graph input. A string in ``dims`` is a symbolic dimension."""
        return self._store.input(_extents(dims), onnx_datatype(dtype), name)

    @explained
    def new_weight(self, dims: Sequence[int], data: Any = None, *, name: str | None = None) -> PyTensor:
        """A float32 weight. ``data``: an array of shape ``dims`` or as many numbers in row-major order; without it,
        seeded random numbers scaled by fan-in (vectors: uniform in [0.5, 1.5)).
        """
        shape = _integers(dims, "dims")
        if data is None:
            return self._store.weight(self._store.drawn(shape), name)
        if isinstance(data, np.ndarray) and data.shape != tuple(shape):
            raise UsageError(f"data has shape {list(data.shape)}; expected {shape}.")
        array = np.array(data, dtype=np.float32)  # a copy: the caller may go on writing into theirs
        if array.size != int(np.prod(shape, dtype=np.int64)):
            raise UsageError(
                f"data has {array.size} elements; a weight of {shape} has {int(np.prod(shape, dtype=np.int64))}."
            )
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
        return self._store.add("PRelu", {}, list(self._store.alike(x, slope, integers=False)))[0]

    @explained
    def matmul(self, input: PyTensor, weight: PyTensor, activation: str = "NONE") -> PyTensor:
        """Matrix product over the last two axes, the others broadcast; then the activation."""
        product = self._store.add("MatMul", {}, list(self._store.alike(input, weight, integers=False)))[0]
        return self._activated(product, activation)

    # --- windows ----------------------------------------------------------------------------------------------------

    @explained
    def conv2d(
        self,
        input: PyTensor,
        weight: PyTensor,
        strides: Sizes,
        padding: str | Sizes,
        activation: str = "NONE",
        *,
        bias: PyTensor | None = None,
        dilations: Sizes = (1, 1),
    ) -> PyTensor:
        """Convolution of [N, C, H, W] with [O, C / groups, KH, KW]; the number of groups follows from the two shapes.

        ``padding``: SAME (output ceil(size / stride); where the total is odd, the extra row goes first), VALID (none),
        or numbers: one, (vertical, horizontal), or (top, left, bottom, right). ``bias``: [O]. Then the activation.
        """
        group = self._groups(input, weight)
        kernel = [weight.dim(2), weight.dim(3)]
        attrs = {**self._window(input, kernel, strides, padding, dilations), "group": group}
        operands = [self._store.as_float(input), weight] + ([] if bias is None else [bias])
        return self._activated(self._store.add("Conv", attrs, operands)[0], activation)

    @explained
    def maxpool2d(
        self, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str = "NONE"
    ) -> PyTensor:
        """Largest element of each window of [N, C, H, W]; padding never wins. Then the activation."""
        return self._pooled("MaxPool", input, kernels, strides, padding, activation)

    @explained
    def avgpool2d(
        self, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str = "NONE"
    ) -> PyTensor:
        """Mean of each window of [N, C, H, W], padding not counted. Then the activation."""
        return self._pooled("AveragePool", input, kernels, strides, padding, activation)

    @explained
    def batchnorm(
        self, input: PyTensor, scale: PyTensor, bias: PyTensor, mean: PyTensor, var: PyTensor, epsilon: float = -1
    ) -> PyTensor:
        """scale · (x - mean) / sqrt(var + epsilon) + bias per channel (axis 1). ``epsilon`` -1 stands for 1e-5."""
        if epsilon < 0 and epsilon != -1:
            raise UsageError(f"epsilon is {epsilon:g}; expected zero or more, or -1 for {DEFAULT_EPSILON:g}.")
        attrs = {"epsilon": DEFAULT_EPSILON if epsilon == -1 else float(epsilon)}
        return self._store.add("BatchNormalization", attrs, [self._store.as_float(input), scale, bias, mean, var])[0]

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
        return self._store.add("LeakyRelu", {"alpha": float(alpha)}, [self._store.as_float(input)])[0]

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
        if not 0 <= rate <= 1:
            raise UsageError(f"rate is {rate!r}; expected 0 to 1.")
        return self._store.record("Dropout", {"ratio": float(rate)}, [input], [self._store.value_of(input, "input")])[0]

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

    # --- movement ---------------------------------------------------------------------------------------------------

    @explained
    def concat(self, axis: int, inputs: Iterable[PyTensor]) -> PyTensor:
        """The tensors (any number) one after the other along an axis."""
        operands = list(inputs)
        if not operands:
            raise UsageError("inputs is empty; expected at least one tensor.")
        return self._store.add("Concat", {"axis": self._axis(axis, operands[0])}, operands)[0]

    @explained
    def split(self, input: PyTensor, axis: int, sizes: Sizes) -> list[PyTensor]:
        """Consecutive parts of the given sizes along an axis; for a number, that many equal parts."""
        axis = self._axis(axis, input)
        parts = self._equal_parts(input, axis, sizes) if isinstance(sizes, int) else _integers(sizes, "sizes")
        return self._store.add("Split", {"axis": axis, "split": parts}, [input], len(parts))

    @explained
    def reshape(self, input: PyTensor, shape: Sequence[Dim]) -> PyTensor:
        """The elements in another shape: 0 copies the extent at its place, one -1 takes what is left."""
        self._store.value_of(input, "input")
        target = [input.dim(axis) if dim == 0 else dim for axis, dim in enumerate(_extents(shape))]
        return self._store.add("Reshape", {"shape": target}, [input])[0]

    @explained
    def transpose(self, input: PyTensor, perm: Sequence[int], shuffle: bool = False) -> PyTensor:
        """Axis i of the result is axis perm[i]. ``shuffle``, TASO's wish to move the data now, changes nothing."""
        order = [self._axis(axis, input) for axis in _integers(perm, "perm")]
        return self._store.add("Transpose", {"perm": order}, [input])[0]

    @explained
    def squeeze(self, input: PyTensor, axes: Sizes) -> PyTensor:
        """Without the named axes, which have extent 1."""
        return self._store.add("Squeeze", {"axes": self._axes(axes, input)}, [input])[0]

    @explained
    def unsqueeze(self, input: PyTensor, axes: Sizes) -> PyTensor:
        """With new axes of extent 1 at these places of the result."""
        self._store.value_of(input, "input")
        places = _integers(axes, "axes")
        rank = None if input.nDim is None else input.nDim + len(places)
        found = sorted(_in_range(axis, rank, "the result") for axis in places)
        return self._store.add("Unsqueeze", {"axes": found}, [input])[0]

    @explained
    def slice(
        self,
        input: PyTensor,
        start: Sizes,
        end: Sizes,
        axes: Sizes | None = None,
        steps: Sizes | None = None,
    ) -> PyTensor:
        """start ≤ index < end in steps, per axis (default: the first ones, step 1); negative numbers as in NumPy."""
        self._store.value_of(input, "input")
        starts, ends = _integers(start, "start"), _integers(end, "end")
        chosen = _integers(axes, "axes") if _given(axes) else list(range(len(starts)))
        strides = _integers(steps, "steps") if _given(steps) else [1] * len(starts)
        lengths = {len(starts), len(ends), len(chosen), len(strides)}
        if len(lengths) != 1:
            raise UsageError("start, end, axes and steps differ in length; expected one number of each per axis.")
        if 0 in strides:
            raise UsageError("a step is 0; expected a positive or negative one.")
        axes_found = [self._axis(axis, input) for axis in chosen]
        rows = sorted(zip(axes_found, starts, ends, strides, strict=True))
        bounded = [[max(-_END, min(bound, _END)) for bound in row] for row in rows]
        columns = [list(column) for column in zip(*bounded, strict=True)]
        attrs = dict(zip(("axes", "starts", "ends", "steps"), columns, strict=True))
        return self._store.add("Slice", attrs, [input])[0]

    # --- reductions -------------------------------------------------------------------------------------------------

    @explained
    def reduce_argmax(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Index of the first largest element along one axis, int64."""
        return self._indexed("ArgMax", input, axes, keepdims)

    @explained
    def reduce_argmin(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Index of the first smallest element along one axis, int64."""
        return self._indexed("ArgMin", input, axes, keepdims)

    @explained
    def reduce_max(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Largest element over the axes."""
        return self._reduced("ReduceMax", input, axes, keepdims)

    @explained
    def reduce_mean(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Mean over the axes."""
        return self._reduced("ReduceMean", input, axes, keepdims)

    @explained
    def reduce_min(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Smallest element over the axes."""
        return self._reduced("ReduceMin", input, axes, keepdims)

    @explained
    def reduce_prod(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Product over the axes."""
        return self._reduced("ReduceProd", input, axes, keepdims)

    @explained
    def reduce_sum(self, input: PyTensor, axes: Sizes, keepdims: bool = True) -> PyTensor:
        """Sum over the axes."""
        return self._reduced("ReduceSum", input, axes, keepdims)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _pairwise(self, op: str, x: PyTensor, y: PyTensor, integers: bool = True) -> PyTensor:
        return self._store.add(op, {}, list(self._store.alike(x, y, integers)))[0]

    def _pointwise(self, op: str, input: PyTensor) -> PyTensor:
        return self._store.add(op, {}, [self._store.as_float(input)])[0]

    def _activated(self, tensor: PyTensor, activation: str) -> PyTensor:
        op = ACTIVATION_OPERATORS[get_activation_mode(activation)]
        return tensor if op is None else self._pointwise(op, tensor)

    def _reduced(self, op: str, input: PyTensor, axes: Sizes, keepdims: bool) -> PyTensor:
        attrs = {"axes": self._axes(axes, input), "keepdims": int(bool(keepdims))}
        return self._store.add(op, attrs, [self._store.as_float(input)])[0]

    def _indexed(self, op: str, input: PyTensor, axes: Sizes, keepdims: bool) -> PyTensor:
        found = self._axes(axes, input)
        if len(found) != 1:
            raise UsageError(f"axes names {len(found)} axes; an index along several axes is not defined, expected one.")
        attrs = {"axis": found[0], "keepdims": int(bool(keepdims))}
        return self._store.add(op, attrs, [self._store.as_float(input)])[0]

    def _pooled(
        self, op: str, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str
    ) -> PyTensor:
        self._image(input, "input")
        attrs = self._window(input, _pair(kernels, "kernels"), strides, padding, (1, 1))
        return self._activated(self._store.add(op, attrs, [self._store.as_float(input)])[0], activation)

    def _image(self, tensor: PyTensor, what: str) -> None:
        self._store.value_of(tensor, what)
        if tensor.nDim is not None and tensor.nDim != 4:
            raise UsageError(f"{what} has rank {tensor.nDim}; expected [N, C, H, W] or [O, C / groups, KH, KW].")

    def _groups(self, input: PyTensor, weight: PyTensor) -> int:
        self._image(input, "input")
        self._image(weight, "weight")
        channels, inner, outer = input.dim(1), weight.dim(1), weight.dim(0)
        if not (isinstance(channels, int) and isinstance(inner, int) and isinstance(outer, int)):
            raise UsageError("the channels are not all known; the groups follow from them.")
        if inner < 1 or channels % inner or outer % (channels // inner):
            raise UsageError(
                f"{channels} input channels and a weight for {inner} make {channels}/{inner} groups, which must be a "
                f"whole number that divides the {outer} output channels."
            )
        return channels // inner

    def _window(
        self, input: PyTensor, kernel: Sequence[Dim], strides: Sizes, padding: str | Sizes, dilations: Sizes
    ) -> dict[str, Any]:
        """Attributes of a convolution or pool over the last two axes of ``input``."""
        steps, spread = _pair(strides, "strides"), _pair(dilations, "dilations")
        sizes = _integers(kernel, "kernels")
        if min(*steps, *spread, *sizes) < 1:
            raise UsageError(f"kernel {sizes}, strides {steps} and dilations {spread} must be at least 1.")
        attrs: dict[str, Any] = {"kernel_shape": sizes, "strides": steps, "dilations": spread}
        extents = [(size - 1) * wide + 1 for size, wide in zip(sizes, spread, strict=True)]
        if isinstance(padding, str) and get_padding_mode(padding) == 0:
            image = [dim for dim in (input.dim(2), input.dim(3)) if isinstance(dim, int)]
            if len(image) < 2:  # how much it is depends on the size
                return {**attrs, "auto_pad": "SAME_LOWER"}
            before, after = zip(*map(_same_pads, image, extents, steps), strict=True)
            return {**attrs, "pads": [*before, *after]}
        pads = [0, 0, 0, 0] if isinstance(padding, str) else _four(padding)
        for place, (extent, name) in enumerate(zip(extents, ("height", "width"), strict=True)):
            size = input.dim(2 + place)
            if isinstance(size, int) and size + pads[place] + pads[place + 2] < extent:
                raise UsageError(f"the window's {name} {extent} exceeds the input's, {size} with padding {pads}.")
        return {**attrs, "pads": pads}

    def _equal_parts(self, input: PyTensor, axis: int, parts: int) -> list[int]:
        size = input.dim(axis)
        if not isinstance(size, int) or parts < 1 or size % parts:
            raise UsageError(f"axis {axis} has extent {size}, which does not make {parts} equal parts.")
        return [size // parts] * parts

    def _axis(self, axis: Any, tensor: PyTensor) -> int:
        self._store.value_of(tensor, "input")
        if not _is_integer(axis):
            raise UsageError(f"axis {axis!r} is not an integer.")
        return _in_range(int(axis), tensor.nDim, "the input")

    def _axes(self, axes: Sizes, tensor: PyTensor) -> list[int]:
        found = sorted(self._axis(axis, tensor) for axis in _integers(axes, "axes"))
        if len(set(found)) != len(found) or not found:
            raise UsageError(f"axes {axes!r} must name at least one axis, and each once.")
        return found


def _in_range(axis: int, rank: int | None, what: str) -> int:
    if rank is None and axis >= 0:
        return axis
    if rank is None or not -rank <= axis < rank:
        raise UsageError(f"axis {axis} does not exist in {what}, which has rank {'unknown' if rank is None else rank}.")
    return axis % rank


def _same_pads(size: int, extent: int, stride: int) -> tuple[int, int]:
    """(before, after) so that the output is ceil(size / stride); as in TASO's kernels, the odd row comes first."""
    total = max(extent - (size % stride or stride), 0)
    return (total + 1) // 2, total // 2


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _given(value: Any) -> bool:
    return value is not None and (_is_integer(value) or len(value) > 0)


def _integers(values: Any, what: str) -> list[int]:
    found = [values] if _is_integer(values) else values
    try:
        items = list(found)
    except TypeError:
        items = [None]
    if isinstance(values, str) or not all(_is_integer(item) for item in items):
        raise UsageError(f"{what}={values!r} is not a list of integers.")
    return [int(item) for item in items]


def _extents(dims: Any) -> list[Dim]:
    items = [dims] if _is_integer(dims) else list(dims)
    if not all(_is_integer(item) or isinstance(item, str) for item in items):
        raise UsageError(f"{dims!r} is not a list of extents, which are integers or names.")
    return [item if isinstance(item, str) else int(item) for item in items]


def _pair(values: Any, what: str) -> list[int]:
    found = _integers(values, what)
    if len(found) == 1:
        found *= 2
    if len(found) != 2:
        raise UsageError(f"{what}={values!r} has {len(found)} numbers; expected (vertical, horizontal).")
    return found


def _four(padding: Any) -> list[int]:
    found = _integers(padding, "padding")
    pads = {1: found * 4, 2: found * 2, 4: found}.get(len(found))
    if pads is None or min(pads) < 0:
        raise UsageError(f"padding={padding!r}: expected SAME, VALID, or 1, 2 or 4 numbers of zero or more.")
    return pads
