"""Graphs on the stand-in GPU against ONNX's reference evaluator: planner, kernels, memory, choices, captures."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow.errors import RuntimeRefused
from rlflow.frontends import evaluate, graph_to_model
from rlflow.graph import Graph
from rlflow.price.feed_specs import input_specs
from rlflow.runtime import RuntimeOptions, cuda
from rlflow.runtime.messages import feeds_from_specs

pytestmark = pytest.mark.usefixtures("fake_gpu")

CONV = "x: f32[2,4,7,6] = input\nw: f32[6,4,3,3] = const\n"
#: name -> (graph, what its steps are called, in part)
GRAPHS = {
    "conv bias relu": (
        CONV + "b: f32[6] = const\ny = Conv{pads=[1,1,1,1]}(x, w, b)\nz = Relu(y)\nreturn z",
        "bias, Relu",
    ),
    "conv relu, no bias": (CONV + "y = Conv{pads=[1,1,1,1], strides=[2,2]}(x, w)\nz = Relu(y)\nreturn z", "Relu"),
    "conv residual relu": (
        CONV + "r: f32[2,6,7,6] = input\nb: f32[6] = const\ny = Conv{pads=[1,1,1,1]}(x, w, b)\ns = Add(r, y)\n"
        "z = Relu(s)\nreturn z",
        "residual, Relu",
    ),
    "conv bias alone": (CONV + "b: f32[6] = const\ny = Conv(x, w, b)\nreturn y", "convolution"),
    "conv channel add, sigmoid": (
        CONV + "b: f32[6,1,1] = const\ny = Conv(x, w)\nz = Add(y, b)\ns = Sigmoid(z)\nt = Mul(z, s)\nreturn t",
        "convolution",
    ),
    "conv batch norm": (
        CONV + "s: f32[6] = const [1,2,3,4,5,6]\nt: f32[6] = const [0,1,0,1,0,1]\nm: f32[6] = const [1,1,2,2,3,3]\n"
        "v: f32[6] = const [1,2,1,2,1,2]\ny = Conv(x, w)\nz = BatchNormalization(y, s, t, m, v)\nr = Relu(z)\nreturn r",
        "convolution",
    ),
    "conv uneven pads": (CONV + "y = Conv{pads=[0,1,1,0]}(x, w)\nreturn y", "convolution"),
    "conv behind pad": (
        CONV + "p = Pad{pads=[0,0,1,1,0,0,1,1], value=0.0}(x)\ny = Conv(p, w)\nreturn y",
        "convolution",
    ),
    "grouped dilated conv": (
        ("x: f32[1,4,9,9] = input\nw: f32[6,2,3,3] = const\ny = Conv{dilations=[2,2], group=2}(x, w)\nreturn y"),
        "2 groups",
    ),
    "conv 1-d": (("x: f32[2,3,9] = input\nw: f32[4,3,3] = const\ny = Conv{pads=[1,1]}(x, w)\nreturn y"), "convolution"),
    "conv 3-d": (("x: f32[1,2,4,5,6] = input\nw: f32[3,2,2,2,2] = const\ny = Conv(x, w)\nreturn y"), "convolution"),
    "matmul bias gelu": (
        (
            "x: f32[2,5,8] = input\nw: f32[8,6] = const\nb: f32[6] = const\ny = MatMul(x, w)\n"
            "z = Add(b, y)\nu = Gelu(z)\n"
            "return u"
        ),
        "bias, Gelu",
    ),
    "matmul bias relu": (
        (
            "x: f32[5,8] = input\nw: f32[8,6] = const\nb: f32[6] = const\ny = MatMul(x, w)\n"
            "z = Add(y, b)\nu = Relu(z)\n"
            "return u"
        ),
        "bias + Relu",
    ),
    "batched matmul": (("a: f32[2,3,4,5] = input\nb: f32[2,3,5,6] = input\ny = MatMul(a, b)\nreturn y"), "product"),
    "broadcast matmul": (("a: f32[2,1,4,5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y"), "product"),
    "shared left factor": ("a: f32[4,5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "vector by matrix": ("a: f32[5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "matrix by vector": ("a: f32[2,4,5] = input\nb: f32[5] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "scaled product with a transposed factor": (
        (
            "q: f32[2,3,4,8] = input\nk: f32[2,3,5,8] = input\ns: f32[] = const 0.25\n"
            "t = Transpose{perm=[0,1,3,2]}(k)\n"
            "y = MatMul(q, t)\nz = Mul(y, s)\nreturn z"
        ),
        "product [4,8,5]",
    ),
    "gemm": (
        (
            "a: f32[5,4] = input\nb: f32[6,5] = const\nc: f32[6] = const\n"
            "y = Gemm{alpha=0.5, transA=1, transB=1}(a, b, c)\nreturn y"
        ),
        "bias",
    ),
    "gemm with a column": (
        (
            "a: f32[4,5] = input\nb: f32[5,6] = const\nc: f32[4,1] = const\n"
            "y = Gemm{beta=2.0}(a, b, c)\nz = Tanh(y)\n"
            "return z"
        ),
        "product",
    ),
    "pointwise chain": (
        (
            "x: f32[2,3,4] = input\ny: f32[3,1] = input\nh: f32[] = const 0.5\na = Add(x, y)\n"
            "b = Tanh(a)\nc = Mul(b, h)\n"
            "d = Sub(c, x)\nreturn d"
        ),
        "pointwise Add Tanh Mul Sub",
    ),
    "two results of one chain": (
        "x: f32[4,5] = input\na = Exp(x)\nb = Neg(a)\nreturn a, b",
        "pointwise",
    ),
    "activations": (
        (
            "x: f32[3,50] = input\na = LeakyRelu{alpha=0.1}(x)\nb = Elu(a)\nc = HardSwish(b)\n"
            "d = Softplus(c)\ne = Mish(d)\n"
            "f = HardSigmoid(e)\ng = Selu(f)\nh = Softsign(g)\ni = Celu(h)\nreturn i"
        ),
        "pointwise",
    ),
    "comparison and choice": (
        ("x: f32[4,5] = input\ny: f32[5] = input\nc = Greater(x, y)\nn = Not(c)\nz = Where(n, x, y)\nreturn z, c"),
        "pointwise",
    ),
    "integers": (
        ("x: i64[6] = input\nt: i64[] = const 4\na = Mul(x, x)\nb = Div(a, t)\nc = Cast{to=1}(b)\nreturn b, c"),
        "pointwise",
    ),
    "clip": (("x: f32[9] = input\na: f32[] = const -0.5\nb: f32[] = const 0.5\ny = Clip(x, a, b)\nreturn y"), "Clip"),
    "power": ("x: f32[9] = input\nt: f32[] = const 2\ny = Pow(x, t)\nreturn y", "Pow"),
    "sum of many": (
        (
            "a: f32[4] = input\nb: f32[4] = input\nc: f32[4] = input\ny = Sum(a, b, c)\nz = Mean(y, a)\n"
            "u = Max(z, b)\n"
            "return u"
        ),
        "Sum",
    ),
    "transpose matrix": ("x: f32[37,41] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y", "tiles"),
    "transpose heads": ("x: f32[2,5,3,4] = input\ny = Transpose{perm=[0,2,1,3]}(x)\nreturn y", "transposition"),
    "reverse axes": ("x: f32[2,3,4,5] = input\ny = Transpose{perm=[3,2,1,0]}(x)\nreturn y", "transposition"),
    "transpose integers": ("x: i64[3,4] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y", "transposition"),
    "concat": ("x: f32[2,3,4] = input\ny: f32[2,5,4] = input\nz = Concat{axis=1}(x, y, x)\nreturn z", "of 3"),
    "split": ("x: f32[2,9] = input\na, b = Split{axis=1, split=[4,5]}(x)\nreturn a, b", "split into 2"),
    "slice": (
        ("x: f32[6,7] = input\ny = Slice{starts=[1,0], ends=[5,7], axes=[0,1], steps=[2,3]}(x)\nreturn y"),
        "slice",
    ),
    "expand": ("x: f32[3,1] = input\ny = Expand{shape=[2,3,4]}(x)\nreturn y", "expansion"),
    "tile": ("x: f32[2,3] = input\ny = Tile{repeats=[2,2]}(x)\nreturn y", "tiling"),
    "pad edge": ('x: f32[3,4] = input\ny = Pad{mode="edge", pads=[1,0,2,1]}(x)\nreturn y', "padding"),
    "pad reflect": ('x: f32[3,4] = input\ny = Pad{mode="reflect", pads=[1,2,2,1]}(x)\nreturn y', "padding"),
    "pad number": ("x: f32[3,4] = input\ny = Pad{pads=[1,2,0,1], value=3.5}(x)\nreturn y", "padding"),
    "resize": (
        (
            'x: f32[1,2,3,4] = input\ny = Resize{mode="nearest", coordinate_transformation_mode="asymmetric", '
            'nearest_mode="floor", scales=[1.0,1.0,2.0,2.0]}(x)\nreturn y'
        ),
        "resizing",
    ),
    "depth to space": ("x: f32[1,8,2,3] = input\ny = DepthToSpace{blocksize=2}(x)\nreturn y", "depth to space"),
    "depth to space, rows": (
        'x: f32[1,8,2,3] = input\ny = DepthToSpace{blocksize=2, mode="CRD"}(x)\nreturn y',
        "depth to space",
    ),
    "space to depth": ("x: f32[1,2,4,6] = input\ny = SpaceToDepth{blocksize=2}(x)\nreturn y", "space to depth"),
    "gather rows": ("x: f32[9,4] = const\ni: i64[2,3] = input\ny = Gather{axis=0}(x, i)\nreturn y", "gather"),
    "gather from the end": (
        "x: f32[3,4,2] = input\ni: i64[2] = const [-1,1]\ny = Gather{axis=1}(x, i)\nreturn y",
        "gather",
    ),
    "max pool": (
        ("x: f32[1,3,7,7] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]}(x)\nreturn y"),
        "pool, cuDNN",
    ),
    "max pool, uneven": (
        ("x: f32[1,3,7,7] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1]}(x)\nreturn y"),
        "own kernel",
    ),
    "average pool": (
        ("x: f32[1,3,6,6] = input\ny = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1]}(x)\nreturn y"),
        "pool, cuDNN",
    ),
    "average pool with padding counted": (
        (
            "x: f32[1,3,6,6] = input\n"
            "y = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1}(x)\nreturn y"
        ),
        "pool, cuDNN",
    ),
    "pool, ceil": (
        ("x: f32[1,2,6,6] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], ceil_mode=1}(x)\nreturn y"),
        "own kernel",
    ),
    "global pools": (
        ("x: f32[2,3,4,5] = input\ny = GlobalAveragePool(x)\nz = GlobalMaxPool(x)\nreturn y, z"),
        "reduction",
    ),
    "reductions": (
        (
            "x: f32[3,20,5] = input\na = ReduceSum{axes=[1], keepdims=0}(x)\nb = ReduceMean{axes=[0,2]}(x)\n"
            "c = ReduceMax{axes=[2]}(x)\nd = ReduceL2{axes=[1]}(x)\ne = ReduceLogSumExp{axes=[1]}(x)\n"
            "f = ReduceProd{axes=[0]}(x)\nreturn a, b, c, d, e, f"
        ),
        "reduction",
    ),
    "arg max": (
        ("x: f32[3,7] = input\na = ArgMax{axis=1}(x)\nb = ArgMin{axis=0, keepdims=0}(x)\nreturn a, b"),
        "reduction",
    ),
    "softmax": (
        ("x: f32[3,4,9] = input\na = Softmax(x)\nb = Softmax{axis=1}(x)\nc = LogSoftmax(x)\nreturn a, b, c"),
        "softmax",
    ),
    "layer norm of a sum": (
        (
            "x: f32[2,3,16] = input\nr: f32[2,3,16] = input\ns: f32[16] = const\nb: f32[16] = const\n"
            "y = Add(x, r)\n"
            "z = LayerNormalization(y, s, b)\nreturn z"
        ),
        "normalisation",
    ),
    "instance norm": (
        ("x: f32[2,3,4,4] = input\ns: f32[3] = const\nb: f32[3] = const\nz = InstanceNormalization(x, s, b)\nreturn z"),
        "normalisation",
    ),
    "views cost nothing": (
        ("x: f32[2,3,4] = input\na = Reshape{shape=[6,4]}(x)\nb = Relu(a)\nc = Unsqueeze{axes=[0]}(b)\nreturn c"),
        "Relu",
    ),
    "input handed through": ("x: f32[2,3] = input\ny = Neg(x)\nreturn y, x", "Neg"),
    "constant result": ("x: f32[2] = input\nw: f32[3] = const [1,2,3]\ny = Neg(x)\nreturn y, w", "Neg"),
}


def opened(text: str, precision: str = "float32", rotate: int = 0) -> tuple[Graph, cuda.Session, dict[str, np.ndarray]]:
    graph = Graph.parse(text)
    options = RuntimeOptions(runtime="cudnn", precision=precision)
    session = cuda.Session(graph_to_model(graph).SerializeToString(), options, rotate=rotate)
    return graph, session, feeds_from_specs(input_specs(graph, {}), np.random.default_rng(1))


def steps(session: cuda.Session) -> str:
    assert session.executable is not None
    return "; ".join(session.executable.steps())


@pytest.mark.parametrize("name", GRAPHS)
def test_outputs_are_those_of_the_reference(name: str) -> None:
    text, wanted = GRAPHS[name]
    graph, session, feeds = opened(text)
    found = session.run(feeds)
    expected = evaluate(graph, feeds)
    assert list(found) == [f"output_{k}" for k in range(len(expected))]
    for got, right in zip(found.values(), expected, strict=True):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-5)
    assert wanted in steps(session)


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 1e-5), ("float16", 5e-3), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("name", ["conv residual relu", "matmul bias gelu", "layer norm of a sum", "softmax", "concat"])
def test_reduced_precision_stays_near(name: str, precision: str, tolerance: float) -> None:
    graph, session, feeds = opened(GRAPHS[name][0], precision)
    for got, right in zip(session.run(feeds).values(), evaluate(graph, feeds), strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=4 * tolerance)


def test_the_fastest_routine_is_chosen_and_those_that_fail_are_left_out() -> None:
    _, session, feeds = opened(GRAPHS["conv bias relu"][0])
    session.run(feeds)
    # The stand-in's clock: engine 1 with everything inside 22 us, engine 0 32 us; channels last 21 and 6 for turning.
    # Engine 2 wants more workspace than there is, engine 3 has tensor cores, and engine 5 does not take it.
    assert steps(session) == "convolution [6,4,3,3] with bias, Relu, plan 0 of engine 1"


CHAIN = (
    CONV + "b: f32[6] = const\nlow: f32[] = const -0.5\nhigh: f32[] = const 0.25\ny = Conv{pads=[1,1,1,1]}(x, w, b)\n"
)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (CHAIN + "z = Sigmoid(y)\nreturn z", "with bias, Sigmoid,"),
        (CHAIN + "z = Tanh(y)\nreturn z", "with bias, Tanh,"),
        (CHAIN + "z = Elu{alpha=0.5}(y)\nreturn z", "with bias, Elu,"),
        (CHAIN + "z = Clip(y, low, high)\nreturn z", "with bias, Clip,"),
        (CHAIN + "z = Mul(y, y)\nreturn z", "with bias, plan 0 of engine 1; pointwise Mul"),
        (CHAIN + "r: f32[2,6,7,6] = input\ns = Add(y, r)\nz = Tanh(s)\nreturn z", "with bias, residual, Tanh,"),
        (CONV + "r: f32[2,6,5,4] = input\ny = Conv(x, w)\ns = Add(r, y)\nreturn s", "with, residual,"),
        (CONV + "y = Conv(x, w)\nz = Relu(y)\nu = Neg(z)\nreturn u", "with Relu, then a kernel for the rest,"),
        (CONV + "y = Conv(x, w)\nz = Relu(y)\nreturn y, z", "[6,4,3,3], plan 0 of engine 1; pointwise Relu"),
        (CONV + "y = Conv{pads=[0,2,1,0], strides=[2,1]}(x, w)\nz = Relu(y)\nreturn z", "with Relu,"),
        ("x: f64[2,3,6,5] = input\nw: f64[4,3,3,3] = const\ny = Conv(x, w)\nreturn y", "engine 0"),
    ],
)
def test_what_a_convolution_takes_along(text: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan is run, not the fastest: all of the tail that cuDNN can take is inside."""
    monkeypatch.setattr(cuda, "GpuExecutable", functools.partial(cuda.GpuExecutable, tune=False))
    graph, session, feeds = opened(text)
    found = session.run(feeds)
    for got, right in zip(found.values(), evaluate(graph, feeds), strict=True):
        np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-5)
    assert taken in steps(session)


