"""ONNX models that hold what rlflow's operator table does not: they load, grow, and keep their meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
import taso
from rlflow.errors import GraphError

X = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)


def value(name: str, dims: tuple[int | str, ...] | None = (2, 3), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    **domains: int,
) -> onnx.ModelProto:
    """A model of IR version 8; ``domains`` are further ones, with ``_`` for a dot."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    opsets = {"": opset, **{name.replace("_", "."): version for name, version in domains.items()}}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*row) for row in opsets.items()], ir_version=8)


def lstm() -> onnx.ModelProto:
    random = np.random.default_rng(2)
    return model(
        [
            helper.make_node("LSTM", ["x", "W", "R"], ["Y", "", "Yc"], hidden_size=2),
            helper.make_node("Relu", ["Y"], ["z"]),
        ],
        [value("x", (3, 1, 2))],
        [value("z", (3, 1, 1, 2)), value("Yc", (1, 1, 2))],
        {name: random.standard_normal((1, 8, 2)).astype(np.float32) for name in "WR"},
    )


def branches() -> onnx.ModelProto:
    bodies = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [value(name)])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    return model([helper.make_node("If", ["c"], ["y"], **bodies)], [value("x"), value("c", (), 9)], [value("y")])


def custom() -> onnx.ModelProto:
    nodes = [helper.make_node("Foo", ["x"], ["y"], domain="my"), helper.make_node("Relu", ["y"], ["z"])]
    return model(nodes, [value("x")], [value("z")], my=1)


def fused() -> onnx.ModelProto:
    node = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)
    return model([node], [value("x")], [value("y", (2, 2))], com_microsoft=1)


def dropout() -> onnx.ModelProto:
    nodes = [helper.make_node("Dropout", ["x"], ["y", "m"]), helper.make_node("Relu", ["y"], ["z"])]
    return model(nodes, [value("x")], [value("z"), value("m", kind=9)])


Feeds = dict[str, np.ndarray]
#: model, feeds (None where ONNX Runtime lacks the operator)
OPAQUE: dict[str, tuple[Callable[[], onnx.ModelProto], Feeds | None]] = {
    "LSTM": (lstm, {"x": np.random.default_rng(3).standard_normal((3, 1, 2)).astype(np.float32)}),
    "If": (branches, {"x": X, "c": np.array(False)}),
    "my.Foo": (custom, None),
    "com.microsoft.FusedMatMul": (fused, {"x": X}),
    "Dropout": (dropout, {"x": X}),
}


