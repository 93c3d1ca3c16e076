"""Exact values of graphs over a domain; what operators mean is in :mod:`operators`.

:class:`Evaluator` walks a core graph and gives every value an exact array. Values of float types are elements of the
domain (see :mod:`domains`);
integers are ``int64`` arrays, bools are ``bool`` arrays. The shape that each operator yields here is compared with
the one the core inferred, so
that the core's shape rules are checked on the way.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from rlflow import _core
from rlflow.errors import ProofError
from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Unsupported
from rlflow.synthesis.integers import edges_of, wrapped
from rlflow.synthesis.operators import BOOL, FLOAT_HOLDS, FLOATS, POINTWISE, Call, facets_of, flags_of, meaning_of

_INT64 = np.dtype(np.int64)
#: Types that hold elements otherwise than double precision does.
_HELD = {1: np.float32, 10: np.float16}


class InferenceMismatch(ProofError):  # noqa: N818 - it says what happened
    """The core inferred another shape than the operator yields."""


class Evaluator:
    """Evaluates graphs over one domain. Constants of equal digest get equal values, in every graph it sees.

    ``seed`` decides the values of inputs and of constants without a payload; in some of them stand values ``near``
    the boundaries of a statement, and the edge values of integer types.
    """

    def __init__(self, domain: Domain, seed: int, near: Sequence[float] = ()) -> None:
        self.domain = domain
        self.seed = seed
        self.near = near
        self._constants: dict[tuple[str, int], Array] = {}

    def _rng(self, *parts: object) -> np.random.Generator:
        return np.random.default_rng(field.key_of(self.seed, *parts))

    def _random(self, rng: np.random.Generator, dtype: int, shape: tuple[int, ...]) -> Array:
        if dtype in FLOATS:
            return self._with_near(rng, self.domain.random(rng, shape))
        if dtype == BOOL:
            return self.domain.booleans(rng, shape)
        plain = rng.integers(-9, 10, size=shape, dtype=np.int64)
        pool = [*edges_of(dtype), *(int(v) for v in self.near if v == int(v) and abs(v) < 2**63)]
        way = rng.random()
        if way < 0.2:  # any that the type holds: what wraps in between
            return wrapped(rng.integers(-(2**63), 2**63, size=shape, dtype=np.int64), dtype)
        if not pool or way < 0.5:
            return wrapped(plain, dtype)
        return wrapped(np.where(rng.random(shape) < 0.5, rng.choice(np.array(pool, np.int64), shape), plain), dtype)

    def _with_near(self, rng: np.random.Generator, values: Array) -> Array:
        """The values with some at and beside the boundaries, every other time."""
        if not self.near or rng.random() < 0.5:
            return values
        out = values.reshape(-1).copy()
        at = rng.random(out.shape) < 0.4
        elements = _elements(type(self.domain), tuple(self.near))
        out[at] = elements[rng.integers(0, len(elements), np.count_nonzero(at))]
        return out.reshape(values.shape)

    def inputs(self, graph: _core.Graph, indices: dict[int, int]) -> dict[int, Array]:
        """Random arrays for the graph inputs, by ordinal. ``indices``: ordinal of an integer input used as index ->
        number of rows, up from which and down from which they lie."""
        feeds: dict[int, Array] = {}
        for k, n in enumerate(graph.inputs()):
            v = graph.node_outputs(n)[0]
            shape = tuple(graph.shape(v) or ())
            if k in indices:
                rng = self._rng("input", k)  # half of them may be negative: they count from the end
                low = -indices[k] if rng.random() < 0.5 else 0
                feeds[k] = rng.integers(low, indices[k], size=shape, dtype=np.int64)
            else:
                feeds[k] = self._random(self._rng("input", k), graph.dtype(v), shape)
        return feeds

    def _constant(self, graph: _core.Graph, n: int) -> Array:
        v = graph.node_outputs(n)[0]
        dtype, shape = graph.dtype(v), tuple(graph.shape(v) or ())
        key = (graph.const_digest(n), dtype)
        if key not in self._constants:
            values = graph.const_values(n)
            if values is None:
                array = self._random(self._rng("constant", key[0]), dtype, shape)
            elif dtype in FLOATS:
                held = np.asarray(values, dtype=np.float64).astype(_HELD.get(dtype, np.float64))
                if not np.isfinite(held).all():
                    raise Unsupported("a constant that is not finite in its type")
                array = self.domain.constants(held.astype(np.float64).tolist(), shape)
            else:
                array = np.array(values, dtype=bool if dtype == BOOL else np.int64).reshape(shape)
            self._constants[key] = array
        return self._constants[key]

    def run(self, graph: _core.Graph, feeds: dict[int, Array]) -> list[Array]:
        """The graph's outputs. Raises :class:`Unsupported`, :class:`NeedsOrder` or :class:`InferenceMismatch`."""
        with np.errstate(over="ignore"):  # 64-bit words wrap on purpose
            return self._run(graph, feeds)

    def _run(self, graph: _core.Graph, feeds: dict[int, Array]) -> list[Array]:
        values: dict[int, Array] = {}
        self._widened: dict[int, int] = {}
        ordinal = {n: k for k, n in enumerate(graph.inputs())}
        for n in graph.order():
            outs = graph.node_outputs(n)
            if n in ordinal:
                values[outs[0]] = feeds[ordinal[n]]
            elif graph.op(n) == "Constant":
                values[outs[0]] = self._constant(graph, n)
            else:
                for v, array in zip(outs, self._call(graph, n, outs, values), strict=False):
                    values[v] = array
        return [values[v] for v in graph.outputs()]

    def _call(self, graph: _core.Graph, n: int, outs: list[int], values: dict[int, Array]) -> list[Array]:
        operands = graph.node_inputs(n)
        call = Call(
            graph.op(n),
            {
                name: float(np.float32(a)) if isinstance(a, float) else a for name, a in graph.attrs(n).items()
            },  # ONNX stores them so
            [None if v < 0 else values[v] for v in operands],
            [0 if v < 0 else graph.dtype(v) for v in operands],
            [graph.dtype(v) for v in outs],
            [graph.shape(v) for v in outs],
            self.domain,
        )
        if call.op == "Cast":
            call.widened_from = self._widened.get(operands[0], 0)
            if call.dtypes[0] in FLOAT_HOLDS.get(call.out_dtypes[0], ()):
                self._widened[outs[0]] = call.widened_from or call.dtypes[0]
        result = apply(call)
        for k, array in enumerate(result[: len(outs)]):
            _compare_shape(call, k, array)
        return [wrapped(a, t) if a.dtype == _INT64 else a for a, t in itertools.zip_longest(result, call.out_dtypes)]


