"""Depthwise and grouped convolutions inside ONNX Runtime against the same in double precision."""

from __future__ import annotations

from typing import Any

import blocked_models as models
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import unavailable
from rlflow.kernels.preparing import block_here
from rlflow.runtime import inprocess

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def convolution(x: np.ndarray, w: np.ndarray, **how: Any) -> np.ndarray:
    """A convolution with groups in double precision. ``w``: [channels out, channels of a group, height, width]."""
    top, left, bottom, right = how.get("pads", (0, 0, 0, 0))
    (sy, sx), (dy, dx) = how.get("strides", (1, 1)), how.get("dilations", (1, 1))
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    out, members, ky, kx = w.shape
    height, width = (
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(x.shape[2:], (ky, kx), (dy, dx), (sy, sx), strict=True)
    )
    groups = x.shape[1] // members
    y = np.zeros((x.shape[0], out, height, width))
    for i in range(ky):
        for j in range(kx):
            window = x[:, :, i * dy : i * dy + (height - 1) * sy + 1 : sy, j * dx : j * dx + (width - 1) * sx + 1 : sx]
            window = window.reshape(x.shape[0], groups, members, height, width)
            taps = w[:, :, i, j].astype(np.float64).reshape(groups, out // groups, members)
            y += np.einsum("gom,ngmhw->ngohw", taps, window).reshape(y.shape)
    return y


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: np.ndarray, truth: np.ndarray) -> None:
    assert found.shape == truth.shape
    assert np.abs(found - truth).max(initial=0.0) <= 2e-6 * np.abs(truth).max(initial=1.0)


# --- depthwise --------------------------------------------------------------------------------------------------------


def depthwise(shape: tuple[int, ...], kernel: tuple[int, int], bias: bool = True, **how: Any) -> BlockedGraph:
    names = ["x", "w", *(["b"] if bias else [])]
    channels = shape[1]
    more = {"domain": "com.microsoft", "activation": how.pop("activation")} if "activation" in how else {}
    if more and how.pop("residual", False):
        names += [""] * (3 - len(names)) + ["s"]
    node = helper.make_node("FusedConv" if more else "Conv", names, ["y"], name="conv", group=channels, **more, **how)
    initial = [numpy_helper.from_array(normal(channels, 1, *kernel, seed=1), "w")]
    initial += [numpy_helper.from_array(normal(channels, seed=2), "b")] if bias else []
    fed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xs" if name in names]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "one", fed, out, initial), opset_imports=opsets, ir_version=9)
    return BlockedGraph(model.SerializeToString(), 0)


def check_depthwise(
    shape: tuple[int, ...], kernel: tuple[int, int], bias: bool, side_by_side: int = 4, **how: Any
) -> None:
    graph = depthwise(shape, kernel, bias, **how)
    assert [site.kind for site in graph.sites()] == ["depthwise"]
    made = graph.with_kernels({"conv": {"side_by_side": side_by_side}})
    x = normal(*shape, seed=3)
    truth = convolution(x, normal(shape[1], 1, *kernel, seed=1), **how)
    truth += normal(shape[1], seed=2)[:, None, None] if bias else 0.0
    close(models.opened(made, 2).run(None, {"x": x})[0], truth)


@pytest.mark.parametrize("channels", [2, 11, 42])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads"),
    [
        ((28, 28), 3, 1, (1, 1, 1, 1)),
        ((17, 35), 5, 1, (2, 2, 2, 2)),
        ((40, 14), 7, 1, (3, 3, 3, 3)),
        ((30, 31), 3, 2, (0, 0, 1, 1)),
        ((33, 70), 5, 2, (1, 1, 2, 2)),
        ((23, 9), 7, 2, (3, 2, 2, 3)),
        ((9, 9), 3, 1, (0, 0, 0, 0)),
        ((1, 1), 3, 1, (1, 1, 1, 1)),
    ],
)
def test_depthwise_of_any_channels(channels: int, size: tuple[int, int], kernel: int, stride: int, pads: tuple) -> None:
    check_depthwise((2, channels, *size), (kernel, kernel), channels == 11, pads=pads, strides=(stride, stride))


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 4)] * 4),
    side_by_side=st.sampled_from([1, 2, 4]),
)
def test_depthwise_of_any_kernel(
    size: tuple, kernel: tuple, strides: tuple, dilations: tuple, pads: tuple, side_by_side: int
) -> None:
    for at in range(2):
        if size[at] + pads[at] + pads[at + 2] < (kernel[at] - 1) * dilations[at] + 1:
            return
    check_depthwise((1, 3, *size), kernel, True, side_by_side, strides=strides, dilations=dilations, pads=pads)


