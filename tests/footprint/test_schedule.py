"""The planner's rules against ONNX Runtime's own allocator, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow import zoo
from rlflow.errors import RuntimeRefused
from rlflow.footprint import Stretch, footprint, in_bands
from rlflow.frontends.banding import with_bands
from rlflow.frontends.flows import flow_of
from rlflow.frontends.schedule import IN_PLACE, VIEWS, held, schedule_of
from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason
from rlflow.runtime.residence import resident_of, trace_of

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason="ONNX Runtime is not installed")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(RuntimeOptions(threads=1)) as one:
        yield one


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs of the model's static shapes."""
    rng = np.random.default_rng(0)
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def assert_exact(worker: Worker, model: onnx.ModelProto) -> int:
    """The block, once every node's bytes and the block itself are what the runtime's allocator counted."""
    feeds = feeds_of(model)
    trace = trace_of(worker, model.SerializeToString(), feeds)
    flow = schedule_of(trace.graph, trace.nodes, feeds)
    assert [one.held for one in trace.nodes] == held(flow)
    block = footprint(flow).block
    assert trace.block == block
    return block


@pytest.mark.parametrize(
    "name", ["squeezenet1.1?image=96", "resnet-18?image=64", "mobilenet-v2?image=64", "shufflenet-v2?image=64"]
)
def test_the_rules_are_the_runtimes(worker: Worker, name: str) -> None:
    base, _, query = name.partition("?")
    options = {key: int(value) for key, value in (pair.split("=") for pair in query.split("&") if pair)}
    assert assert_exact(worker, zoo.build(base, **options)) > 0


def test_the_rules_hold_for_bands(worker: Worker) -> None:
    model = zoo.build("squeezenet1.1", image=160)
    banded = in_bands(flow_of(model), [Stretch(0, 2, 4, True)])
    assert banded is not None
    whole, bands = assert_exact(worker, model), assert_exact(worker, with_bands(model, banded))
    assert bands < whole


def single(op: str, **attributes: object) -> onnx.ModelProto:
    """An operator between two others, so that its input is nobody else's."""
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], name="before"),
        helper.make_node(op, ["a", "s"] if op == "Reshape" else ["a"], ["b"], name="it", **attributes),
        helper.make_node("Cos", ["b"], ["y"], name="after"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    weights = [numpy_helper.from_array(np.asarray([-1, 8, 8]), "s")] if op == "Reshape" else []
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


@pytest.mark.parametrize("cuts", [(), (7, 15)])
def test_the_rules_hold_where_shapes_are_hidden(worker: Worker, cuts: tuple[int, ...]) -> None:
    model = zoo.build("mobilenet-v2", image=128)
    flow = flow_of(model)
    blocks = []
    for hidden in (False, True):
        banded = in_bands(flow, [Stretch(0, 23, 6, cuts=cuts, hidden=hidden)])
        assert banded is not None
        blocks.append(assert_exact(worker, with_bands(model, banded)))
    assert blocks[1] < 0.7 * blocks[0]


@pytest.mark.parametrize("op", sorted((IN_PLACE | VIEWS) - {"Squeeze", "Unsqueeze", "Identity"}))
def test_what_is_computed_in_place(worker: Worker, op: str) -> None:
    model = single(op, **({"to": 1} if op == "Cast" else {}))
    found = trace_of(worker, model.SerializeToString(), feeds_of(model))
    if [one.operator for one in found.nodes] == ["Sin", op, "Cos"]:  # else it was folded away
        assert found.nodes[1].held == found.nodes[0].held


@pytest.mark.parametrize("op", ["Abs", "Exp", "Sqrt", "Neg", "Erf", "Floor"])
def test_what_is_not(worker: Worker, op: str) -> None:
    model = single(op)
    found = trace_of(worker, model.SerializeToString(), feeds_of(model))
    assert found.nodes[1].held == 2 * found.nodes[0].held


def test_another_order_is_refused(worker: Worker) -> None:
    model = single("Relu")
    trace = trace_of(worker, model.SerializeToString(), feeds_of(model))
    with pytest.raises(RuntimeRefused, match="order"):
        schedule_of(trace.graph, trace.nodes[::-1], feeds_of(model))


def test_the_resident_memory_of_a_fresh_process_grows_by_the_values(worker: Worker) -> None:
    weights = [numpy_helper.from_array(np.zeros((16, 4, 3, 3), np.float32), "w")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalMaxPool", ["a"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 4, 512, 512]), ("y", None))
    ]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = resident_of(worker, model.SerializeToString(), feeds_of(model), 3)
    assert found.growth > 16 * 512 * 512 * 4
    assert found.peak - found.growth == found.loaded > 0


def test_code_that_runs_for_the_first_time_is_no_memory_of_the_model(worker: Worker) -> None:
    """The kernels of these nodes are some hundred kilobytes of the runtime; the values are two."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("ReduceMean", ["a"], ["y"], axes=[2, 3])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 8, 8, 8]), ("y", [1, 8, 1, 1]))
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = resident_of(worker, model.SerializeToString(), feeds_of(model), 3)
    assert found.growth < 64 * 1024 and found.loaded > 1 << 20


class Ran(NamedTuple):
    """A node in a run, as far as its order goes."""

    name: str
    operator: str
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = (("float", (1, 4)),)
    held: int = 0
    workspace: int = 0


def fork(names: tuple[str, str, str]) -> bytes:
    """Two functions of the input, and their sum; the nodes have these names."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name=names[0]),
        helper.make_node("Relu", ["x"], ["b"], name=names[1]),
        helper.make_node("Add", ["a", "b"], ["y"], name=names[2]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "fork", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.parametrize(
    ("names", "runs", "expected"),
    [
        (("one", "two", "sum"), ("one", "two", "sum"), "aby"),
        (("one", "two", "sum"), ("two", "one", "sum"), "bay"),  # names say more than the file's order
        (("", "", ""), ("Relu_7", "Relu_9", "Add_10"), "aby"),
        (("", "", ""), ("Relu_9", "Relu_7", "Add_10"), "aby"),  # new nodes have numbers in any order
        (("one", "", "sum"), ("Relu_3", "one", "sum"), "aby"),  # both may be; as it is written
        (("one", "two", "sum"), ("sum", "two", "one"), None),
        (("one", "two", "sum"), ("one", "one", "sum"), None),
        (("", "", ""), ("Relu_7", "Add_10", "Relu_9"), None),
        (("", "", ""), ("Relu_7", "Relu_9"), None),
    ],
)
def test_the_order_of_a_run(names: tuple[str, str, str], runs: tuple[str, ...], expected: str | None) -> None:
    operators = {"one": "Relu", "two": "Relu", "sum": "Add"}
    ran = [Ran(one, operators.get(one) or one.partition("_")[0]) for one in runs]
    feeds = {"x": np.zeros((1, 4), np.float32)}
    if expected is None:
        with pytest.raises(RuntimeRefused, match="order"):
            schedule_of(fork(names), ran, feeds)
        return
    assert "".join(job.outputs[0] for job in schedule_of(fork(names), ran, feeds).jobs) == expected
