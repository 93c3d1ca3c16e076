"""Both sides of a rule in floating point, through ONNX's reference evaluator.

What the exact evaluator says about an operator is our reading of its specification; this is ONNX's own. In double
precision the sides must agree (relative to the largest magnitude of the output) wherever the source is finite: a
target that leaves a function's domain (Log, Sqrt, division) is refuted. In single precision the error of each side
against the double-precision truth is measured; their quotient is the *growth* that the rewrite causes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.rewrite import Rule
from rlflow.synthesis.field import key_of
from rlflow.synthesis.sampling import Sample

if TYPE_CHECKING:
    from rlflow.frontends.constants import ConstantStore

_Evaluator = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
#: Runs in all; of each set of operators; and of each with a function that is not defined everywhere, in whose place a
#: class may have put it: only some values show that.
RUNS, RUNS_OF_EACH, RUNS_OF_PARTIAL = 8, 3, 12
_PARTIAL = {"Acos", "Acosh", "Asin", "Atanh", "Log", "Sqrt"}
TOLERANCE = 1e-8
_FLOATS = {1, 10, 11, 16}
_ARRAYS = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip


#: A rewrite whose single-precision error is this many times the original's is "unstable".
UNSTABLE = 1024.0
_ROUNDING = 2.0**-24  # of float32
_SCALES = (1.0, 8.0, 64.0)
_LARGE = 2.0**50  # inputs of the overflow run

#: Functions that numpy computes a few units in the last place apart in its vector loops and in its scalar ones (the
#: ends of a row, rows with a step): which of them an element meets is not the rule's doing.
_BY_LANES = {
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu",
    "HardSwish", "Log", "LogSoftmax", "Mish", "Selu", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Swish",
    "Tan", "Tanh",
}  # fmt: skip
#: What only moves elements.
_MOVES = {
    "Concat", "Constant", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "Input", "MaxPool", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
LANES = 4  # numpy's own bound for its vector loops, in units in the last place


@dataclass
class FloatReport:
    """``max_rel_err``: of the double-precision runs, rounded up to a power of ten. ``growth``: of the float32 error,
    target over source, rounded up to a power of two; ``overflow``: with inputs of magnitude 2^50 the target was not
    finite in float32 where the source was. ``problem`` is set where the sides disagree; ``kind`` is then "float" or
    "numerics"."""

    samples: int = 0
    max_rel_err: float = 0.0
    growth: float = 1.0
    overflow: bool = False
    kind: str = ""
    problem: str = ""
    graph: str | None = None

    def refuse(self, kind: str, graph: _core.Graph, problem: str) -> FloatReport:
        """The report of a rule that is refuted."""
        self.kind, self.graph, self.problem = kind, graph.text(), problem
        return self


class TargetFailed(Exception):  # noqa: N818 - becomes a verdict
    """The source is a valid model, the target is not."""


@dataclass
class Sides:
    """A graph and its rewrite, with what they are fed; the store holds the constants."""

    parent: _core.Graph
    child: _core.Graph
    store: ConstantStore
    feeds: dict[str, np.ndarray]
    evaluators: dict[tuple[str, type | None], _Evaluator] = field(default_factory=dict)  # of one side, in one precision

    @property
    def resizes(self) -> bool:
        """ONNX's evaluator resizes by products with zeros, where what is not finite spoils what is beside it."""
        return any(self.parent.op(n) == "Resize" for n in self.parent.order())

    def run(self, dtype: type | None, scale: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
        """Outputs of both sides; ``None`` where ONNX's evaluator does not run the source. Raises TargetFailed."""
        with np.errstate(all="ignore"):
            feeds = {k: a * a.dtype.type(scale) if a.dtype.kind == "f" else a for k, a in self.feeds.items()}
            try:
                before = self._evaluator("parent", dtype)(feeds)
            except GraphError:
                return None  # not every operator and type is in ONNX's evaluator
            try:
                after = self._evaluator("child", dtype)(feeds)
            except GraphError as error:
                raise TargetFailed(f"ONNX's evaluator runs the source and not the target: {error}") from error
        return before, [_forgiven(a, b) for a, b in zip(before, after, strict=True)] if self.resizes else after

    def _evaluator(self, side: str, dtype: type | None) -> _Evaluator:
        from rlflow.frontends.reference import prepared

        if (side, dtype) not in self.evaluators:
            graph = self.parent if side == "parent" else self.child
            self.evaluators[side, dtype] = prepared(graph, self.store, dtype=dtype)
        return self.evaluators[side, dtype]


def compare(rule: Rule, samples: list[Sample]) -> FloatReport:
    """Runs up to ``RUNS`` samples that ONNX's evaluator can run, and a few of each set of operators beyond them.
    Deterministic."""
    report, worst, growth = FloatReport(), 0.0, 1.0
    seen: Counter[tuple[str, ...]] = Counter()
    several = any("(?" in text for text in rule.source)  # a class of operators
    for k, sample in enumerate(samples):
        operators = tuple(sorted({sample.graph.op(n) for n in sample.graph.order()}))
        if report.samples >= RUNS and not (several and seen[operators] < runs_of(operators)):
            continue
        seen[operators] += 1
        pair = pair_of(rule, sample, k)
        if pair is None:
            continue
        try:
            double = pair.run(np.float64)
            own = pair.run(None) if double else None
        except TargetFailed as failure:
            return report.refuse("float", sample.graph, str(failure))
        if double is None or own is None or not any(np.any(np.isfinite(a)) for a in double[0] if a.dtype.kind == "f"):
            continue
        report.samples += 1
        worst = max(worst, gap_of(*double))
        if not worst <= TOLERANCE:
            return report.refuse("float", pair.parent, _sentence(double, worst))
        if rule.numerics == "exact" and not _same_bits(pair, own):
            problem = "it is said to be exact, and in the tensors' own precision the sides are not the same bit for bit"
            return report.refuse("numerics", pair.parent, problem)
        growth = max(growth, _growth(double[0], *own))
        report.overflow = report.overflow or _overflows(pair)
    report.max_rel_err = 10.0 ** math.ceil(math.log10(worst)) if worst else 0.0
    report.growth = 2.0 ** math.ceil(math.log2(growth)) if math.isfinite(growth) else growth
    if report.growth >= UNSTABLE and rule.numerics != "unstable":
        report.kind = "numerics"
        report.problem = (
            f"in float32 its error grows {report.growth:g} times: it is true in the reals and bad in floats; "
            'say "numerics": "unstable"'
        )
    return report


def runs_of(operators: Collection[str]) -> int:
    """How many samples with these operators are run in floating point."""
    return RUNS_OF_EACH if _PARTIAL.isdisjoint(operators) else RUNS_OF_PARTIAL


def agree(rule: Rule, samples: list[Sample]) -> bool:
    """Whether both sides agree in double precision, at three scales, on all samples that ONNX's evaluator can run, and
    on one at least."""
    ran = False
    for k, sample in enumerate(samples):
        pair = pair_of(rule, sample, k, whole=(-9, 10))
        for scale in _SCALES if pair else ():
            try:
                double = pair.run(np.float64, scale) if pair else None
            except TargetFailed:
                return False
            if double is not None and not gap_of(*double) <= TOLERANCE:
                return False
            ran = ran or double is not None
    return ran


def _forgiven(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    if before.shape != after.shape or after.dtype.kind != "f":
        return after
    return np.where(np.isfinite(before) & np.isfinite(after), after, before)


def _sentence(double: tuple[list[np.ndarray], list[np.ndarray]], worst: float) -> str:
    if math.isfinite(worst):
        return f"in double precision the sides differ by {worst:.1e} of the largest magnitude"
    shapes = [(a.shape, b.shape) for a, b in zip(*double, strict=True) if a.shape != b.shape]
    if shapes:
        return f"in ONNX's evaluator the sides have the shapes {shapes[0][0]} and {shapes[0][1]}"
    return "where the source is finite in double precision, the target is not: a function leaves its domain"


def _growth(truth: list[np.ndarray], before: list[np.ndarray], after: list[np.ndarray]) -> float:
    """Error of the target over error of the source, both at least one rounding; float32 outputs only."""
    grown = 1.0
    for t, b, a in zip(truth, before, after, strict=True):
        if b.dtype == np.float32 and t.size and np.all(np.isfinite(t)) and np.all(np.isfinite(b)):
            grown = max(grown, _error(t, a) / max(_error(t, b), _ROUNDING))
    return grown


def _overflows(pair: Sides) -> bool:
    outcome = pair.run(None, _LARGE)
    return outcome is not None and any(
        a.dtype == np.float32 and bool(np.any(np.isfinite(a) & ~np.isfinite(b))) for a, b in zip(*outcome, strict=True)
    )


def _same_bits(pair: Sides, own: tuple[list[np.ndarray], list[np.ndarray]]) -> bool:
    """Whether the sides agree bit for bit. Where they apply the same functions, all among ``_BY_LANES``, what tells a
    vector loop from a scalar one is forgiven: an element may meet the other one when only its place changed."""
    before, after = ({graph.op(n) for n in graph.order()} - _MOVES for graph in (pair.parent, pair.child))
    ulps = LANES if before == after and before <= _BY_LANES else 0
    return all(_within(a, b, ulps) for a, b in zip(*own, strict=True))


def _within(a: np.ndarray, b: np.ndarray, ulps: int) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not ulps or a.dtype.kind != "f":
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    finite = np.isfinite(a) & np.isfinite(b)
    step = np.spacing(np.maximum(np.abs(a), np.abs(b)), where=finite, out=np.zeros_like(a))
    near = np.abs(np.subtract(a, b, where=finite, out=np.zeros_like(a))) <= ulps * step
    return bool(np.all(np.where(finite, near, (a == b) | (np.isnan(a) & np.isnan(b)))))


def gap_of(before: list[np.ndarray], after: list[np.ndarray]) -> float:
    return max((_error(a, b) for a, b in zip(before, after, strict=True)), default=0.0)


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


def _feeds(graph: _core.Graph, sample: Sample, seed: int, whole: tuple[int, int] = (0, 2)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(key_of("feed", seed))
    feeds: dict[str, np.ndarray] = {}
    for k, n in enumerate(graph.inputs()):
        v = graph.node_outputs(n)[0]
        shape, dtype = tuple(graph.shape(v)), graph.dtype(v)
        if k in sample.index_inputs:
            array: np.ndarray = rng.integers(-sample.index_inputs[k], sample.index_inputs[k], shape)
        elif dtype in _FLOATS:
            array = rng.standard_normal(shape)
        else:
            array = rng.integers(*(whole if dtype != 9 else (0, 2)), shape)
        feeds[graph.input_name(n)] = np.asarray(array).astype(_ARRAYS.get(dtype, np.float32))
    return feeds


def pair_of(
    rule: Rule, sample: Sample, seed: int, whole: tuple[int, int] = (0, 2), *, nothing: bool = False
) -> Sides | None:
    """The sample with its constants filled, and its first rewrite; ``None`` where ONNX's evaluator would not run it, or
    runs it wrongly. ``nothing``: tensors may be empty."""
    parent, store = filled(sample.graph)
    values = [v for n in parent.order() for v in parent.node_outputs(n)]
    if any(parent.dtype(v) == 16 for v in values):
        return None  # numpy has no bfloat16 of its own
    if not nothing and any(0 in (parent.shape(v) or []) for v in values):
        return None  # nor does it take empty tensors everywhere
    if any(_run_wrongly(parent, n) for n in parent.order()):
        return None
    state = _core.State(parent, _core.RuleSet([rule.core]))
    if not len(state.moves()):
        return None
    return Sides(parent, state.child(0), store, _feeds(parent, sample, seed, whole))


def _run_wrongly(graph: _core.Graph, n: int) -> bool:
    """Whether ONNX's evaluator gives something else for a node than the operator's definition does (and the runtime):
    it reduces the wrong axes of a GlobalMaxPool that is not over images, and takes the pads of a MaxPool for those of
    other sides, or for more, where they differ or the extent is rounded up.
    """
    if graph.op(n) == "GlobalMaxPool":
        return len(graph.shape(graph.node_inputs(n)[0])) != 4
    if graph.op(n) != "MaxPool":
        return False
    attrs = graph.attrs(n)
    pads = attrs.get("pads", [])
    return len(set(pads)) > 1 or (any(pads) and bool(attrs.get("ceil_mode")))


def _error(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference where ``a`` is finite, over its largest magnitude there; infinite where ``b`` is not."""
    if a.shape != b.shape:
        return math.inf
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else math.inf
    finite = np.isfinite(a)
    if not np.any(finite):
        return 0.0
    x, y = a[finite].astype(np.float64), b[finite].astype(np.float64)
    if not np.all(np.isfinite(y)):
        return math.inf
    scale, gap = float(np.max(np.abs(x))), float(np.max(np.abs(x - y)))
    return gap / scale if scale else gap
