"""Convolutions by kernels other than 3×3 in the graph that ONNX Runtime makes."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import ALGORITHMS, Choice, unavailable
from rlflow.kernels.preparing import block_here
from rlflow.runtime import inprocess

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

TAPS = {(1, 7): "winograd-2-of-7", (7, 1): "winograd-2-of-7", (1, 3): "winograd-4-of-3", (3, 1): "winograd-4-of-3",
        (5, 5): "winograd-2x2-of-5x5"}  # fmt: skip
CHANNELS = 32


def network(strides: tuple[int, int] = (1, 1)) -> bytes:
    """A convolution by each kernel, one after the other; the last one has these strides."""
    rng = np.random.default_rng(2)
    nodes, weights, name = [], [], "x"
    for number, taps in enumerate(TAPS):
        values = rng.standard_normal((CHANNELS, CHANNELS, *taps)) / np.sqrt(CHANNELS * taps[0] * taps[1])
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{number}"))
        last = number == len(TAPS) - 1
        how = {"pads": [size // 2 for size in taps] * 2, "strides": list(strides) if last else [1, 1]}
        out = "y" if last else f"v{number}"
        nodes.append(helper.make_node("Conv", [name, f"w{number}"], [out], name=f"by {taps[0]}x{taps[1]}", **how))
        name = out
    ends = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [1, CHANNELS, None, None]) for one in "xy"]
    graph = helper.make_graph(nodes, "taps", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def blocked(raw: bytes) -> BlockedGraph:
    if not block_here():
        pytest.skip("ONNX Runtime has no blocked tensors on this processor")
    return BlockedGraph(inprocess.optimised(raw), block_here())


@pytest.mark.parametrize("suffix", ["", "-kept"])
def test_each_kernel_has_its_algorithm_and_computes_the_same(suffix: str) -> None:
    graph = blocked(network())
    sites = graph.sites()
    assert [ALGORITHMS[name].kind for name in TAPS.values()] == [site.kind for site in sites]
    assert [site.sizes[2:] for site in sites] == list(TAPS)
    names = [name + suffix if name + suffix in ALGORITHMS else name for name in TAPS.values()]
    chosen = {site.name: ALGORITHMS[name].attributes() for site, name in zip(sites, names, strict=True)}
    feeds = {"x": np.random.default_rng(3).standard_normal((1, CHANNELS, 17, 13)).astype(np.float32)}
    expected, found = (models.opened(graph.with_kernels(some)).run(None, feeds)[0] for some in ({}, chosen))
    assert 0.0 < np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_strides_are_for_the_product_alone() -> None:
    """Winograd's algorithms know none; a convolution with strides is a place for the plain product of a matrix."""
    sites = blocked(network(strides=(2, 2))).sites()
    assert [site.kind for site in sites] == [
        *(ALGORITHMS[name].kind for name in list(TAPS.values())[:-1]),
        "convolution-other",
    ]
    assert sites[-1].sizes[2:] == (*list(TAPS)[-1], 2, 2)


def test_a_choice_fits_only_sites_with_its_taps() -> None:
    choice = Choice("c", (32, 32, 1, 7), "winograd-2-of-7", 1.5)
    assert choice.fits("convolution-7", (24, 32, 1, 7))  # blocks of 8
    assert not choice.fits("convolution-7", (32, 32, 7, 1))
    assert not choice.fits("convolution-3", (32, 32, 1, 3))
