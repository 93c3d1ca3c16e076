"""What regions of the same operators differ in, and how that is written down."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rlflow.graph import Graph
from rlflow.price.traits import SIZES, Traits, traits_by_name, traits_of


@pytest.mark.parametrize(
    ("line", "detail", "sizes"),
    [
        ("y = Transpose{perm=[0, 2, 1]}(x)", "021", [24, 1]),
        ("y = Transpose{perm=[1, 0, 2]}(x)", "102", [24, 4]),  # rows of four are copied whole
        ("y = Transpose{perm=[2, 0, 1]}(x)", "10", [24, 1]),  # two axes that stay together are one
        ("y = MatMul(x, w)", "c", [1, 6, 4, 5]),
        ("y = MatMul(w, t)", "v", [1, 4, 5, 4]),
        ("y = MatMul(x, b)", "vb", [2, 3, 4, 7]),
        ("y = Add(x, x)", "ff", [24]),
        ("y = Add(x, r)", "f01", [24]),
        ("y = Add(x, one)", "fs", [24]),
        ("y = Mul(c, x)", "10f", [24]),
        ("y = Softmax{axis=2}(x)", "l", [24, 4, 1]),
        ("y = Softmax{axis=1}(x)", "o", [24, 3, 4]),
        ("y = Concat{axis=2}(x, x)", "l", [48, 4]),
        ("y = Concat{axis=0}(x, x)", "o", [48, 12]),
        ("y = Tanh(x)", "", [24]),
        ("y = Conv{kernel_shape=[3,3],pads=[1,1,1,1]}(i, k)", "d9", [64, 4, 6, 9, 1]),
        ("y = Conv{kernel_shape=[1,1],strides=[2,2],group=4}(i, d)", "w1s", [16, 1, 4, 1, 4]),
    ],
)
def test_traits(line: str, detail: str, sizes: list[int]) -> None:
    graph = Graph.parse(
        "x: f32[2,3,4] = input\nb: f32[2,4,7] = input\ni: f32[1,4,8,8] = input\nt: f32[5,4] = input\n"
        "w: f32[4,5] = const\nr: f32[4] = const\none: f32[] = const\nc: f32[2,1,1] = const\n"
        f"k: f32[6,4,3,3] = const\nd: f32[4,1,1,1] = const\n{line}\nreturn y"
    )
    node = graph.producer(graph.outputs()[0])
    found = traits_of(graph, [node])
    assert found.main == graph.op(node)
    assert found.detail == detail
    assert found.sizes == pytest.approx([math.log(max(one, 1)) for one in sizes] + [0.0] * (SIZES - len(sizes)))
    assert Traits.parse(found.text).sizes == pytest.approx(found.sizes, abs=6e-5)
    assert Traits.parse(found.text)[:2] == found[:2]
    assert Traits.parse(found.text).text == found.text


def test_the_product_has_the_work_of_its_region_else_the_largest_operator() -> None:
    graph = Graph.parse("x: f32[64,64] = input\nn = Neg(x)\nt = Tanh(n)\ny = Exp(t)\nreturn y")
    nodes = [node for node in graph.order() if graph.op(node) != "Input"]
    assert traits_of(graph, nodes).main == "Neg"
    product = Graph.parse(
        "x: f32[4,4] = input\ns = Sigmoid(x)\nt = Transpose{perm=[1,0]}(s)\ny = MatMul(t, x)\nreturn y"
    )
    nodes = [node for node in product.order() if product.op(node) != "Input"]
    assert traits_of(product, nodes)[:2] == ("MatMul", " 10 v")
    names = {"Relu Gemm Add": "Gemm", "Mul Conv": "Conv", "Tanh": "Tanh", "": ""}
    assert {one: traits_by_name(one).main for one in names} == names


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = Transpose{perm=[1, 0]}(u)", Traits("Transpose")),
        ("y = Conv{kernel_shape=[3,3]}(u, u)", Traits("Conv")),
        ("y = MatMul(u, u)", Traits("MatMul", "v")),
        ("y = Softmax{axis=1}(u)", Traits("Softmax", "l")),
        ("y = Add(u, n)", Traits("Add", "ff")),
    ],
)
def test_unknown_ranks_and_sizes_count_as_one(line: str, expected: Traits) -> None:
    graph = Graph.parse(f"u: f32[*] = input\nn: f32[N] = input\n{line}\nreturn y")
    assert traits_of(graph, [graph.producer(graph.outputs()[0])]) == expected


def test_an_absent_operand_is_none_of_the_sizes() -> None:
    onnx = pytest.importorskip("onnx")
    from rlflow.frontends import load_model

    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8]) for name in "xy"]
    high = onnx.helper.make_tensor("high", onnx.TensorProto.FLOAT, [], [3.0])
    clip = onnx.helper.make_node("Clip", ["x", "", "high"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([clip], "g", info[:1], info[1:], [high]),
        opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8,
    )  # fmt: skip
    graph = load_model(model).graph
    found = traits_of(graph, [node for node in graph.order() if graph.op(node) == "Clip"])
    assert found == Traits("Clip", "fss", (math.log(8), *[0.0] * (SIZES - 1)))


# --- as text ------------------------------------------------------------------------------------------------------


def test_the_text_is_a_short_list() -> None:
    found = Traits("Transpose", "021", (math.log(24), 0.0, 0.0, 0.0, 0.0))
    assert found.text == '["Transpose","021",[3.1781,0.0,0.0,0.0,0.0]]'
    assert found.plain == json.loads(found.text)
    assert Traits.parse('["Ü \\" Op", "", [1, 0, 0, 0, 0]]') == Traits('Ü " Op', "", (1.0, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[" * 100_000, "null", "{}", '"Tanh"', "[]", '["Tanh", ""]', '["Tanh", "", [0, 0, 0, 0, 0], 1]',
        '[1, "", [0, 0, 0, 0, 0]]', '["Tanh", null, [0, 0, 0, 0, 0]]', '["Tanh", "", {}]',
        '["Tanh", "", [0, 0, 0, 0]]', '["Tanh", "", [0, 0, 0, 0, 0, 0]]', '["Tanh", "", [0, 0, "0", 0, 0]]',
        '["Tanh", "", [0, 0, true, 0, 0]]', '["Tanh", "", [0, 0, NaN, 0, 0]]', '["Tanh", "", [0, 0, Infinity, 0, 0]]',
        '["Tanh", "", [0, 0, 1e300, 0, 0]]', f'["Tanh", "", [0, 0, 1{"0" * 400}, 0, 0]]',
        '["\\ud800", "", [0, 0, 0, 0, 0]]',
    ],
)  # fmt: skip
def test_what_is_no_text_of_traits(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several texts
        Traits.parse(text)


@pytest.mark.parametrize("plain", [None, "abc", ["Tanh", "", (0, 0, 0, 0, 0)], 3])
def test_what_is_no_list_of_traits(plain: Any) -> None:
    with pytest.raises(ValueError, match="traits are main operator, detail and sizes, found"):
        Traits.of(plain)
