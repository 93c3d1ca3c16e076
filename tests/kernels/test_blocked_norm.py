"""LayerNormalization of channels on blocked tensors, inside ONNX Runtime, against the same in double precision."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import unavailable
from rlflow.kernels.algorithms import worth_trying
from rlflow.kernels.plan import Choice
from rlflow.kernels.preparing import block_here
from rlflow.runtime import inprocess

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normalised(x: np.ndarray, scale: np.ndarray, shift: np.ndarray | None, epsilon: float = 1e-5) -> np.ndarray:
    """Over the axis of channels of [n, c, h, w], in double precision."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    found = centred / np.sqrt((centred**2).mean(1, keepdims=True) + epsilon) * scale[:, None, None]
    return found if shift is None else found + shift[:, None, None]


def one_node(channels: int, shifted: bool, **attributes: float) -> bytes:
    names = ["x", "scale", *(["shift"] if shifted else [])]
    node = helper.make_node("NchwcNorm", names, ["y"], domain="rlflow.kernels", name="norm", **attributes)
    initial = [numpy_helper.from_array(normal(channels, seed=at), name) for at, name in enumerate(names) if at]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in "xy"]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], initial)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("rlflow.kernels", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def close(found: np.ndarray, truth: np.ndarray) -> None:
    assert found.shape == truth.shape
    assert np.abs(found - truth).max(initial=0.0) <= 2e-6 * np.abs(truth).max(initial=1.0)


@settings(max_examples=30, deadline=None)
@given(
    block=st.sampled_from([8, 16]),
    blocks=st.integers(1, 5),
    size=st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(1, 9)),
    shifted=st.booleans(),
    pixels=st.sampled_from([0, 8, 256]),
    mean=st.sampled_from([0.0, 20.0]),
)
def test_it_is_the_formula(block: int, blocks: int, size: tuple, shifted: bool, pixels: int, mean: float) -> None:
    channels = block * blocks
    x = normal(size[0], channels, *size[1:], seed=3) + np.float32(mean)
    session = models.opened(one_node(channels, shifted, block=block, epsilon=1e-3, pixels=pixels), 2)
    found = models.from_blocks(session.run(None, {"x": models.to_blocks(x, block)})[0], block)
    truth = normalised(x, normal(channels, seed=1), normal(channels, seed=2) if shifted else None, 1e-3)
    assert np.abs(found - truth).max(initial=0.0) <= 3e-6 * (1 + mean) * np.abs(truth).max(initial=1.0)


@pytest.mark.parametrize(
    ("attributes", "channels", "sentence"),
    [
        ({"block": 7}, 16, "in blocks of 8 or 16"),
        ({"block": 16}, 24, "in blocks of 8 or 16"),
        ({"block": 8, "pixels": -1}, 16, "a task of -1 pixels"),
    ],
)
def test_what_a_node_may_not_say_is_refused(attributes: dict, channels: int, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        models.opened(one_node(channels, True, **attributes))


def test_other_channels_than_the_scale_s_are_refused() -> None:
    session = models.opened(one_node(16, True, block=8))
    with pytest.raises(Exception, match="other channels than the scale"):
        session.run(None, {"x": normal(1, 8, 2, 2)})


# --- as ConvNeXt has it -----------------------------------------------------------------------------------------------


def weights_of(channels: int) -> dict[str, np.ndarray]:
    found = {"d": normal(channels, 1, 3, 3, seed=4) / 3, "p": normal(channels, channels, 1, 1, seed=5)}
    found["p"] = (found["p"] / np.sqrt(channels)).astype(np.float32)
    return {**found, "scale": normal(channels, seed=1), "shift": normal(channels, seed=2)}


def block_of_convnext(
    channels: int, size: tuple[int, ...] = (2, 7, 6), axis: int = -1, *, read_before: bool = False,
    read_after: bool = False,
) -> bytes:  # fmt: skip
    """A depthwise convolution, LayerNormalization of its channels, and a 1×1 convolution. ``size``: batch, height,
    width.
    """
    nodes = [
        helper.make_node("Conv", ["x", "d"], ["a"], name="depthwise", group=channels, pads=[1] * 4),
        helper.make_node("Transpose", ["a"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["last", "scale", "shift"], ["n"], name="norm", axis=axis, epsilon=1e-6),
        helper.make_node("Transpose", ["n"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "p"], ["y"], name="pointwise"),
    ]
    outputs = ["y", *(["last"] if read_before else []), *(["n"] if read_after else [])]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size[0], channels, *size[1:]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights_of(channels).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def graph_of(raw: bytes) -> BlockedGraph:
    if not block_here():
        pytest.skip("ONNX Runtime has no blocked tensors on this processor")
    return BlockedGraph(inprocess.optimised(raw), block_here())


@pytest.mark.parametrize(
    ("tuning", "operators"),
    [
        ({"blocked": 1}, ["ReorderInput", "Conv", "NchwcNorm", "Conv", "ReorderOutput"]),
        ({"blocked": 1, "pixels": 8}, ["ReorderInput", "Conv", "NchwcNorm", "Conv", "ReorderOutput"]),
        ({"rows": 4}, ["ReorderInput", "Conv", "ReorderOutput", "RowNorm", "ReorderInput", "Conv", "ReorderOutput"]),
    ],
)
def test_between_blocked_convolutions(tuning: dict, operators: list[str]) -> None:
    raw = block_of_convnext(32)
    graph, x = graph_of(raw), normal(2, 32, 7, 6, seed=3)
    (site,) = (one for one in graph.sites() if one.kind == "norm-of-blocks")
    assert (site.sizes, len(site.others)) == ((32, 1, 0), 2)
    made = graph.with_kernels({site.name: tuning})
    assert [node.op_type for node in onnx.ModelProto.FromString(made).graph.node] == operators
    close(models.opened(made, 2).run(None, {"x": x})[0], models.opened(raw).run(None, {"x": x})[0])


def test_what_is_read_in_plain_order_before_it_stays() -> None:
    raw = block_of_convnext(32, read_before=True)
    graph, x = graph_of(raw), normal(2, 32, 7, 6, seed=3)
    (site,) = (one for one in graph.sites() if one.kind == "norm-of-blocks")
    made = graph.with_kernels({site.name: {"blocked": 1}})
    assert "NchwcNorm" in [node.op_type for node in onnx.ModelProto.FromString(made).graph.node]
    for found, truth in zip(
        models.opened(made).run(None, {"x": x}), models.opened(raw).run(None, {"x": x}), strict=True
    ):
        close(found, truth)


@pytest.mark.parametrize("how", [{"channels": 28}, {"channels": 32, "read_after": True}, {"channels": 32, "axis": 3}])
def test_what_the_kernel_cannot_do_is_no_such_site(how: dict) -> None:
    kinds = [site.kind for site in graph_of(block_of_convnext(**how)).sites()]
    assert "norm-of-blocks" not in kinds


def test_such_a_site_may_have_the_kernel_of_plain_rows_as_plans_of_before_have_it() -> None:
    assert worth_trying("norm-of-blocks", (768, 1, 0), (1, 7, 7, 768)) == ["blocked-norm", "row-norm"]
    assert worth_trying("norm", (768, 1, 0), (1, 49, 768)) == ["row-norm"]
    fits = {
        (name, kind): Choice("n", (768, 1, 0), name, 1.5).fits(kind, (768, 1, 0))
        for name in ("row-norm", "blocked-norm")
        for kind in ("norm", "norm-of-blocks")
    }
    assert [pair for pair, fitting in fits.items() if not fitting] == [("blocked-norm", "norm")]
