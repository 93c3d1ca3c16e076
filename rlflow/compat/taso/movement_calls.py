"""Operators that move elements, and those that reduce an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlflow.compat.taso.arguments import Sizes, explained, extents, given, in_range, integers, is_integer, tensors
from rlflow.compat.taso.calls import Calls
from rlflow.compat.taso.store import Dim, PyTensor
from rlflow.errors import UsageError

#: "To the end of the axis", as ONNX writes it.
END = (1 << 62) - 1


class Movement(Calls):
    """Methods that add an operator and return its result, or its results."""

    @explained
    def concat(self, axis: int, inputs: Iterable[PyTensor]) -> PyTensor:
        """The tensors (any number) one after the other along an axis, in one element type."""
        operands = tensors(inputs, "inputs")
        place = self._axis(axis, operands[0])
        for index, operand in enumerate(operands):
            self._store.value_of(operand, f"inputs[{index}]")
        if len({operand.dtype for operand in operands} - {0}) > 1:
            operands = self._store.alike(*operands)
        return self._store.add("Concat", {"axis": place}, operands)[0]

    @explained
    def split(self, input: PyTensor, axis: int, sizes: Sizes) -> list[PyTensor]:
        """Consecutive parts of the given sizes along an axis; for a number, that many equal parts."""
        axis = self._axis(axis, input)
        parts = integers(sizes, "sizes")
        if is_integer(sizes):
            parts = self._equal_parts(input, axis, parts[0])
        if not parts:
            raise UsageError("sizes is empty; expected at least one.")
        return self._store.add("Split", {"axis": axis, "split": parts}, [input], len(parts))

    @explained
    def reshape(self, input: PyTensor, shape: Sequence[Dim]) -> PyTensor:
        """The elements in another shape: 0 copies the extent at its place, one -1 takes what is left."""
        self._store.value_of(input, "input")
        target = [input.dim(axis) if dim == 0 else dim for axis, dim in enumerate(extents(shape, least=-1))]
        return self._store.add("Reshape", {"shape": target}, [input])[0]

    @explained
    def transpose(self, input: PyTensor, perm: Sequence[int], shuffle: bool = False) -> PyTensor:
        """Axis i of the result is axis perm[i]. ``shuffle``, TASO's wish to move the data now, changes nothing."""
        order = [self._axis(axis, input) for axis in integers(perm, "perm")]
        return self._store.add("Transpose", {"perm": order}, [input])[0]

    @explained
    def squeeze(self, input: PyTensor, axes: Sizes) -> PyTensor:
        """Without the named axes, which have extent 1."""
        return self._store.add("Squeeze", {"axes": self._axes(axes, input)}, [input])[0]

    @explained
    def unsqueeze(self, input: PyTensor, axes: Sizes) -> PyTensor:
        """With new axes of extent 1 at these places of the result."""
        self._store.value_of(input, "input")
        places = integers(axes, "axes")
        if not places:
            raise UsageError("axes is empty; expected at least one.")
        rank = None if input.nDim is None else input.nDim + len(places)
        found = sorted(in_range(axis, rank, "the result") for axis in places)
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
        starts, ends = integers(start, "start"), integers(end, "end")
        if not starts:
            raise UsageError("start is empty; expected one number per axis.")
        chosen = integers(axes, "axes") if given(axes) else list(range(len(starts)))
        strides = integers(steps, "steps") if given(steps) else [1] * len(starts)
        lengths = {len(starts), len(ends), len(chosen), len(strides)}
        if len(lengths) != 1:
            raise UsageError("start, end, axes and steps differ in length; expected one number of each per axis.")
        if 0 in strides:
            raise UsageError("a step is 0; expected a positive or negative one.")
        axes_found = [self._axis(axis, input) for axis in chosen]
        rows = sorted(zip(axes_found, starts, ends, strides, strict=True))
        bounded = [[max(-END, min(bound, END)) for bound in row] for row in rows]
        columns = [list(column) for column in zip(*bounded, strict=True)]
        attrs = dict(zip(("axes", "starts", "ends", "steps"), columns, strict=True))
        return self._store.add("Slice", attrs, [input])[0]

    def _equal_parts(self, input: PyTensor, axis: int, parts: int) -> list[int]:
        size = input.dim(axis)
        if not isinstance(size, int) or parts < 1 or size % parts:
            raise UsageError(f"axis {axis} has extent {size}, which does not make {parts} equal parts.")
        return [size // parts] * parts


class Reductions(Calls):
    """Methods that reduce axes and return the result."""

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

    def _reduced(self, op: str, input: PyTensor, axes: Sizes, keepdims: bool) -> PyTensor:
        attrs = {"axes": self._axes(axes, input), "keepdims": int(bool(keepdims))}
        return self._store.add(op, attrs, [self._store.as_float(input)])[0]

    def _indexed(self, op: str, input: PyTensor, axes: Sizes, keepdims: bool) -> PyTensor:
        found = self._axes(axes, input)
        if len(found) != 1:
            raise UsageError(f"axes names {len(found)} axes; an index along several axes is not defined, expected one.")
        attrs = {"axis": found[0], "keepdims": int(bool(keepdims))}
        return self._store.add(op, attrs, [self._store.as_float(input)])[0]
