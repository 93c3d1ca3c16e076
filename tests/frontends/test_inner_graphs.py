"""Bodies of If, Loop and Scan are cleaned up like the graph around them, and compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rlflow
from rlflow.frontends import scopes
from rlflow.optimizer import simplified

F = TensorProto.FLOAT


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(len(name)).normal(size=shape).astype(np.float32), name)


def lumber(prefix: str, source: str, shared: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """y = (x + (c1 + c2)) · w, with a node that does nothing, and a doubled product; ``shared`` comes from outside."""
    n = prefix
    nodes = [
        helper.make_node("Add", [f"{n}c1", f"{n}c2"], [f"{n}c"], name=f"{n}fold"),
        helper.make_node("Identity", [source], [f"{n}same"], name=f"{n}idle"),
        helper.make_node("Add", [f"{n}same", f"{n}c"], [f"{n}a"], name=f"{n}add"),
        helper.make_node("MatMul", [f"{n}a", shared], [f"{n}p"], name=f"{n}one"),
        helper.make_node("MatMul", [f"{n}a", shared], [f"{n}q"], name=f"{n}two"),
        helper.make_node("Sub", [f"{n}p", f"{n}b"], [f"{n}r"], name=f"{n}sub"),
        helper.make_node("Add", [f"{n}r", f"{n}q"], [f"{n}y"], name=f"{n}end"),
    ]
    return nodes, [weight(f"{n}c1", 4), weight(f"{n}c2", 4), weight(f"{n}b", 4)]


def body(prefix: str, source: str, inputs: list[Any], outputs: list[Any], more: list[Any] = []) -> onnx.GraphProto:  # noqa: B006
    nodes, weights = lumber(prefix, source, "w")
    return helper.make_graph([*nodes, *more], f"{prefix}body", inputs, outputs, weights)


def info(name: str, *shape: Any, kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def if_model() -> onnx.ModelProto:
    branches = {f"{p}_branch": body(p, "x", [], [info(f"{p}y", "N", 4)]) for p in ("then", "else")}
    return whole([helper.make_node("If", ["go"], ["y"], name="if", **branches)], [info("go", kind=TensorProto.BOOL)])


def loop_model() -> onnx.ModelProto:
    inputs = [info("i", kind=TensorProto.INT64), info("on", kind=TensorProto.BOOL), info("state", "N", 4)]
    outputs = [info("still", kind=TensorProto.BOOL), info("ly", "N", 4)]
    more = [helper.make_node("Not", ["on"], ["off"]), helper.make_node("Not", ["off"], ["still"])]
    node = helper.make_node(
        "Loop", ["count", "", "x"], ["y"], name="loop", body=body("l", "state", inputs, outputs, more)
    )
    return whole([node], [], [numpy_helper.from_array(np.array(3), "count")])


def nested_model() -> onnx.ModelProto:
    """An If within a branch: the inner body reads what the outer one makes."""
    inner = helper.make_node(
        "If", ["go"], ["ny"], name="inner",
        then_branch=body("i", "oy", [], [info("iy", "N", 4)]), else_branch=body("j", "oy", [], [info("jy", "N", 4)]),
    )  # fmt: skip
    outer = body("o", "x", [], [info("ny", "N", 4)], [inner])
    other = body("e", "x", [], [info("ey", "N", 4)])
    node = helper.make_node("If", ["go"], ["y"], name="outer", then_branch=outer, else_branch=other)
    return whole([node], [info("go", kind=TensorProto.BOOL)])


def whole(nodes: list[Any], inputs: list[Any], weights: list[Any] = []) -> onnx.ModelProto:  # noqa: B006
    graph = helper.make_graph(
        nodes, "g", [info("x", "N", 4), *inputs], [info("y", "N", 4)], [weight("w", 4, 4), *weights]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made, full_check=True)
    return made


def operators(model: onnx.ModelProto) -> list[str]:
    return [one.op_type for one in scopes.all_nodes(model.graph.node) if one.op_type != "Constant"]


@pytest.mark.parametrize(("make", "bodies"), [(if_model, 2), (loop_model, 1), (nested_model, 4)])
def test_a_body_is_cleaned_and_computes_what_it_did(make: Any, bodies: int) -> None:
    model = make()
    result = simplified(model)
    onnx.checker.check_model(result.model, full_check=True)
    before, after = operators(model), operators(result.model)
    assert before.count("MatMul") - after.count("MatMul") == bodies and "Identity" not in after
    assert any(note.startswith(f"{bodies} bod") for note in result.report.notes)
    assert [one.name for one in result.model.graph.initializer].count("w") == 1
    for go in (True, False):
        feeds = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32), "go": np.array(go)}
        feeds = {name: feeds[name] for name in (one.name for one in model.graph.input)}
        expected, found = (ReferenceEvaluator(one).run(None, feeds)[0] for one in (model, result.model))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_names_are_one_each_in_all_bodies() -> None:
    found = rlflow.simplify(nested_model())
    made = [name for node in scopes.all_nodes(found.graph.node) for name in node.output if name]
    assert len(made) == len(set(made))


def test_what_is_as_clean_as_it_can_be_stays_as_it_came() -> None:
    once = rlflow.simplify(if_model())
    again = simplified(once)
    assert not [note for note in again.report.notes if "cleaned up, too" in note]
    assert operators(again.model) == operators(once)


def test_a_body_that_cannot_stand_alone_stays_as_it_came() -> None:
    """One branch reads a value of a type that nobody knows; the other one is cleaned all the same."""
    model = if_model()
    branch = next(one.g for one in model.graph.node[0].attribute if one.name == "then_branch")
    odd = branch.node.add(op_type="Odd", domain="nobody.knows", output=["odd"], input=["x"])
    model.graph.node.insert(0, odd)
    del branch.node[-1]
    branch.node[0].input[0] = "odd"
    model.opset_import.append(helper.make_opsetid("nobody.knows", 1))
    kept = branch.SerializeToString()
    found = rlflow.simplify(model, verify=False)
    node = next(one for one in found.graph.node if one.op_type == "If")
    assert kept in [one.g.SerializeToString() for one in node.attribute]
    assert sum(len(one.g.node) for one in node.attribute) < sum(
        len(one.g.node) for one in model.graph.node[1].attribute
    )
