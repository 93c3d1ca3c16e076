"""Channel shuffles become a Gather, where they are that and nothing else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rlflow import zoo
from rlflow.frontends.flows import flow_of
from rlflow.frontends.shuffles import with_gathers


def shuffled(
    groups: int = 3,
    perm: tuple[int, ...] = (0, 2, 1, 3, 4),
    split: tuple[int, ...] | None = None,
    back: tuple[int, ...] = (-1, 12, 4, 5),
    batch: int | str = 2,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """x of 12 channels, shuffled in groups."""
    split = split or (-1, groups, 12 // groups, 4, 5)
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["a"], name="first"),
        helper.make_node("Transpose", ["a"], ["b"], name="second", perm=perm),
        helper.make_node("Reshape", ["b", "back"], ["c"], name="third"),
        helper.make_node("Relu", ["c"], ["y"], name="last"),
    ]
    weights = [
        numpy_helper.from_array(np.asarray(dims, np.int64), name) for dims, name in ((split, "split"), (back, "back"))
    ]
    start = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 12, 4, 5])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "shuffle", [start], ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("batch", [2, "N"])
def test_the_same_numbers_in_the_same_places(groups: int, batch: int | str) -> None:
    model = shuffled(groups, batch=batch)
    made = with_gathers(model)
    assert made is not None
    onnx.checker.check_model(made, full_check=True)
    assert [(node.op_type, node.name) for node in made.graph.node] == [("Gather", "third"), ("Relu", "last")]
    x = np.random.default_rng(0).standard_normal((2, 12, 4, 5)).astype(np.float32)
    (one,), (other,) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (model, made))
    np.testing.assert_array_equal(one, other)
    assert all(job.rows is not None for job in flow_of(made).jobs)


@pytest.mark.parametrize(
    "model",
    [
        shuffled(perm=(0, 2, 1, 4, 3), back=(-1, 12, 5, 4)),  # rows and columns change places
        shuffled(perm=(0, 1, 2, 4, 3), back=(-1, 12, 5, 4)),
        shuffled(split=(2, 3, 4, 5, 4)),  # rows become columns on the way
        shuffled(split=(2, 3, 8, 2, 5)),  # rows become channels
        shuffled(back=(2, 12, 5, 4)),
        shuffled(split=(1, 3, 8, 4, 5), back=(2, 12, 4, 5)),  # so does the batch
        shuffled(outputs=("y", "a")),  # somebody else reads what lies in between
        shuffled(outputs=("y", "b")),
    ],
)
def test_what_is_more_than_a_shuffle_stays(model: onnx.ModelProto) -> None:
    assert with_gathers(model) is None


def test_a_whole_network() -> None:
    model = zoo.build("shufflenet-v2", image=64)
    made = with_gathers(model)
    assert made is not None
    kinds = [node.op_type for node in made.graph.node]
    assert kinds.count("Gather") == 16 and "Transpose" not in kinds
    orders = [one for one in made.graph.initializer if one.name.startswith("rlflow_order")]
    assert len(orders) == 3  # one for each stage
