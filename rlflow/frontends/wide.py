"""A whole model in double precision: what its outputs would be without roundings.

ONNX's reference evaluator runs the graph. Its convolutions, pools and resizing go over elements in Python or need much
memory, which is fine for one operator and not for a network; here they are sums over the window's places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference import ops
from onnx.reference.op_run import OpRun

from rlflow.frontends.constants import Array, ConstantStore
from rlflow.frontends.reference import evaluate
from rlflow.graph import Graph

__all__ = ["evaluate_wide"]


def evaluate_wide(graph: Graph, feeds: Mapping[str, Array], constants: ConstantStore | None = None) -> list[Array]:
    """The graph's outputs in float64, in the graph's order; as :func:`rlflow.frontends.reference.evaluate`, faster.

    Raises GraphError where ONNX's evaluator cannot run the graph.
    """
    return evaluate(graph, feeds, constants, np.float64, quick=QUICK)


class Conv(ops.op_conv.Conv):
    """A convolution as a sum of products, one for each place of the window."""

    op_domain = ""

    def _run(self, X: Array, W: Array, B: Array | None = None, **attributes: Any) -> Any:  # type: ignore[override]
        if attributes.get("auto_pad") not in (None, "NOTSET", b"NOTSET"):
            return super()._run(X, W, B, **attributes)
        group, kernel = int(attributes.get("group") or 1), W.shape[2:]
        window = _Window(X, kernel, attributes)
        batch, channels = X.shape[:2]
        weights = W.reshape(group, W.shape[0] // group, W.shape[1], *kernel)
        total = np.zeros((batch, group, W.shape[0] // group, int(np.prod(window.out))), X.dtype)
        for place, part in window.places(0.0):
            columns = part.reshape(batch, group, channels // group, -1)
            total += weights[(slice(None),) * 3 + place] @ columns
        total = total.reshape(batch, W.shape[0], *window.out)
        if B is not None:
            total += B.reshape(1, -1, *[1] * len(kernel))
        return (total,)


class MaxPool(ops.op_max_pool.MaxPool):
    """The largest of the window's places."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> Any:  # type: ignore[override]
        if len(self.output) > 1 or not _plain(attributes):
            return super()._run(x, **attributes)
        window = _Window(x, attributes["kernel_shape"], attributes)
        parts = (part for _, part in window.places(-np.inf))
        total = next(parts).copy()
        for part in parts:
            np.maximum(total, part, out=total)
        return (total,)


class AveragePool(ops.op_average_pool.AveragePool_19):
    """The mean of the window's places; without ``count_include_pad`` of those inside."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> Any:  # type: ignore[override]
        if not _plain(attributes):
            return super()._run(x, **attributes)
        kernel = attributes["kernel_shape"]
        total = sum(part for _, part in _Window(x, kernel, attributes).places(0.0))
        inside = np.ones((1, 1, *x.shape[2:]), x.dtype)
        fill = 1.0 if attributes.get("count_include_pad") else 0.0
        count = sum(part for _, part in _Window(inside, kernel, attributes).places(fill))
        return (np.asarray(total / count),)


class Resize(ops.op_resize.Resize):
    """Resizing is a matrix for each axis: ONNX's evaluator resizes the identity to find it."""

    op_domain = ""

    def _run(  # type: ignore[override]
        self, X: Array, roi: Any = None, scales: Any = None, sizes: Any = None, **attributes: Any
    ) -> Any:
        crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        own = ("axes", "antialias", "keep_aspect_ratio_policy")
        usual = attributes.get("keep_aspect_ratio_policy") in (None, "stretch")
        if crops or not usual or any(attributes.get(name) for name in own[:2]):
            return super()._run(X, roi, scales, sizes, **attributes)
        found = X
        for axis, extent in enumerate(X.shape):
            one: dict[str, Any] = {"scales": None, "sizes": None}
            if sizes is not None and len(sizes):
                one["sizes"] = np.array([extent, sizes[axis]], np.int64)
                if sizes[axis] == extent:
                    continue
            else:
                one["scales"] = np.array([1.0, scales[axis]], np.float32)
                if scales[axis] == 1.0:
                    continue
            (matrix,) = super()._run(np.eye(extent, dtype=X.dtype), None, **one, **attributes)
            found = np.moveaxis(np.tensordot(found, matrix, (axis, 0)), -1, axis)
        return (found,)


#: In place of the evaluator's own.
QUICK: tuple[type[OpRun], ...] = (Conv, MaxPool, AveragePool, Resize)


def _plain(attributes: Mapping[str, Any]) -> bool:
    return not attributes.get("ceil_mode") and attributes.get("auto_pad") in (None, "NOTSET", b"NOTSET")


class _Window:
    """Where a window lies on ``x`` [N, C, …]; ``out``: how often, along each axis."""

    def __init__(self, x: Array, kernel: Sequence[int], attributes: Mapping[str, Any]) -> None:
        rank = len(kernel)
        self.x, self.kernel = x, tuple(kernel)
        self.strides = list(attributes.get("strides") or [1] * rank)
        self.dilations = list(attributes.get("dilations") or [1] * rank)
        pads = list(attributes.get("pads") or [0] * (2 * rank))
        self.pads = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
        self.out = [
            (extent + sum(pad) - dilation * (size - 1) - 1) // stride + 1
            for extent, pad, dilation, size, stride in zip(
                x.shape[2:], self.pads, self.dilations, self.kernel, self.strides, strict=True
            )
        ]

    def places(self, fill: float) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Each place of the window, and what it covers of ``x`` padded with ``fill``: [N, C, *out]."""
        padded = np.pad(self.x, [(0, 0), (0, 0), *self.pads], constant_values=fill)
        for place in itertools.product(*map(range, self.kernel)):
            cut = tuple(
                slice(at * dilation, at * dilation + stride * (count - 1) + 1, stride)
                for at, dilation, stride, count in zip(place, self.dilations, self.strides, self.out, strict=True)
            )
            yield place, padded[(slice(None), slice(None), *cut)]
