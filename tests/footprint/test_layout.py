"""What a flow becomes in ONNX Runtime's layouts, against the runtime itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import footprint
from rlflow.footprint.flow import BLOCK
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


def between(op: str, channels: int, groups: int = 1) -> onnx.ModelProto:
    """A convolution, what ``op`` says, a grouped convolution, one of single pixels, a pool of 8 pixels to y."""
    draw = np.random.default_rng(0).standard_normal
    shapes = {"k": (channels, 3, 3, 3), "g": (channels, channels // groups, 3, 3), "p": (CHANNELS, channels, 1, 1)}
    weights = [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in shapes.items()]
    middle = {
        "Swish": [("Sigmoid", ["v0"], "s"), ("Mul", ["v0", "s"], "v1")],
        "SwishTurned": [("Sigmoid", ["v0"], "s"), ("Mul", ["s", "v0"], "v1")],
        "HardPair": [("HardSigmoid", ["v0"], "s"), ("Mul", ["v0", "s"], "v1")],
        "OtherPair": [("HardSigmoid", ["v0"], "s"), ("Mul", ["v0", "s"], "v1")],
        "ReadTwice": [("Sigmoid", ["v0"], "s"), ("Mul", ["v0", "s"], "m"), ("Add", ["m", "s"], "v1")],
    }.get(op, [(op, ["v0"], "v1")])
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["v0"], pads=[1] * 4),
        *(helper.make_node(kind, given, [made]) for kind, given, made in middle),
        helper.make_node("Conv", ["v1", "g"], ["v2"], pads=[1] * 4, group=groups),
        helper.make_node("Conv", ["v2", "p"], ["v3"]),
        helper.make_node("MaxPool", ["v3"], ["y"], kernel_shape=[8, 8], strides=[8, 8]),
    ]
    if op == "HardPair":
        nodes[1].attribute.append(helper.make_attribute("alpha", 1 / 6))
    start = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "between", [start], [end], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.skipif(unavailable_reason() is not None, reason="ONNX Runtime is not installed")
@pytest.mark.parametrize(
    ("op", "channels", "groups"),
    [
        ("Relu", 32, 32),
        ("Relu", 20, 20),  # depthwise, four channels at a time
        ("Relu", 18, 18),  # out of blocks
        ("Relu", 64, 4),
        ("Relu", 48, 4),  # 12 channels a group
        ("Swish", 32, 32),
        ("SwishTurned", 32, 32),
        ("HardPair", 32, 32),
        ("OtherPair", 32, 32),  # of another slope
        ("ReadTwice", 32, 32),
        ("HardSwish", 32, 32),
        ("HardSigmoid", 32, 32),
        ("Gelu", 32, 32),
        ("Elu", 32, 32),  # not in blocks
        ("Softplus", 32, 32),
        ("LeakyRelu", 32, 32),
    ],
)
def test_what_stands_between_convolutions_needs_what_the_runtime_gives_it(op: str, channels: int, groups: int) -> None:
    model = between(op, channels, groups)
    feeds = {"x": np.ones((1, 3, 32, 32), np.float32)}
    with Worker(RuntimeOptions(threads=1)) as worker:
        trace = trace_of(worker, model.SerializeToString(), feeds)
    real, estimate = schedule_of(trace.graph, trace.nodes, feeds), with_copies(flow_of(model))
    # 18 or 20 channels fill 24 where a block has eight, and 32 where it has BLOCK, as the estimate says
    of_eight = any(len(shape) == 4 and shape[1] == 24 for shape in real.shapes.values())
    assert footprint(estimate).block == footprint(real).block or (of_eight and channels % BLOCK)
    assert footprint(estimate).block >= footprint(real).block
