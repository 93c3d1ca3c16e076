"""Along which axis the rows of each value lie.

In a network of convolutions that is the axis of the height, :data:`rlflow.footprint.flow.ROWS`, everywhere. In a
transformer it is that of the tokens, which moves where heads are split off and values are transposed. The axis is
certain for what convolutions and products of two computed values read and make. From there it is carried along, in both
directions; where nothing was said, products with a constant and normalisations say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import onnx
from onnx import helper

from rlflow.footprint.flow import ROWS

__all__ = ["REDUCTIONS", "RESHAPES", "SPATIAL", "Carrier", "row_axes"]

#: Operators on images: the rows are those of the height.
SPATIAL = frozenset({
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "FusedConv", "GlobalAveragePool",
    "GlobalMaxPool", "GridSample", "InstanceNormalization", "LRN", "MaxPool", "Resize", "SpaceToDepth", "Upsample",
})  # fmt: skip
#: Operators that only say anew how elements are counted, or repeat them.
RESHAPES = frozenset({"Expand", "Flatten", "Reshape", "Squeeze", "Unsqueeze"})
REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
})  # fmt: skip
_NORMALISATIONS = frozenset({"LayerNormalization", "RMSNormalization"})

Shape = Callable[[str], "list[Any] | None"]


@dataclass(frozen=True)
class Carrier:
    """A node, as far as axes go through it. ``shape``: dimensions of a value, open ones as they are named."""

    node: onnx.NodeProto
    shape: Shape

    def source(self, place: int, axis: int) -> int | None:
        """The axis of the input at ``place`` whose row ``o``, and no other, row ``o`` of the output along ``axis``
        needs; ``None`` where there is none.
        """
        ours, theirs = self._dims(self.node.output), self._dims(self.node.input[place : place + 1])
        if ours is None or theirs is None or not 0 <= axis < len(ours):
            return None
        found = self._source(place, axis, ours, theirs)
        return found if found is not None and found < len(theirs) and theirs[found] == ours[axis] else None

    def target(self, place: int, axis: int) -> int | None:
        """The axis of the output that comes of ``axis`` of the input at ``place``."""
        ours = self._dims(self.node.output)
        return next((one for one in range(len(ours or ())) if self.source(place, one) == axis), None)

    def said(self) -> int | None:
        """The axis of the output that an operator on images, or a product of two computed values, leaves no choice
        about.
        """
        if self.node.op_type in SPATIAL:
            return ROWS
        return self.preferred() if self.node.op_type == "MatMul" and self._is_batched() else None

    def preferred(self) -> int | None:
        """The axis of the output that is the usual one of a product or a normalisation: the last but one."""
        ours = self._dims(self.node.output)
        known = self.node.op_type in ("MatMul", "Gemm") or self.node.op_type in _NORMALISATIONS
        return len(ours) - 2 if known and ours is not None and len(ours) >= 2 else None

    def _source(self, place: int, axis: int, ours: Sequence[Any], theirs: Sequence[Any]) -> int | None:
        kind = self.node.op_type
        if kind in SPATIAL:
            return axis if place == 0 and axis == ROWS else None
        if kind == "MatMul":
            return self._of_product(place, axis, ours, theirs)
        if kind == "Gemm":
            return 0 if place == 0 and axis == 0 and not self._attribute("transA", 0) else None
        if kind == "Transpose":
            order = self._attribute("perm", list(range(len(ours)))[::-1])
            return int(order[axis]) if place == 0 else None
        if kind in RESHAPES:
            return _same_place(axis, ours, theirs) if place == 0 else None
        return axis if len(ours) == len(theirs) else None

    def _of_product(self, place: int, axis: int, ours: Sequence[Any], theirs: Sequence[Any]) -> int | None:
        """Rows of the first factor; also along an axis before the last but one, if the second has no such axis."""
        if place or len(ours) != len(theirs) or axis == len(ours) - 1:
            return None
        return axis if axis == len(ours) - 2 or not self._is_batched() else None

    def _is_batched(self) -> bool:
        """Whether the second factor of a product is more than one matrix, or may be."""
        other = self.shape(self.node.input[1])
        return other is None or len(other) > 2

    def _dims(self, names: Sequence[str]) -> list[Any] | None:
        return self.shape(names[0]) if names and names[0] else None

    def _attribute(self, name: str, default: Any) -> Any:
        return next((helper.get_attribute_value(one) for one in self.node.attribute if one.name == name), default)


def _same_place(axis: int, ours: Sequence[Any], theirs: Sequence[Any]) -> int | None:
    """The axis of ``theirs`` that has as many elements before it, and in it, as ``axis`` of ``ours``."""
    for place, extent in enumerate(theirs):
        if extent == ours[axis] and extent != 1 and _count(theirs[:place]) == _count(ours[:axis]):
            return place
    return None


def _count(dims: Sequence[Any]) -> tuple[int, list[str]]:
    """The product of dimensions: of the known ones, and the names of the others."""
    names = (str(dim) for dim in dims if not isinstance(dim, int))
    return prod(dim for dim in dims if isinstance(dim, int)), sorted(names)


def row_axes(nodes: Sequence[onnx.NodeProto], shape: Shape, is_computed: Callable[[str], bool]) -> Mapping[str, int]:
    """The axes of the rows of values that :data:`ROWS` is not true of."""
    return _Axes([Carrier(node, shape) for node in nodes], is_computed).found()


class _Axes:
    def __init__(self, carriers: Sequence[Carrier], is_computed: Callable[[str], bool]) -> None:
        self._carriers, self._is_computed = carriers, is_computed
        self._axes: dict[str, int] = {}
        self._beside: dict[str, list[Carrier]] = {}
        for one in carriers:
            for name in {*one.node.input, *one.node.output}:
                if name:
                    self._beside.setdefault(name, []).append(one)

    def found(self) -> dict[str, int]:
        for one in self._carriers:
            self._say(one, one.said())
        for one in self._carriers:
            self._say(one, one.preferred())
        return {name: axis for name, axis in self._axes.items() if axis != ROWS}

    def _say(self, carrier: Carrier, axis: int | None) -> None:
        """Let the result of a node have its rows there, unless something else is known already."""
        if axis is None:
            return
        waiting = [(name, axis) for name in carrier.node.output if name]
        for place, name in enumerate(carrier.node.input):
            source = carrier.source(place, axis) if self._is_computed(name) else None
            if source is not None:
                waiting.append((name, source))
        while waiting:
            name, axis = waiting.pop()
            if name not in self._axes:
                self._axes[name] = axis
                waiting += self._next_to(name, axis)

    def _next_to(self, name: str, axis: int) -> list[tuple[str, int]]:
        """The values beside a value whose axis its own decides."""
        found: list[tuple[str, int]] = []
        for one in self._beside[name]:
            made = axis if name in one.node.output else None
            for place, given in enumerate(one.node.input):
                if given == name and made is None:
                    made = one.target(place, axis)
            if made is None:
                continue
            found += [(other, made) for other in one.node.output if other]
            for place, given in enumerate(one.node.input):
                source = one.source(place, made) if given and self._is_computed(given) else None
                if source is not None:
                    found.append((given, source))
        return found
