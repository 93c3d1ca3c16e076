"""ONNX's own reference evaluator over core graphs, in single or double precision, and constant folding on top of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from rlflow.errors import GraphError
from rlflow.frontends import canonical
from rlflow.frontends.constants import Array, ConstantStore, constant_array, is_float, numpy_dtype
from rlflow.frontends.emitter import Emitter, UniqueNames, added_domains
from rlflow.frontends.standalone import DEFAULT_IR, DEFAULT_OPSET, graph_to_model
from rlflow.frontends.widened import WIDENED
from rlflow.graph import Graph
from rlflow.ops import Extension, extensions


def evaluate(
    graph: Graph,
    feeds: Mapping[str, npt.ArrayLike],
    constants: ConstantStore | None = None,
    dtype: npt.DTypeLike | None = None,
    seed: int = 0,
    quick: Sequence[type[OpRun]] = (),
) -> list[Array]:
    """The graph's outputs for inputs by name, computed by ONNX's reference evaluator.

    ``dtype``: float64 computes in double precision whatever the graph's types are (its float inputs are converted);
    None as declared. ``quick``: operators in place of the evaluator's own. Constants that ``constants`` lacks are the
    seeded ones of :func:`graph_to_model`. Raises GraphError where the evaluator cannot run the graph.
    """
    return prepared(graph, constants, dtype, seed, quick)(feeds)


def prepared(
    graph: Graph,
    constants: ConstantStore | None = None,
    dtype: npt.DTypeLike | None = None,
    seed: int = 0,
    quick: Sequence[type[OpRun]] = (),
) -> Callable[[Mapping[str, npt.ArrayLike]], list[Array]]:
    """:func:`evaluate` as a function of the inputs, for more than one run. Raises GraphError here or when called."""
    widen = dtype is not None
    if widen and np.dtype(dtype) != np.float64:
        raise GraphError(
            f"While evaluating a graph: precision {np.dtype(dtype)} was asked for; expected float64 or None."
        )
    model = graph_to_model(graph, constants, seed=seed, widen=widen)
    evaluator = _evaluator(model, (*quick, *WIDENED) if widen else quick)
    return lambda feeds: _outputs(evaluator, {name: _fed(value, widen) for name, value in feeds.items()})


def _fed(value: npt.ArrayLike, widen: bool) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64, copy=False) if widen and array.dtype.kind in "fV" else array


def run(model: onnx.ModelProto, feeds: Mapping[str, Array], quick: Sequence[type[OpRun]] = ()) -> list[Array]:
    """A model's outputs by the reference evaluator, ``quick`` operators in place of its own. Raises GraphError with the
    reason where it fails.
    """
    return _outputs(_evaluator(model, quick), feeds)


def _evaluator(model: onnx.ModelProto, quick: Sequence[type[OpRun]]) -> ReferenceEvaluator:
    with _failures_of(model.graph.name):
        return ReferenceEvaluator(model, new_ops=[*_added(), *quick])


def _outputs(evaluator: ReferenceEvaluator, feeds: Mapping[str, Array]) -> list[Array]:
    with _failures_of(evaluator.proto_.graph.name), np.errstate(all="ignore"):
        outputs = evaluator.run(None, dict(feeds))
    results: list[Any] = [output if isinstance(output, list) else np.asarray(output) for output in outputs]
    return results


@contextmanager
def _failures_of(name: str) -> Iterator[None]:
    """Whatever the evaluator, numpy and its operators raise, as a GraphError."""
    try:
        yield
    except Exception as error:
        raise GraphError(f"While evaluating model '{name}' with onnx's reference evaluator: {error}") from error


def _added() -> list[type[OpRun]]:
    """Operators that were added to the table, for ONNX's evaluator."""
    return [_evaluated(one) for one in extensions()]


def _evaluated(added: Extension) -> type[OpRun]:
    def values(self: OpRun, *operands: Array, **attributes: Any) -> tuple[Array]:
        out = added.values(*operands, **{**added.defaults, **attributes})
        return (np.asarray(out, dtype=operands[0].dtype),)

    return type(added.onnx_name, (OpRun,), {"op_domain": added.domain, "_run": values})


#: Operators whose float results are elements of their operands, as they were: no precision is needed for them, and
#: widening what they move takes longer than moving it.
_JOINS, _CUTS = {"Concat", "Expand"}, {"Gather", "Slice", "Split"}
_MOVES = _JOINS | _CUTS | {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


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
        results = evaluate_node(graph, node, operands, self._constants)
        cast = graph.op(node) == "Cast"
        for value, result in zip(outputs, results, strict=True):
            # A Cast is the one operator whose rounding is its meaning.
            narrowed = rounded(result, graph.dtype(value)) if cast and graph.dtype(value) else result
            self._keep(value, narrowed)

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


def rounded(array: Array, dtype: int) -> Array:
    """The array in an ONNX element type."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(numpy_dtype(dtype), copy=False)


def evaluate_node(
    graph: Graph, node: int, operands: Mapping[int, Array], constants: ConstantStore | None = None
) -> list[Array]:
    """All outputs of one node, floats in double precision, from its operands by value id.

    Raises GraphError where that fails.
    """
    since = (canonical.row(graph.op(node)) or {"since": 1})["since"]
    emitter = Emitter(graph, max(DEFAULT_OPSET, int(since)), UniqueNames(), constants, widen=True)
    distinct = sorted(operands)
    emitter.value_names = {value: f"x{value}" for value in distinct}
    outputs = [f"y{index}" for index in range(len(graph.node_outputs(node)))]
    emitter.emit(node, outputs)
    inputs = [_typed(f"x{value}", emitter.element_type(graph.dtype(value))) for value in distinct]
    results = [
        _typed(name, emitter.element_type(graph.dtype(value)))
        for name, value in zip(outputs, graph.node_outputs(node), strict=True)
    ]
    body = helper.make_graph(emitter.nodes, graph.op(node), inputs, results, emitter.initializers)
    imports = {"": emitter.opset, **added_domains(emitter.nodes)}.items()
    model = helper.make_model(
        body, opset_imports=[helper.make_opsetid(*entry) for entry in imports], ir_version=DEFAULT_IR
    )
    return run(model, {f"x{value}": array for value, array in operands.items()})


def _typed(name: str, dtype: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype or int(onnx.TensorProto.FLOAT), None)


__all__ = ["Folder", "evaluate", "evaluate_node", "prepared", "rounded", "run"]
