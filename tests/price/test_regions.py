"""A region taken out of its graph computes what it computes inside."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow.errors import CostError
from rlflow.frontends import evaluate
from rlflow.graph import Graph, GraphBuilder
from rlflow.price import regions
from rlflow.price.regions import Pricer, Region

LAYER = """
x: f32[1,4,16] = input
r: f32[1,4,16] = input
w: f32[16,32] = const
b: f32[32] = const
v: f32[32,16] = const
g: f32[16] = const
e: f32[16] = const
root: f32[] = const 1.4142135
one: f32[] = const 1
half: f32[] = const 0.5
k: f32[] = const 8
m = MatMul(x, w)
a = Add(m, b)
d = Div(a, root)
f = Erf(d)
h = Add(f, one)
p = Mul(a, h)
q = Mul(p, half)
n = MatMul(q, v)
s = Add(n, r)
l = LayerNormalization{axis=2, epsilon=1e-05}(s, g, e)
t = Transpose{perm=[0,2,1]}(l)
u = MatMul(l, t)
y = Div(u, k)
o, z = Split{axis=2, split=[1,3]}(y)
return o, z
"""
BLOCK = """
x: f32[1,16,6,6] = input
w: f32[16,16,3,3] = const
v: f32[16,16,1,1] = const
c: f32[16] = const
a = Conv{kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1], group=1}(x, w)
n = BatchNormalization{epsilon=1e-05}(a, c, c, c, c)
d = Conv{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}(x, v)
s = Add(n, d)
y = Relu(s)
p = MaxPool{kernel_shape=[2,2], strides=[2,2], pads=[0,0,0,0]}(y)
return p
"""


def all_values(graph: Graph) -> tuple[Graph, list[int]]:
    """The graph with every computed value as an output, and those values."""
    builder, values = GraphBuilder(), {}
    for node in graph.order():
        outputs = graph.node_outputs(node)
        if graph.op(node) == "Input":
            first = builder.input(graph.input_name(node), graph.dtype(outputs[0]), graph.shape(outputs[0]))
        elif graph.op(node) == "Constant":
            info = graph.attrs(node)["value"]
            first = builder.constant(info["dtype"], info["shape"], info["digest"], info["values"], info["facts"])
        else:
            operands = [-1 if value < 0 else values[value] for value in graph.node_inputs(node)]
            first = builder.add(graph.op(node), graph.attrs(node), operands, len(outputs))
        values.update({value: first + offset for offset, value in enumerate(outputs)})
    computed = [value for value in values if not graph.is_const(graph.producer(value))]
    return builder.finish([values[value] for value in computed]), computed


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    values = {graph.input_name(node): graph.node_outputs(node)[0] for node in graph.inputs()}
    return {name: rng.standard_normal(graph.shape(value)).astype(np.float32) for name, value in values.items()}


def check(graph: Graph, region: Region, alone: Graph, inside: dict[int, np.ndarray]) -> None:
    """``alone`` maps what the region reads to what its readers read."""
    operands = {alone.input_name(node): region.inputs[int(alone.input_name(node)[1:])] for node in alone.inputs()}
    found = evaluate(alone, {name: inside[value] for name, value in operands.items()})
    for value, array in zip(region.outputs, found, strict=True):
        np.testing.assert_allclose(array, inside[value], rtol=2e-5, atol=2e-5)


def inner_values(graph: Graph) -> dict[int, np.ndarray]:
    whole, computed = all_values(graph)
    return dict(zip(computed, evaluate(whole, feeds_of(graph)), strict=True))


@pytest.mark.parametrize("text", [LAYER, BLOCK])
@pytest.mark.parametrize("fusion", ["onnxruntime", "generic", "none"])
def test_an_extracted_region_computes_the_same(text: str, fusion: str) -> None:
    graph = Graph.parse(text)
    inside = inner_values(graph)
    found = Pricer.table(fusion, block=16).regions(graph)
    assert len(found) >= 3
    for region in found:
        check(graph, region, regions.extract(graph, region), inside)


def test_a_front_puts_operands_into_the_blocked_layout_and_changes_nothing() -> None:
    graph = Graph.parse(BLOCK)
    inside = inner_values(graph)
    summing = next(r for r in Pricer.table(block=16).regions(graph) if "Add" in regions.operators(graph, r))
    assert regions.operators(graph, summing) == ("Conv", "BatchNormalization", "Add", "Relu")
    alone, fronted = regions.surrounded(graph, summing, 16)
    assert [graph.op(graph.producer(value)) for value in fronted] == ["Conv"]
    assert [alone.op(node) for node in alone.order()].count("MaxPool") == 1
    check(graph, summing, alone, inside)
    odd = Graph.parse(BLOCK.replace("16", "12"))
    region = next(r for r in Pricer.table(block=16).regions(odd) if "Add" in regions.operators(odd, r))
    alone, _ = regions.surrounded(odd, region, 16)
    assert [alone.attrs(node)["group"] for node in alone.order() if alone.op(node) == "Conv"].count(12) == 1


def test_signature_and_extraction_are_those_of_the_region_alone() -> None:
    graph, pricer = Graph.parse(LAYER), Pricer.table("onnxruntime")
    for region in pricer.regions(graph):
        again = pricer.regions(regions.extract(graph, region))
        assert [one.base_signature for one in again] == [region.base_signature]


def test_folded_weights_become_unknown_constants() -> None:
    text = "x: f32[4,8] = input\nw: f32[8,8] = const\nv: f32[8,8] = const\nk = Add(w, v)\ny = MatMul(x, k)\nreturn y"
    graph = Graph.parse(text)
    (region,) = Pricer.table().regions(graph)
    alone = regions.extract(graph, region)
    assert sorted(alone.op(node) for node in alone.order()) == ["Constant", "Input", "MatMul"]
    assert [alone.type_text(value) for value in alone.outputs()] == ["f32[4,8]"]


def test_symbols_get_their_values_or_one() -> None:
    graph = Graph.parse("x: f32[N,S,8] = input\nw: f32[8,8] = const\ny = MatMul(x, w)\nreturn y")
    (region,) = Pricer.table().regions(graph)
    assert regions.dimension_names(graph, region.inputs) == ["N", "S"]
    assert regions.extract(graph, region).shape(regions.extract(graph, region).outputs()[0]) == ["N", "S", 8]
    bound = regions.extract(graph, region, {"S": 7})
    assert bound.shape(bound.outputs()[0]) == [1, 7, 8]


def test_what_cannot_stand_alone_says_why() -> None:
    builder = GraphBuilder()
    opaque = builder.opaque("Mystery", "p", True, [builder.input("x", 1, [2])], [(1, [2])])
    unranked = builder.add("Relu", {}, [builder.input("z", 1, None)])
    graph = builder.finish([opaque, unranked])
    first, second = Pricer.table().regions(graph)
    with pytest.raises(CostError, match="Mystery is carried opaquely"):
        regions.extract(graph, first)
    with pytest.raises(CostError, match="expected a tensor of known rank"):
        regions.extract(graph, second)
