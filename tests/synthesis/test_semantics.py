"""The exact evaluator against ONNX's reference evaluator, operator by operator."""

# ruff: noqa: E501 - one graph, one line; its statements are two spaces apart
from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rlflow import _core
from rlflow.frontends.reference import evaluate
from rlflow.synthesis.domains import Field, Ordered, Unsupported
from rlflow.synthesis.operators import NeedsOrder
from rlflow.synthesis.semantics import Evaluator

X4 = "x: f32[2,4,5,6] = input"


def parse(text: str) -> _core.Graph:
    """A graph whose statements are set apart by two spaces."""
    return _core.Graph.parse(text.replace("  ", "\n"))


CASES = {
    "matmul": "x: f32[2,3,4] = input  y: f32[4,5] = input  z = MatMul(x, y)  return z",
    "matmul-vector": "x: f32[4] = input  y: f32[2,4,3] = input  z = MatMul(x, y)  return z",
    "matmul-broadcast": "x: f32[3,1,2,4] = input  y: f32[5,4,3] = input  z = MatMul(x, y)  return z",
    "gemm": "x: f32[4,2] = input  y: f32[3,4] = input  c: f32[3] = input  z = Gemm{alpha=0.5, beta=2.0, transA=1, transB=1}(x, y, c)  return z",
    "conv": X4 + "  w: f32[6,2,3,2] = input  b: f32[6] = input  z = Conv{group=2, pads=[1,0,2,1], strides=[2,1], dilations=[1,2]}(x, w, b)  return z",
    "conv-1d": "x: f32[1,3,7] = input  w: f32[2,3,3] = input  z = Conv{pads=[1,1], strides=[3]}(x, w)  return z",
    "conv-3d": "x: f32[1,2,3,4,3] = input  w: f32[2,2,2,2,2] = input  z = Conv(x, w)  return z",
    "conv-transpose": X4 + "  w: f32[4,3,2,3] = input  z = ConvTranspose{pads=[1,0,0,1], strides=[2,1], output_padding=[1,0]}(x, w)  return z",
    "average-pool": X4 + "  z = AveragePool{kernel_shape=[2,3], pads=[1,1,0,1], strides=[1,2]}(x)  return z",
    "average-pool-counting": X4 + "  z = AveragePool{kernel_shape=[2,3], pads=[1,1,0,1], count_include_pad=1}(x)  return z",
    "max-pool": X4 + "  z = MaxPool{kernel_shape=[2,3], pads=[1,1,0,1], strides=[1,2]}(x)  return z",
    "global-pools": X4 + "  y = GlobalAveragePool(x)  z = GlobalMaxPool(x)  return y, z",
    "reduce": X4 + "  y = ReduceMean{axes=[1,3], keepdims=0}(x)  z = ReduceSum{axes=[2], keepdims=1}(x)  return y, z",
    "reduce-extremes": X4 + "  y = ReduceMax{axes=[1,3], keepdims=0}(x)  z = ReduceMin{axes=[2], keepdims=1}(x)  return y, z",
    "reduce-prod": "x: f32[2,3] = input  y = ReduceProd{axes=[1], keepdims=0}(x)  z = ReduceSumSquare{axes=[0]}(x)  return y, z",
    "arg": "x: f32[3,4] = input  y = ArgMax{axis=1, keepdims=0}(x)  z = ArgMin{axis=0, keepdims=1}(x)  return y, z",
    "cumsum": "x: f32[3,4] = input  k: i64[] = const 1  y = CumSum{reverse=1, exclusive=1}(x, k)  return y",
    "pointwise": "x: f32[3,4] = input  y: f32[4] = input  a = Add(x, y)  b = Sub(y, x)  c = Mul(x, y)  d = Neg(x)  return a, b, c, d",
    "relu-clip": "x: f32[3,4] = input  l: f32[] = const -0.5  h: f32[] = const 0.75  y = Clip(x, l, h)  z = Relu(x)  return y, z",
    "max-min": "x: f32[3,4] = input  y: f32[4] = input  a = Max(x, y)  b = Min(x, y)  c = Sum(x, y, x)  d = Mean(x, y)  return a, b, c, d",
    "prelu": "x: f32[3,4] = input  s: f32[4] = input  y = PRelu(x, s)  return y",
    "transpose": X4 + "  y = Transpose{perm=[3,0,2,1]}(x)  return y",
    "views": X4 + "  y = Reshape{shape=[4,2,30]}(x)  z = Unsqueeze{axes=[0,3]}(y)  u = Flatten{axis=2}(z)  v = Squeeze{axes=[0]}(z)  return y, z, u, v",
    "expand-tile": "x: f32[3,1] = input  y = Expand{shape=[2,1,4]}(x)  z = Tile{repeats=[2,3]}(x)  return y, z",
    "join-cut": X4 + "  a, b = Split{axis=1, split=[1,3]}(x)  c = Concat{axis=1}(b, a)  return c",
    "slice": X4 + "  y = Slice{axes=[1,2,3], starts=[1,4,0], ends=[3,-6,6], steps=[1,-2,2]}(x)  return y",
    "slice-backwards": "x: f32[5] = input  y = Slice{axes=[0], starts=[4], ends=[-6], steps=[-1]}(x)  return y",
    "pad": "x: f32[2,3] = input  y = Pad{pads=[1,0,2,1], value=1.5}(x)  z = Pad{pads=[0,1,0,2], mode=\"reflect\"}(x)  return y, z",
    "pad-edge": "x: f32[2,3] = input  y = Pad{pads=[1,0,2,1], mode=\"edge\"}(x)  return y",
    "gather": "x: f32[4,3] = input  i: i64[2,2] = const [0, 3, -1, 2]  y = Gather{axis=0}(x, i)  return y",
    "gather-scalar": "x: f32[4] = input  i: i64[] = const 2  y = Gather{axis=0}(x, i)  return y",
    "pad-wrap": "x: f32[2,3] = input  y = Pad{pads=[1,0,1,2], mode=\"wrap\"}(x)  return y",
    "gather-elements": "x: f32[3,2] = input  i: i64[2,2] = const [0, 2, 1, 0]  y = GatherElements{axis=0}(x, i)  return y",
    "where": "x: f32[3] = input  y: f32[2,3] = input  c = Less(x, y)  z = Where(c, x, y)  return z",
    "eye": "x: f32[3,4] = input  y = EyeLike(x)  return y",
    "trilu": "x: f32[3,4] = input  y = Trilu{upper=0}(x)  return y",
    "blocks": "x: f32[1,8,2,3] = input  y = DepthToSpace{blocksize=2}(x)  z = DepthToSpace{blocksize=2, mode=\"CRD\"}(x)  u = SpaceToDepth{blocksize=2}(y)  return y, z, u",
    "shape": X4 + "  y = Shape(x)  z = Size(x)  return y, z",
    "resize-nearest": X4 + "  y = Resize{mode=\"nearest\", scales=[1.0,1.0,2.0,3.0], coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\"}(x)  return y",
    "resize-half-pixel": X4 + "  y = Resize{mode=\"nearest\", scales=[1.0,1.0,2.0,2.0]}(x)  return y",
    "resize-linear": X4 + "  y = Resize{mode=\"linear\", scales=[1.0,1.0,2.0,2.0]}(x)  z = Resize{mode=\"linear\", sizes=[2,4,9,3], "
    "coordinate_transformation_mode=\"align_corners\"}(x)  return y, z",
    "integers": "x: i64[4] = input  y: i64[4] = const [3, -2, 2, -3]  a = Div(x, y)  b = Add(x, y)  c = Mul(x, y)  return a, b, c",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_means_what_onnx_says(name: str) -> None:
    graph = parse(CASES[name])
    evaluator = Evaluator(Ordered(), 3)
    feeds = evaluator.inputs(graph, {})
    exact = evaluator.run(graph, feeds)
    named = {}
    for k, n in enumerate(graph.inputs()):
        integral = graph.dtype(graph.node_outputs(n)[0]) == 7
        named[graph.input_name(n)] = (
            feeds[k] if integral else np.array(feeds[k].tolist(), dtype=object).astype(np.float64)
        )
    for mine, onnx in zip(exact, evaluate(graph, named, dtype=np.float64), strict=True):
        assert mine.shape == onnx.shape
        np.testing.assert_allclose(
            np.array([float(e) for e in mine.flat]), onnx.reshape(-1).astype(np.float64), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in CASES
        if n not in ("arg", "max-pool", "relu-clip", "prelu", "where", "max-min", "global-pools", "reduce-extremes")
    ],
)
def test_the_two_domains_agree(name: str) -> None:
    """The field's results are the residues of the rational ones."""
    from rlflow.synthesis import field

    graph = parse(CASES[name])
    rational = Evaluator(Ordered(), 3)
    feeds = rational.inputs(graph, {})
    residue = np.vectorize(lambda x: field.from_fraction(Fraction(x)), otypes=[np.uint64])
    residues = {k: residue(a) if a.dtype == object else a for k, a in feeds.items()}
    for mine, theirs in zip(rational.run(graph, feeds), Evaluator(Field(), 3).run(graph, residues), strict=True):
        assert ((residue(mine) if mine.dtype == object else mine) == theirs).all()


