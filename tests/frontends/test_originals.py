"""A graph that was put together anew has ids that say nothing: what is taken for a node of the file has to be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import model, random, run, tensor, value
from onnx import helper

from rlflow.frontends import load_model, save_model
from rlflow.graph import Graph


def put_together(source: onnx.ModelProto, *changes: tuple[str, str]) -> onnx.ModelProto:
    """The model saved with a graph whose text was changed: (from, to), each of which occurs once."""
    imported = load_model(source)
    text = imported.graph.text()
    for old, new in changes:
        assert text.count(old) == 1, text
        text = text.replace(old, new)
    return checked(save_model(imported, Graph.parse(text)))


def exchanged(source: onnx.ModelProto, first: str, second: str) -> onnx.ModelProto:
    """The model saved with a graph in which two lines, which do not depend on each other, changed places."""
    imported = load_model(source)
    lines = imported.graph.text().splitlines()
    one, two = (next(k for k, line in enumerate(lines) if line.startswith(part)) for part in (first, second))
    lines[one], lines[two] = lines[two], lines[one]
    return checked(save_model(imported, Graph.parse("\n".join(lines))))


def checked(built: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(built, full_check=True)
    return built


def of(nodes: list[onnx.NodeProto], outputs: dict[str, list[int]], weights: dict[str, Any] | None = None) -> Any:
    made = [value(name, shape) for name, shape in outputs.items()]
    return model(nodes, [value("x", [8, 8])], made, weights or {}, ir_version=10)


def results(built: onnx.ModelProto) -> list[Any]:
    return run(built, {"x": random(8, 8, seed=7)})


def producers(built: onnx.ModelProto) -> dict[str, str]:
    return {output: node.op_type for node in built.graph.node for output in node.output}


RELU, NEG = (helper.make_node(op, ["x"], [out], name=op.lower()) for op, out in (("Relu", "p"), ("Neg", "q")))


def two_products() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", w], [out], name=out) for w, out in (("a", "r"), ("b", "s"))]
    last = helper.make_node("Sub", ["r", "s"], ["y"], name="difference")
    return of([*nodes, last], {"y": [8, 200]}, {"a": random(8, 200), "b": random(8, 200, seed=1)})


def test_a_weight_is_found_by_what_it_holds() -> None:
    """Two weights of one shape that changed places: x · b - x · a instead of x · a - x · b."""
    source = two_products()
    imported = load_model(source)
    lines = imported.graph.text().splitlines()
    one, two = (k for k, line in enumerate(lines) if " = const @" in line)
    (first, a), (second, b) = (lines[k].split(" = ") for k in (one, two))
    lines[one], lines[two] = f"{first} = {b}", f"{second} = {a}"
    built = checked(save_model(imported, Graph.parse("\n".join(lines))))
    np.testing.assert_array_equal(results(built)[0], -results(source)[0])


def test_a_value_s_name_goes_with_its_operator() -> None:
    source = of([RELU, NEG, helper.make_node("Sub", ["p", "q"], ["y"], name="last")], {"y": [8, 8]})
    assert producers(source) == {"p": "Relu", "q": "Neg", "y": "Sub"}
    built = exchanged(source, "v0:", "v1:")
    made = producers(built)
    assert made.get("p", "Relu") == "Relu"
    assert made.get("q", "Neg") == "Neg"
    np.testing.assert_array_equal(results(built)[0], results(source)[0])


def test_a_value_s_name_goes_with_its_shape() -> None:
    """The file's type of a value would be false for one of another shape."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["p"], name="wide", axis=1),
        helper.make_node("Concat", ["x", "x"], ["q"], name="long", axis=0),
    ]
    source = of(nodes, {"p": [8, 16], "q": [16, 8]})
    nodes = [*nodes, helper.make_node("Relu", ["p"], ["r"], name="r"), helper.make_node("Relu", ["q"], ["s"], name="s")]
    source = of(nodes, {"r": [8, 16], "s": [16, 8]})
    source.graph.value_info.extend([value("p", [8, 16]), value("q", [16, 8])])
    imported = load_model(source)
    text = "\n".join(
        [
            "x: f32[8,8] = input",
            "v1 = Concat{axis=0}(x, x)",
            "v0 = Concat{axis=1}(x, x)",
            "v2 = Relu(v0)",
            "v3 = Relu(v1)",
            "return v2, v3",
        ]
    )
    built = checked(save_model(imported, Graph.parse(text)))
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in built.graph.value_info}
    axes = {node.output[0]: node.attribute[0].i for node in built.graph.node if node.op_type == "Concat"}
    assert {shapes[name][axis] for name, axis in axes.items() if name in shapes} <= {16}
    for one, two in zip(results(built), results(source), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("node", "weights", "change"),
    [
        (helper.make_node("LeakyRelu", ["x"], ["y"], name="n", alpha=0.5), {}, ("alpha=0.5", "alpha=0.25")),
        (helper.make_node("Softmax", ["x"], ["y"], name="n", axis=1), {}, ("axis=1", "axis=0")),
        (
            helper.make_node("Clip", ["x", "low", "high"], ["y"], name="n"),
            {"low": np.float32(0), "high": np.float32(0.5)},
            ("(x, v0, v1)", "(x, v0)"),
        ),
    ],
    ids=lambda part: getattr(part, "op_type", None),
)
def test_a_node_with_other_attributes_or_operands_is_another(
    node: onnx.NodeProto, weights: dict[str, Any], change: tuple[str, str]
) -> None:
    source = of([node], {"y": [8, 8]}, weights)
    built = put_together(source, change)
    again = load_model(built).graph.text()
    assert change[1] in again
    assert change[0] not in again
    assert not np.array_equal(results(built)[0], results(source)[0])


