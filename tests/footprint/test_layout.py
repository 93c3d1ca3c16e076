"""What a flow becomes in ONNX Runtime's layouts, against the runtime itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import footprint
from rlflow.footprint.layout import with_copies
from rlflow.frontends.flows import flow_of
from rlflow.frontends.schedule import schedule_of
from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason
from rlflow.runtime.residence import trace_of

CHANNELS = 16


def network(*sums: tuple[str, str], ends: str = "v3") -> onnx.ModelProto:
    """Convolutions x -> v0 -> v1 -> v2, one more of v0 to w, ``sums`` of pairs of these to s0, s1, ..., a pool of 8
    pixels of ``ends`` to y.
    """
    draw = np.random.default_rng(0).standard_normal
    weights = [numpy_helper.from_array(draw((CHANNELS, CHANNELS, 3, 3)).astype(np.float32), f"k{k}") for k in range(4)]
    nodes = [
        helper.make_node("Conv", [given, f"k{k}"], [made], pads=[1] * 4)
        for k, (given, made) in enumerate((("x", "v0"), ("v0", "v1"), ("v1", "v2"), ("v0", "w")))
    ]
    nodes += [helper.make_node("Add", pair, [f"s{k}"]) for k, pair in enumerate(sums)]
    nodes.append(helper.make_node("MaxPool", [ends], ["y"], kernel_shape=[8, 8], strides=[8, 8]))
    size = [1, CHANNELS, 32, 32]
    start, end = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", size), ("y", None))
    )
    graph = helper.make_graph(nodes, "sums", [start], [end], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(unavailable_reason() is not None, reason="ONNX Runtime is not installed")
@pytest.mark.parametrize(
    ("sums", "ends"),
    [
        ([("v2", "v0")], "s0"),  # in place of what the shortcut brings
        ([("v0", "v2")], "s0"),
        ([("v2", "w")], "s0"),  # either could add; the first does
        ([("v2", "v1")], "s0"),
        ([("v2", "w"), ("s0", "v1")], "s1"),
    ],
)
def test_a_sum_needs_what_the_runtime_gives_it(sums: list[tuple[str, str]], ends: str) -> None:
    model = network(*sums, ends=ends)
    feeds = {"x": np.ones((1, CHANNELS, 32, 32), np.float32)}
    with Worker(RuntimeOptions(threads=1)) as worker:
        trace = trace_of(worker, model.SerializeToString(), feeds)
    real, estimate = schedule_of(trace.graph, trace.nodes, feeds), with_copies(flow_of(model))
    assert footprint(estimate).block == footprint(real).block


def test_a_convolution_that_others_read_adds_nothing() -> None:
    read_twice = with_copies(flow_of(network(("v2", "v0"), ("s0", "v2"), ends="s1")))
    assert [len(job.inputs) for job in read_twice.jobs if job.convolves] == [1, 1, 1, 1]
    once = with_copies(flow_of(network(("v2", "v0"), ends="s0")))
    assert sorted(len(job.inputs) for job in once.jobs if job.convolves) == [1, 1, 1, 2]
    assert once.flops == flow_of(network(("v2", "v0"), ends="s0")).flops