def test_depthwise_adds_a_residual_and_an_activation() -> None:
    graph = depthwise((1, 5, 12, 21), (3, 3), False, pads=(1, 1, 1, 1), activation="Relu", residual=True)
    x, s = normal(1, 5, 12, 21, seed=3), normal(1, 5, 12, 21, seed=4)
    truth = convolution(x, normal(5, 1, 3, 3, seed=1), pads=(1, 1, 1, 1)) + s
    close(models.opened(graph.with_kernels({"conv": {}})).run(None, {"x": x, "s": s})[0], np.maximum(truth, 0))


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [({"side_by_side": 0}, "side_by_side is 0"), ({"side_by_side": 9}, "side_by_side is 9")],
)
def test_what_a_node_may_not_say_is_refused(attributes: dict, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        models.opened(depthwise((1, 3, 8, 8), (3, 3)).with_kernels({"conv": attributes}))


@pytest.mark.parametrize(
    ("shape", "sentence"), [((1, 4, 8, 8), "another number of channels"), ((1, 3, 2, 8), "leaves no output")]
)
def test_inputs_of_other_shapes_are_refused(shape: tuple, sentence: str) -> None:
    session = models.opened(depthwise((1, 3, 8, 8), (3, 3)).with_kernels({"conv": {}}))
    with pytest.raises(Exception, match=sentence):
        session.run(None, {"x": np.ones(shape, np.float32)})


# --- a few channels a group, on blocked tensors -----------------------------------------------------------------------


def between_pointwise(
    channels: int, members: int, size: tuple[int, int], kernel: int = 3, batch: int = 2, **how: Any
) -> bytes:
    """1×1, grouped with bias and Relu, 1×1, as ResNeXt has them."""
    w = normal(channels, members, kernel, kernel, seed=1) / (kernel * np.sqrt(members))
    weights = {"w": w, "b": normal(channels, seed=2)}
    weights |= {name: normal(channels, channels, 1, 1, seed=5) / np.sqrt(channels) for name in ("p", "q")}
    nodes = [
        helper.make_node("Conv", ["x", "p"], ["a"], name="before"),
        helper.make_node("Conv", ["a", "w", "b"], ["c"], name="grouped", group=channels // members, **how),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "q"], ["y"], name="after"),
    ]
    graph = helper.make_graph(
        nodes,
        "bottleneck",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def bottleneck(x: np.ndarray, members: int, how: dict[str, Any]) -> np.ndarray:
    """What such a model computes, in double precision."""
    channels, kernel = x.shape[1], how.get("kernel", 3)
    pointwise = normal(channels, channels, 1, 1, seed=5) / np.sqrt(channels)
    w = normal(channels, members, kernel, kernel, seed=1) / (kernel * np.sqrt(members))
    steps = {name: value for name, value in how.items() if name != "kernel"}
    middle = convolution(convolution(x, pointwise), w, **steps) + normal(channels, seed=2)[:, None, None]
    return convolution(np.maximum(middle, 0), pointwise)


GROUPED = [
    (32, 2, (9, 12), {"pads": [1, 1, 1, 1]}),
    (64, 4, (14, 30), {"pads": [1, 1, 1, 1]}),
    (64, 4, (15, 14), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (48, 4, (7, 5), {"pads": [0, 2, 1, 0]}),
    (64, 4, (3, 2), {"pads": [1, 1, 1, 1]}),
    (32, 4, (20, 20), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    (32, 4, (20, 20), {"pads": [2, 2, 2, 2], "kernel": 5}),
    (64, 8, (28, 28), {"pads": [1, 1, 1, 1]}),
    (64, 8, (29, 17), {"pads": [0, 1, 1, 0], "strides": [2, 2]}),
    (64, 8, (12, 17), {"pads": [1, 1, 1, 1], "strides": [1, 3]}),
]


@pytest.mark.parametrize(("channels", "members", "size", "how"), GROUPED, ids=str)
@pytest.mark.parametrize("side_by_side", [8, 4])
def test_grouped_between_blocked_convolutions(
    channels: int, members: int, size: tuple, how: dict, side_by_side: int
) -> None:
    raw = between_pointwise(channels, members, size, **how)
    graph = BlockedGraph(inprocess.optimised(raw), block_here())
    sites = [site for site in graph.sites() if site.kind == "grouped"]
    if not block_here() or members == block_here():
        assert not sites
        return
    (site,) = sites
    made = graph.with_kernels({site.name: {"side_by_side": side_by_side}})
    operators = [node.op_type for node in onnx.ModelProto.FromString(made).graph.node]
    assert operators == ["ReorderInput", "Conv", "NchwcGrouped", "Conv", "ReorderOutput"]
    x = normal(2, channels, *size, seed=3)
    truth = bottleneck(x, members, how)
    close(models.opened(made, 2).run(None, {"x": x})[0], truth)


def test_a_grouped_convolution_whose_plain_output_is_read_is_no_site() -> None:
    raw = between_pointwise(64, 4, (8, 8), pads=[1, 1, 1, 1])
    model = onnx.ModelProto.FromString(raw)
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    graph = BlockedGraph(inprocess.optimised(model.SerializeToString()), block_here())
    assert [site for site in graph.sites() if site.kind == "grouped"] == []