def agree_twice(graph: Graph, session: cuda.Session, feeds: dict[str, np.ndarray], tolerance: float) -> None:
    """The second inputs are computed by the chosen plan alone: what another one had left there would be wrong."""
    for given in (feeds, {name: -0.75 * value for name, value in feeds.items()}):
        found = session.run(given)["output_0"]
        np.testing.assert_allclose(found, evaluate(graph, given)[0], rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("activation", ["LeakyRelu{alpha=0.1}", "Gelu", 'Gelu{approximate="tanh"}'])
def test_one_routine_is_compiled_where_cudnn_has_no_other(activation: str) -> None:
    graph, session, feeds = opened(f"{CHAIN}z = {activation}(y)\nreturn z")
    agree_twice(graph, session, feeds, 2e-4)
    assert f"with bias, {activation.partition('{')[0]}, channels last, plan 0 of engine 7" in steps(session)


@pytest.mark.parametrize(
    ("precision", "step"),
    [
        ("float32", "with bias, Relu, plan 0 of engine 1"),  # no tensor cores
        ("tf32", "with bias, Relu, channels last, plan 0 of engine 3"),
        ("float16", "with bias, Relu, channels last, plan 0 of engine 3"),
    ],
)
def test_the_layout_and_the_engine_are_chosen_by_the_clock(precision: str, step: str) -> None:
    """In tensor cores the stand-in takes 16 us, with channels last 9 and 3 for each turn of image and result."""
    graph, session, feeds = opened(GRAPHS["conv bias relu"][0], precision)
    agree_twice(graph, session, feeds, 5e-3 if precision == "float16" else 2e-4)
    assert step in steps(session)


def test_time_is_that_of_a_captured_chain() -> None:
    _, session, feeds = opened(GRAPHS["conv bias relu"][0])
    # 64 runs of 22 us in one replay, which costs 2 us itself.
    assert session.time(feeds, 3, 2.0) == pytest.approx([(64 * 22 + 2) / 64 / 1000] * 3, rel=1e-3)


def test_rotating_constants_changes_no_result() -> None:
    graph, session, feeds = opened(GRAPHS["matmul bias gelu"][0], rotate=4096)
    assert all(ms > 0 for ms in session.time(feeds, 2, 0.1))
    np.testing.assert_allclose(session.run(feeds)["output_0"], evaluate(graph, feeds)[0], rtol=1e-4, atol=1e-5)


def test_memory_is_reused_along_a_chain_and_given_back() -> None:
    links = [f"y{k} = Transpose{{perm=[1,0]}}({'x' if k == 0 else f'r{k - 1}'})\nr{k} = Relu(y{k})" for k in range(12)]
    text = "x: f32[64,65] = input\n" + "\n".join(links) + "\nreturn r11"
    graph, session, feeds = opened(text)
    np.testing.assert_array_equal(session.run(feeds)["output_0"], evaluate(graph, feeds)[0])
    assert session.executable is not None
    assert session.executable.memory < 4.5 * 64 * 65 * 4


def test_symbolic_dimensions_are_planned_for_each_shape() -> None:
    graph, session, _ = opened("x: f32[N,4] = input\nw: f32[4,3] = const\ny = MatMul(x, w)\nz = Relu(y)\nreturn z")
    for rows in (2, 5):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)}
        np.testing.assert_allclose(session.run(feeds)["output_0"], evaluate(graph, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x: f32[3,3] = input\ny = Det(x)\nreturn y", "cannot run Det here: there is no kernel for it"),
        (("x: f32[1,2,4,4] = input\ny, i = MaxPool{kernel_shape=[2,2]}(x)\nreturn y, i"), "positions of its maxima"),
        ("x: i64[3,3] = input\ny = MatMul(x, x)\nreturn y", "its operands have the types i64[3,3]"),
    ],
)
def test_what_cannot_run_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    _, session, feeds = opened(text)
    with pytest.raises(RuntimeRefused, match=sentence.replace("[", "\\[")):
        session.run(feeds)


def test_too_large_a_model_is_refused(fake_gpu: Path) -> None:
    _, session, feeds = opened("x: f32[8] = input\ny = Expand{shape=[40000000,8]}(x)\nreturn y")
    with pytest.raises(RuntimeRefused, match="out of memory"):
        session.run(feeds)


def test_what_a_session_says_of_the_model() -> None:
    _, session, feeds = opened(GRAPHS["integers"][0])
    assert [(info.name, info.dtype, info.shape) for info in session.io.inputs] == [("x", "int64", (6,))]
    with pytest.raises(RuntimeRefused, match="the input 'x' was not given"):
        session.run({})
    wrong: dict[str, Any] = {"x": feeds["x"][:3]}
    with pytest.raises(RuntimeRefused, match=r"has the shape \(3,\)"):
        session.run(wrong)
