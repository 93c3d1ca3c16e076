"""Faults of onnx's own inference and of models that its checker lets through: found by fuzzing."""

from __future__ import annotations

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
    real, asked = onnx.shape_inference.infer_shapes, []

    def short_of_memory(model: onnx.ModelProto, strict_mode: bool, data_prop: bool) -> onnx.ModelProto:
        asked.append(data_prop)
        if data_prop:
            raise MemoryError("std::bad_alloc")
        return real(model, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", short_of_memory)
    nodes = [helper.make_node("ConstantOfShape", ["n"], ["big"]), helper.make_node("Cast", ["big"], ["y"], to=T.INT32)]
    model = made(nodes, [value("x", 1)], [value("y", None, dtype=T.INT32)], {"n": [1 << 28]})
    types, trouble = inference.infer(inference.bare_model(model), frozenset())
    assert (asked, trouble, types["y"][0]) == ([True, False], None, T.INT32)