def same(found: onnx.ModelProto, wanted: onnx.ModelProto, feeds: Feeds | None) -> None:
    """The same outputs by name and, where there are feeds, by value in ONNX Runtime."""
    assert [info.name for info in found.graph.output] == [info.name for info in wanted.graph.output]
    if feeds is not None:
        for one, other in zip(executed(found, feeds), executed(wanted, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def executed(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("name", OPAQUE)
def test_an_operator_outside_the_table_is_carried_along(name: str) -> None:
    make, feeds = OPAQUE[name]
    wanted = make()
    graph = taso.load_onnx(wanted)
    assert name in [graph.get_operator_type(op) for op in graph.get_operator_list()]
    copy = graph.copy()
    for one in (graph, copy, taso.from_rlflow(rlflow.load(wanted))):
        same(taso.export_onnx(one), wanted, feeds)
    same(taso.export_onnx(taso.optimize(graph, budget=5, cost="analytic")), wanted, feeds)


@pytest.mark.parametrize("name", [name for name, (_, feeds) in OPAQUE.items() if feeds is not None])
def test_a_graph_with_such_an_operator_grows(name: str) -> None:
    make, feeds = OPAQUE[name]
    graph = taso.load_onnx(make())
    graph.exp(graph.outputs()[0])
    grown = taso.export_onnx(graph)
    assert feeds is not None
    *kept, added = executed(grown, feeds)
    for one, other in zip(kept, executed(make(), feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(added, np.exp(kept[0]), rtol=1e-5)


def test_a_grown_graph_whose_outputs_have_no_type_is_not_written() -> None:
    graph = taso.load_onnx(custom())
    graph.exp(graph.outputs()[0])
    with pytest.raises(GraphError, match="its element type is not known"):
        taso.export_onnx(graph)


@pytest.mark.parametrize("opset", [17, 18])
def test_such_an_operator_is_written_in_its_own_opset_only(opset: int) -> None:
    graph = taso.load_onnx(dropout())
    graph.exp(graph.outputs()[0])
    if opset == 17:
        assert taso.export_onnx(graph, opset=opset).opset_import[0].version == opset
    else:
        with pytest.raises(GraphError, match=r"opaque nodes are of opsets \[17\]"):
            taso.export_onnx(graph, opset=opset)


# --- element types --------------------------------------------------------------------------------------------------


def image_and(kinds: str, build: Callable[[taso.PyGraph, list[taso.PyTensor]], taso.PyTensor]) -> taso.PyGraph:
    """A call on an input [1, 2, 4, 4] and four weights [2]; the letters say what each of the five is cast to."""
    graph = taso.new_graph()
    tensors = [
        graph.new_input((1, 2, 4, 4)),
        *(graph.new_weight((2,), data) for data in ([2, 3], [1, 0], [4, 5], [1, 6])),
    ]
    words = {"i": "INT32", "l": "INT64", "b": "BOOL", "d": "DOUBLE", "h": "FLOAT16"}
    cast = [one if kind == "f" else graph.cast(one, words[kind]) for one, kind in zip(tensors, kinds, strict=True)]
    build(graph, cast)
    return graph


def convolved(g: taso.PyGraph, tensors: list[taso.PyTensor]) -> taso.PyTensor:
    image, weight, bias, *_ = tensors
    return g.conv2d(image, g.reshape(weight, (2, 1, 1, 1)), 1, 0, bias=bias)


def normalised(g: taso.PyGraph, tensors: list[taso.PyTensor]) -> taso.PyTensor:
    return g.batchnorm(*tensors)


def joined(g: taso.PyGraph, tensors: list[taso.PyTensor]) -> taso.PyTensor:
    return g.concat(0, [g.reshape(tensors[0], (32,)), *tensors[1:]])


FLAT = np.arange(32, dtype=np.float64).reshape(1, 2, 4, 4) - 7


def by_channel(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64).reshape(1, 2, 1, 1)


CONVOLVED = FLAT * by_channel(2, 3) + by_channel(1, 0)
NORMALISED = (FLAT - by_channel(4, 5)) / np.sqrt(by_channel(1, 6) + 1e-5) * by_channel(2, 3) + by_channel(1, 0)
JOINED = np.concatenate([FLAT.reshape(-1), [2, 3, 1, 0, 4, 5, 1, 6]])


@pytest.mark.parametrize(
    ("call", "kinds", "found", "expected"),
    [
        (convolved, "fffff", "f", CONVOLVED),
        (convolved, "fliff", "f", CONVOLVED),
        (convolved, "iifff", "f", CONVOLVED),
        (convolved, "iifdf", "f", CONVOLVED),
        (convolved, "iiiii", "f", CONVOLVED),
        (convolved, "lfbff", "f", CONVOLVED),
        (normalised, "fffff", "f", NORMALISED),
        (normalised, "fiiii", "f", NORMALISED),
        (normalised, "flbil", "f", None),
        (normalised, "iiiii", "f", NORMALISED),
        (normalised, "diiif", "d", NORMALISED),
        (joined, "fffff", "f", JOINED),
        (joined, "flfff", "f", JOINED),
        (joined, "llfil", "f", JOINED),
        (joined, "iilil", "l", JOINED),
        (joined, "iiiii", "i", JOINED),
        (joined, "fddff", "d", JOINED),
        (joined, "bbbbb", "b", JOINED != 0),
        (joined, "ibfff", "f", None),
    ],
)
def test_operands_of_any_type_become_of_one(call: Any, kinds: str, found: str, expected: np.ndarray | None) -> None:
    model = taso.export_onnx(image_and(kinds, call))
    onnx.checker.check_model(model, full_check=True)
    *_, output = executed(model, {"data": FLAT.astype(np.float32)})
    assert output.dtype == {"f": np.float32, "d": np.float64, "l": np.int64, "i": np.int32, "b": np.bool_}[found]
    if expected is not None:
        np.testing.assert_allclose(output, expected, rtol=1e-5)


# --- inputs without a shape -----------------------------------------------------------------------------------------


def norank() -> onnx.ModelProto:
    return model([helper.make_node("Add", ["x", "x"], ["y"])], [value("x", None)], [value("y", None)])


def of_kind(make: Callable[[onnx.TypeProto], onnx.TypeProto], name: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, make(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 3))))


def sequence() -> onnx.ModelProto:
    nodes = [helper.make_node("SequenceAt", ["s", "i"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    return model(nodes, [of_kind(helper.make_sequence_type_proto, "s")], [value("y")], {"i": np.array(1)})


def optional() -> onnx.ModelProto:
    nodes = [helper.make_node("OptionalGetElement", ["o"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    return model(nodes, [of_kind(helper.make_optional_type_proto, "o")], [value("y")], opset=18)


SHAPELESS = {"norank": norank, "sequence": sequence, "optional": optional}


@pytest.mark.parametrize("name", SHAPELESS)
def test_an_input_without_a_shape_is_one_of_unknown_rank(name: str) -> None:
    wanted = SHAPELESS[name]()
    graph = taso.load_onnx(wanted)
    assert graph.inputs()[0].nDim is None
    for one in (graph, graph.copy(), taso.from_rlflow(rlflow.load(wanted))):
        same(taso.export_onnx(one), wanted, {"x": X} if name == "norank" else None)
    same(taso.export_onnx(taso.optimize(graph, budget=5, cost="analytic")), wanted, None)


def relu(op: onnx.NodeProto, graph: taso.PyGraph, tensors: dict[str, taso.PyTensor], _: object) -> taso.PyTensor:
    """An importer as a script would write it."""
    return graph.relu(tensors[op.input[0]])


def test_an_importer_meets_an_input_of_unknown_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(taso.xf_operators, "Relu", relu)
    graph = taso.load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)]))
    assert graph.inputs()[0].shape is None
    assert graph.outputs()[0].dtype == TensorProto.FLOAT


@pytest.mark.parametrize(("name", "operator"), [("sequence", "SequenceAt"), ("optional", "OptionalGetElement")])
def test_node_by_node_such_an_operand_is_refused(name: str, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(taso.xf_operators, "Relu", relu)
    with pytest.raises(GraphError, match=f"the rank or type of operand x0 of {operator} is not known; expected both"):
        taso.load_onnx(SHAPELESS[name]())


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (["y", "y"], ["y", "output_1", "output_2"]),
        (["y", "z", "y"], ["y", "z", "output_2", "output_3"]),
        (["y", "y", "output_1"], ["y", "output_1_", "output_1", "output_3"]),
        (["output_0", "output_0"], ["output_0", "output_1", "output_2"]),
        (["x", "y", "x"], ["output_0", "y", "output_2", "output_3"]),
    ],
)
def test_an_output_that_is_listed_twice_is_written_under_two_names(outputs: list[str], expected: list[str]) -> None:
    names = ["y" if "y" in outputs else "output_0", next((one for one in ("z", "output_1") if one in outputs), "t")]
    nodes = [helper.make_node("Relu", ["x"], names[:1]), helper.make_node("Exp", ["x"], names[1:])]
    twice = model(nodes, [value("x")], [value(name) for name in outputs])
    graph = taso.load_onnx(twice)
    graph.sqrt(graph.inputs()[0])
    grown = taso.export_onnx(graph)
    onnx.checker.check_model(grown, full_check=True)
    assert [info.name for info in grown.graph.output] == expected
    made = {"x": X, names[0]: np.maximum(X, 0), names[1]: np.exp(X)}
    for found, name in zip(executed(grown, {"x": X}), outputs, strict=False):
        np.testing.assert_allclose(found, made[name], rtol=1e-5)


def test_nodes_that_must_not_be_shared_stay_apart() -> None:
    """Two draws are two draws, also in a copy."""
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[2, 3]) for name in ("a", "b")]
    graph = taso.load_onnx(model(nodes, [], [value("a"), value("b")]))
    for one in (graph, graph.copy()):
        first, second = one.outputs()
        assert first.tensor != second.tensor
        assert len(one.to_rlflow().order()) == 2
