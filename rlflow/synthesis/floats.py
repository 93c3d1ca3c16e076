"""Both sides of a rule in double precision, through ONNX's reference evaluator.

What the exact evaluator says about an operator is our reading of its specification; this is ONNX's own. Errors are
relative to the largest
magnitude of the output.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.rewrite import Rule
from rlflow.synthesis.field import key_of
from rlflow.synthesis.sampling import Sample

if TYPE_CHECKING:
    from rlflow.frontends.constants import ConstantStore

RUNS = 8
TOLERANCE = 1e-8
_FLOATS = {1, 10, 11, 16}


@dataclass
class FloatReport:
    """``max_rel_err`` is rounded up to a power of ten. ``problem`` is set where the sides disagree; ``kind`` is then
    "float" or "numerics"."""

    samples: int = 0
    max_rel_err: float = 0.0
    kind: str = ""
    problem: str = ""
    graph: str | None = None


class TargetFailed(Exception):  # noqa: N818 - becomes a verdict
    """The source is a valid model, the target is not."""


def compare(rule: Rule, samples: list[Sample]) -> FloatReport:
    """Runs up to ``RUNS`` samples that ONNX's evaluator can run. Deterministic."""
    report = FloatReport()
    worst = 0.0
    for k, sample in enumerate(samples):
        if report.samples >= RUNS:
            break
        try:
            outcome = _one(rule, sample, k)
        except TargetFailed as failure:
            report.kind, report.problem, report.graph = "float", str(failure), sample.graph.text()
            return report
        if outcome is None:
            continue
        report.samples += 1
        error, graph = outcome
        worst = max(worst, error)
        if not error <= TOLERANCE:
            report.kind, report.graph = "float", graph.text()
            report.problem = f"in double precision the sides differ by {error:.1e} of the largest magnitude"
            return report
        if rule.numerics == "exact" and _one(rule, sample, k, double=False) not in (None, (0.0, graph)):
            report.kind, report.graph = "numerics", graph.text()
            report.problem = (
                "it is said to be exact, and in the tensors' own precision the sides are not the same bit for bit"
            )
            return report
    report.max_rel_err = 10.0 ** math.ceil(math.log10(worst)) if worst else 0.0
    return report


def filled(graph: _core.Graph) -> tuple[_core.Graph, ConstantStore]:
    """The graph with its unknown constants replaced by positive random ones that the store holds."""
    from rlflow.frontends.constants import ConstantStore

    store, text = ConstantStore(), graph.text()
    for n in graph.order():
        if graph.op(n) != "Constant" or graph.const_values(n) is not None:
            continue
        v, old = graph.node_outputs(n)[0], graph.const_digest(n)
        rng = np.random.default_rng(key_of("constant", old))
        shape = tuple(graph.shape(v))
        dtype = {1: np.float32, 10: np.float16, 11: np.float64}.get(graph.dtype(v))
        if dtype is None:
            continue
        new = store.put(rng.uniform(0.5, 1.5, shape).astype(dtype))
        text = re.sub(rf"@{old}", f"@{new}", text)
    return _core.Graph.parse(text), store


def _feeds(graph: _core.Graph, sample: Sample, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(key_of("feed", seed))
    feeds: dict[str, np.ndarray] = {}
    for k, n in enumerate(graph.inputs()):
        v = graph.node_outputs(n)[0]
        shape, dtype = tuple(graph.shape(v)), graph.dtype(v)
        if k in sample.index_inputs:
            array: np.ndarray = rng.integers(0, sample.index_inputs[k], shape)
        elif dtype in _FLOATS:
            array = rng.standard_normal(shape)
        else:
            array = rng.integers(0, 2, shape)
        types = {1: np.float32, 10: np.float16, 11: np.float64, 7: np.int64, 6: np.int32, 9: np.bool_}
        feeds[graph.input_name(n)] = np.asarray(array).astype(types.get(dtype, np.float32))
    return feeds


def _one(rule: Rule, sample: Sample, seed: int, *, double: bool = True) -> tuple[float, _core.Graph] | None:
    """The largest relative error, and the graph; ``None`` where ONNX's evaluator does not run the source."""
    from rlflow.frontends.reference import evaluate

    parent, store = filled(sample.graph)
    if any(parent.dtype(v) == 16 for n in parent.order() for v in parent.node_outputs(n)):
        return None  # numpy has no bfloat16 of its own
    if any(0 in (parent.shape(v) or []) for n in parent.order() for v in parent.node_outputs(n)):
        return None  # nor does it take empty tensors everywhere
    if any(
        parent.op(n) == "GlobalMaxPool" and len(parent.shape(parent.node_inputs(n)[0])) != 4 for n in parent.order()
    ):
        return None  # ONNX's evaluator reduces the wrong axes there
    state = _core.State(parent, _core.RuleSet([rule.core]))
    if not len(state.moves()):
        return None
    feeds = _feeds(parent, sample, seed)
    precision = np.float64 if double else None
    try:
        before = evaluate(parent, feeds, store, dtype=precision)
    except GraphError:
        return None  # not every operator and type is in ONNX's evaluator
    if any(a.dtype.kind == "f" and not np.all(np.isfinite(a)) for a in before):
        return None
    try:
        after = evaluate(state.child(0), feeds, store, dtype=precision)
    except GraphError as error:
        raise TargetFailed(f"ONNX's evaluator runs the source and not the target: {error}") from error
    return max((_error(a, b) for a, b in zip(before, after, strict=True)), default=0.0), parent


def _error(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return math.inf
    if a.size == 0:
        return 0.0
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else math.inf
    scale = float(np.max(np.abs(a)))
    gap = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
    return gap / scale if scale else gap if math.isfinite(gap) else math.inf
