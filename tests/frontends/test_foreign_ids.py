"""A graph that was put together anew has ids of its own: they name nothing in the file, and its weights are its own."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from model_tools import run
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends import load_model, save_model
from rlflow.graph import GraphBuilder


def model() -> onnx.ModelProto:
    """Products of different widths, with biases, one behind another; the file says every value's shape."""
    rng = np.random.default_rng(0)
    widths, nodes, weights, infos, value = [8, 6, 4, 10], [], [], [], "x"
    for k, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weights += [
            numpy_helper.from_array(rng.standard_normal((rows, columns)).astype(np.float32), f"w{k}"),
            numpy_helper.from_array(rng.standard_normal(columns).astype(np.float32), f"b{k}"),
        ]
        nodes.append(helper.make_node("MatMul", [value, f"w{k}"], [f"m{k}"], name=f"product{k}"))
        nodes.append(helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"], name=f"sum{k}"))
        infos += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, columns]) for name in (f"m{k}", f"a{k}")]
        value = f"a{k}"
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 8]), infos.pop()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights, value_info=infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_graph_that_was_built_again_computes_the_same(reverse: bool) -> None:
    imported = load_model(model())
    graph, builder, values = imported.graph, GraphBuilder(), {}
    constants = [node for node in graph.order() if graph.op(node) == "Constant"]
    for node in reversed(constants) if reverse else constants:  # other ids than in the imported graph
        info, value = graph.attrs(node)["value"], graph.node_outputs(node)[0]
        kept = (info["digest"], info["values"], info["facts"])
        values[value] = builder.constant(graph.dtype(value), graph.shape(value), *kept)
    for node in graph.order():
        first, *_ = graph.node_outputs(node)
        if graph.op(node) == "Input":
            values[first] = builder.input("x", graph.dtype(first), graph.shape(first))
        elif graph.op(node) != "Constant":
            operands = [values[value] for value in graph.node_inputs(node)]
            values[first] = builder.add(graph.op(node), graph.attrs(node), operands, 1)
    again = builder.finish([values[value] for value in graph.outputs()])
    assert again.digest == graph.digest and again.order() != graph.order()
    written = save_model(imported, again)
    onnx.checker.check_model(written, full_check=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)}
    for one, other in zip(run(written, feeds), run(model(), feeds), strict=True):
        np.testing.assert_array_equal(one, other)
