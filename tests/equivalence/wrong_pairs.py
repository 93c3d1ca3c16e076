"""Pairs of small models of which the second is wrong, in the ways in which rewrites go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

FLOAT, HALF, INT32, INT64, UINT8 = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
)
Weights = dict[str, Any]
Spec = tuple[int, Sequence[int | str]]


class Pair(NamedTuple):
    """``dims``: sizes of open dimensions at which the models are usually used."""

    name: str
    original: bytes
    wrong: bytes
    dims: dict[str, int]


def net(
    nodes: Sequence[NodeProto],
    weights: Weights,
    inputs: dict[str, Spec] | None = None,
    outputs: dict[str, int] | None = None,
) -> bytes:
    """A serialized model; by default ``x: f32[N, 16]`` comes in and ``y: f32`` goes out."""
    specs = inputs or {"x": (FLOAT, ["N", 16])}
    graph = helper.make_graph(
        list(nodes),
        "pair",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in specs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (outputs or {"y": FLOAT}).items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def op(kind: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; names are separated by spaces, and ``-`` stands for an operand that is left out."""
    return helper.make_node(kind, [n if n != "-" else "" for n in inputs.split()], outputs.split(), **attributes)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def f32(value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


def deep(layers: int = 8, *, weight: float = 1.0, every: float = 1.0) -> bytes:
    """Layers of ``Tanh(x W + b)``; one weight of the third, or all of them, times a factor."""
    nodes, weights, last = [], {}, "x"
    for k in range(layers):
        matrix = normal(16, 16, seed=k) / f32(4.0) * f32(every)
        matrix[3, 5] *= f32(weight) if k == 2 else f32(1.0)
        weights |= {f"w{k}": matrix, f"b{k}": normal(16, seed=100 + k) * f32(0.1)}
        nodes += [op("MatMul", f"{last} w{k}", f"m{k}"), op("Add", f"m{k} b{k}", f"a{k}")]
        last = "y" if k == layers - 1 else f"t{k}"
        nodes += [op("Tanh", f"a{k}", last)]
    return net(nodes, weights)


def channel(scale: float, factor: float) -> bytes:
    """A convolution in which the fifth channel is of ``scale`` and is multiplied by ``factor``."""
    kernel = normal(8, 3, 3, 3) / f32(5.0)
    kernel[5] *= f32(scale * factor)
    return net(
        [op("Conv", "x w", "c", pads=[1, 1, 1, 1]), op("Relu", "c", "y")], {"w": kernel}, {"x": (FLOAT, [1, 3, 8, 8])}
    )


def outlier(shift: float) -> bytes:
    bias = f32(np.zeros(16)) + f32([1e6] + [shift] * 15)
    return net([op("MatMul", "x w", "m"), op("Add", "m b", "y")], {"w": normal(16, 16), "b": bias})


def clipped(nodes: Sequence[NodeProto], **bounds: float) -> bytes:
    """A convolution, the given nodes from ``c`` to ``d``, and one more."""
    weights = {"w": normal(6, 3, 3, 3) / f32(5.0), "v": normal(4, 6, 1, 1) / f32(2.5)}
    ends = [op("Conv", "x w", "c", pads=[1, 1, 1, 1]), *nodes, op("Conv", "d v", "y")]
    return net(ends, weights | {k: f32(v) for k, v in bounds.items()}, {"x": (FLOAT, ["N", 3, 8, 8])})


def clip(low: float, high: float | None) -> bytes:
    if high is None:
        return clipped([op("Clip", "c low", "d")], low=low)
    return clipped([op("Clip", "c low high", "d")], low=low, high=high)


def hard_swish(right: bool) -> bytes:
    """``x Clip(x + 3, 0, 6) / 6``, or without the upper bound."""
    gate = op("Clip", "s zero six", "r") if right else op("Relu", "s", "r")
    nodes = [op("Add", "x three", "s"), gate, op("Mul", "x r", "p"), op("Div", "p six", "y")]
    return net(nodes, {"three": f32(3), "zero": f32(0), "six": f32(6)})


def integers(nodes: Sequence[NodeProto], kind: int = INT64, **constants: Any) -> bytes:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weights = {name: np.asarray(value, dtype) for name, value in constants.items()}
    return net(nodes, weights, {"x": (kind, ["N", 12])}, {"y": kind})


def embedding(wrong: bool) -> bytes:
    table = normal(5000, 8)
    table[3777] += f32(0.5 if wrong else 0.0)
    return net([op("Gather", "t x", "y")], {"t": table}, {"x": (INT64, ["N", 8])})


def batched(right: bool) -> bytes:
    """Every row by itself; or the first for all, which is the same at N = 1."""
    if right:
        return net([op("Relu", "x", "y")], {})
    nodes = [op("Slice", "x zero one zero", "first"), op("Mul", "x none", "n"), op("Add", "n first", "s")]
    return net([*nodes, op("Relu", "s", "y")], {"zero": np.int64([0]), "one": np.int64([1]), "none": f32(0)})


def layer_norm(epsilon: float, width: int = 16) -> bytes:
    weights = {"g": normal(width, seed=1), "b": normal(width, seed=2)}
    return net([op("LayerNormalization", "x g b", "y", axis=-1, epsilon=epsilon)], weights)


def halves(factor: float) -> bytes:
    nodes = [op("Conv", "x w", "c", pads=[1, 1, 1, 1]), op("Relu", "c", "r"), op("Conv", "r v", "y")]
    weights = {"w": normal(8, 3, 3, 3) / 5, "v": normal(4, 8, 1, 1) / 3 * factor}
    weights = {name: array.astype(np.float16) for name, array in weights.items()}
    return net(nodes, weights, {"x": (HALF, [1, 3, 8, 8])}, {"y": HALF})


def outputs_of(first: str, second: str) -> bytes:
    nodes = [op("MatMul", "x w", "m"), op("Sigmoid", "m", first), op("Tanh", "m", second)]
    return net(nodes, {"w": normal(16, 16) / 4}, None, {"p": FLOAT, "q": FLOAT})


def nearly_symmetric(transposed: bool) -> bytes:
    matrix = normal(16, 16)
    matrix = (matrix + matrix.T) / f32(2.0)
    matrix[2, 9] += f32(1e-3)
    return net([op("MatMul", "x w", "m"), op("Tanh", "m", "y")], {"w": matrix.T.copy() if transposed else matrix})


def bias(missing: bool) -> bytes:
    b = normal(8) * f32(0.01)
    b[6] = 0.0 if missing else b[6]
    nodes = [op("Conv", "x w b", "c"), op("Relu", "c", "y")]
    return net(nodes, {"w": normal(8, 3, 3, 3), "b": b}, {"x": (FLOAT, [1, 3, 8, 8])})


def padded(value: float) -> bytes:
    nodes = [op("Pad", "x p v", "q"), op("MaxPool", "q", "y", kernel_shape=[3, 3], strides=[2, 2])]
    weights = {"p": np.int64([0, 0, 1, 1, 0, 0, 1, 1]), "v": f32(value)}
    return net(nodes, weights, {"x": (FLOAT, [1, 3, 8, 8])})


def softmax(axis: int) -> bytes:
    return net([op("Softmax", "x", "y", axis=axis)], {}, {"x": (FLOAT, [2, 8, 8])})


def masked(value: float) -> bytes:
    nodes = [op("MatMul", "x w", "s"), op("Where", "m s v", "t"), op("Softmax", "t", "y")]
    inputs = {"x": (FLOAT, ["N", 16]), "m": (TensorProto.BOOL, ["N", 16])}
    return net(nodes, {"w": normal(16, 16), "v": f32(value)}, inputs)


def pooled(ceil: int) -> bytes:
    inputs = {"x": (FLOAT, [1, 3, "H", "W"])}
    nodes = [op("MaxPool", "x", "p", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=ceil)]
    return net([*nodes, op("ReduceMean", "p axes", "y", keepdims=0)], {"axes": np.int64([2, 3])}, inputs)


def batch_norm(epsilon: float) -> bytes:
    weights = {"s": normal(4), "b": normal(4, seed=1), "m": normal(4, seed=2), "v": f32([0.5, 1.0, 2.0, 300.0])}
    node = op("BatchNormalization", "x s b m v", "y", epsilon=epsilon)
    return net([node], weights, {"x": (FLOAT, ["N", 4, 5, 5])})


def gelu(approximate: str) -> bytes:
    return net(
        [op("MatMul", "x w", "m"), op("Gelu", "m", "y", approximate=approximate)], {"w": normal(16, 16) / f32(4)}
    )


def halved(truncating: bool) -> bytes:
    """``x / 2`` of integers, rounded towards zero; or down, as a shift does it."""
    if truncating:
        return integers([op("Div", "x two", "y")], INT32, two=2)
    nodes = [op("Cast", "x", "f", to=TensorProto.DOUBLE), op("Mul", "f half", "h"), op("Floor", "h", "g")]
    weights = {"half": np.float64(0.5)}
    return net([*nodes, op("Cast", "g", "y", to=INT32)], weights, {"x": (INT32, ["N", 12])}, {"y": INT32})


def through_half(cast: bool) -> bytes:
    nodes = [op("Cast", "x", "h", to=HALF), op("Cast", "h", "z", to=FLOAT)] if cast else [op("Identity", "x", "z")]
    return net([*nodes, op("MatMul", "z w", "y")], {"w": normal(16, 16)})


def best(last: int) -> bytes:
    nodes = [op("Relu", "x", "r"), op("ArgMax", "r", "y", axis=1, select_last_index=last)]
    return net(nodes, {}, None, {"y": INT64})


def leaky(alpha: float | None) -> bytes:
    node = op("Relu", "m", "y") if alpha is None else op("LeakyRelu", "m", "y", alpha=alpha)
    return net([op("MatMul", "x w", "m"), node], {"w": normal(16, 16) / f32(4)})


def capped(at: float | None) -> bytes:
    nodes = [op("Identity", "m", "y")] if at is None else [op("Min", "m top", "y")]
    return net([op("MatMul", "x w", "m"), *nodes], {"w": normal(16, 16) / f32(4), "top": f32(at or 0.0)})


def overflow(kept: bool) -> bytes:
    nodes = [op("Mul", "x c", "m"), op("Div", "m c", "y")] if kept else [op("Mul", "x one", "y")]
    return integers(nodes, INT32, c=65536, one=1)


def _pairs(table: Sequence[tuple[Any, ...]]) -> list[Pair]:
    def made(name: str, make: Callable[[Any], bytes], right: Any, wrong: Any, **dims: int) -> Pair:
        return Pair(name, make(right), make(wrong), dims)

    return [made(*row[:4], **(row[4] if len(row) > 4 else {})) for row in table]


WRONG = _pairs(
    [
        ("a weight off by 1e-3 in a deep net", lambda f: deep(weight=f), 1.0, 1.001),
        ("a channel of scale 1e-4 off by 5 %", lambda f: channel(1e-4, f), 1.0, 1.05),
        ("a channel of scale 1e-6 zeroed", lambda f: channel(1e-6, f), 1.0, 0.0),
        ("values off by 1 beside an outlier of 1e6", outlier, 0.0, 1.0),
        ("Clip at 6 dropped", lambda high: clip(0.0, high), 6.0, None),
        ("Clip at 100 dropped", lambda high: clip(0.0, high), 100.0, None),
        ("Clip at +3 of a hard swish dropped", hard_swish, True, False),
        ("int32 overflow", overflow, True, False),
        ("x mod 2", lambda kept: integers([op("Mod", "x two", "y") if kept else op("Identity", "x", "y")], two=2),
         True, False),
        ("min(x, 1) on uint8",
         lambda kept: integers([op("Min", "x one", "y") if kept else op("Identity", "x", "y")], UINT8, one=1),
         True, False),
        ("a wrong row of an embedding", embedding, False, True),
        ("an error only at N > 1", batched, True, False),
        ("LeakyRelu 1e-6 instead of Relu", leaky, None, 1e-6),
        ("LeakyRelu 0.011 instead of 0.01", leaky, 0.01, 0.011),
        ("epsilon 1e-12 to 1e-5 in a LayerNorm", layer_norm, 1e-12, 1e-5),
        ("float16 weights off by 0.5 %", halves, 1.0, 1.005),
        ("all weights times 1 + 1e-5", lambda f: deep(every=f), 1.0, 1.0 + 1e-5),
        ("outputs swapped", lambda names: outputs_of(*names), ("p", "q"), ("q", "p")),
        ("a nearly symmetric matrix transposed", nearly_symmetric, False, True),
        ("the bias of one channel missing", bias, False, True),
        ("padded by 0 instead of the lowest", padded, -1e30, 0.0),
        ("softmax over another axis of equal extent", softmax, -1, 1),
        ("a mask of -1e4 instead of -inf", masked, -np.inf, -1e4),
        ("ceil_mode of a pooling measured at even sizes", pooled, 0, 1, {"H": 8, "W": 8}),
        ("epsilon 1e-5 to 1e-3 in a BatchNormalization", batch_norm, 1e-5, 1e-3),
        ("Gelu by tanh instead of erf", gelu, "none", "tanh"),
        ("integer division rounded down", halved, True, False),
        ("Casts through float16 dropped", through_half, True, False),
        ("ArgMax takes the last of equals", best, 0, 1),
    ]
)  # fmt: skip

#: Neighbours of the same kinds.
NEIGHBOURS = _pairs(
    [
        ("Min at 9 dropped", capped, 9.0, None),
        ("Clip at -20 dropped", lambda low: clip(low, 1e4), -20.0, -1e9),
        ("a mask of -1e4 instead of the lowest finite", masked, -3.4e38, -1e4),
        ("a channel of scale 1e-4 off by 1 %", lambda f: channel(1e-4, f), 1.0, 1.01),
        ("a weight off by 1e-3 in a deeper net", lambda f: deep(16, weight=f), 1.0, 1.001),
    ]
)
