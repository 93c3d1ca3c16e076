"""Programs of a runtime: the same digest for the same kernels, whatever the names and the weights are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.errors import ModelError
from rlflow.frontends.fingerprint import program_digest


def convolution(prefix: str = "", seed: int = 0, channels: int = 4, **attributes: Any) -> bytes:
    """A convolution with a bias, and a reshape of its result."""
    rng = np.random.default_rng(seed)
    shape = [prefix + "w", prefix + "b", prefix + "s"]
    values = [rng.standard_normal((4, channels, 1, 1)), rng.standard_normal(4)]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for value, name in zip(values, shape)]  # noqa: B905
    tensors.append(numpy_helper.from_array(np.array(attributes.pop("target", [1, -1])), shape[2]))
    names = {"kernel_shape": [1, 1], **attributes}
    nodes = [
        helper.make_node("Conv", [prefix + "x", *shape[:2]], [prefix + "c"], name=f"{prefix} node", **names),
        helper.make_node("Reshape", [prefix + "c", shape[2]], [prefix + "y"]),
    ]
    ends = [
        helper.make_tensor_value_info(prefix + "x", TensorProto.FLOAT, [1, channels, 8, 8]),
        helper.make_tensor_value_info(prefix + "y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"prefix": "other_"}, True),
        ({"seed": 1}, True),
        ({"auto_pad": "NOTSET", "group": 1}, True),  # what holds without them
        ({"pads": [1, 1, 1, 1]}, False),
        ({"channels": 8}, False),
        ({"target": [4, -1]}, False),  # small integers are part of it
    ],
)
def test_which_programs_are_the_same(other: dict[str, Any], same: bool) -> None:
    assert (program_digest(convolution()) == program_digest(convolution(**other))) is same


def test_scalars_count_and_what_feeds_what() -> None:
    def power(exponent: float, operands: list[str]) -> bytes:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "z", "y")]
        nodes = [helper.make_node("Pow", ["x", "e"], ["p"]), helper.make_node("Sub", operands, ["y"])]
        tensor = numpy_helper.from_array(np.array(exponent, np.float32), "e")
        return helper.make_model(helper.make_graph(nodes, "g", ends[:2], ends[2:], [tensor])).SerializeToString()

    digests = {program_digest(power(e, o)) for e in (2.0, 0.5) for o in (["p", "z"], ["z", "p"])}
    assert len(digests) == 4


@pytest.mark.parametrize("content", [b"", b"ReorderInput", b"\x08\x09"])
def test_what_is_no_program(content: bytes) -> None:
    with pytest.raises(ModelError, match="made of a model"):
        program_digest(content)


def test_subgraphs_are_left_alone() -> None:
    inner = helper.make_graph([], "then", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    ends = [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]  # fmt: skip
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]))
    with pytest.raises(ModelError, match="subgraph"):
        program_digest(model.SerializeToString())


def test_a_folded_normalisation_is_the_program_of_a_bias() -> None:
    """What prices rest on: the runtime makes one program of both."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from rlflow.frontends import graph_to_model
    from rlflow.graph import Graph
    from rlflow.runtime import Worker

    head = "x: f32[1,20,9,9] = input\nw: f32[20,20,1,1] = const\nb: f32[20] = const\n"
    rest = "".join(f"{name}: f32[20] = const\n" for name in ("s", "m", "v"))
    how = "{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}"
    folded = Graph.parse(f"{head}y = Conv{how}(x, w, b)\nreturn y")
    whole = Graph.parse(
        f"{head}{rest}c = Conv{how}(x, w)\ny = BatchNormalization{{epsilon=0.001}}(c, s, b, m, v)\nreturn y"
    )
    plain = Graph.parse(f"{head}y = Conv{how}(x, w)\nreturn y")
    with Worker() as worker:
        made = [worker.optimized(graph_to_model(graph).SerializeToString()) for graph in (folded, whole, plain)]
    first, second, third = map(program_digest, made)
    assert first == second != third
    assert "BatchNormalization" not in {node.op_type for node in onnx.load_from_string(made[1]).graph.node}
