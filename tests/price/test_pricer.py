"""The native pricer through its binding: partition, prices, signatures (cext/tests/test_cost.cc has the oracles)."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.price.regions import Pricer, Region

MLP = """
x: f32[4,32] = input
w: f32[32,64] = const
b: f32[64] = const
m = MatMul(x, w)
a = Add(m, b)
r = Relu(a)
y = Softmax{axis=1}(r)
return y
"""
ATTENTION = """
q: f32[1,12,128,64] = input
k: f32[1,12,128,64] = input
v: f32[1,12,128,64] = input
s: f32[] = const 8
t = Transpose{perm=[0,1,3,2]}(k)
m = MatMul(q, t)
d = Div(m, s)
p = Softmax{axis=3}(d)
o = MatMul(p, v)
return o
"""


def partition(graph: Graph, pricer: Pricer) -> list[str]:
    return [" ".join(graph.op(node) for node in region.nodes) for region in pricer.regions(graph)]


@pytest.mark.parametrize(
    ("text", "fusion", "expected"),
    [
        (MLP, "onnxruntime", ["MatMul Add Relu", "Softmax"]),
        (MLP, "generic", ["MatMul Add Relu", "Softmax"]),
        (MLP, "none", ["MatMul", "Add", "Relu", "Softmax"]),
        (ATTENTION, "onnxruntime", ["Transpose MatMul Div", "Softmax", "MatMul"]),
    ],
)
def test_partition(text: str, fusion: str, expected: list[str]) -> None:
    assert partition(Graph.parse(text), Pricer.table(fusion)) == expected


def test_region_says_what_crosses_its_border() -> None:
    graph = Graph.parse(MLP)
    first = Pricer.table("onnxruntime").regions(graph)[0]
    assert isinstance(first, Region)
    assert first.kind == "Gemm"
    assert [graph.type_text(value) for value in first.inputs] == ["f32[4,32]", "f32[32,64]", "f32[64]"]
    assert [graph.type_text(value) for value in first.outputs] == ["f32[4,64]"]
    assert first.head == first.nodes[-1]
    assert graph.op(first.head) == "Relu"
    assert first.bytes == 4 * (4 * 32 + 32 * 64 + 64 + 4 * 64)
    assert first.flops >= 2 * 4 * 32 * 64
    assert first.ms is None


def test_prices_are_stored_found_and_summed() -> None:
    graph, pricer = Graph.parse(MLP), Pricer.table("onnxruntime")
    first, second = pricer.regions(graph)
    assert pricer.price(graph) == (0.0, 2)
    before = pricer.revision
    pricer.set_prices([first.signature], np.array([0.25]))
    assert pricer.revision != before
    assert len(pricer) == 1
    assert pricer.price(graph) == (0.25, 1)
    assert pricer.find(first.signature) == 0.25
    assert pricer.find(second.signature) is None
    assert [region.signature for region in pricer.regions(graph, unpriced_only=True)] == [second.signature]
    pricer.set_prices([second.signature], [0.5])
    assert pricer.price(graph) == (0.75, 0)
    assert pricer.summary(graph) == {"ms": 0.75, "regions": 2, "unknown": 0, "unpriced": 0, "weight_bytes": 4 * 33 * 64}


def test_layout_context_of_a_convolution() -> None:
    text = """
x: f32[1,32,8,8] = input
w: f32[32,32,1,1] = const
u: f32[32,32,3,3] = const
a = Conv{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}(x, w)
b = Conv{kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1], group=1}(a, u)
return b
"""
    graph = Graph.parse(text)
    first, second = Pricer.table("onnxruntime", block=16).regions(graph)
    assert (first.reorder_inputs, first.reorder_output) == (1, False)
    assert (second.reorder_inputs, second.reorder_output) == (0, True)
    plain = Pricer.table("onnxruntime", block=0).regions(graph)
    assert not any(region.blocked for region in plain)
    assert all(region.signature == region.base_signature for region in plain)


def test_mistakes_are_sentences() -> None:
    pricer = Pricer.table("onnxruntime")
    with pytest.raises(UsageError, match=r"Pricer\.analytic"):
        Pricer()
    with pytest.raises(UsageError, match="2 signatures and 1 prices"):
        pricer.set_prices(["0" * 32, "1" * 32], [1.0])
    with pytest.raises(UsageError, match="finite"):
        pricer.set_prices(["0" * 32], [float("nan")])
    with pytest.raises(UsageError, match="there are onnxruntime, generic, none"):
        Pricer.table("tensorrt")
    with pytest.raises(UsageError, match="channel block"):
        Pricer.table("onnxruntime", block=7)
    with pytest.raises(UsageError, match="throughput"):
        Pricer.analytic(gflops=-1.0)


SCRIPT = """
from rlflow.price.regions import Pricer
from rlflow.graph import Graph
import sys
text = sys.stdin.read()
for fusion, block in (("onnxruntime", 16), ("generic", 0)):
    for region in Pricer.table(fusion, block=block).regions(Graph.parse(text)):
        print(region.signature, region.base_signature)
"""


@pytest.mark.parametrize("text", [MLP, ATTENTION])
def test_signatures_are_the_same_in_a_fresh_process(text: str) -> None:
    found = []
    for hash_seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], input=text, capture_output=True, text=True, env=environment, check=True
        )
        found.append(done.stdout)
    here = [
        f"{region.signature} {region.base_signature}"
        for fusion, block in (("onnxruntime", 16), ("generic", 0))
        for region in Pricer.table(fusion, block=block).regions(Graph.parse(text))
    ]
    assert found[0] == found[1]
    assert found[0].splitlines() == here
