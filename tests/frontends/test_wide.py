"""A whole model in double precision: the quick operators compute what ONNX's own evaluator does."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow.frontends.reference import evaluate
from rlflow.frontends.wide import evaluate_wide
from rlflow.graph import Graph

X = "x: f32[2,4,9,7] = input\n"
W = "w: f32[6,4,3,3] = const\nb: f32[6] = const\n"
CONV = "Conv{{dilations=[{d}], group={g}, kernel_shape=[3,3], pads=[{p}], strides=[{s}]}}"
POOL = "{{kernel_shape=[3,2], pads=[{p}], strides=[{s}]}}(x)\nreturn y"
CASES = {
    "conv": X + W + "y = " + CONV.format(d="1,1", g=1, p="1,1,1,1", s="1,1") + "(x, w, b)\nreturn y",
    "conv-odd": X + W + "y = " + CONV.format(d="2,1", g=1, p="0,2,1,0", s="2,3") + "(x, w)\nreturn y",
    "conv-groups": X
    + "w: f32[6,2,3,3] = const\ny = "
    + CONV.format(d="1,1", g=2, p="1,0,1,2", s="1,2")
    + "(x, w)\nreturn y",
    "conv-1d": "x: f32[1,3,11] = input\nw: f32[2,3,4] = const\n"
    "y = Conv{dilations=[1], group=1, kernel_shape=[4], pads=[2,1], strides=[2]}(x, w)\nreturn y",
    "max-pool": X + "y = MaxPool" + POOL.format(p="1,0,1,1", s="2,1"),
    "max-pool-up": X + "y = MaxPool{ceil_mode=1, kernel_shape=[2,2], pads=[0,0,0,0], strides=[2,2]}(x)\nreturn y",
    "mean-pool": X + "y = AveragePool" + POOL.format(p="1,0,1,1", s="1,1"),
    "mean-pool-pads": X
    + "y = AveragePool{count_include_pad=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]}(x)\nreturn y",
    "rest": X + "r = Relu(x)\nm = ReduceMean{axes=[2,3], keepdims=1}(r)\ny = Softmax{axis=1}(m)\nreturn y",
}


@pytest.mark.parametrize("name", CASES)
def test_quick_operators_agree_with_the_evaluators_own(name: str) -> None:
    graph = Graph.parse(CASES[name])
    shape = graph.shape(graph.node_outputs(graph.inputs()[0])[0])
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (quick,), (slow,) = evaluate_wide(graph, feeds), evaluate(graph, feeds, dtype=np.float64)
    assert quick.dtype == np.float64 and quick.shape == slow.shape
    np.testing.assert_allclose(quick, slow, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "attributes",
    [
        'coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor"',
        'coordinate_transformation_mode="half_pixel", mode="nearest", nearest_mode="round_prefer_floor"',
        'coordinate_transformation_mode="half_pixel", mode="linear"',
        'coordinate_transformation_mode="align_corners", mode="linear"',
        'coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, mode="cubic"',
    ],
)
@pytest.mark.parametrize("how", ["(x, _, s)", "(x, _, _, z)"])
def test_resizing_is_a_matrix_for_each_axis(attributes: str, how: str) -> None:
    text = (
        "x: f32[1,2,4,3] = input\ns: f32[4] = const [1.0, 1.0, 2.0, 3.0]\nz: i64[4] = const [1, 2, 7, 5]\n"
        f"y = Resize{{{attributes}}}{how}\nreturn y"
    )
    graph = Graph.parse(text)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 2, 4, 3)).astype(np.float32)}
    (quick,), (slow,) = evaluate_wide(graph, feeds), evaluate(graph, feeds, dtype=np.float64)
    np.testing.assert_allclose(quick, slow, rtol=1e-6, atol=1e-7)
