"""A counterexample made small: fewer outputs, smaller extents, plain attributes, and whole numbers that show it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.synthesis.domains import Array, Domain, Field, Ordered, Unsupported
from rlflow.synthesis.field import PRIME, key_of
from rlflow.synthesis.operators import BOOL, FLOATS, NeedsOrder
from rlflow.synthesis.sampling import Sample
from rlflow.synthesis.semantics import Evaluator
from rlflow.synthesis.trial import Failure, Trial
from rlflow.synthesis.verdict import Counterexample

_MOST_CHECKS = 160
_MOST_ELEMENTS = 64
_SIZED = frozenset(("shape", "split", "ends", "kernel_shape"))  # attributes that speak of extents
_PLAIN = {"strides": 1, "dilations": 1, "pads": 0, "group": 1}


@dataclass(frozen=True)
class _Node:
    op: str
    attrs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: int = 0
    shape: tuple[int, ...] = ()
    digest: str = ""
    values: tuple[float, ...] | None = None
    name: str = ""

    @property
    def leaf(self) -> bool:
        return not self.inputs and self.op in ("Input", "Constant")


_Spec = tuple[tuple[_Node, ...], tuple[int, ...]]  # nodes in order, output values


def smallest(trial: Trial) -> tuple[Failure, Counterexample]:
    """The smallest failure of a trial after shrinking, as it is told. Deterministic."""
    failure = min(trial.failures, key=lambda f: f.size)
    if not failure.sample.symbols and trial.needs_order is False:
        failure = _shrunk(trial, failure)
    return failure, _told(trial.domain, failure)


# ---- the graph --------------------------------------------------------------------------------------------------


def _spec(graph: _core.Graph) -> _Spec:
    nodes, inputs = [], set(graph.inputs())
    for n in graph.order():
        outs = tuple(graph.node_outputs(n))
        shape = tuple(graph.shape(outs[0]) or ())
        if n in inputs:
            nodes.append(_Node("Input", {}, (), outs, graph.dtype(outs[0]), shape, name=graph.input_name(n)))
        elif graph.op(n) == "Constant":
            values = graph.const_values(n)
            kept = None if values is None else tuple(values)
            nodes.append(_Node("Constant", {}, (), outs, graph.dtype(outs[0]), shape, graph.const_digest(n), kept))
        else:
            nodes.append(_Node(graph.op(n), dict(graph.attrs(n)), tuple(graph.node_inputs(n)), outs))
    return tuple(nodes), tuple(graph.outputs())


def _build(spec: _Spec) -> _core.Graph | None:
    """The graph of a spec; ``None`` where it is ill-typed."""
    builder, at = _core.GraphBuilder(), {-1: -1}
    try:
        for node in _needed(spec):
            if node.op == "Input":
                at[node.outputs[0]] = builder.input(node.name, node.dtype, list(node.shape))
            elif node.op == "Constant":
                values = None if node.values is None else _fitted(node.values, math.prod(node.shape))
                at[node.outputs[0]] = builder.constant(node.dtype, list(node.shape), node.digest, values, None)
            else:
                first = builder.add(node.op, node.attrs, [at[v] for v in node.inputs], 0)
                at.update({v: first + k for k, v in enumerate(node.outputs)})
        return builder.finish([at[v] for v in spec[1]])
    except (GraphError, KeyError, TypeError, ValueError):
        return None


def _needed(spec: _Spec) -> list[_Node]:
    wanted, kept = set(spec[1]), []
    for node in reversed(spec[0]):
        if node.op == "Input" or wanted & set(node.outputs):
            wanted |= set(node.inputs)
            kept.append(node)
    return [node for node in reversed(kept) if node.op != "Input" or node.outputs[0] in wanted]


def _fitted(values: tuple[float, ...], count: int) -> list[float]:
    return [values[k % len(values)] for k in range(count)] if values else []


def _smaller(spec: _Spec) -> Iterator[_Spec]:
    """Specs with one thing made simpler, the boldest first."""
    nodes, outputs = spec
    if len(outputs) > 1:
        yield from ((nodes, (v,)) for v in outputs)
        yield from ((nodes, tuple(o for o in outputs if o != v)) for v in outputs)
    yield from ((_without_axis(nodes, at), outputs) for at in (0, -1))
    extents = sorted({d for node in nodes for d in node.shape if d > 1}, reverse=True)
    for d, e in ((large, small) for large in extents for small in range(1, large)):
        yield tuple(_resized(node, d, e) for node in nodes), outputs
    for k, node in enumerate(nodes):
        for changed in _simpler(node):
            yield (*nodes[:k], changed, *nodes[k + 1 :]), outputs


def _without_axis(nodes: tuple[_Node, ...], at: int) -> tuple[_Node, ...]:
    """Every leaf of the highest rank without its first or last axis; axis attributes count from there."""
    rank = max((len(node.shape) for node in nodes if node.leaf), default=0)
    out = []
    for node in nodes:
        if node.leaf and len(node.shape) == rank > 0:
            out.append(replace(node, shape=node.shape[1:] if at == 0 else node.shape[:-1]))
        elif at == 0 and isinstance(node.attrs.get("axis"), int) and node.attrs["axis"] > 0:
            out.append(replace(node, attrs={**node.attrs, "axis": node.attrs["axis"] - 1}))
        else:
            out.append(node)
    return tuple(out)


def _resized(node: _Node, d: int, e: int) -> _Node:
    def new(values: Any) -> Any:
        return [e if v == d else v for v in values] if isinstance(values, list) else values

    if node.leaf:
        return replace(node, shape=tuple(new(list(node.shape))))
    attrs = {k: new(v) if k in _SIZED else v for k, v in node.attrs.items()}
    if attrs.get("group") == d:  # a depthwise convolution stays one
        attrs["group"] = e
    return replace(node, attrs=attrs)


def _simpler(node: _Node) -> Iterator[_Node]:
    for i, d in enumerate(node.shape if node.leaf else ()):
        yield from (replace(node, shape=(*node.shape[:i], e, *node.shape[i + 1 :])) for e in range(1, d))
    for name, plain in _PLAIN.items():
        value = node.attrs.get(name)
        if isinstance(value, list) and value != [plain] * len(value):
            yield replace(node, attrs={**node.attrs, name: [plain] * len(value)})
        elif isinstance(value, int) and value != plain:
            yield replace(node, attrs={**node.attrs, name: plain})


def _weight(spec: _Spec) -> tuple[int, int, int]:
    nodes = _needed(spec)
    extents = sum(math.prod(node.shape) for node in nodes if node.leaf)
    attributes = sum(abs(v) for node in nodes for a in node.attrs.values() for v in _numbers(a))
    return len(nodes) + 8 * len(spec[1]), extents, attributes + sum(len(node.shape) for node in nodes)


def _numbers(value: Any) -> list[int]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int)]


def _shrunk(trial: Trial, failure: Failure) -> Failure:
    """Makes the graph simpler step by step, as long as the rule is false on it in the same way."""
    spec, checks = _spec(failure.graph), 0
    while checks < _MOST_CHECKS:
        for candidate in _smaller(spec):
            checks += 1
            if checks >= _MOST_CHECKS:
                break
            found = _false_on(trial, candidate, failure) if _weight(candidate) < _weight(spec) else None
            if found is not None:
                spec, failure = _spec(found.graph), found
                break
        else:
            break
    return failure


def _false_on(trial: Trial, spec: _Spec, failure: Failure) -> Failure | None:
    graph = _build(spec)
    if graph is None or len(graph.inputs()) != len(failure.graph.inputs()):
        return None  # ordinals of index inputs would shift
    probe = Trial(trial.rule, trial.hints, trial.domain, 1, trial.seed)
    below = {
        k: min([bound, *_gathered(graph, n)])
        for k, n in enumerate(graph.inputs())
        if (bound := failure.sample.index_inputs.get(k)) is not None
    }
    for probe.tries in range(1, 4):
        probe.judge(Sample(graph, below, dtype=failure.sample.dtype))
        same = [f for f in probe.failures if f.kind == failure.kind]
        if same:
            return same[0]
    return None


def _gathered(graph: _core.Graph, n: int) -> list[int]:
    """Extents that the values of an index input run over."""
    v = graph.node_outputs(n)[0]
    out = []
    for user in graph.order():
        operands = graph.node_inputs(user)
        if graph.op(user) in ("Gather", "GatherElements") and v in operands[1:]:
            out.append((graph.shape(operands[0]) or [1])[graph.attrs(user)["axis"]])
    return [d for d in out if isinstance(d, int)]


# ---- values -----------------------------------------------------------------------------------------------------

_Key = tuple[str, Any]  # ("input", ordinal) or ("constant", (digest, dtype))


def _told(domain: Domain, failure: Failure) -> Counterexample:
    text = failure.graph.text()
    plain = Counterexample(text)
    if failure.kind != "value" or failure.child is None:
        return plain
    for world in (Ordered(), domain):
        try:
            shown = _Shown(world, failure)
            if shown.find():
                return shown.told(text)
        except (Unsupported, NeedsOrder, GraphError):
            continue
    return plain


class _Shown:
    """The search for values that show a difference."""

    def __init__(self, domain: Domain, failure: Failure) -> None:
        self.domain, self.failure = domain, failure
        self.parent, self.child = failure.graph, failure.child
        self.leaves: dict[_Key, tuple[int, tuple[int, ...], str]] = {}
        self.values: dict[_Key, Array] = {}
        inputs = {n: k for k, n in enumerate(self.parent.inputs())}
        for n, line in zip(self.parent.order(), self.parent.text().splitlines(), strict=False):
            v = self.parent.node_outputs(n)[0]
            kind = (self.parent.dtype(v), tuple(self.parent.shape(v) or ()), line.partition(":")[0].strip())
            if n in inputs:
                self.leaves["input", inputs[n]] = kind
            elif self.parent.op(n) == "Constant" and self.parent.const_values(n) is None:
                self.leaves["constant", (self.parent.const_digest(n), kind[0])] = kind

    def _outputs(self, values: dict[_Key, Array]) -> tuple[list[Array], list[Array]]:
        evaluator = Evaluator(self.domain, 0)
        feeds = {name: array for (kind, name), array in values.items() if kind == "input"}
        for (kind, name), array in values.items():
            if kind == "constant":
                evaluator._constants[name] = array
        assert self.child is not None
        return evaluator.run(self.parent, feeds), evaluator.run(self.child, feeds)

    def _differ(self, values: dict[_Key, Array]) -> bool:
        before, after = self._outputs(values)
        return any(bool(np.any(np.asarray(a != b, dtype=bool))) for a, b in zip(before, after, strict=True))

    def _drawn(self, rng: np.random.Generator, pool: list[int]) -> dict[_Key, Array]:
        values: dict[_Key, Array] = {}
        for key, (dtype, shape, _) in self.leaves.items():
            picks = [pool[k] for k in rng.integers(0, len(pool), size=math.prod(shape))]
            if key[0] == "input" and key[1] in self.failure.sample.index_inputs:
                below = self.failure.sample.index_inputs[key[1]]
                picks = list(rng.integers(-below, below, size=len(picks)))
            values[key] = self._array(dtype, shape, picks)
        return values

    def _array(self, dtype: int, shape: tuple[int, ...], picks: list[int]) -> Array:
        if dtype in FLOATS:
            return self.domain.constants([int(p) for p in picks], shape)
        return np.array(picks, dtype=bool if dtype == BOOL else np.int64).reshape(shape)

    def find(self) -> bool:
        """Small whole numbers first; then as many of them 0 or 1 as can be."""
        pools = [[0, 1]] * 12 + [[-1, 0, 1, 2]] * 24 + [list(range(-6, 7))] * 24
        for k, pool in enumerate(pools):
            values = self._drawn(np.random.default_rng(key_of("shown", k)), pool)
            if self._differ(values):
                self.values = values
                self._simplify()
                return True
        return False

    def _simplify(self) -> None:
        if sum(a.size for a in self.values.values()) > _MOST_ELEMENTS:
            return
        for key, simple in itertools.product(self.leaves, (0, 1)):
            dtype = self.leaves[key][0]
            for index in np.ndindex(self.values[key].shape):
                changed = self.values[key].copy()
                changed[index] = self._array(dtype, (), [simple])[()]
                later = simple == 1 and _plain(self.domain, self.values[key][index]) == "0"
                if not later and self._differ({**self.values, key: changed}):
                    self.values[key] = changed

    def told(self, text: str) -> Counterexample:
        before, after = self._outputs(self.values)
        k = next(
            k for k, (a, b) in enumerate(zip(before, after, strict=True)) if np.any(np.asarray(a != b, dtype=bool))
        )
        a, b = before[k], after[k]
        if a.size > _MOST_ELEMENTS:
            at = tuple(int(e[0]) for e in np.nonzero(np.asarray(a != b, dtype=bool)))
            a, b = np.asarray(a[at], dtype=a.dtype), np.asarray(b[at], dtype=b.dtype)
        show: Callable[[Array], Any] = lambda array: _nested(self.domain, array)  # noqa: E731
        values = {self.leaves[key][2]: show(array) for key, array in self.values.items()}
        return Counterexample(text, values, k, show(a), show(b))


def _nested(domain: Domain, array: Array) -> Any:
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return _plain(domain, array[()] if isinstance(array, np.ndarray) else array)
    return [_nested(domain, part) for part in array]


def _plain(domain: Domain, value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value)
    number = int(value)
    return str(number - PRIME if isinstance(domain, Field) and number > PRIME // 2 else number)
