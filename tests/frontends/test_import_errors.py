"""What is not a usable model is refused with a sentence that says where and what; what a runtime tolerates is noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from model_tools import model, random, value
from onnx import helper

from rlflow.errors import ModelError, OutputError, UsageError
from rlflow.frontends import load_model, save_model


def relu() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [value("x", ["N", 3])], [value("y", ["N", 3])])


def refused(source: object, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(source)  # type: ignore[arg-type]


def test_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.onnx", r"nothing\.onnx' does not exist")


def test_directory(tmp_path: Path) -> None:
    refused(tmp_path, "is a directory")


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    refused(path, "is empty")


@pytest.mark.parametrize("text", [b"hello, world: this is a text file\n", b"\x89PNG\r\n\x1a\n" + bytes(64), b"{}"])
def test_not_onnx(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(text)
    refused(path, "other.onnx")


def test_truncated_at_every_length() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    raw = model(nodes, [value("x", [2, 4])], [value("y", [2, 3])], {"w": random(4, 3)}).SerializeToString()
    whole = load_model(raw).graph.digest
    for length in range(len(raw)):
        try:
            found = load_model(raw[:length])
        except ModelError:
            continue
        # Protobuf cannot tell a message that lost its last fields: what is left must then be a whole graph (the opset
        # import came last).
        assert found.graph.digest == whole or found.passthrough, f"{length} of {len(raw)} bytes"


def test_no_graph_and_no_outputs() -> None:
    refused(onnx.ModelProto(ir_version=8), "holds no graph")
    broken = relu()
    del broken.graph.output[:]
    refused(broken, "no outputs")


def test_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Neg", ["a"], ["b"], name="two")]
    refused(model(nodes, [value("x", [3])], [value("b", [3])]), r"cycle, among them node 'one' \(Add\)")


def test_a_sentence_is_short_where_names_are_long() -> None:
    """Found by `make fuzz`: names of 7,000 characters made a sentence of 21,000."""
    long = "a" * 7000
    nodes = [helper.make_node("Neg", ["x"], [long]), helper.make_node("Exp", ["x"], [long])]
    with pytest.raises(ModelError, match="belongs to two values") as found:
        load_model(model(nodes, [value("x", [3])], [value(long, [3])]))
    assert len(str(found.value)) < 1000


def test_two_makers_of_one_name() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"], name="one"), helper.make_node("Exp", ["x"], ["y"], name="two")]
    refused(model(nodes, [value("x", [3])], [value("y", [3])]), "belongs to two values, made by node 'one'")
    nodes = [helper.make_node("Neg", ["x"], ["w"], name="one")]
    refused(
        model(nodes, [value("x", [3])], [value("w", [3])], {"w": random(3)}), "made by an initialiser and by node 'one'"
    )


def test_a_name_that_nothing_makes() -> None:
    broken = relu()
    broken.graph.node[0].input[0] = "z"
    refused(broken, r"node 'relu' \(Relu\) reads 'z'")
    broken = relu()
    broken.graph.output[0].name = "z"
    refused(broken, "nothing makes the graph output 'z'")


def test_a_captured_name_that_nothing_makes() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["ghost"], ["t"])], "body", [], [value("t", None)])
    nodes = [helper.make_node("If", ["c"], ["y"], name="if", then_branch=body, else_branch=body)]
    refused(model(nodes, [value("c", [], onnx.TensorProto.BOOL)], [value("y", None)]), "reads 'ghost'")


def test_two_inputs_of_one_name() -> None:
    broken = relu()
    broken.graph.input.append(broken.graph.input[0])
    refused(broken, "two inputs have the name 'x'")


def test_wrong_elements_of_a_tensor() -> None:
    broken = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [3])], [value("y", [3])], {"w": random(3)})
    broken.graph.initializer[0].raw_data = b"\0" * 7
    refused(broken, "tensor 'w'")


def test_a_tensor_without_its_elements() -> None:
    """Once read as zeros."""
    broken = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [3])], [value("y", [3])], {"w": random(3)})
    broken.graph.initializer[0].ClearField("raw_data")
    refused(broken, "tensor 'w': it declares 3 elements and holds none")


def test_types_that_contradict_each_other_stay_opaque() -> None:
    """A runtime may know better; it is not for an optimiser to refuse what it does not touch."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    imported = load_model(model(nodes, [value("x", [2, 4])], [value("y", None)], {"w": random(5, 3)}))
    assert any(
        "node 'product' (MatMul) is carried as it is" in note and "inner dimensions" in note for note in imported.notes
    )
    assert save_model(imported, imported.graph).graph.node[0].name == "product"


