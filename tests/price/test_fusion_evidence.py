"""The fusion table says what ONNX Runtime does: each row is checked against the graph that the runtime makes.

A failure here after an upgrade of the runtime means that the table (cext/src/fusion_rules.cc) has aged: prices stay
right, because regions are measured whole, but regions may have become too small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx
import pytest

from rlflow import zoo
from rlflow.fidelity import variants
from rlflow.frontends import graph_to_model, load_model, save_model
from rlflow.graph import Graph
from rlflow.price import calibration
from rlflow.price.regions import Pricer, extract
from rlflow.rulesets import load_library
from rlflow.runtime import Worker

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

LAYOUT = {"ReorderInput", "ReorderOutput"}
NO_WORK = {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "Constant"}
SPLITS = {"Slice", "Split"}  # of parallel slices the runtime makes one split, which regions do not see
KIND = {"Gemm": "MatMul", "FusedGemm": "MatMul", "FusedMatMul": "MatMul", "FusedConv": "Conv"}
IMAGE = """
x: f32[1,16,8,8] = input
w: f32[16,16,3,3] = const
v: f32[16,16,1,1] = const
b: f32[16] = const
k: f32[16,1,1] = const
zero: f32[] = const 0
six: f32[] = const 6
c = Conv{kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1], group=1}(x, w, b)
e = Conv{kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1}(x, v)
"""
ROWS = """
x: f32[4,32] = input
z: f32[2,4,32] = input
i: f32[32] = input
r: f32[2,4,32] = input
q: f32[2,4,32] = input
w: f32[32,64] = const
b: f32[64] = const
g: f32[32] = const
h: f32[32] = const
s: f32[] = const 0.5
two: f32[] = const 2
one: f32[] = const 1
eps: f32[] = const 1e-05
root: f32[] = const 1.41421356
"""
RMS = """
p = Pow(z, two)
m = ReduceMean{axes=[2], keepdims=1}(p)
a = Add(m, eps)
d = Sqrt(a)
n = Div(z, d)
y = Mul(n, g)
return y
"""
# (name, graph, what the runtime's graph consists of beside layout changes and reshapes)
CASES = [
    ("activation", IMAGE, "y = Relu(c)\nreturn y", ["Conv"]),
    ("clip", IMAGE, "y = Clip(c, zero, six)\nreturn y", ["Conv"]),
    ("sigmoid", IMAGE, "y = Sigmoid(c)\nreturn y", ["Conv"]),
    ("elu stays", IMAGE, "y = Elu(c)\nreturn y", ["Conv", "Elu"]),
    ("scale and shift", IMAGE, "m = Mul(c, k)\na = Add(m, k)\ny = Relu(a)\nreturn y", ["Conv"]),
    ("batch normalisation", IMAGE, "n = BatchNormalization(c, b, b, b, b)\ny = Relu(n)\nreturn y", ["Conv"]),
    ("residual", IMAGE, "a = Add(c, e)\ny = Relu(a)\nreturn y", ["Conv", "Conv"]),
    ("plain residual stays", IMAGE, "a = Add(c, x)\ny = Relu(a)\nreturn y", ["Add", "Conv", "Relu"]),
    (
        "normalised sum",
        IMAGE,
        "a = Add(c, e)\nn = BatchNormalization(a, b, b, b, b)\ny = Relu(n)\nreturn y",
        ["Conv"] * 3,
    ),
    ("gemm", ROWS, "m = MatMul(x, w)\na = Add(m, b)\ny = Relu(a)\nreturn y", ["FusedGemm"]),
    ("gemm of rank 3", ROWS, "m = MatMul(z, w)\na = Add(m, b)\ny = Relu(a)\nreturn y", ["Gemm", "Relu"]),
    ("product alone", ROWS, "m = MatMul(x, w)\ny = Relu(m)\nreturn y", ["MatMul", "Relu"]),
    (
        "attention score",
        ROWS,
        "t = Transpose{perm=[0,2,1]}(r)\nm = MatMul(z, t)\ny = Mul(m, s)\nreturn y",
        ["FusedMatMul"],
    ),
    (
        "permutations that undo each other",
        ROWS,
        (
            "t = Transpose{perm=[0,2,1]}(r)\nu = Transpose{perm=[0,2,1]}(t)\nv = Transpose{perm=[0,2,1]}(u)\n"
            "m = MatMul(z, v)\nreturn m"
        ),
        ["FusedMatMul"],
    ),
    (
        "permutations in a row",
        ROWS,
        "t = Transpose{perm=[1,0,2]}(r)\nu = Transpose{perm=[0,2,1]}(t)\ny = Tanh(u)\nreturn y",
        ["Tanh", "Transpose"],
    ),
    (
        "a permutation that moves nothing",
        ROWS,
        "t = Transpose{perm=[0,1,2]}(r)\ny = Tanh(t)\nreturn y",
        ["Tanh", "Transpose"],
    ),
    (
        "a permutation of one axis",
        ROWS,
        (
            "a = Tanh(x)\nm = ReduceMean{axes=[0], keepdims=1}(a)\nt = Transpose{perm=[1,0]}(m)\n"
            "v = Reshape{shape=[1,32]}(t)\ny = MatMul(v, w)\nreturn y"
        ),
        ["MatMul", "ReduceMean", "Tanh"],
    ),
    (
        "permuted parts",
        ROWS,
        (
            "t = Transpose{perm=[0,2,1]}(r)\nu = Transpose{perm=[0,2,1]}(q)\nc = Concat{axis=2}(t, u)\n"
            "m = MatMul(z, c)\nreturn m"
        ),
        ["Concat+FusedMatMul"],  # one region, which is measured whole
    ),
    (
        "scaled and permuted for two products",
        ROWS,
        "a = Mul(r, s)\nt = Transpose{perm=[0,2,1]}(a)\nm = MatMul(z, t)\nn = MatMul(q, t)\nreturn m, n",
        ["FusedMatMul", "FusedMatMul"],
    ),
    (
        "permuted and scaled for two products",
        ROWS,
        (
            "t = Transpose{perm=[0,2,1]}(r)\na = Mul(t, s)\nu = Transpose{perm=[0,2,1]}(a)\nm = MatMul(z, a)\n"
            "n = MatMul(m, u)\nreturn n"
        ),
        ["FusedMatMul", "FusedMatMul"],
    ),
    (
        "permutations, one of which moves nothing",
        ROWS,
        "t = Transpose{perm=[0,1,2]}(r)\nu = Transpose{perm=[0,2,1]}(t)\nm = MatMul(z, u)\nreturn m",
        ["FusedMatMul"],
    ),
    (
        "permuted for two products",
        ROWS,
        "t = Transpose{perm=[0,2,1]}(r)\nm = MatMul(z, t)\nn = MatMul(q, t)\nreturn m, n",
        ["FusedMatMul", "FusedMatMul"],
    ),
    ("skip", ROWS, "a = Add(z, r)\ny = LayerNormalization{axis=2}(a, g, h)\nreturn y", ["SkipLayerNormalization"]),
    (
        "shared sum",
        ROWS,
        "a = Add(z, r)\ny = LayerNormalization{axis=2}(a, g, h)\nreturn y, a",
        ["Add", "LayerNormalization"],
    ),
    (
        "gelu",
        ROWS,
        "d = Div(z, root)\ne = Erf(d)\nf = Add(e, one)\nm = Mul(z, f)\ny = Mul(m, s)\nreturn y",
        ["Gelu"],
    ),
    ("silu", ROWS, "d = Sigmoid(z)\ny = Mul(z, d)\nreturn y", ["QuickGelu"]),
    ("rms", ROWS, RMS, ["SimplifiedLayerNormalization"]),
    (
        "rms whose scale is computed",
        ROWS,
        RMS.replace("p = ", "u = Tanh(i)\np = ").replace("Mul(n, g)", "Mul(n, u)"),
        ["SimplifiedLayerNormalization", "Tanh"],
    ),
    (
        "pointwise work is not fused",
        ROWS,
        "a = Mul(z, r)\nt = Tanh(a)\ny = Add(t, q)\nreturn y",
        ["Add", "Mul", "Tanh"],
    ),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as opened:
        yield opened


@pytest.fixture(scope="module")
def block(worker: Worker) -> int:
    def turned(graph: Graph) -> bool:
        return b"ReorderInput" in worker.optimized(graph_to_model(graph).SerializeToString(), level="all")

    return calibration.channel_block(turned)


@pytest.mark.parametrize(("head", "tail", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_regions_are_the_runtimes_kernels(
    worker: Worker, block: int, head: str, tail: str, expected: list[str]
) -> None:
    if head is IMAGE and not block:
        pytest.skip("this processor's ONNX Runtime has no blocked layout")
    graph = Graph.parse(head + tail)
    made = onnx.load_from_string(worker.optimized(graph_to_model(graph).SerializeToString(), level="all"))
    kernels = sorted(node.op_type for node in made.graph.node if node.op_type not in LAYOUT | {"Reshape"})
    assert kernels == sorted("+".join(expected).split("+"))
    regions = Pricer.table("onnxruntime", block=block).regions(graph)
    assert sum(not region.view for region in regions) == len(expected)


def test_regions_of_rewritten_models_are_the_runtimes_kernels_too(worker: Worker, block: int) -> None:
    """Of all kernels that the runtime makes of a decoder step and its variants, few are more or fewer than those that
    it makes of the regions one by one. (Without the rows on permutations 8 of 100 were.)
    """

    def kernels(model: bytes) -> Counter[str]:
        made = onnx.load_from_string(worker.optimized(model, level="all"))
        names = (KIND.get(node.op_type, node.op_type) for node in made.graph.node)
        return Counter(name for name in names if name not in LAYOUT | NO_WORK | SPLITS)

    imported = load_model(zoo.build("llama-decoder-step", layers=1))
    pricer = Pricer.table("onnxruntime", block=block)
    seen: dict[str, Counter[str]] = {}
    together = apart = 0
    for graph in (imported.graph, *(one.graph for one in variants(imported.graph, load_library(None), 16, seed=0))):
        whole, parts = kernels(save_model(imported, graph).SerializeToString()), Counter[str]()
        for region in pricer.regions(graph):
            if region.view:
                continue
            if region.base_signature not in seen:
                alone = extract(graph, region, {})
                folded = all(alone.is_const(alone.producer(value)) for value in alone.outputs())
                seen[region.base_signature] = (
                    Counter() if folded else kernels(graph_to_model(alone).SerializeToString())
                )
            parts += seen[region.base_signature]
        together += whole.total()
        apart += (whole - parts).total() + (parts - whole).total()
    assert apart < 0.03 * together
