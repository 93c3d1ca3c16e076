"""Models that are cut in tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp(layers: int = 4, width: int = 16, seed: int = 0) -> onnx.ModelProto:
    """x -> (MatMul, Add, Relu) * layers -> y, each with its weights; two layers share a bias."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], [], "x"
    for k in range(layers):
        bias = f"b{min(k, layers - 2)}"
        weights.append(numpy_helper.from_array(rng.standard_normal((width, width)).astype(np.float32) / 4, f"w{k}"))
        if k < layers - 1:
            weights.append(numpy_helper.from_array(rng.standard_normal(width).astype(np.float32), f"b{k}"))
        last = "y" if k == layers - 1 else f"r{k}"
        nodes += [
            helper.make_node("MatMul", [value, f"w{k}"], [f"p{k}"], name=f"product {k}"),
            helper.make_node("Add", [f"p{k}", bias], [f"s{k}"], name=f"sum {k}"),
            helper.make_node("Relu", [f"s{k}"], [last], name=f"relu {k}"),
        ]
        value = last
    return model(nodes, weights, [("x", ["N", width])], [("y", ["N", width])])


def branches() -> onnx.ModelProto:
    """A skip connection over the cut, an output from the middle, a Constant node that both sides read, a shape that is
    computed, an input that only the end reads, and an input and a weight that are outputs themselves.
    """
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), "w")
    half = helper.make_tensor("half_value", TensorProto.FLOAT, [1], [0.5])
    nodes = [
        helper.make_node("Constant", [], ["half"], value=half),
        helper.make_node("Neg", ["half"], ["minus_half"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "half"], ["middle"]),
        helper.make_node("Shape", ["x"], ["extents"]),
        helper.make_node("Tanh", ["middle"], ["b"]),
        helper.make_node("Reshape", ["b", "extents"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["d"]),
        helper.make_node("Add", ["d", "minus_half"], ["e"]),
        helper.make_node("Add", ["e", "late"], ["y"]),
        helper.make_node("Sigmoid", ["x"], ["unused"]),
    ]
    inputs = [("x", ["N", 8]), ("late", ["N", 8]), ("through", [2])]
    outputs = [("y", ["N", 8]), ("middle", ["N", 8]), ("through", [2]), ("w", [8, 8]), ("minus_half", [1])]
    return model(nodes, [weight], inputs, outputs)


def with_body() -> onnx.ModelProto:
    """An If whose bodies read a value and a weight from outside, and a function of the model."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["yes"])], "then", [], [helper.make_tensor_value_info("yes", 1, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["no"])], "else", [], [helper.make_tensor_value_info("no", 1, None)]
    )
    twice = helper.make_function(
        "own", "Twice", ["v"], ["t"], [helper.make_node("Add", ["v", "v"], ["t"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Twice", ["b"], ["y"], domain="own"),
    ]
    weights = [
        numpy_helper.from_array(np.eye(4, dtype=np.float32) * 3, "w"),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
    ]
    made = model(nodes, weights, [("x", [4, 4])], [("y", [4, 4])])
    made.functions.append(twice)
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def with_sequence() -> onnx.ModelProto:
    """A sequence runs between the second node and the third, where no cut may be."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a", "x"], ["both"]),
        helper.make_node("ConcatFromSequence", ["both"], ["y"], axis=0),
    ]
    return model(nodes, [], [("x", [2, 4])], [("y", [4, 4])])


def dense(layers: int = 5, channels: int = 32) -> onnx.ModelProto:
    """A dense block: each layer normalises all values so far, of which the runtime makes convolutions in its blocked
    layout, and only where all of them lie in it.
    """
    rng = np.random.default_rng(4)

    def weight(name: str, *shape: int) -> str:
        weights.append(numpy_helper.from_array(rng.uniform(0.1, 1.0, shape).astype(np.float32), name))
        return name

    weights: list[onnx.TensorProto] = []
    nodes = [helper.make_node("Conv", ["x", weight("w", channels, 4, 1, 1)], ["v0"])]
    for k in range(1, layers + 1):
        many = k * channels
        norm = [weight(f"{one}{k}", many) for one in ("scale", "shift", "mean", "variance")]
        nodes += [
            helper.make_node("Concat", [f"v{one}" for one in range(k)], [f"c{k}"], axis=1),
            helper.make_node("BatchNormalization", [f"c{k}", *norm], [f"n{k}"]),
            helper.make_node("Relu", [f"n{k}"], [f"r{k}"]),
            helper.make_node("Conv", [f"r{k}", weight(f"w{k}", channels, many, 3, 3)], [f"v{k}"], pads=[1] * 4),
        ]
    nodes.append(helper.make_node("GlobalAveragePool", [f"v{layers}"], ["y"]))
    return model(nodes, weights, [("x", [1, 4, 12, 12])], [("y", [1, channels, 1, 1])])


def model(nodes, weights, inputs, outputs) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