def test_a_value_that_serves_as_two_outputs_has_both_names() -> None:
    source = of([RELU, helper.make_node("Relu", ["x"], ["s"], name="twin")], {"p": [8, 8], "s": [8, 8]})
    imported = load_model(source)
    built = checked(save_model(imported, Graph.parse("x: f32[8,8] = input\nv0 = Relu(x)\nreturn v0, v0")))
    assert [info.name for info in built.graph.output] == ["p", "s"]
    one, two = results(built)
    np.testing.assert_array_equal(one, two)


def test_rules_that_an_earlier_run_noted_stay() -> None:
    imported = load_model(of([RELU], {"p": [8, 8]}))
    imported.origin.model.metadata_props.add(key="rlflow.rules", value="earlier")
    imported.origin.model.ir_version = 9
    graph = Graph.parse("x: f32[8,8] = input\nv0 = Neg(x)\nv1 = Neg(v0)\nv2 = Relu(v1)\nreturn v2")
    built = save_model(imported, graph, rules=dict.fromkeys(graph.order(), "later"))
    assert {entry.key: entry.value for entry in built.metadata_props}["rlflow.rules"] == "earlier, later"


def test_an_output_s_name_is_taken_by_what_the_output_is_now() -> None:
    """The node that made the output is still there, in the middle."""
    source = of([RELU], {"p": [8, 8]})
    graph = Graph.parse("x: f32[8,8] = input\nv0 = Relu(x)\nv1 = Neg(v0)\nreturn v1")
    built = checked(save_model(load_model(source), graph))
    assert producers(built)["p"] == "Neg"
    np.testing.assert_array_equal(results(built)[0], -results(source)[0])


def folded_twice(ir_version: int) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model, and one whose rewrites made two constants with the same elements, one of them an output."""
    product = helper.make_node("MatMul", ["x", "a"], ["r"], name="product")
    source = of([product, helper.make_node("Abs", ["a"], ["z"], name="size")], {"r": [8, 200], "z": [8, 200]})
    source.graph.initializer.append(tensor("a", random(8, 200)))
    source.ir_version = ir_version
    if ir_version < 4:
        source.graph.input.append(value("a", [8, 200]))
    imported = load_model(source)
    constant = next(line for line in imported.graph.text().splitlines() if " = const @" in line)
    weight = constant.partition(":")[0]
    text = [
        "x: f32[8,8] = input",
        constant,
        "m: f32[] = const -1.0",
        f"p = Neg({weight})",
        "q = MatMul(x, p)",
        f"s = Mul({weight}, m)",
        "return q, s",
    ]
    return source, save_model(imported, Graph.parse("\n".join(text)))


def test_equal_constants_are_written_once_and_an_output_has_its_own_name() -> None:
    source, built = folded_twice(10)
    checked(built)
    one, two = results(built)
    np.testing.assert_array_equal(one, -results(source)[0])
    np.testing.assert_array_equal(two, -random(8, 200))
    assert [item.name for item in built.graph.output] == ["r", "z"]


def test_a_new_initialiser_needs_a_newer_format() -> None:
    """Before version 4 every initialiser is listed among the inputs."""
    _, built = folded_twice(3)
    assert built.ir_version >= 4
