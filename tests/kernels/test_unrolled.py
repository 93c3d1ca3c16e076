"""Convolutions as one matrix product inside ONNX Runtime against the same in double precision."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.kernels import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Batch, channels in and out, height, width, kernel, stride, pads.
CASES = [
    (1, 32, 48, 9, 8, 1, 1, (0, 0, 0, 0)),
    (1, 256, 32, 40, 40, 1, 1, (0, 0, 0, 0)),
    (3, 64, 80, 14, 14, 1, 2, (0, 0, 0, 0)),
    (3, 64, 80, 14, 14, 1, 1, (0, 0, 0, 0)),
    (1, 16, 16, 1, 1, 1, 1, (0, 0, 0, 0)),
    (1, 16, 16, 5, 4, 1, 1, (1, 0, 0, 2)),
    (2, 16, 16, 30, 13, 3, 2, (1, 1, 1, 1)),
    (8, 64, 64, 7, 7, 3, 1, (1, 1, 1, 1)),
    (2, 48, 32, 41, 40, 3, 2, (0, 1, 2, 1)),
    (1, 32, 32, 12, 9, 5, 3, (2, 2, 2, 2)),
    (1, 64, 112, 7, 7, 1, 1, (0, 0, 0, 0)),
]
#: Largest error over largest output, with Strassen's algorithm and without.
BOUND = {0: 4e-6, 1: 8e-6}


def normal(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def node_of(weights: np.ndarray, bias: np.ndarray | None, with_sum: bool, **attributes) -> bytes:
    """A model of one convolution as a product."""
    raw = models.one_node(weights, bias, with_sum, **attributes)
    model = onnx.ModelProto.FromString(raw)
    model.graph.node[0].op_type = "NchwcUnrolled"
    return model.SerializeToString()


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(("fused", "threads"), [(False, 1), (True, 2)])
@pytest.mark.parametrize(("chunk", "strassen"), [(0, 0), (48, 0), (0, 1), (49, 1)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_convolution(case, chunk: int, strassen: int, fused: bool, threads: int, block: int) -> None:
    batch, into, out, height, width, kernel, stride, pads = case
    x, w = normal(batch, into, height, width, seed=1), normal(out, into, kernel, kernel, seed=2)
    bias = normal(out, seed=3) if fused else None
    truth = models.convolution(x, w, bias, None, pads)[:, :, ::stride, ::stride]
    residual = normal(*truth.shape, seed=4)
    more = {"activation": "Relu"} if fused else {}
    more |= {"strassen": strassen, "chunk": chunk}
    model = node_of(w, bias, fused, block=block, pads=list(pads), strides=[stride, stride], **more)
    feeds = {"x": models.to_blocks(x, block)} | ({"s": models.to_blocks(residual, block)} if fused else {})
    found = models.from_blocks(models.opened(model, threads).run(None, feeds)[0], block)
    truth = np.maximum(truth + residual, 0) if fused else truth
    assert found.shape == truth.shape
    assert np.abs(found - truth).max() < BOUND[strassen] * np.abs(truth).max()


def test_an_empty_batch_has_an_empty_output() -> None:
    session = models.opened(node_of(normal(16, 16, 1, 1, seed=1), None, False, block=16))
    assert session.run(None, {"x": np.ones((0, 16, 4, 4), np.float32)})[0].shape == (0, 16, 4, 4)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"block": 4}, "the weights have another shape"),
        ({"block": 16, "chunk": -1}, "a chunk of -1 rows"),
        ({"block": 16, "strassen": 2}, "strassen is 2; expected 0 or 1"),
        ({"block": 16, "strides": [0, 1]}, "strides has a 0"),
        ({"block": 16, "activation": "Mish"}, "no activation Mish"),
    ],
)
def test_what_a_node_may_not_say_is_refused(attributes, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        models.opened(node_of(np.ones((16, 16, 1, 1), np.float32), None, False, **attributes))


def test_an_input_of_other_channels_is_refused() -> None:
    session = models.opened(node_of(normal(16, 32, 1, 1, seed=1), None, False, block=16))
    with pytest.raises(Exception, match="another number of channels"):
        session.run(None, {"x": np.ones((1, 16, 4, 4), np.float32)})


def bottleneck() -> bytes:
    """A pointwise convolution, one of stride 2 and one that adds a residual, as ResNet has them."""
    layers = [(64, 3, 1, 1), (64, 64, 1, 1), (64, 64, 3, 2), (64, 64, 1, 1)]
    nodes, initial = [], []
    for number, (out, into, kernel, stride) in enumerate(layers):
        w = normal(out, into, kernel, kernel, seed=number) / np.sqrt(into * kernel * kernel).astype(np.float32)
        initial.append(numpy_helper.from_array(w, f"w{number}"))
        how = {"pads": [kernel // 2] * 4, "strides": [stride, stride], "name": f"conv{number}"}
        nodes.append(
            helper.make_node("Conv", ["x" if number == 0 else f"v{number}", f"w{number}"], [f"v{number + 1}"], **how)
        )
    nodes.append(helper.make_node("Add", ["v4", "v3"], ["s"]))
    nodes.append(helper.make_node("Relu", ["s"], ["y"]))
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, [1, 3, 20, 20])], [value("y", TensorProto.FLOAT, [1, 64, 10, 10])]
    graph = helper.make_graph(nodes, "bottleneck", *ends, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def test_pointwise_and_strided_convolutions_are_sites() -> None:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.kernels.preparing import block_here
    from rlflow.runtime import inprocess

    block = block_here()
    if not block:
        pytest.skip("ONNX Runtime has no blocked tensors on this processor")
    graph = BlockedGraph(inprocess.optimised(bottleneck()), block)
    sites = [site for site in graph.sites() if site.kind == "convolution-other"]
    assert sorted(site.sizes for site in sites) == [(64, 64, 1, 1, 1, 1)] * 2 + [(64, 64, 3, 3, 2, 2)]
    feeds = {"x": normal(1, 3, 20, 20, seed=9)}
    own, ours = (
        models.opened(graph.with_kernels({site.name: {} for site in some})).run(None, feeds)[0] for some in ([], sites)
    )
    assert np.abs(own - ours).max() < 2e-6 * np.abs(own).max()
