"""Cheap values are computed again where keeping them makes the peak, in the plan and in the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import footprint
from rlflow.footprint.layout import with_copies
from rlflow.footprint.recompute import Again, again_in, recomputed
from rlflow.frontends.flows import flow_of
from rlflow.frontends.recomputing import with_recomputed
from rlflow.frontends.schedule import schedule_of
from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason
from rlflow.runtime.residence import trace_of

ort = pytest.importorskip("onnxruntime")
WIDE = (1, 4, 64, 64)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    if unavailable_reason() is not None:
        pytest.skip(str(unavailable_reason()))
    with Worker(RuntimeOptions(threads=1)) as one:
        yield one


def kept_for_late(late: Sequence[str], maker: str = "Expand") -> onnx.ModelProto:
    """A narrow value made wide, added at the beginning, and once more by each operator ``late`` at the end."""
    weights = [numpy_helper.from_array(np.asarray(WIDE, np.int64), "wide")]
    narrow = helper.make_node("Sin", ["m"], ["narrow"])
    product = helper.make_node("MatMul", ["narrow", "narrow"], ["big"])
    big = {"Expand": helper.make_node("Expand", ["narrow", "wide"], ["big"]), "MatMul": product}[maker]
    nodes = [narrow, big, helper.make_node("Add", ["x", "big"], ["a0"])]
    nodes += [helper.make_node("MatMul", ["a0", "x"], ["a1"]), helper.make_node("MatMul", ["a1", "a1"], ["a2"])]
    nodes += [helper.make_node("MatMul", ["a2", "a2"], ["a3"])]
    for place, op in enumerate(late):
        nodes.append(helper.make_node(op, [f"a{place + 3}", "big"], [f"a{place + 4}"]))
    shape = [1, 1, 1, 64] if maker == "Expand" else [1, 4, 64, 64]
    graph = helper.make_graph(
        nodes, "late",
        [helper.make_tensor_value_info("m", TensorProto.FLOAT, shape),
         helper.make_tensor_value_info("x", TensorProto.FLOAT, WIDE)],
        [helper.make_tensor_value_info(f"a{len(late) + 3}", TensorProto.FLOAT, WIDE)], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        info.name: rng.normal(size=[dim.dim_value for dim in info.type.tensor_type.shape.dim]).astype(np.float32)
        for info in model.graph.input
    }


def run(model: onnx.ModelProto) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds_of(model))[0]


def test_a_wide_repeat_is_made_again_for_its_late_reader(worker: Worker) -> None:
    model = kept_for_late(["Mul"])
    flow = flow_of(model)
    copies = recomputed(flow)
    assert copies == [Again(1, (6,))]
    saved = footprint(with_copies(flow)).peak - footprint(with_copies(again_in(flow, copies))).peak
    assert saved == flow.bytes("big")
    written = with_recomputed(model, flow, copies)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(run(model), run(written))
    peaks = []
    for one in (model, written):
        trace = trace_of(worker, one.SerializeToString(), feeds_of(one))
        peaks.append(footprint(schedule_of(trace.graph, trace.nodes, feeds_of(one))).peak)
    assert peaks[0] - peaks[1] == saved  # the runtime did not join the copy to the first


@pytest.mark.parametrize(
    ("late", "maker", "why"),
    [
        ([], "Expand", "nobody reads it late"),
        (["Mul"], "MatMul", "a product is not cheap"),
    ],
)
def test_what_is_not_computed_again(late: list[str], maker: str, why: str) -> None:
    assert recomputed(flow_of(kept_for_late(late, maker))) == [], why


def test_two_copies_of_one_node_stay_two(worker: Worker) -> None:
    model = kept_for_late(["Mul", "Div"])
    flow = flow_of(model)
    written = with_recomputed(model, flow, [Again(1, (6,)), Again(1, (7,))])
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(run(model), run(written))
    trace = trace_of(worker, written.SerializeToString(), feeds_of(written))
    assert sum(one.operator == "Expand" for one in trace.nodes) == 3


def test_a_copy_that_a_body_reads_is_left_out() -> None:
    model = kept_for_late(["Mul"])
    body = helper.make_graph(
        [helper.make_node("Identity", ["big"], ["inner"])], "body", [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, WIDE)],
    )  # fmt: skip
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "yes"))
    model.graph.node[6].CopyFrom(
        helper.make_node("If", ["yes"], ["a4"], then_branch=body, else_branch=body)
    )
    written = with_recomputed(model, flow_of(model), [Again(1, (6,))])
    assert [node.op_type for node in written.graph.node] == [node.op_type for node in model.graph.node]
