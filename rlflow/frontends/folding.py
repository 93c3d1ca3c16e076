"""Constant folding: the elements of what a graph computes from constants alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlflow.errors import GraphError
from rlflow.frontends.constants import Array, ConstantStore, constant_array, is_float, numpy_dtype
from rlflow.graph import Graph

__all__ = ["Folder", "rounded"]

#: Operators whose float results are elements of their operands, as they were: no precision is needed for them, and
#: widening what they move takes longer than moving it.
_JOINS, _CUTS = {"Concat", "Expand"}, {"Gather", "Slice", "Split"}
_MOVES = _JOINS | _CUTS | {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
#: What most constants are computed by, in double precision as ONNX's evaluator computes it, whose hundreds of modules
#: take longer to open.
_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
    "Neg": np.negative, "Reciprocal": np.reciprocal, "Sqrt": np.sqrt,
}  # fmt: skip
#: Operators that give the same elements in the same order another shape.
_VIEWS = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}


class Folder:
    """Evaluates constant subgraphs of a graph, node by node, floats in double precision; results are rounded once, at
    the end. What is only moved keeps the single precision that it came in.
    """

    def __init__(self, graph: Graph, constants: ConstantStore) -> None:
        self._graph = graph
        self._constants = constants
        self._known: dict[int, Array] = {}
        self._rounded: dict[int, Array] = {}

    def folded(self, value: int) -> Array:
        """The elements of a constant value, in its declared type. Raises GraphError where they cannot be computed."""
        dtype = self._graph.dtype(value)
        if dtype == 0:
            raise GraphError(f"While folding value {value}: its element type is not known.")
        if value not in self._rounded:
            self._rounded[value] = rounded(self._exact(value), dtype)
        return self._rounded[value]

    def _exact(self, value: int) -> Array:
        pending = [value]
        while pending:  # a chain of constants may be deeper than Python's stack
            producer = self._graph.producer(pending[-1])
            missing = [other for other in self._graph.node_inputs(producer) if other >= 0 and other not in self._known]
            if pending[-1] in self._known:
                pending.pop()
            elif missing:
                pending.extend(missing)
            else:
                self._compute(producer)
        return self._known[value]

    def _compute(self, node: int) -> None:
        graph = self._graph
        outputs = graph.node_outputs(node)
        if graph.op(node) == "Constant":
            array = constant_array(graph, node, self._constants)
            if array is None:
                raise GraphError(
                    f"While folding constants: nobody has the elements of constant {graph.const_digest(node)}."
                )
            self._keep(outputs[0], array)
            return
        moves = graph.op(node) in _MOVES
        operands = {value: self._operand(value, moves) for value in graph.node_inputs(node) if value >= 0}
        results = self._results(node, operands)
        cast = graph.op(node) == "Cast"
        for value, result in zip(outputs, results, strict=True):
            # A Cast is the one operator whose rounding is its meaning.
            narrowed = rounded(result, graph.dtype(value)) if cast and graph.dtype(value) else result
            self._keep(value, narrowed)

    def _results(self, node: int, operands: Mapping[int, Array]) -> list[Array]:
        """A node's, as ONNX's evaluator computes them, which is opened where it is no view and no plain arithmetic."""
        graph, op = self._graph, self._graph.op(node)
        given = [operands[value] for value in graph.node_inputs(node) if value >= 0]
        shape = graph.shape(graph.node_outputs(node)[0])
        if op in _VIEWS and shape is not None and all(isinstance(dim, int) for dim in shape):
            if math.prod(shape) == given[0].size:
                return [given[0].reshape(shape)]
        elif op in _ARITHMETIC and all(one.dtype == np.float64 for one in given):
            return [_computed(op, given)]
        from rlflow.frontends.reference import evaluate_node

        return evaluate_node(graph, node, operands, self._constants)

    def _operand(self, value: int, moves: bool) -> Array:
        known = self._known[value]
        return known if moves or not is_float(self._graph.dtype(value)) else known.astype(np.float64, copy=False)

    def _keep(self, value: int, array: Array) -> None:
        """Not copied without need, so nobody may write to it: an operator that tried would fail, and not be folded."""
        kept = np.asarray(array)
        if is_float(self._graph.dtype(value)) and kept.dtype != np.float32:  # of others not all are numpy's own
            kept = kept.astype(np.float64, copy=False)
        self._known[value] = kept.view()
        self._known[value].flags.writeable = False


def _computed(op: str, given: Sequence[Array]) -> Array:
    try:
        with np.errstate(all="ignore"):
            return _ARITHMETIC[op](*given)
    except (ValueError, MemoryError) as error:  # shapes that do not fit, or a result that nothing can hold
        raise GraphError(f"While folding constants: {op} cannot be computed: {error}") from error


def rounded(array: Array, dtype: int) -> Array:
    """The array in an ONNX element type."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(numpy_dtype(dtype), copy=False)