@pytest.mark.parametrize(
    ("dtype", "op", "x", "y", "result"),
    [
        ("i64", "Div", -(2**63), 2, -(2**62)),
        ("i32", "Div", -7, 2, -3),
        ("i8", "Mul", 64, 3, -64),
        ("u8", "Sub", 1, 2, 255),
        ("u64", "Max", -1, 1, -1),  # the patterns of 2^64 - 1
        ("u64", "Div", -2, 2, 2**63 - 1),
        ("u64", "Sub", 0, 1, -1),
    ],
)
def test_integers_are_those_of_a_machine(dtype: str, op: str, x: int, y: int, result: int) -> None:
    graph = parse(f"x: {dtype}[1] = input  y: {dtype}[1] = input  z = {op}(x, y)  return z")
    feeds = {0: np.array([x], np.int64), 1: np.array([y], np.int64)}
    assert Evaluator(Field(), 0).run(graph, feeds)[0].tolist() == [result]


def test_a_negative_pad_cuts_off() -> None:
    graph = parse("x: f32[3,2] = input  y = Pad{pads=[-1,0,1,-1], value=9.0}(x)  s: f32[] = input  z = Pad{pads=[], mode=\"edge\"}(s)  return y, z")
    feeds = {0: np.arange(6, dtype=object).reshape(3, 2), 1: np.array(7, dtype=object)}
    y, z = Evaluator(Ordered(), 0).run(graph, feeds)
    assert y.tolist() == [[2], [4], [9]] and z.tolist() == 7


