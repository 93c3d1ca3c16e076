"""Every operator method of a taso graph, in both calling styles and with every default, against NumPy.

The references below compute what TASO's documentation and sources say the operator is for (not what its bugs do). All
operators of one style are in one graph, whose exported model is fully checked and run in ONNX Runtime.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import taso
from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 8, 7, 6)).astype(np.float32)
Y = RNG.standard_normal((2, 8, 7, 6)).astype(np.float32)
ROW = RNG.standard_normal((8, 1, 6)).astype(np.float32)
POSITIVE = (0.5 + RNG.random((2, 8, 7, 6))).astype(np.float32)
A = RNG.standard_normal((3, 4, 5)).astype(np.float32)
B = RNG.standard_normal((3, 5, 6)).astype(np.float32)
SHARED = RNG.standard_normal((5, 6)).astype(np.float32)
WEIGHT = RNG.standard_normal((6, 8, 3, 3)).astype(np.float32)
EVEN = RNG.standard_normal((6, 8, 2, 4)).astype(np.float32)
GROUPED = RNG.standard_normal((12, 2, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(12).astype(np.float32)
CHANNEL = [RNG.standard_normal(8).astype(np.float32) for _ in range(3)]
VARIANCE = (0.5 + RNG.random(8)).astype(np.float32)
SLOPE = RNG.standard_normal((8, 1, 1)).astype(np.float32)
ONE = X[:, :1]

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    """A method, its arguments in order (arrays become graph inputs), how many go by position, and the reference."""

    method: str
    arguments: dict[str, Any]
    expected: Callable[[], Any]


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    out = -(-size // stride)
    total = max((out - 1) * stride + kernel - size, 0)
    return total - total // 2, total // 2


def windows(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int], pads: Any, fill: float) -> np.ndarray:
    """[N, C, OH, OW, KH, KW]: what each window sees."""
    if pads == "VALID":
        pads = (0, 0, 0, 0)
    if pads == "SAME":
        (top, bottom), (left, right) = (same_pads(x.shape[2 + i], kernel[i], stride[i]) for i in range(2))
        pads = (top, left, bottom, right)
    padded = np.pad(
        x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill
    )
    views = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
    return views[:, :, :: stride[0], :: stride[1]]


def convolved(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, int], pads: Any, bias: np.ndarray | None = None
) -> np.ndarray:
    groups = x.shape[1] // w.shape[1]
    seen = windows(x, w.shape[2:], stride, pads, 0.0)
    parts = [
        np.einsum("nchwij,ocij->nohw", part, filters)
        for part, filters in zip(np.split(seen, groups, axis=1), np.split(w.astype(np.float64), groups), strict=True)
    ]
    result = np.concatenate(parts, axis=1)
    return result if bias is None else result + bias[:, None, None]


def maximum(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int], pads: str) -> np.ndarray:
    return windows(x, kernel, stride, pads, -np.inf).max(axis=(4, 5))


def mean(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int], pads: str) -> np.ndarray:
    counts = windows(np.ones_like(x), kernel, stride, pads, 0.0).sum(axis=(4, 5))
    return windows(x, kernel, stride, pads, 0.0).sum(axis=(4, 5)) / counts


def normalised(epsilon: float) -> np.ndarray:
    scale, bias, center = (c[:, None, None].astype(np.float64) for c in CHANNEL)
    return scale * (X - center) / np.sqrt(VARIANCE[:, None, None].astype(np.float64) + epsilon) + bias


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def pairs() -> Iterator[Case]:
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum,
                 "min": np.minimum, "greater": np.greater, "less": np.less}  # fmt: skip
    for method, function in functions.items():
        for other in (Y, ROW):  # TASO's fast paths want equal shapes; broadcasting is what the operator is for
            yield Case(method, {"x": X, "y": other}, lambda f=function, o=other: f(X, o))
    yield Case("equal", {"x": np.round(X), "y": np.round(ROW)}, lambda: np.round(X) == np.round(ROW))
    yield Case("prelu", {"x": X, "slope": SLOPE}, lambda: np.where(X < 0, X * SLOPE, X))


def products() -> Iterator[Case]:
    exact = A.astype(np.float64) @ B
    yield Case("matmul", {"input": A, "weight": B}, lambda: exact)
    for word, function in {"NONE": lambda v: v, "RELU": relu, "SIGMOID": sigmoid, "TANH": np.tanh}.items():
        yield Case("matmul", {"input": A, "weight": B, "activation": word}, lambda f=function: f(exact))
    yield Case("matmul", {"input": A, "weight": SHARED}, lambda: A.astype(np.float64) @ SHARED)
    yield Case("matmul", {"input": A[:1], "weight": B}, lambda: A[:1].astype(np.float64) @ B)


def window_cases() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in ((1, 1), (2, 2), (2, 1)):
            given = {"strides": stride, "padding": padding}
            for weight in (WEIGHT, EVEN, GROUPED):
                arguments = {"input": X, "weight": weight, **given}
                yield Case("conv2d", arguments, lambda w=weight, s=stride, p=padding: convolved(X, w, s, p))
            for kernel in ((2, 2), (3, 3)):
                arguments = {"input": X, "kernels": kernel, **given}
                yield Case("maxpool2d", arguments, lambda k=kernel, s=stride, p=padding: maximum(X, k, s, p))
                yield Case("avgpool2d", arguments, lambda k=kernel, s=stride, p=padding: mean(X, k, s, p))
    fused = {"input": X, "weight": WEIGHT, "strides": [1, 1], "padding": "SAME"}
    plain = convolved(X, WEIGHT, (1, 1), "SAME")
    for word, function in {"RELU": relu, "SIGMOID": sigmoid, "TANH": np.tanh}.items():
        yield Case("conv2d", {**fused, "activation": word}, lambda f=function: f(plain))
    biased = {"input": X, "weight": GROUPED, "strides": (2, 2), "padding": "SAME", "activation": "RELU", "bias": BIAS}
    yield Case("conv2d", biased, lambda: relu(convolved(X, GROUPED, (2, 2), "SAME", BIAS)))
    numbers = {"input": X, "weight": WEIGHT, "strides": 1, "padding": (0, 1, 2, 0)}
    yield Case("conv2d", numbers, lambda: convolved(X, WEIGHT, (1, 1), (0, 1, 2, 0)))
    pool = {"input": X, "kernels": (3, 3), "strides": (1, 1), "padding": "SAME", "activation": "RELU"}
    yield Case("maxpool2d", pool, lambda: relu(maximum(X, (3, 3), (1, 1), "SAME")))
    yield Case("avgpool2d", pool, lambda: relu(mean(X, (3, 3), (1, 1), "SAME")))
    names = dict(zip(("input", "scale", "bias", "mean", "var"), (X, *CHANNEL, VARIANCE), strict=True))
    yield Case("batchnorm", names, lambda: normalised(1e-5))
    yield Case("batchnorm", {**names, "epsilon": 0.25}, lambda: normalised(0.25))


def single() -> Iterator[Case]:
    functions = {"relu": relu, "sigmoid": sigmoid, "tanh": np.tanh}
    for method, function in functions.items():
        yield Case(method, {"input": X}, lambda f=function: f(X))
        yield Case(method, {"input": X, "inplace": True}, lambda f=function: f(X))
    yield Case("leakyrelu", {"input": X, "alpha": 0.3}, lambda: np.where(X < 0, np.float32(0.3) * X, X))
    yield Case(
        "leakyrelu", {"input": X, "alpha": 0.3, "inplace": True}, lambda: np.where(X < 0, np.float32(0.3) * X, X)
    )
    yield Case("ceil", {"input": X}, lambda: np.ceil(X))
    yield Case("round", {"input": 2 * X}, lambda: np.round(2 * X))
    yield Case("exp", {"input": X}, lambda: np.exp(X))
    yield Case("log", {"input": POSITIVE}, lambda: np.log(POSITIVE))
    yield Case("sqrt", {"input": POSITIVE}, lambda: np.sqrt(POSITIVE))
    yield Case("logical_not", {"input": np.round(X)}, lambda: np.round(X) == 0)
    yield Case("dropout", {"input": X}, lambda: X)
    yield Case("dropout", {"input": X, "rate": 0.5}, lambda: X)
    yield Case("identity", {"input": X}, lambda: X)
    for word, dtype in {"FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16, "INT8": np.int8,
                        "UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}.items():  # fmt: skip
        yield Case("cast", {"input": 3 * POSITIVE, "datatype": word}, lambda d=dtype: (3 * POSITIVE).astype(d))
    yield Case("shape", {"input": X}, lambda: np.array(X.shape, np.int64))
    yield Case("size", {"input": X}, lambda: np.array([X.size], np.int64))


def movement() -> Iterator[Case]:
    yield Case("concat", {"axis": 1, "inputs": [X, Y]}, lambda: np.concatenate([X, Y], 1))
    yield Case("concat", {"axis": 3, "inputs": [X, Y] * 4}, lambda: np.concatenate([X, Y] * 4, 3))
    yield Case("concat", {"axis": -2, "inputs": (X,)}, lambda: X)
    yield Case("split", {"input": X, "axis": 1, "sizes": [3, 1, 4]}, lambda: np.split(X, [3, 4], 1))
    yield Case("split", {"input": X, "axis": 1, "sizes": 2}, lambda: np.split(X, 2, 1))
    yield Case("split", {"input": X, "axis": 3, "sizes": (6,)}, lambda: [X])
    yield Case("reshape", {"input": X, "shape": (0, 4, -1)}, lambda: X.reshape(2, 4, -1))
    yield Case("reshape", {"input": X, "shape": [16, 42]}, lambda: X.reshape(16, 42))
    for shuffle in ({}, {"shuffle": False}, {"shuffle": True}):
        arguments = {"input": X, "perm": (0, 2, 3, 1), **shuffle}
        yield Case("transpose", arguments, lambda: X.transpose(0, 2, 3, 1))
    yield Case("squeeze", {"input": ONE, "axes": (1,)}, lambda: ONE[:, 0])
    yield Case("unsqueeze", {"input": A, "axes": (0, 2)}, lambda: A[None, :, None])
    yield Case(
        "slice",
        {"input": X, "start": (1, 2), "end": (2, 100), "axes": (0, 2), "steps": (1, 3)},
        lambda: X[1:2, :, 2::3],
    )
    yield Case(
        "slice", {"input": X, "start": [0, 1], "end": [1, -1], "axes": None, "steps": None}, lambda: X[0:1, 1:-1]
    )
    yield Case("slice", {"input": X, "start": [-1], "end": [-100], "axes": [3], "steps": [-2]}, lambda: X[..., ::-2])


def reductions() -> Iterator[Case]:
    functions = {"max": np.max, "mean": np.mean, "min": np.min, "prod": np.prod, "sum": np.sum}
    for name, function in functions.items():
        for given, keep in (({}, True), ({"keepdims": True}, True), ({"keepdims": False}, False)):
            arguments = {"input": POSITIVE, "axes": (1, 3), **given}
            yield Case(
                f"reduce_{name}",
                arguments,
                lambda f=function, k=keep: f(POSITIVE.astype(np.float64), axis=(1, 3), keepdims=k),
            )
    for name, index in {"argmax": np.argmax, "argmin": np.argmin}.items():
        for given, keep in (({}, True), ({"keepdims": False}, False)):
            arguments = {"input": X, "axes": (2,), **given}
            yield Case(f"reduce_{name}", arguments, lambda f=index, k=keep: f(X, axis=2, keepdims=k))


CASES = [case for family in (pairs, products, window_cases, single, movement, reductions) for case in family()]
REDUCTIONS = ("argmax", "argmin", "max", "mean", "min", "prod", "sum")
OURS = {("conv2d", "bias")}  # an addition, which goes by name only


def graph_arguments(graph: taso.PyGraph, feeds: Arrays, value: Any) -> Any:
    """Arrays become inputs (every third one a weight), also inside lists."""
    if isinstance(value, np.ndarray):
        if (len(feeds) + len(graph.get_operator_list())) % 3 == 2:
            return graph.new_weight(dims=value.shape, data=value)
        name = f"x{len(feeds)}"
        feeds[name] = value
        return graph.new_input(dims=value.shape, name=name)
    if isinstance(value, (list, tuple)) and any(isinstance(item, np.ndarray) for item in value):
        return type(value)([graph_arguments(graph, feeds, item) for item in value])
    return value


def built(style: str) -> tuple[taso.PyGraph, Arrays, list[tuple[Case, int]]]:
    """One graph with all cases, its feeds, and for each output the case and which of its results it is."""
    graph, feeds, places = taso.new_graph(), {}, []
    for case in CASES:
        given = {name: graph_arguments(graph, feeds, value) for name, value in case.arguments.items()}
        by_name = {name: value for name, value in given.items() if style == "keyword" or (case.method, name) in OURS}
        by_position = [value for name, value in given.items() if name not in by_name]
        result = getattr(graph, case.method)(*by_position, **by_name)
        results = result if isinstance(result, list) else [result]
        expected = case.expected()
        expected = expected if isinstance(expected, list) else [expected]
        assert [list(one.shape) for one in results] == [list(np.shape(one)) for one in expected], (
            case.method,
            case.arguments,
        )
        places.extend((case, index) for index in range(len(results)))
    return graph, feeds, places


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    reason = unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    with Worker(RuntimeOptions()) as opened:
        yield opened


@pytest.mark.parametrize("style", ["positional", "keyword"])
def test_every_method_computes_what_it_is_for(style: str, worker: Worker) -> None:
    graph, feeds, places = built(style)
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    names = [info.name for info in model.graph.output]
    assert len(names) == len(places) == len(set(names))
    found = worker.run(worker.load(model.SerializeToString()), feeds)
    wrong = []
    for name, (case, index) in zip(names, places, strict=True):
        expected = case.expected()
        expected = np.asarray(expected[index] if isinstance(expected, list) else expected)
        settings = {key: value for key, value in case.arguments.items() if not isinstance(value, np.ndarray)}
        if found[name].shape != expected.shape:
            wrong.append((case.method, settings, found[name].shape, expected.shape))
        elif not np.allclose(found[name].astype(np.float64), expected.astype(np.float64), rtol=2e-5, atol=2e-5):
            wrong.append((case.method, settings, np.abs(found[name].astype(float) - expected.astype(float)).max()))
        if expected.dtype.kind in "bi":
            assert found[name].dtype == expected.dtype, case.method
    assert not wrong


@pytest.mark.parametrize("opset", [13, 17])
def test_older_opsets_are_written_too(opset: int) -> None:
    graph, _, places = built("keyword")
    model = taso.export_onnx(graph, opset=opset)
    assert model.opset_import[0].version == opset
    assert len(model.graph.output) == len(places)
    onnx.checker.check_model(model, full_check=True)


def test_the_cases_cover_every_operator_method() -> None:
    methods = {name for name in dir(taso.PyGraph) if hasattr(getattr(taso.PyGraph, name), "__wrapped__")}
    assert methods - {"new_input", "new_weight"} == {case.method for case in CASES}


def test_every_parameter_and_default_is_taso_s() -> None:
    """Names, order and defaults of TASO's own parameters (ours come behind a star)."""
    expected = {
        "new_input": "dims", "new_weight": "dims, data=None", "prelu": "x, slope",
        "matmul": "input, weight, activation='NONE'",
        **dict.fromkeys(("add", "sub", "mul", "div", "max", "min", "equal", "greater", "less"), "x, y"),
        "conv2d": "input, weight, strides, padding, activation='NONE'",
        **dict.fromkeys(("maxpool2d", "avgpool2d"), "input, kernels, strides, padding, activation='NONE'"),
        "batchnorm": "input, scale, bias, mean, var, epsilon=-1",
        **dict.fromkeys(("relu", "sigmoid", "tanh"), "input, inplace=False"),
        "leakyrelu": "input, alpha, inplace=False", "dropout": "input, rate=0", "cast": "input, datatype",
        **dict.fromkeys(("ceil", "round", "exp", "log", "sqrt", "logical_not", "identity", "shape", "size"), "input"),
        "concat": "axis, inputs", "split": "input, axis, sizes", "reshape": "input, shape",
        "transpose": "input, perm, shuffle=False", "squeeze": "input, axes", "unsqueeze": "input, axes",
        "slice": "input, start, end, axes=None, steps=None",
        **dict.fromkeys((f"reduce_{name}" for name in REDUCTIONS), "input, axes, keepdims=True"),
    }  # fmt: skip
    found = {}
    for name in expected:
        parameters = list(inspect.signature(getattr(taso.PyGraph, name)).parameters.values())[1:]
        own = [one for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        found[name] = ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in own)
    assert found == expected
