"""ONNX's own reference evaluator over core graphs, in single or double precision."""

from __future__ import annotations

import warnings
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
from rlflow.frontends.constants import Array, ConstantStore
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
    with _failures_of(evaluator.proto_.graph.name), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a mean of nothing
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


__all__ = ["evaluate", "evaluate_node", "prepared", "run"]