def test_what_the_checker_finds_is_noted() -> None:
    tolerated = relu()
    tolerated.graph.name = ""
    tolerated.graph.node[0].attribute.append(helper.make_attribute("unheard_of", 1))
    imported = load_model(tolerated)
    assert any("unheard_of" in note or "Unrecognized" in note for note in imported.notes)


def test_freezing_needs_a_known_dim_and_a_size() -> None:
    with pytest.raises(UsageError, match="no such dimension; they have N"):
        load_model(relu(), freeze={"M": 1})
    with pytest.raises(UsageError, match="The size to freeze the dimension 'N' at is 0"):
        load_model(relu(), freeze={"N": 0})


def test_sparse_initialisers_pass_through() -> None:
    source = relu()
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", 1, [1], [1.0]), helper.make_tensor("i", onnx.TensorProto.INT64, [1], [1]), [3]
    )
    source.graph.sparse_initializer.append(sparse)
    imported = load_model(source)
    assert imported.passthrough == "it has sparse initialisers"
    assert save_model(imported, imported.graph) == source


@pytest.mark.parametrize(("place", "says"), [("missing/out.onnx", "cannot be written"), ("", "is a directory")])
def test_unwritable_output(tmp_path: Path, place: str, says: str) -> None:
    imported = load_model(relu())
    with pytest.raises(OutputError, match=says):
        save_model(imported, imported.graph, str(tmp_path / place))
    assert list(tmp_path.iterdir()) == []


def test_nodes_without_outputs_are_left_out() -> None:
    source = relu()
    source.graph.node.extend(
        [helper.make_node(op, ["x"], outputs) for op in ("Identity", "Foo") for outputs in ([], [""])]
    )
    imported = load_model(source)
    assert [node.op_type for node in save_model(imported, imported.graph).graph.node] == ["Relu"]


@pytest.mark.parametrize("broken", [{"data_type": 0}, {"data_type": 99}, {"dims": [99]}])
def test_an_attribute_that_is_no_tensor_is_refused_or_carried(broken: dict[str, object]) -> None:
    fill = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [2.0])
    for name, found in broken.items():
        fill.ClearField(name)
        fill.MergeFrom(onnx.TensorProto(**{name: found}))
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["y"], value=fill)]
    source = model(nodes, [value("s", [1], onnx.TensorProto.INT64)], [value("y", [None])])
    imported = load_model(source)
    assert any("1 node is carried as it is" in note for note in imported.notes)
    assert save_model(imported, imported.graph).graph.node[0].attribute == source.graph.node[0].attribute


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(helper.make_node("Identity", [], ["y"]), id="nothing to forward"),
        pytest.param(helper.make_node("Dropout", [], ["y"]), id="nothing to drop"),
        pytest.param(helper.make_node("Gemm", ["x"], ["y"]), id="one factor"),
        pytest.param(helper.make_node("ConstantOfShape", ["x"], ["y"], value=[1.0]), id="a list for a tensor"),
        pytest.param(helper.make_node("Transpose", ["x"], ["y"], perm="10"), id="a text for integers"),
        pytest.param(helper.make_node("Concat", ["x", "x"], ["y"], axis=0.5), id="a number for an integer"),
        pytest.param(helper.make_node("LeakyRelu", ["x"], ["y"], alpha="much"), id="a text for a number"),
    ],
)
def test_what_its_operator_does_not_allow_is_refused_or_carried(node: onnx.NodeProto) -> None:
    source = model([node], [value("x", [2, 3])], [value("y", None)])
    try:
        imported = load_model(source)
    except ModelError:
        return
    assert save_model(imported, imported.graph).graph.node[0].attribute == node.attribute


def test_two_functions_of_one_name_are_refused_or_carried() -> None:
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    source = model(
        [call], [value("x", [3])], [value("y", [3])], functions=[function, function],
        more_opsets=[helper.make_opsetid("own", 1)],
    )  # fmt: skip
    try:
        imported = load_model(source)
    except ModelError:
        return
    assert save_model(imported, imported.graph).graph.node[0].op_type == "F"


def test_nan_weights_load_and_say_so() -> None:
    weights = np.full((4, 600), np.nan, np.float32)
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 4])], [value("y", [2, 600])], {"w": weights}
    )
    imported = load_model(source)
    node = next(node for node in imported.graph.order() if imported.graph.op(node) == "Constant")
    assert imported.graph.attrs(node)["value"]["facts"][3] is False
