"""Seeded random graphs: every operator whose row tells how to use it, with broadcasting, dims of 1, shared values and
several outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import GraphError
from rlflow.graph import Graph, GraphBuilder
from rlflow.ops import rows

FLOAT, INT64 = 1, 7
#: A float outside these bounds overflows the exponentials of a deep random graph; shapes stay small for the same
#: reason.
_MOST_ELEMENTS = 4096
#: Constants up to this size carry their values; the core makes their digest then, if it is given none.
_INLINE, _BY_CONTENT = 1024, "0" * 32
_SIZES = (1, 2, 3, 4, 6)


class _Made(NamedTuple):
    """Arguments of one ``GraphBuilder.add``."""

    op: str
    attrs: dict[str, Any]
    inputs: list[int]
    outputs: int = 0


def random_graph(seed: int, nodes: int = 20, *, inputs: int = 2, ops: Sequence[str] | None = None) -> Graph:
    """A float32 graph of about ``nodes`` operators; the same arguments give the same graph in every process.

    ``ops`` restricts the choice to some operators. Every value that nothing reads is an output. All operators are
    defined everywhere on their inputs, so that the graph can be evaluated on random data.
    """
    return _Generator(np.random.Generator(np.random.PCG64(seed)), seed).run(
        nodes, inputs, None if ops is None else frozenset(ops)
    )


class _Generator:
    def __init__(self, rng: np.random.Generator, seed: int) -> None:
        self.rng, self.seed = rng, seed
        self.builder = GraphBuilder()
        self.values: list[int] = []
        self.read: set[int] = set()
        self.constants = 0

    def run(self, nodes: int, inputs: int, ops: frozenset[str] | None) -> Graph:
        for number in range(inputs):
            self.values.append(self.builder.input(f"x{number}", FLOAT, self._shape()))
        makers = [(op, make) for op, make in self._makers() if ops is None or op in ops]
        added = tries = 0
        while added < nodes and tries < 40 * nodes:
            tries += 1
            op, make = makers[int(self.rng.integers(len(makers)))]
            added += self._add(make(op, self._pick()))
        return self.builder.finish([value for value in self.values if value not in self.read] or self.values[-1:])

    def _add(self, made: _Made | None) -> bool:
        if made is None:
            return False
        try:
            first = self.builder.add(made.op, made.attrs, made.inputs, made.outputs)
        except GraphError:
            return False  # shapes that do not fit together: the generator guesses, the table knows
        made_values = list(range(first, first + max(1, made.outputs)))
        if not all(self._usable(value) for value in made_values):
            self.read.update(made_values)  # too large: dropped with everything that only it needs
            return False
        self.read.update(made.inputs)
        self.values.extend(value for value in made_values if value not in self.values)
        return True

    def _usable(self, value: int) -> bool:
        shape = self.builder.shape(value)
        return (
            shape is not None
            and all(isinstance(dim, int) and dim > 0 for dim in shape)
            and prod(shape) <= _MOST_ELEMENTS
        )

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _int(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def _shape(self) -> list[int]:
        return [int(self.rng.choice(_SIZES)) for _ in range(self._int(2, 4))]

    def _pick(self) -> int:
        """A value, the recent ones more often."""
        return self.values[-1 - min(int(self.rng.geometric(0.25)) - 1, len(self.values) - 1)]

    def _dims(self, value: int) -> list[int]:
        return [int(dim) for dim in self.builder.shape(value)]

    def _constant(self, shape: Sequence[int], low: float = -1.0, high: float = 1.0) -> int:
        self.constants += 1
        values = self.rng.uniform(low, high, prod(shape)).astype(np.float32).astype(float).tolist()
        if len(values) <= _INLINE:
            return self.builder.constant(FLOAT, list(shape), _BY_CONTENT, values)
        digest = hashlib.blake2b(f"{self.seed}:{self.constants}:{list(shape)}".encode(), digest_size=16).hexdigest()
        return self.builder.constant(FLOAT, list(shape), digest, None, (low, high, False, True))

    def _ints(self, values: Sequence[int], shape: Sequence[int]) -> int:
        return self.builder.constant(INT64, list(shape), _BY_CONTENT, [int(value) for value in values])

    def _beside(self, value: int) -> int:
        """Another operand that broadcasts with ``value``: itself, another value of its shape, or a constant with some
        dims of 1.
        """
        same = [other for other in self.values if self.builder.shape(other) == self.builder.shape(value)]
        if self.rng.random() < 0.5:
            return same[int(self.rng.integers(len(same)))]
        dims = [1 if self.rng.random() < 0.4 else dim for dim in self._dims(value)]
        return self._constant(dims[self._int(0, len(dims)) :], 0.5, 1.5)

    def _makers(self) -> list[tuple[str, Callable[[str, int], _Made | None]]]:
        """Operators with the functions that use them, in the table's order (which is fixed)."""
        special = _special(self)
        found: list[tuple[str, Callable[[str, int], _Made | None]]] = []
        for row in rows():
            name, flags = row["name"], row["flags"]
            if name in special:
                found.append((name, special[name]))
            elif name in _PARTIAL:
                continue
            elif "unary" in flags:
                found.append((name, lambda op, x: _Made(op, {}, [x])))
            elif "binary" in flags:
                found.append((name, lambda op, x: _Made(op, {}, [x, self._beside(x)])))
            elif "reduce" in flags and name in _TOTAL_REDUCTIONS:
                found.append((name, self._reduce))
            elif row["fusion"] == "elementwise" and "variadic" in flags:
                found.append(
                    (name, lambda op, x: _Made(op, {}, [x, *(self._beside(x) for _ in range(self._int(1, 2)))]))
                )
        return found

    # --- operators whose use the flags do not tell --------------------------------------------------------------------

    def _reduce(self, op: str, x: int) -> _Made:
        rank = len(self._dims(x))
        axes = (
            sorted(int(axis) for axis in self.rng.choice(rank, self._int(1, max(1, rank - 1)), replace=False))
            if rank
            else []
        )
        return _Made(op, {"axes": axes, "keepdims": self._int(0, 1)}, [x])

    def _matmul(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        return None if not dims else _Made(op, {}, [x, self._constant([dims[-1], int(self.rng.choice(_SIZES))])])

    def _gemm(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if len(dims) != 2:
            return None
        transposed, width = self._int(0, 1), int(self.rng.choice(_SIZES))
        weight = self._constant([width, dims[1]] if transposed else [dims[1], width])
        return _Made(op, {"transB": transposed}, [x, weight, self._constant([width])])

    def _conv(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if len(dims) != 4:
            return None
        kernel = [self._int(1, min(3, size)) for size in dims[2:]]
        pads = [self._int(0, size - 1) for size in kernel] * 2
        attrs = {"kernel_shape": kernel, "pads": pads, "strides": [self._int(1, 2)] * 2, "dilations": [1, 1]}
        channels = int(self.rng.choice(_SIZES))
        return _Made(
            op, {**attrs, "group": 1}, [x, self._constant([channels, dims[1], *kernel]), self._constant([channels])]
        )

    def _pool(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if len(dims) != 4:
            return None
        kernel = [self._int(1, min(2, size)) for size in dims[2:]]
        return _Made(
            op,
            {
                "kernel_shape": kernel,
                "pads": [0] * 4,
                "strides": [1, 1],
                **({"dilations": [1, 1]} if op == "MaxPool" else {}),
            },
            [x],
        )

    def _spatial(self, op: str, x: int) -> _Made | None:
        return _Made(op, {}, [x]) if len(self._dims(x)) == 4 else None

    def _batch_norm(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if len(dims) < 2:
            return None
        positive = [self._constant([dims[1]], 0.5, 1.5) for _ in range(2)]
        shift = [self._constant([dims[1]]) for _ in range(2)]
        return _Made(op, {"epsilon": 1e-5}, [x, positive[0], shift[0], shift[1], positive[1]])

    def _layer_norm(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if not dims or dims[-1] == 1:
            return None  # one element has no variance: the result is all bias
        operands = [x, self._constant([dims[-1]], 0.5, 1.5), self._constant([dims[-1]])]
        return _Made(op, {"axis": -1, "epsilon": 1e-5}, operands if op == "LayerNormalization" else operands[:2])

    def _softmax(self, op: str, x: int) -> _Made | None:
        rank = len(self._dims(x))
        return _Made(op, {"axis": self._int(0, rank - 1)}, [x]) if rank else None

    def _transpose(self, op: str, x: int) -> _Made:
        return _Made(op, {"perm": [int(axis) for axis in self.rng.permutation(len(self._dims(x)))]}, [x])

    def _reshape(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if len(dims) < 2:
            return None
        at = self._int(0, len(dims) - 2)
        return _Made(op, {"shape": [*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]]}, [x])

    def _unsqueeze(self, op: str, x: int) -> _Made | None:
        rank = len(self._dims(x))
        return _Made(op, {"axes": [self._int(0, rank)]}, [x]) if rank < 5 else None

    def _squeeze(self, op: str, x: int) -> _Made | None:
        ones = [axis for axis, dim in enumerate(self._dims(x)) if dim == 1]
        return _Made(op, {"axes": ones[:1]}, [x]) if ones else None

    def _concat(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if not dims:
            return None
        axis = self._int(0, len(dims) - 1)

        def fits(other: int) -> bool:
            found = self._dims(other)
            return len(found) == len(dims) and all(
                a == b for k, (a, b) in enumerate(zip(dims, found, strict=True)) if k != axis
            )

        others = [value for value in self.values if fits(value)]
        return _Made(
            op, {"axis": axis}, [x, *(others[int(self.rng.integers(len(others)))] for _ in range(self._int(1, 2)))]
        )

    def _split(self, op: str, x: int) -> _Made | None:
        wide = [axis for axis, dim in enumerate(self._dims(x)) if dim >= 2]
        if not wide:
            return None
        axis = wide[int(self.rng.integers(len(wide)))]
        dim = self._dims(x)[axis]
        first = self._int(1, dim - 1)
        return _Made(op, {"axis": axis, "split": [first, dim - first]}, [x], 2)

    def _slice(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if not dims:
            return None
        axis = self._int(0, len(dims) - 1)
        start = self._int(0, dims[axis] - 1)
        end = self._int(start + 1, dims[axis])
        return _Made(op, {"starts": [start], "ends": [end], "axes": [axis], "steps": [1]}, [x])

    def _gather(self, op: str, x: int) -> _Made | None:
        dims = self._dims(x)
        if not dims:
            return None
        axis, count = self._int(0, len(dims) - 1), self._int(1, 3)
        return _Made(op, {"axis": axis}, [x, self._ints([self._int(0, dims[axis] - 1) for _ in range(count)], [count])])

    def _expand(self, op: str, x: int) -> _Made:
        return _Made(op, {"shape": [self._int(1, 3) if dim == 1 else dim for dim in self._dims(x)]}, [x])

    def _pad(self, op: str, x: int) -> _Made:
        rank = len(self._dims(x))
        return _Made(op, {"mode": "constant", "pads": [self._int(0, 1) for _ in range(2 * rank)], "value": 0.0}, [x])

    def _tile(self, op: str, x: int) -> _Made:
        return _Made(op, {"repeats": [self._int(1, 2) for _ in self._dims(x)]}, [x])


#: Operators that the flags would admit, but that are not defined on every float, return no floats, or amplify rounding
#: without bound.
_PARTIAL = frozenset(
    {
        "Acos", "Acosh", "Asin", "Asinh", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
        "And", "Or", "Xor", "Not", "Cast", "Ceil", "Clip", "Cosh", "Div", "DequantizeLinear", "Equal", "Exp", "Floor",
        "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Mod", "Pow",
        "QuantizeLinear", "Reciprocal", "Round", "Sign", "Sinh", "Sqrt", "Tan", "ThresholdedRelu",
    }
)  # fmt: skip
_TOTAL_REDUCTIONS = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp"}
)


def _special(make: _Generator) -> dict[str, Callable[[str, int], _Made | None]]:
    return {
        "AveragePool": make._pool,
        "BatchNormalization": make._batch_norm,
        "Concat": make._concat,
        "Conv": make._conv,
        "Expand": make._expand,
        "Gather": make._gather,
        "Gemm": make._gemm,
        "GlobalAveragePool": make._spatial,
        "GlobalMaxPool": make._spatial,
        "LayerNormalization": make._layer_norm,
        "MatMul": make._matmul,
        "MaxPool": make._pool,
        "Pad": make._pad,
        "RMSNormalization": make._layer_norm,
        "Reshape": make._reshape,
        "Slice": make._slice,
        "Softmax": make._softmax,
        "LogSoftmax": make._softmax,
        "Split": make._split,
        "Squeeze": make._squeeze,
        "Tile": make._tile,
        "Transpose": make._transpose,
        "Unsqueeze": make._unsqueeze,
    }