def test_an_unsigned_number_is_cast_as_what_it_is() -> None:
    graph = parse("x: u64[1] = input  y = Cast{to=11}(x)  return y")
    assert Evaluator(Ordered(), 0).run(graph, {0: np.array([-1], np.int64)})[0].tolist() == [2**64]  # as f64 rounds


@pytest.mark.parametrize(
    "text",
    [
        "x: bool[2] = input  y = Neg(x)  return y",
        "x: bool[2] = input  y = Sub(x, x)  return y",
        "x: f32[] = input  k: i64[] = const 0  y = CumSum(x, k)  return y",
    ],
)
def test_what_onnx_does_not_define_has_no_meaning(text: str) -> None:
    evaluator, graph = Evaluator(Field(), 0), parse(text)
    with pytest.raises(Unsupported):
        evaluator.run(graph, evaluator.inputs(graph, {}))


def test_indices_count_from_either_end() -> None:
    graph = parse("x: f32[4] = input  i: i64[64] = input  y = Gather{axis=0}(x, i)  return y")
    drawn = np.concatenate([Evaluator(Field(), seed).inputs(graph, {1: 4})[1] for seed in range(8)])
    assert set(drawn.tolist()) == set(range(-4, 4))


def test_normalisations_are_scale_times_a_row_function_plus_bias() -> None:
    text = "x: f32[2,3,4] = input  s: f32[4] = const  b: f32[4] = const  one: f32[4] = const [1.0, 1.0, 1.0, 1.0]\n"
    graph = parse(
        text
        + "y = LayerNormalization{axis=2}(x, s, b)  g = LayerNormalization{axis=2}(x, one)  m = Mul(g, s)  z = Add(m, b)  return y, z"
    )
    evaluator = Evaluator(Field(), 0)
    y, z = evaluator.run(graph, evaluator.inputs(graph, {}))
    assert (y == z).all()


