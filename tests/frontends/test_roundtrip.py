"""Load and save with nothing changed: what the file's author wrote survives, and the model computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import BOOL, FLOAT, INT64, model, node_names, random, run, tensor, value
from onnx import helper

from rlflow.frontends import baseline, load_model, save_model
from rlflow.frontends.imported import ImportedModel


def roundtrip(source: onnx.ModelProto, **options: Any) -> tuple[ImportedModel, onnx.ModelProto]:
    before = source.SerializeToString()
    imported = load_model(source, **options)
    saved = save_model(imported, imported.graph)
    assert source.SerializeToString() == before, "the argument was changed"
    onnx.checker.check_model(saved, full_check=True)
    return imported, saved


def same_outputs(source: onnx.ModelProto, saved: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    for found, expected in zip(run(saved, feeds), run(source, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


def mlp() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first", doc_string="a product"),
        helper.make_node("Constant", [], ["half"], name="the half", value_float=0.5),
        helper.make_node("Mul", ["h", "half"], ["scaled"], name="scale"),
        helper.make_node("Reshape", ["scaled", "target"], ["y"], name="shape it"),
    ]
    built = model(
        nodes,
        [value("x", ["N", 4])],
        [value("y", ["N", 2, 3])],
        {"w": random(4, 6), "target": np.array([0, 2, 3])},
        ir_version=10,
        producer_name="someone",
        doc_string="a model",
    )
    built.graph.doc_string = "a graph"
    built.graph.value_info.append(value("h", ["N", 6]))
    built.graph.node[0].metadata_props.add(key="layer", value="0")
    helper.set_model_props(built, {"author": "a person", "license": "free"})
    built.model_version = 3
    return built


def test_identity_of_everything() -> None:
    source = mlp()
    _, saved = roundtrip(source)
    # Node order is the graph's own; all else is byte for byte.
    source.graph.node.sort(key=lambda node: node.name)
    saved.graph.node.sort(key=lambda node: node.name)
    assert saved.SerializeToString(deterministic=True) == source.SerializeToString(deterministic=True)


def test_dynamic_dims_compute_the_same() -> None:
    source = mlp()
    _, saved = roundtrip(source)
    for n in (1, 5):
        same_outputs(source, saved, {"x": random(n, 4)})


def test_saving_twice_gives_the_same_bytes() -> None:
    imported = load_model(mlp())
    first, second = (save_model(imported, imported.graph).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_domain_alias_and_other_imports_stay() -> None:
    source = mlp()
    source.graph.node[0].domain = "ai.onnx"
    source.opset_import.append(helper.make_opsetid("com.example", 3))
    imported = load_model(source)
    saved = save_model(imported, imported.graph)
    assert [(entry.domain, entry.version) for entry in saved.opset_import] == [("", 17), ("com.example", 3)]
    assert next(node for node in saved.graph.node if node.name == "first").domain == "ai.onnx"


def test_unsorted_nodes_are_sorted() -> None:
    source = mlp()
    nodes = list(source.graph.node)
    del source.graph.node[:]
    source.graph.node.extend(reversed(nodes))
    imported = load_model(source)
    assert any("topological order" in note for note in imported.notes)
    onnx.checker.check_model(save_model(imported, imported.graph))


def test_duplicates_are_one_node_and_outputs_keep_their_names() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r0"), helper.make_node("Relu", ["x"], ["b"], name="r1")]
    source = model(nodes, [value("x", [3])], [value("a", [3]), value("b", [3])])
    _, saved = roundtrip(source)
    assert sorted(node.op_type for node in saved.graph.node) == ["Identity", "Relu"]
    assert [info.name for info in saved.graph.output] == ["a", "b"]
    same_outputs(source, saved, {"x": random(3)})


def test_input_as_output_and_initialiser_as_output() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Identity", ["w"], ["weights"])]
    source = model(nodes, [value("x", [3])], [value("same", [3]), value("weights", [2])], {"w": random(2)})
    imported = load_model(source)
    saved = save_model(imported, imported.graph)
    onnx.checker.check_model(saved)
    same_outputs(source, saved, {"x": random(3)})


def test_dropout_and_identity_are_forwarded() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["d", "unused"], name="drop"),
        helper.make_node("Identity", ["d"], ["i"]),
        helper.make_node("Relu", ["i"], ["y"], name="relu"),
    ]
    source = model(nodes, [value("x", [3])], [value("y", [3])])
    _, saved = roundtrip(source)
    assert node_names(saved) == ["relu"]
    assert list(saved.graph.node[0].input) == ["x"]


@pytest.mark.parametrize("used", [True, False])
def test_dropout_with_a_used_mask_stays(used: bool) -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["y", "mask"], name="drop")]
    outputs = [value("y", [3]), *([value("mask", [3], BOOL)] if used else [])]
    imported, saved = roundtrip(model(nodes, [value("x", [3])], outputs))
    assert [node.op_type for node in saved.graph.node] == (["Dropout"] if used else ["Identity"])
    assert any("Dropout (1)" in note for note in imported.notes) == used


def test_dead_nodes_are_dropped_and_graph_inputs_stay() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="live"), helper.make_node("Exp", ["x"], ["z"], name="dead")]
    _, saved = roundtrip(model(nodes, [value("x", [3]), value("unused", [2])], [value("y", [3])], {"w": random(2)}))
    assert node_names(saved) == ["live"]
    assert [info.name for info in saved.graph.input] == ["x", "unused"]
    assert not saved.graph.initializer


# -- initialisers that are inputs
# ----------------------------------------------------------------------------------------------------------


def listed_weights(ir_version: int = 3) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    inputs = [value("x", [2, 4]), value("w", [4, 3])]
    return model(nodes, inputs, [value("y", [2, 3])], {"w": random(4, 3)}, opset=9, ir_version=ir_version)


def test_initialisers_leave_the_inputs() -> None:
    source = listed_weights()
    imported, saved = roundtrip(source)
    assert [info.name for info in saved.graph.input] == ["x"]
    assert saved.ir_version == 4
    assert any(note.startswith("1 initialisers") for note in imported.notes)
    same_outputs(source, saved, {"x": random(2, 4)})


@pytest.mark.parametrize("ir_version", [3, 7])
def test_initialisers_stay_inputs_when_asked(ir_version: int) -> None:
    source = listed_weights(ir_version)
    _, saved = roundtrip(source, keep_initializer_inputs=True)
    assert [info.name for info in saved.graph.input] == ["x", "w"]
    assert saved.ir_version == ir_version
    feeds = {"x": random(2, 4)}
    same_outputs(source, saved, feeds)
    if ir_version > 3:  # before, the runtime takes them for constants whatever the inputs say
        same_outputs(source, saved, {**feeds, "w": random(4, 3, seed=5)})


def test_baseline_has_the_same_treatment() -> None:
    imported = load_model(listed_weights())
    assert [info.name for info in baseline(imported).graph.input] == ["x"]
    assert onnx.load_from_string(imported.source_bytes()).graph.output[0].name == "y"


# -- bodies, functions, other domains
# ------------------------------------------------------------------------------------------------------


def branch(op: str, operand: str, output: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, [operand], [output])], op, [], [value(output, None)])


def conditional() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="relu"),
        helper.make_node("Add", ["h", "w"], ["s"], name="sum"),
        helper.make_node(
            "If", ["c"], ["y"], name="if", then_branch=branch("Neg", "s", "t"), else_branch=branch("Exp", "w", "e")
        ),
    ]
    return model(nodes, [value("x", [3]), value("c", [], BOOL)], [value("y", [3])], {"w": random(3)})


def test_if_captures_stay_named() -> None:
    source = conditional()
    imported, saved = roundtrip(source)
    opaque = next(node for node in imported.graph.order() if imported.graph.op(node) == "Opaque")
    assert len(imported.graph.node_inputs(opaque)) == 3  # the condition and two captured values
    kept = next(node for node in saved.graph.node if node.name == "if")
    assert kept.SerializeToString() == source.graph.node[2].SerializeToString()
    for choice in (True, False):
        same_outputs(source, saved, {"x": random(3), "c": np.array(choice)})


def test_loop_and_scan() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["carried", "step"], ["next"]), helper.make_node("Identity", ["go"], ["still"])],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("carried", [3])],
        [value("still", [], BOOL), value("next", [3])],
    )
    scanned = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["state2"]), helper.make_node("Mul", ["state2", "step"], ["out"])],
        "scan",
        [value("state", [3]), value("row", [3])],
        [value("state2", [3]), value("out", [3])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["step"], name="relu"),
        helper.make_node("Loop", ["times", "", "x"], ["looped"], name="loop", body=body),
        helper.make_node("Scan", ["looped", "rows"], ["last", "all"], name="scan", body=scanned, num_scan_inputs=1),
    ]
    source = model(
        nodes,
        [value("x", [3]), value("rows", ["T", 3])],
        [value("last", [3]), value("all", ["T", 3])],
        {"times": np.array(4)},
    )
    imported, saved = roundtrip(source)
    assert any("Loop (1), Scan (1)" in note for note in imported.notes)
    same_outputs(source, saved, {"x": random(3), "rows": random(5, 3)})


def test_functions_and_custom_domains_survive() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["sq"]), helper.make_node("Add", ["sq", "b"], ["r"])]
    function = helper.make_function("local", "SquareAdd", ["a", "b"], ["r"], body, [helper.make_opsetid("", 17)])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="relu"),
        helper.make_node("SquareAdd", ["h", "x"], ["f"], name="call", domain="local"),
        helper.make_node("SquareAdd", ["h", "x"], ["g"], name="again", domain="local"),
        helper.make_node("Add", ["f", "g"], ["y"], name="sum"),
    ]
    source = model(
        nodes, [value("x", [3])], [value("y", [3])], functions=[function], more_opsets=[helper.make_opsetid("local", 1)]
    )
    _, saved = roundtrip(source)
    assert saved.functions[0].SerializeToString() == function.SerializeToString()
    assert [node.op_type for node in saved.graph.node].count("SquareAdd") == 1, (
        "a pure function's duplicate calls are one"
    )
    same_outputs(source, saved, {"x": random(3)})


def test_nodes_of_an_unknown_domain_are_never_shared() -> None:
    nodes = [
        helper.make_node("Thing", ["x"], ["a"], name="t0", domain="com.example", strength=3),
        helper.make_node("Thing", ["x"], ["b"], name="t1", domain="com.example", strength=3),
        helper.make_node("Add", ["a", "b"], ["y"], name="sum"),
    ]
    source = model(nodes, [value("x", [3])], [value("y", [3])], more_opsets=[helper.make_opsetid("com.example", 1)])
    imported = load_model(source)
    saved = save_model(imported, imported.graph)
    assert sorted(node_names(saved)) == ["sum", "t0", "t1"]
    assert any("com.example.Thing (2)" in note for note in imported.notes)


def test_random_nodes_are_never_shared() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["a"], name="r0"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="r1"),
        helper.make_node("Sub", ["a", "b"], ["y"], name="difference"),
    ]
    _, saved = roundtrip(model(nodes, [value("x", [3])], [value("y", [3])]))
    assert len(saved.graph.node) == 3


def test_quantised_weights_stay_quantised() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["wq", "scale", "zero"], ["w"], name="dq"),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    weights = {"wq": np.arange(12, dtype=np.int8).reshape(4, 3), "scale": np.float32(0.1), "zero": np.int8(2)}
    source = model(nodes, [value("x", [2, 4])], [value("y", [2, 3])], weights)
    _, saved = roundtrip(source)
    assert node_names(saved) == ["dq", "product"]
    same_outputs(source, saved, {"x": random(2, 4)})


def test_optional_inner_inputs_stay_absent() -> None:
    nodes = [helper.make_node("Clip", ["x", "", "high"], ["y"], name="clip")]
    source = model(nodes, [value("x", [3])], [value("y", [3])], {"high": np.float32(0.5)})
    _, saved = roundtrip(source)
    assert list(saved.graph.node[0].input) == ["x", "", "high"]
    same_outputs(source, saved, {"x": random(3)})


# -- shapes ------------------------------------------------------------------------------------------------------------
# --------------------


def shape_chain() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="batch"),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"], name="lift"),
        helper.make_node("Concat", ["n1", "rest"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape", doc_string="flatten"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return model(nodes, [value("x", ["N", 2, 3])], [value("y", ["N", 6])], constants)


def test_a_shape_chain_becomes_one_reshape() -> None:
    source = shape_chain()
    _, saved = roundtrip(source)
    assert node_names(saved) == ["reshape"]
    assert saved.graph.node[0].doc_string == "flatten"
    for n in (1, 4):
        same_outputs(source, saved, {"x": random(n, 2, 3)})


def test_unnamed_dims_are_named_inside_only() -> None:
    source = shape_chain()
    source.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    source.graph.output[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    imported, saved = roundtrip(source)
    value_id = imported.graph.node_outputs(imported.graph.inputs()[0])[0]
    assert imported.graph.shape(value_id) == ["x.0", 2, 3]
    assert b"x.0" not in saved.SerializeToString()
    assert node_names(saved) == ["reshape"]
    same_outputs(source, saved, {"x": random(4, 2, 3)})


def test_freeze_sets_dims_everywhere() -> None:
    imported, saved = roundtrip(mlp(), freeze={"N": 5})
    assert [dim.dim_value for dim in saved.graph.input[0].type.tensor_type.shape.dim] == [5, 4]
    assert [dim.dim_value for dim in saved.graph.output[0].type.tensor_type.shape.dim] == [5, 2, 3]
    assert "N" not in imported.graph.text().split("return")[0].replace("input", "")


def test_a_shape_that_needs_two_dims_keeps_its_operand() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Slice", ["s", "one", "three"], ["mid"], name="middle"),
        helper.make_node("Concat", ["mid", "first"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    constants = {"one": np.array([1]), "three": np.array([3]), "first": np.array([2])}
    source = model(nodes, [value("x", [2, "A", "B"])], [value("y", ["A", "B", 2])], constants)
    _, saved = roundtrip(source)
    assert "reshape" in node_names(saved)
    same_outputs(source, saved, {"x": random(2, 3, 4)})


@pytest.mark.parametrize("axis", [0, 1])
def test_old_softmax_keeps_its_meaning(axis: int) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=axis)]
    source = model(nodes, [value("x", [2, 3, 4])], [value("y", [2, 3, 4])], opset=11, ir_version=6)
    imported, saved = roundtrip(source)
    assert any("Softmax (1)" in note for note in imported.notes), "several dimensions together: not the table's Softmax"
    same_outputs(source, saved, {"x": random(2, 3, 4)})


# -- constants ---------------------------------------------------------------------------------------------------------
# --------------------


def test_equal_initialisers_are_one() -> None:
    nodes = [
        helper.make_node("Add", ["x", "a"], ["h"], name="first"),
        helper.make_node("Mul", ["h", "b"], ["y"], name="second"),
    ]
    weights = random(3)
    _, saved = roundtrip(model(nodes, [value("x", [3])], [value("y", [3])], {"a": weights, "b": weights.copy()}))
    assert [item.name for item in saved.graph.initializer] == ["a"]


def test_every_element_type_survives() -> None:
    types = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16]
    nodes = [helper.make_node("Identity", [f"w{dtype}"], [f"y{dtype}"]) for dtype in types]
    source = model(
        nodes, [value("x", [1])], [value(f"y{dtype}", [2], dtype) for dtype in types], ir_version=10, opset=21
    )
    for dtype in types:
        source.graph.initializer.append(helper.make_tensor(f"w{dtype}", dtype, [2], [1, 0]))
    imported = load_model(source)
    saved = save_model(imported, imported.graph)
    onnx.checker.check_model(saved)
    found = {item.name: onnx.numpy_helper.to_array(item) for item in saved.graph.initializer}
    for dtype in types:
        assert found[f"y{dtype}"].astype(float).tolist() == [1, 0]


def test_huge_integers_survive() -> None:
    big = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min, 3])
    source = model(
        [helper.make_node("Add", ["x", "big"], ["y"], name="add")],
        [value("x", [3], INT64)],
        [value("y", [3], INT64)],
        {"big": big},
    )
    _, saved = roundtrip(source)
    same_outputs(source, saved, {"x": np.zeros(3, np.int64)})


def test_slice_to_the_end_of_an_unknown_dim() -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a"], ["y"], name="slice")]
    constants = {"s": np.array([-1]), "e": np.array([np.iinfo(np.int64).max]), "a": np.array([1])}
    source = model(nodes, [value("x", [2, "S"])], [value("y", [2, None])], constants)
    imported, saved = roundtrip(source)
    same_outputs(source, saved, {"x": random(2, 7)})
    imported.origin.nodes = {}
    same_outputs(source, save_model(imported, imported.graph), {"x": random(2, 7)})


def test_strings_and_sparse_constants() -> None:
    sparse = helper.make_sparse_tensor(tensor("v", np.array([2.5], np.float32)), tensor("i", np.array([1])), [3])
    nodes = [
        helper.make_node("Constant", [], ["t"], name="text", value_strings=[b"a", b"bc"]),
        helper.make_node("Constant", [], ["s"], name="sparse", sparse_value=sparse),
        helper.make_node("Identity", ["t"], ["words"], name="words"),
        helper.make_node("Add", ["x", "s"], ["y"], name="sum"),
    ]
    source = model(nodes, [value("x", [3])], [value("words", [2], onnx.TensorProto.STRING), value("y", [3])])
    imported = load_model(source)
    saved = save_model(imported, imported.graph)
    assert any(node.op_type == "Constant" and node.attribute[0].name == "sparse_value" for node in saved.graph.node)
    feeds = {"x": random(3)}
    assert run(saved, feeds)[0].tolist() == ["a", "bc"]
    np.testing.assert_array_equal(run(saved, feeds)[1], run(source, feeds)[1])


def test_missing_opset_import_is_assumed() -> None:
    source = mlp()
    del source.opset_import[:]
    imported = load_model(source)
    assert any("imports no opset" in note for note in imported.notes)
    saved = save_model(imported, imported.graph)
    assert [entry.domain for entry in saved.opset_import] == [""]


@pytest.mark.parametrize("opset", [1, 6, 99])
def test_other_opsets_pass_through(opset: int) -> None:
    source = mlp()
    source.opset_import[0].version = opset
    imported = load_model(source)
    assert str(opset) in (imported.passthrough or "")
    assert save_model(imported, imported.graph) == source


def test_float_types_of_the_core() -> None:
    source = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [3], FLOAT)], [value("y", [3])])
    imported = load_model(source)
    assert imported.graph.dtype(imported.graph.outputs()[0]) == FLOAT
