"""Faults of onnx's own inference and of models that its checker lets through: found by fuzzing."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from rlflow.frontends import inference
from rlflow.frontends.exporter import save_model
from rlflow.frontends.importer import load_model


def made(nodes: list, inputs: list, outputs: list, constants: dict | None = None) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.array(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def value(name: str, *dims: int | str | None, dtype: int = T.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def test_a_slice_within_a_scan_over_an_extent_of_minus_one_does_not_abort() -> None:
    """onnx's inference clamps the start to 0 … -1 there, which ends the process where its library asserts."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["state"], ["next"]),
            helper.make_node("Slice", ["row", "start", "end"], ["part"]),
        ],
        "body",
        [value("state", 1), value("row", None, None)],
        [value("next", 1), value("part", None, None)],
        [numpy_helper.from_array(np.array([v]), name) for name, v in (("start", 0), ("end", 2))],
    )
    scan = helper.make_node("Scan", ["s", "x"], ["last", "parts"], body=body, num_scan_inputs=1)
    model = made([scan], [value("s", 1), value("x", 4, -1, 3)], [value("last", 1), value("parts", 4, -1, 3)])
    types, trouble = inference.infer(inference.bare_model(model), frozenset())
    assert (types["last"], trouble) == ((T.FLOAT, [1]), None)
    assert model.graph.input[1].type.tensor_type.shape.dim[1].dim_value == -1  # the file is as it was


def test_a_condition_without_inputs_is_no_exception() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Constant", [], [name], value_floats=[1.0, 2.0])], name, [], [value(name, 2)]
        )
        for name in ("then", "else")
    }
    imported = load_model(made([helper.make_node("If", [], ["y"], **branches)], [value("x", 2)], [value("y", 2)]))
    assert [node.op_type for node in save_model(imported, imported.graph).graph.node] == ["If"]


def test_numbers_larger_than_memory_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = onnx.shape_inference.infer_shapes

    def short_of_memory(model: bytes, strict_mode: bool, data_prop: bool) -> onnx.ModelProto:
        if data_prop:
            raise MemoryError("std::bad_alloc")
        return real(model, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", short_of_memory)
    nodes = [helper.make_node("ConstantOfShape", ["n"], ["big"]), helper.make_node("Cast", ["big"], ["y"], to=T.INT32)]
    model = made(nodes, [value("x", 1)], [value("y", None, dtype=T.INT32)], {"n": [1 << 28]})
    types, trouble = inference.infer(inference.bare_model(model), frozenset())
    assert (trouble, types["y"][0]) == (None, T.INT32)


def attributed(node: onnx.NodeProto, **attributes: object) -> onnx.NodeProto:
    node.attribute.extend(helper.make_attribute(name, what) for name, what in attributes.items())
    return node


def of_no_type(name: str) -> onnx.NodeProto:
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.add(name=name)
    return node


@pytest.mark.parametrize(
    ("model", "opset"),
    [
        pytest.param(
            made(
                [helper.make_node("Expand", ["x", "to"], ["s"]), helper.make_node("Reshape", ["y", "s"], ["z"])],
                [value("x", 1 << 40, dtype=T.INT64), value("y", 4)],
                [value("z", None)],
                {"to": [1000, 1 << 40]},
            ),
            13,
            id="a shape of more extents than fit in memory",
        ),
        pytest.param(
            made([helper.make_node("Hardmax", ["x"], ["y"], axis=-(2**63))], [value("x", 3)], [value("y", 3)]),
            11,
            id="an axis before the first",
        ),
        pytest.param(
            made(
                [attributed(helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2), mode=b"DC\x97")],
                [value("x", 1, 4, 2, 2)],
                [value("y", None)],
            ),
            13,
            id="an attribute that is no text",
        ),
        pytest.param(
            made([helper.make_node("Expand", ["x", "to"], ["y"])], [value("x", 1)], [value("y", None)], {"to": [-1]}),
            13,
            id="an extent of -1",
        ),
        pytest.param(
            made([of_no_type("value_strings")], [value("x", 1)], [value("y", None)]), 13, id="a value of no type"
        ),
    ],
)
def test_nodes_that_nothing_could_run_are_carried_as_they_are(model: onnx.ModelProto, opset: int) -> None:
    """Found by the fuzz target of operators."""
    model.opset_import[0].version = opset
    imported = load_model(model)
    written = save_model(imported, imported.graph)
    assert written.graph.node[-1] == model.graph.node[-1]


LARGEST = 2**63 - 1


def sliced_shape(start: int, end: int, step: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "start", "end", "axis", "step"], ["part"]),
        helper.make_node("Reshape", ["y", "part"], ["z"]),
    ]
    constants = {name: [number] for name, number in (("start", start), ("end", end), ("axis", 0), ("step", step))}
    return made(nodes, [value("x", 2, 3, 4, 5), value("y", 8)], [value("z", None)], constants)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, LARGEST, LARGEST),
        (0, 4, LARGEST),
        (1, LARGEST, LARGEST - 1),
        (3, -9, -LARGEST),
        (0, 4, 1 << 32),  # as an int it is 0, and a list grows until memory ends
    ],
)
def test_a_step_that_no_int_holds_does_not_end_the_process(start: int, end: int, step: int) -> None:
    """onnx's inference steps through the shape by an int; what it would read or fill is not its own."""
    imported = load_model(sliced_shape(start, end, step))
    assert save_model(imported, imported.graph).graph.node[-1].op_type == "Reshape"


def test_a_crash_is_told_and_the_rest_is_inferred_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made([helper.make_node("Relu", ["x"], ["y"])], [value("x", 2)], [value("y", None)])
    real = onnx.shape_inference.infer_shapes

    def crashing(data: bytes, strict_mode: bool, data_prop: bool) -> onnx.ModelProto:
        return os.abort() if data_prop or always else real(data, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", crashing)
    always = False
    assert inference.infer(inference.bare_model(model), frozenset()) == ({"x": (1, [2]), "y": (1, [2])}, None)
    inference._inferred_bytes.cache_clear()
    always = True
    types, trouble = inference.infer(inference.bare_model(model), frozenset())
    assert (types["y"], trouble) == ((1, [None]), "onnx's inference failed: it crashed (SIGABRT)")