def test_batch_normalisation_is_its_formula() -> None:
    graph = parse(
        "x: f32[2,3,4] = input  s: f32[3] = const  b: f32[3] = const  m: f32[3] = const  v: f32[3] = const  e: f32[] = const 0.5\n"
        "y = BatchNormalization{epsilon=0.5}(x, s, b, m, v)\n"
        "a = Add(v, e)  r = Sqrt(a)  k = Div(s, r)  ku = Unsqueeze{axes=[1]}(k)  mu = Unsqueeze{axes=[1]}(m)  bu = Unsqueeze{axes=[1]}(b)\n"
        "d = Sub(x, mu)  p = Mul(d, ku)  z = Add(p, bu)  return y, z"
    )
    evaluator = Evaluator(Field(), 0)
    y, z = evaluator.run(graph, evaluator.inputs(graph, {}))
    assert (y == z).all()


def test_a_narrowing_cast_loses_and_a_widening_one_does_not() -> None:
    graph = parse(
        "x: f32[8] = input  h = Cast{to=10}(x)  y = Cast{to=1}(h)  d = Cast{to=11}(x)  z = Cast{to=1}(d)  return x, y, z"
    )
    evaluator = Evaluator(Field(), 0)
    x, y, z = evaluator.run(graph, evaluator.inputs(graph, {}))
    assert (x != y).all() and (x == z).all()


def test_what_needs_an_order_says_so_and_what_has_no_meaning_too() -> None:
    graph = parse("x: f32[3,4] = input  y = ReduceMax{axes=[1]}(x)  return y")
    evaluator = Evaluator(Field(), 0)
    with pytest.raises(NeedsOrder):
        evaluator.run(graph, evaluator.inputs(graph, {}))
    cubic = parse(X4 + '  y = Resize{mode="cubic", scales=[1.0,1.0,2.0,2.0]}(x)  return y')
    with pytest.raises(Unsupported):
        evaluator.run(cubic, evaluator.inputs(cubic, {}))


@pytest.mark.parametrize(
    ("line", "by_rows"), [("s = Softmax{axis=1}(x)", True), ("s = Softmax{axis=0}(x)", False), ("s = Tanh(x)", False)]
)
def test_a_softmax_is_nan_by_rows_and_nothing_else_is(line: str, by_rows: bool) -> None:
    graph = parse(
        f"x: f32[40,12] = input  {line}  n = IsNaN(s)  f = Slice{{axes=[1], starts=[0], ends=[1], steps=[1]}}(s)  m = IsNaN(f)  return n, m"
    )
    evaluator = Evaluator(Field(), 0)
    everywhere, at_first = evaluator.run(graph, evaluator.inputs(graph, {}))
    assert everywhere.any() and not everywhere.all()
    assert (everywhere == at_first).all() == by_rows


def test_onnx_runtime_agrees_that_a_softmax_is_nan_by_rows() -> None:
    """Rows that a mask takes away, with an infinity, with a NaN, and with numbers; long enough for its vector loops."""
    ort = pytest.importorskip("onnxruntime")
    from rlflow.frontends import graph_to_model

    x = np.random.default_rng(0).standard_normal((5, 67)).astype(np.float32)
    x[0], x[1, 40], x[2, 3], x[3, 66] = -np.inf, np.inf, np.nan, -np.inf
    model = graph_to_model(_core.Graph.parse("x: f32[5,67] = input\ny = Softmax{axis=1}(x)\nreturn y"))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = np.isnan(session.run(None, {"x": x})[0])
    assert (found.all(axis=1) == found.any(axis=1)).all()
    assert not found[3:].any()
