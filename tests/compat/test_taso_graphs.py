"""Graph handles: reading them, loading and writing models, optimising, converting, and refusing with a sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from taso_graphs import outputs_of, two_products

import rlflow
import taso
import taso.core
from rlflow.compat import taso as inside
from rlflow.errors import GraphError, ModelError, UsageError
from rlflow.frontends import graph_to_model, reference

ROOT = Path(__file__).resolve().parents[2]


def little_model(opset: int = 17) -> onnx.ModelProto:
    """What TASO cannot load: a dilated Conv with bias and pads of 2, a Softmax, an output that is read as well."""
    weight = np.arange(8 * 3 * 9, dtype=np.float32).reshape(8, 3, 3, 3) / 100
    nodes = [
        helper.make_node(
            "Conv", ["image", "kernel", "offset"], ["features"], "first", pads=[2, 2, 2, 2], dilations=[2, 2]
        ),
        helper.make_node("Softmax", ["features"], ["weights"], "attention", axis=1),
        helper.make_node("Mul", ["features", "weights"], ["gated"], "gate"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 6, 6]) for name in ("gated", "features")]
    graph = helper.make_graph(
        nodes,
        "little",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 6, 6])],
        infos,
        [numpy_helper.from_array(weight, "kernel"), numpy_helper.from_array(np.ones(8, np.float32), "offset")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


# --- names ----------------------------------------------------------------------------------------------------------


def test_the_module_hands_on_the_very_same_objects() -> None:
    assert taso.__all__ == inside.__all__
    assert all(getattr(taso, name) is getattr(inside, name) for name in taso.__all__)
    assert all(getattr(taso.core, name) is getattr(inside, name) for name in taso.core.__all__)
    assert taso.PyGraph.__module__ == "rlflow.compat.taso.pygraph"


def test_importing_it_is_light_and_needs_nothing_but_rlflow(tmp_path: Path) -> None:
    code = "import sys, taso; print([m for m in ('onnx', 'onnxruntime', 'torch', 'onnx_ir') if m in sys.modules])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
    assert not list(tmp_path.iterdir())


def test_words_and_tables() -> None:
    assert [taso.get_padding_mode(word) for word in ("SAME", "VALID")] == [0, 1]
    assert [taso.get_activation_mode(word) for word in ("NONE", "SIGMOID", "RELU", "TANH")] == [0, 1, 2, 3]
    assert [taso.get_data_type(word) for word in ("FLOAT", "FLOAT16", "BOOL")] == [111, 333, 888]
    assert [taso.onnx_datatype_tostring(number) for number in (1, 7, 9, 16)] == ["FLOAT", "INT64", "BOOL", "BFLOAT16"]
    for call, word in (
        (taso.get_padding_mode, "FULL"),
        (taso.get_activation_mode, "GELU"),
        (taso.get_data_type, "FP8"),
    ):
        with pytest.raises(UsageError, match=f"'{word}' is not known; expected one of"):
            call(word)
    with pytest.raises(UsageError, match="17"):
        taso.onnx_datatype_tostring(17)
    assert len(taso.xf_operators) == 49
    assert taso.op_table[3] == "Conv"
    assert taso.op_table[61] == "Add"
    assert set(taso.op_table.values()) - {"Input", "Weight"} <= set(taso.operator_attrs)
    assert taso.input_weight_names["Conv"][:2] == ["input", "weight"]


def test_the_compat_page_names_every_name() -> None:
    page = (ROOT / "docs" / "compat-taso.md").read_text(encoding="utf-8")
    written = {name for code in re.findall(r"`([^`\n]+)`", page) for name in re.findall(r"\w+", code)}
    methods = {name for name in dir(taso.PyGraph) if not name.startswith("_")}
    tensor = {name for name in dir(taso.PyTensor) if not name.startswith("_")}
    assert not (methods | tensor | set(taso.__all__)) - written


# --- weights and reading --------------------------------------------------------------------------------------------


def test_given_weights_are_kept_and_others_are_seeded() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)

    def weights(seed: int) -> list[list[float]]:
        graph = taso.new_graph(seed=seed)
        given = [graph.new_weight(dims=(2, 3), data=data), graph.new_weight(dims=[6], data=range(6))]
        drawn = [graph.new_weight(dims=(64, 64)), graph.new_weight(dims=(8,))]
        return [list(graph.get_weight_value({"guid": one.tensor[0]})) for one in given + drawn]

    first, again, other = weights(0), weights(0), weights(1)
    assert first == again
    assert first[0] == first[1] == list(range(6))
    assert first[2] != other[2]
    assert np.std(first[2]) == pytest.approx(1 / 8, rel=0.1)
    assert min(first[3]) > 0


def test_a_weight_does_not_change_with_the_caller_s_array() -> None:
    data = np.ones((2, 2), np.float32)
    graph = taso.new_graph()
    weight = graph.new_weight(dims=(2, 2), data=data)
    data[:] = 5
    assert list(graph.get_weight_value(weight.tensor[0])) == [1.0] * 4


def test_reading_a_graph() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=(1, 8, 7, 7))
    weight = graph.new_weight(dims=(4, 2, 3, 3))
    y = graph.conv2d(input=x, weight=weight, strides=(2, 2), padding="SAME", activation="RELU")
    parts = graph.split(y, 1, [1, 3])
    graph.unsqueeze(graph.transpose(parts[0], (0, 2, 3, 1)), (0,))
    ops = graph.get_operator_list()
    assert [graph.get_operator_type(op) for op in ops] == ["Conv", "Relu", "Split", "Transpose", "Unsqueeze"]
    conv, relu, split, transpose, unsqueeze = ops
    attrs = {name: graph.get_operator_attr(conv, name) for name in ("kernel_shape", "strides", "pads", "group")}
    assert attrs == {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "group": 4}
    assert graph.get_operator_attr(split, "split") == graph.get_split_lens(split) == [1, 3]
    assert graph.get_operator_attr(split, "axis") == 1
    assert graph.get_operator_attr(transpose, "perm") == [0, 2, 3, 1]
    assert graph.get_operator_attr(unsqueeze, "axes") == [0]
    assert (graph.get_num_outputs(split), graph.get_num_outputs(relu)) == (2, 1)
    assert graph.get_input_dims(conv, 1) == [4, 2, 3, 3]
    assert graph.get_output_dims(split, 1) == [1, 3, 4, 4]
    edges = graph.get_input_edges(conv)
    assert [graph.get_operator_type(edge["srcOp"]) for edge in edges] == ["Input", "Weight"]
    assert [(edge["srcIdx"], edge["dstIdx"], edge["dstOp"]) for edge in edges] == [(0, 0, conv), (0, 1, conv)]
    assert len(graph.get_weight_value(edges[1]["srcOp"])) == 72
    assert (y.nDim, y.dim(1), y.dim(-1), y.shape) == (4, 4, 4, (1, 4, 4, 4))
    with pytest.raises(UsageError, match="rank 4"):
        y.dim(4)
    with pytest.raises(UsageError, match=r"Conv 102 has no attribute 'axes'; it has .*pads"):
        graph.get_operator_attr(conv, "axes")
    for call in (graph.get_weight_value, graph.get_split_lens):
        with pytest.raises(UsageError, match="is Relu; expected"):
            call(relu)
    with pytest.raises(UsageError, match="no operator of this graph"):
        graph.get_operator_type({"guid": 7})
    with pytest.raises(UsageError, match="operand 2"):
        graph.get_input_dims(conv, 2)


def test_outputs_are_what_nothing_reads_and_what_is_marked() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=(2, 2))
    first = graph.relu(x)
    twin = graph.relu(x)  # the core shares it, the caller has two outputs
    assert [one.tensor for one in graph.outputs()] == [first.tensor, twin.tensor]
    graph.exp(first)
    assert len(graph.outputs()) == 2
    graph.mark_output(first)
    assert graph.outputs()[0] is first
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    value = np.array([[-1, 2], [3, -4]], np.float32)
    expected = [np.maximum(value, 0), np.maximum(value, 0), np.exp(np.maximum(value, 0))]
    for found, wanted in zip(outputs_of(model, {"data": value}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_every_tensor_may_meet_every_other_although_onnx_has_types() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=(2, 3))
    positive = graph.greater(x=x, y=graph.new_weight(dims=(1,), data=[0.0]))
    graph.mul(positive, x)
    graph.add(positive, positive)
    graph.div(x=graph.size(input=x), y=graph.shape(x))
    graph.sqrt(input=graph.cast(input=graph.exp(input=x), datatype="INT32"))
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    value = np.array([[-1, 2, 0.5], [3, -4, 1]], np.float32)
    found = outputs_of(model, {"data": value})
    expected = [np.maximum(value, 0), 2.0 * (value > 0), np.array([3.0, 2.0]), np.sqrt(np.trunc(np.exp(value)))]
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda g, x, w: g.add(x, w), r"taso: add\(x=tensor\[1, 8, 7, 6\], y=tensor\[4, 8, 3, 3\]\): .*broadcast"),
        (lambda g, x, w: g.matmul(x, w), r"taso: matmul\(input=tensor\[1, 8, 7, 6\]"),
        (lambda g, x, w: g.conv2d(x, g.new_weight((4, 3, 3, 3)), (1, 1), "SAME"), r"8 input channels"),
        (lambda g, x, w: g.conv2d(x, w, (1, 1), "FULL"), r"padding='FULL' is not known; expected one of SAME, VALID"),
        (lambda g, x, w: g.conv2d(x, w, (1, 1, 1), "SAME"), r"strides=\(1, 1, 1\) has 3 numbers"),
        (lambda g, x, w: g.conv2d(x, w, (1, 1), "SAME", "GELU"), r"activation='GELU' is not known"),
        (lambda g, x, w: g.maxpool2d(x, (9, 9), (1, 1), "VALID"), r"height 9 exceeds the input's, 7"),
        (lambda g, x, w: g.concat(1, []), r"inputs is empty"),
        (lambda g, x, w: g.concat(0, [x, w]), r"inputs=\[tensor\[1, 8, 7, 6\], tensor\[4, 8, 3, 3\]\]\)"),
        (lambda g, x, w: g.split(x, 1, 3), r"extent 8, which does not make 3 equal parts"),
        (lambda g, x, w: g.split(x, 1, [3, 4]), r"taso: split\(.*sizes=\[3, 4\]\)"),
        (lambda g, x, w: g.reshape(x, (5, -1)), r"taso: reshape\(input=tensor\[1, 8, 7, 6\], shape=\(5, -1\)\)"),
        (lambda g, x, w: g.transpose(x, (0, 1, 2)), r"taso: transpose\(.*perm=\(0, 1, 2\)\)"),
        (lambda g, x, w: g.squeeze(x, (1,)), r"taso: squeeze\("),
        (lambda g, x, w: g.reduce_sum(x, (4,)), r"axis 4 does not exist in the input, which has rank 4"),
        (lambda g, x, w: g.reduce_argmax(x, (1, 2)), r"axes names 2 axes"),
        (lambda g, x, w: g.batchnorm(x, w, w, w, w), r"taso: batchnorm\(input=tensor\[1, 8, 7, 6\]"),
        (lambda g, x, w: g.cast(x, "FP8"), r"datatype='FP8' is not an element type"),
        (lambda g, x, w: g.relu(np.ones(3)), r"relu\(input=array\[3\]\): the operand is ndarray, expected a PyTensor"),
        (lambda g, x, w: g.relu(None), r"the operand is NoneType"),
        (lambda g, x, w: g.relu(taso.new_graph().new_input((2,))), r"belongs to another graph"),
        (lambda g, x, w: g.new_weight(dims=(2, 2), data=np.ones((4,))), r"data has shape \[4\]; expected \[2, 2\]"),
        (lambda g, x, w: g.new_weight(dims=(2, 2), data=[1, 2, 3]), r"data has 3 elements; a weight of \[2, 2\] has 4"),
        (lambda g, x, w: g.new_input(dims=(1,), name="data"), r"name='data' is the name of an earlier input"),
        (lambda g, x, w: g.slice(x, [0], [1, 2], None, None), r"differ in length"),
        (lambda g, x, w: g.slice(x, None, [1], None, None), r"start=None is not a list of integers"),
        (lambda g, x, w: g.dropout(x, 2), r"rate is 2; expected 0 to 1"),
    ],
)  # fmt: skip
def test_what_taso_aborts_on_is_a_sentence_here(call: Any, sentence: str) -> None:
    graph = taso.new_graph()
    x, weight = graph.new_input(dims=(1, 8, 7, 6)), graph.new_weight(dims=(4, 8, 3, 3))
    with pytest.raises((GraphError, UsageError), match=sentence):
        call(graph, x, weight)
    assert graph.relu(x).shape == (1, 8, 7, 6)  # the handle is still good


def test_an_empty_graph_is_not_exported() -> None:
    with pytest.raises(GraphError, match="no operator"):
        taso.export_onnx(taso.new_graph())


# --- ONNX -------------------------------------------------------------------------------------------------------------


def test_a_loaded_model_keeps_its_names_and_its_meaning(tmp_path: Path) -> None:
    path = tmp_path / "little.onnx"
    onnx.save(little_model(), path)
    graph = taso.load_onnx(str(path))
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [info.name for info in (*model.graph.input, *model.graph.output)] == ["image", "gated", "features"]
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert {node.name for node in model.graph.node} == {"first", "attention", "gate"}
    feeds = {"image": np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    expected = outputs_of(little_model(), feeds)
    graph.relu(graph.outputs()[0])
    grown = taso.export_onnx(graph, opset=18)
    onnx.checker.check_model(grown, full_check=True)
    assert [info.name for info in grown.graph.output] == ["gated", "features", "output_2"]
    for one, wanted in zip(outputs_of(model, feeds), expected, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)
    found = outputs_of(grown, feeds)
    for one, wanted in zip(found, [*expected, np.maximum(expected[0], 0)], strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)
    assert sorted(graph.get_operator_type(op) for op in graph.get_operator_list()) == ["Conv", "Mul", "Relu", "Softmax"]


def test_symbolic_dimensions_stay_or_are_set() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=("N", 3, 8, 8), name="image")
    y = graph.conv2d(x, graph.new_weight((4, 3, 3, 3)), (2, 2), "SAME", "RELU")
    graph.maxpool2d(y, (2, 2), (2, 2), "SAME")
    assert y.dim(0) == "N"
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    loaded = taso.load_onnx(model)
    assert loaded.inputs()[0].shape == ("N", 3, 8, 8)
    assert taso.load_onnx(model, dims={"N": 2}).outputs()[0].shape == (2, 4, 2, 2)
    with pytest.raises(UsageError, match="N"):
        loaded.run_time()
    assert loaded.run_time(dims={"N": 1}) > 0


def test_a_file_that_is_no_model_is_a_model_error(tmp_path: Path) -> None:
    for content in (None, b"", b"not a model"):
        path = tmp_path / "bad.onnx"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError, match=r"bad\.onnx"):
            taso.load_onnx(str(path))


def test_outputs_that_are_inputs_or_constants() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=(2, 2))
    unused = graph.new_input(dims=(3,), name="unused")
    graph.dropout(graph.identity(x))
    graph.add(*(graph.new_weight(dims=(2,), data=[1.5, 2.5]) for _ in range(2)))
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [info.name for info in model.graph.input] == ["data", "unused"]
    assert unused.shape == (3,)
    value = np.array([[1, 2], [3, 4]], np.float32)
    found = outputs_of(model, {"data": value, "unused": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(found[0], value)
    np.testing.assert_array_equal(found[1], [3.0, 5.0])
    again = taso.load_onnx(model)
    again.exp(again.inputs()[0])
    grown = taso.export_onnx(again)
    onnx.checker.check_model(grown, full_check=True)
    assert [info.name for info in grown.graph.output] == ["output_0", "output_1", "output_2"]


def test_a_name_that_another_value_has_is_made_free() -> None:
    model = little_model()
    model.graph.output[0].name = model.graph.node[2].output[0] = "rlflow_Conv"
    graph = taso.load_onnx(model)
    graph.relu(graph.outputs()[0])
    grown = taso.export_onnx(graph)
    onnx.checker.check_model(grown, full_check=True)
    assert [info.name for info in grown.graph.output] == ["rlflow_Conv", "features", "output_2"]
    feeds = {"image": np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    for one, wanted in zip(outputs_of(grown, feeds)[:2], outputs_of(model, feeds), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)


def test_symbolic_shapes_are_reshaped_and_sliced() -> None:
    graph = taso.new_graph()
    x = graph.new_input(dims=("N", 4, 6))
    graph.reshape(x, (0, -1))
    graph.slice(x, [1], [-1])
    graph.transpose(x, (1, 0, 2))
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    value = np.arange(120, dtype=np.float32).reshape(5, 4, 6)
    flat, inner, turned = outputs_of(model, {"data": value})
    np.testing.assert_array_equal(flat, value.reshape(5, -1))
    np.testing.assert_array_equal(inner, value[1:-1])
    np.testing.assert_array_equal(turned, value.transpose(1, 0, 2))


def test_a_model_that_cannot_be_read_as_a_graph_is_carried_through() -> None:
    old = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "old",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 6)],
        ir_version=3,
    )
    graph = taso.load_onnx(old)
    assert taso.export_onnx(graph).graph == old.graph
    same = taso.optimize(graph, budget=1, cost="analytic")
    assert "carried through" in same.report.reason
    assert taso.export_onnx(same).graph == old.graph


def custom_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mystery", ["x", "scale"], ["y"], "m", domain="example", factor=3.0),
        helper.make_node("ReduceSum", ["y", "axes"], ["z"], "s", keepdims=0),
        helper.make_node("Split", ["z"], ["a", "b"], "p", axis=0, num_outputs=2),
    ]
    graph = helper.make_graph(
        nodes,
        "custom",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("b", "a")],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "scale"), numpy_helper.from_array(np.int64([1]), "axes")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_an_importer_of_the_user_s_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def mystery(op: Any, graph: taso.PyGraph, tensors: dict[str, taso.PyTensor], initializer: Any) -> taso.PyTensor:
        seen.append((op.op_type, sorted(one.name for one in initializer)))
        return graph.mul(tensors[op.input[0]], tensors[op.input[1]])

    monkeypatch.setitem(taso.xf_operators, "Mystery", mystery)
    graph = taso.load_onnx(custom_model())
    assert seen == [("Mystery", ["axes", "scale"])]
    model = taso.export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [info.name for info in (*model.graph.input, *model.graph.output)] == ["x", "b", "a"]
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    total = (x * [1, 2, 3]).sum(axis=1)
    b, a = outputs_of(model, {"x": x})
    np.testing.assert_allclose(np.concatenate([a, b]), total)

    broken = custom_model()
    broken.graph.node[1].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        taso.load_onnx(broken)
    monkeypatch.setitem(taso.xf_operators, "Split", lambda op, graph, tensors, initializer: tensors[op.input[0]])
    with pytest.raises(GraphError, match="returned 1 tensors for node 'p', which has 2 outputs"):
        taso.load_onnx(custom_model())


def test_importing_taso_brings_its_core_along(tmp_path: Path) -> None:
    code = "import taso; print(taso.core.PyGraph is taso.PyGraph, taso._check_output(None, 'y'))"
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert result.stdout == "True False\n", result.stderr


def test_a_result_is_checked_against_an_onnx_value() -> None:
    graph = taso.new_graph()
    y = graph.relu(graph.new_input(dims=(2, "N")))

    def value(kind: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info("y", kind, shape)

    table = [
        ("y", True),
        ("", False),
        (value(TensorProto.FLOAT, [2, 7]), True),
        (value(TensorProto.FLOAT, [2, "M"]), True),
        (value(TensorProto.FLOAT, None), True),
        (value(TensorProto.INT64, [2, 7]), False),
        (value(TensorProto.FLOAT, [3, 7]), False),
        (value(TensorProto.FLOAT, [2]), False),
    ]
    assert [taso._check_output(y, wanted) for wanted, _ in table] == [expected for _, expected in table]


def test_conversion_both_ways() -> None:
    graph = two_products()
    core = graph.to_rlflow()
    again = taso.from_rlflow(core, graph.constants)
    assert again.to_rlflow() == core
    feeds = {"data": np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)}
    expected = reference.evaluate(core, feeds, graph.constants)
    for found, wanted in zip(outputs_of(taso.export_onnx(again), feeds), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    bare = taso.from_rlflow(rlflow.Graph.parse("x: f32[2,3] = input\ny = Relu(x)\nreturn y"))
    assert bare.get_operator_type(bare.get_operator_list()[0]) == "Relu"
    imported = rlflow.load(little_model())
    loaded = taso.from_rlflow(imported)
    assert loaded.to_rlflow() == imported.graph
    assert [info.name for info in taso.export_onnx(loaded).graph.output] == ["gated", "features"]
    with pytest.raises(UsageError, match="expected an rlflow Graph"):
        taso.from_rlflow("x")


def test_a_graph_with_another_store_brings_its_weights() -> None:
    graph = two_products()
    other = taso.new_graph(seed=5)
    x = other.new_input(dims=(4, 32), name="shared")
    other.exp(other._store.splice(graph.to_rlflow(), graph.constants, {"data": x})[0])
    feeds = {"shared": np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)}
    first, second = outputs_of(graph_to_model(graph.to_rlflow(), graph.constants), {"data": feeds["shared"]})
    found = {tuple(one.reshape(-1)[:2]): one for one in outputs_of(taso.export_onnx(other), feeds)}
    assert any(np.allclose(one, np.exp(first), rtol=1e-5) for one in found.values())
    assert any(np.array_equal(one, second) for one in found.values())


def test_costs_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    graph = taso.new_graph(print_measurements=True)
    graph.relu(graph.new_input(dims=(2, 2)))
    total = graph.cost()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert f"{total:.6f} ms  Relu" in printed
    quiet = taso.PyModel(seed=3).new_graph()
    quiet.relu(quiet.new_input(dims=(2, 2)))
    quiet.cost()
    assert capsys.readouterr().out == ""
    quiet.print_measurements()
    quiet.cost()
    assert "Relu" in capsys.readouterr().out
    assert repr(quiet) == "<PyGraph of 1 operators, 1 inputs, 1 outputs>"