@functools.lru_cache(maxsize=64)
def _elements(domain: type[Domain], values: tuple[float, ...]) -> Array:
    """Numbers as elements of a domain."""
    return domain().constants(list(values), (len(values),))


def _compare_shape(call: Call, k: int, array: Array) -> None:
    inferred = call.out_shapes[k]
    if inferred is None or inferred == list(array.shape):
        return
    same = len(inferred) == array.ndim and all(
        not isinstance(d, int) or d == e for d, e in zip(inferred, array.shape, strict=True)
    )
    if not same:
        operands = [None if a is None else a.shape for a in call.inputs]
        raise InferenceMismatch(
            f"{call.op}{call.attrs} on shapes {operands} yields {list(array.shape)}, the operator table says {inferred}"
        )


def apply(call: Call) -> list[Array]:
    """Evaluates one node; see :class:`Evaluator`."""
    result = meaning_of(call.op)(call)
    return result if isinstance(result, list) else [result]


def arbitrary_operators(parent: _core.Graph, child: _core.Graph | None, domain: Domain) -> list[str]:
    """Names of the pointwise operators of both graphs of which the domain knows no more than flags and symmetries."""
    graphs = [g for g in (parent, child) if g is not None]
    names = {g.op(n) for g in graphs for n in g.order() if POINTWISE & flags_of(g.op(n))}
    known = ("ordered", "always") if domain.ordered else ("always",)
    return sorted(name for name in names if facets_of(name).known not in known)
