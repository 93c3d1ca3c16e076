"""Every operator whose ONNX form depends on the opset: written at each opset, it reads back to the same graph and computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import run

from rlflow.errors import GraphError
from rlflow.frontends import canonical, evaluate, expressible, forms, graph_to_model, load_model, operator_opset
from rlflow.graph import Graph
from rlflow.ops import op_row

NEWEST = onnx.defs.onnx_opset_version()
# Runtimes implement an opset some months after onnx defines it.
NEWEST_RUN = 23

# (name, graph, first opset that can say it)
FORMS = [
    ("squeeze", "x: f32[1,3,1,4] = input  y = Squeeze{axes=[0,2]}(x)  return y", 7),
    ("squeeze-one", "x: f32[1,3,1,4] = input  y = Squeeze{axes=[2]}(x)  return y", 7),
    ("unsqueeze", "x: f32[3,4] = input  y = Unsqueeze{axes=[0,3]}(x)  return y", 7),
    ("reduce-sum", "x: f32[2,3,4] = input  y = ReduceSum{axes=[1], keepdims=1}(x)  return y", 7),
    ("reduce-sum-all", "x: f32[2,3,4] = input  y = ReduceSum{axes=[0,1,2], keepdims=0}(x)  return y", 7),
    ("reduce-mean", "x: f32[2,3,4] = input  y = ReduceMean{axes=[0,2], keepdims=0}(x)  return y", 7),
    ("reduce-max", "x: f32[2,3,4] = input  y = ReduceMax{axes=[2], keepdims=1}(x)  return y", 7),
    ("reduce-l2", "x: f32[2,3,4] = input  y = ReduceL2{axes=[1], keepdims=0}(x)  return y", 7),
    ("reduce-logsumexp", "x: f32[2,3,4] = input  y = ReduceLogSumExp{axes=[2]}(x)  return y", 7),
    ("slice", "x: f32[4,6] = input  y = Slice{starts=[1,2], ends=[3,6], axes=[0,1]}(x)  return y", 7),
    ("slice-step", "x: f32[4,6] = input  y = Slice{starts=[1], ends=[6], axes=[1], steps=[2]}(x)  return y", 10),
    ("slice-back", "x: f32[4,6] = input  y = Slice{starts=[5], ends=[-7], axes=[1], steps=[-1]}(x)  return y", 10),
    ("split", "x: f32[4,6] = input  a, b = Split{axis=1, split=[2,4]}(x)  return a, b", 7),
    ("split-equal", "x: f32[4,6] = input  a, b, c = Split{axis=1, split=[2,2,2]}(x)  return c, a, b", 7),
    ("pad", "x: f32[2,3] = input  y = Pad{mode=\"constant\", pads=[0,1,1,0], value=0.5}(x)  return y", 7),
    ("pad-zero", "x: f32[2,3] = input  y = Pad{mode=\"constant\", pads=[0,1,1,0], value=0.0}(x)  return y", 7),
    ("pad-edge", "x: f32[2,3] = input  y = Pad{mode=\"edge\", pads=[0,1,1,0], value=0.0}(x)  return y", 7),
    ("pad-int", "x: i64[2,3] = input  y = Pad{mode=\"constant\", pads=[0,1,1,0], value=7.0}(x)  return y", 11),
    ("clip", "x: f32[2,3] = input  a: f32[] = const -0.5  b: f32[] = const 0.25  y = Clip(x, a, b)  return y", 7),
    ("clip-low", "x: f32[2,3] = input  a: f32[] = const 0.1  y = Clip(x, a)  return y", 7),
    ("clip-high", "x: f32[2,3] = input  b: f32[] = const 0.25  y = Clip(x, _, b)  return y", 7),
    ("clip-given", "x: f32[2,3] = input  a: f32[] = input  y = Clip(x, a)  return y", 11),
    ("reshape", "x: f32[2,6] = input  y = Reshape{shape=[3,4]}(x)  return y", 7),
    ("reshape-symbol", "x: f32[N,6] = input  y = Reshape{shape=[N,2,3]}(x)  return y", 7),
    ("reshape-rest", "x: f32[N,6] = input  y = Reshape{shape=[N*2,3]}(x)  return y", 7),
    ("expand", "x: f32[1,3] = input  y = Expand{shape=[4,3]}(x)  return y", 8),
    ("expand-symbol", "x: f32[N,1] = input  y = Expand{shape=[1,5]}(x)  return y", 8),
    ("tile", "x: f32[2,3] = input  y = Tile{repeats=[2,1]}(x)  return y", 7),
    ("softmax-last", "x: f32[2,3,4] = input  y = Softmax{axis=2}(x)  return y", 7),
    ("softmax-ones", "x: f32[2,3,1] = input  y = Softmax{axis=1}(x)  return y", 7),
    ("softmax-middle", "x: f32[2,3,4] = input  y = Softmax{axis=1}(x)  return y", 13),
    ("log-softmax", "x: f32[2,3,4] = input  y = LogSoftmax{axis=2}(x)  return y", 7),
    ("hardmax", "x: f32[2,3,4] = input  y = Hardmax{axis=2}(x)  return y", 7),
    ("gemm", "a: f32[2,3] = input  b: f32[3,4] = input  y = Gemm{alpha=0.5}(a, b)  return y", 7),
    ("gemm-bias", "a: f32[2,3] = input  b: f32[4,3] = input  c: f32[4] = input  y = Gemm{transB=1}(a, b, c)  return y", 7),
    ("topk", "x: f32[2,6] = input  k: i64[1] = const [3]  v, i = TopK{axis=1}(x, k)  return v, i", 7),
    ("topk-small", "x: f32[2,6] = input  k: i64[1] = const [3]  v, i = TopK{axis=1, largest=0}(x, k)  return v, i", 11),
    ("upsample", "x: f32[1,2,3,3] = input  y = Resize{mode=\"nearest\", scales=[1.0,1.0,2.0,2.0], "
     "coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\"}(x)  return y", 7),
    ("upsample-linear", "x: f32[1,2,3,3] = input  y = Resize{mode=\"linear\", scales=[1.0,1.0,2.0,2.0], "
     "coordinate_transformation_mode=\"asymmetric\"}(x)  return y", 7),
    ("resize", "x: f32[1,2,3,3] = input  y = Resize{mode=\"linear\", scales=[1.0,1.0,2.0,1.5]}(x)  return y", 11),
    ("resize-sizes", "x: f32[1,2,3,3] = input  y = Resize{mode=\"nearest\", sizes=[1,2,5,7]}(x)  return y", 11),
    ("batch-norm", "x: f32[1,3,2,2] = input  s: f32[3] = const [1.0,2.0,0.5]  b: f32[3] = const [0.1,0.2,0.3]  "
     "m: f32[3] = const [0.0,0.5,1.0]  v: f32[3] = const [1.0,0.5,2.0]  y = BatchNormalization{epsilon=0.001}(x, s, b, m, v)  return y", 7),
    ("scatter", "x: f32[3,3] = input  i: i64[1,3] = const @0123456789abcdef0123456789abcdef min=0 max=2  "
     "u: f32[1,3] = input  y = ScatterElements{axis=0}(x, i, u)  return y", 9),
    ("cast", "x: f32[2,3] = input  y = Cast{to=11}(x)  return y", 7),
    ("conv", "x: f32[1,2,5,5] = input  w: f32[3,2,3,3] = input  y = Conv{pads=[1,1,1,1]}(x, w)  return y", 7),
    ("average-pool", "x: f32[1,2,5,5] = input  y = AveragePool{kernel_shape=[2,2], strides=[2,2]}(x)  return y", 7),
    ("average-pool-dilated", "x: f32[1,2,5,5] = input  y = AveragePool{kernel_shape=[2,2], dilations=[2,2]}(x)  return y", 19),
    ("max-pool", "x: f32[1,2,5,5] = input  y = MaxPool{kernel_shape=[3,3]}(x)  return y", 7),
    ("argmax", "x: f32[2,5] = input  y = ArgMax{axis=1, keepdims=0}(x)  return y", 7),
    ("argmax-last", "x: f32[2,5] = input  y = ArgMax{axis=1, select_last_index=1}(x)  return y", 12),
    ("depth-to-space", "x: f32[1,8,2,2] = input  y = DepthToSpace{blocksize=2}(x)  return y", 7),
    ("depth-to-space-crd", "x: f32[1,8,2,2] = input  y = DepthToSpace{blocksize=2, mode=\"CRD\"}(x)  return y", 11),
    ("relu-int", "x: i32[3] = input  y = Relu(x)  return y", 14),
    ("layer-norm", "x: f32[2,4] = input  s: f32[4] = input  y = LayerNormalization(x, s)  return y", 17),
    ("gelu", "x: f32[2,4] = input  y = Gelu(x)  return y", 20),
    ("zeros", "s: i64[2] = input  y = ConstantOfShape{value=2.5, dtype=1}(s)  return y", 9),
]  # fmt: skip
CASES = [pytest.param(text, since, id=name) for name, text, since in FORMS]


def parse(text: str) -> Graph:
    """Two spaces stand for a line break."""
    return Graph.parse(text.replace("  ", "\n"))


def feeds(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(7)
    made = {}
    for node in graph.inputs():
        value = graph.node_outputs(node)[0]
        shape = [dim if isinstance(dim, int) else 3 for dim in graph.shape(value) or []]
        dtype = {1: np.float32, 6: np.int32, 7: np.int64}[graph.dtype(value)]
        made[graph.input_name(node)] = random.standard_normal(shape).astype(dtype) if dtype is np.float32 else random.integers(1, 4, shape, dtype)
    return made


@pytest.mark.parametrize(("text", "since"), CASES)
def test_each_opset_reads_back_to_the_same_graph(text: str, since: int) -> None:
    graph = parse(text)
    for opset in range(7, NEWEST + 1):
        reason = expressible(graph, opset)
        assert (reason is None) == (opset >= since), f"opset {opset}: {reason}"
        if reason is not None:
            with pytest.raises(GraphError, match=r"opset"):
                graph_to_model(graph, opset=opset)
            continue
        again = load_model(graph_to_model(graph, opset=opset))
        assert again.graph.digest == graph.digest, f"opset {opset}:\n{again.graph.text()}\n{again.notes}"


@pytest.mark.parametrize(("text", "since"), CASES)
def test_each_opset_computes_the_same(text: str, since: int) -> None:
    graph = parse(text)
    given = feeds(graph)
    expected = evaluate(graph, given)
    forms_run = 0
    seen: set[bytes] = set()
    for opset in range(since, NEWEST_RUN + 1):
        model = graph_to_model(graph, opset=opset)
        form = b"".join(node.SerializeToString() for node in model.graph.node)
        if form in seen and opset != NEWEST_RUN:  # the same nodes: one run each is enough
            continue
        seen.add(form)
        for found, wanted in zip(run(model, given), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"opset {opset}")
        forms_run += 1
    assert forms_run


def test_every_adaptor_is_in_the_table_of_forms() -> None:
    """A new adaptor needs a row above; these read only, or are other names of operators that have one."""
    covered = {line.split("{")[0].split("(")[0].strip() for _, text, _ in FORMS for line in text.replace("return", "=").split("=")[1:]}
    written_elsewhere = {"Upsample", "Scatter", "CastLike", "Dropout"}
    reductions = {op for op in forms.adapted() if op.startswith("Reduce")}
    assert set(forms.adapted()) - covered - written_elsewhere - reductions == set()


def test_rows_of_the_table_name_attributes_that_onnx_has() -> None:
    """The canonical form differs from ONNX's newest one by known attributes only."""
    ours = {"shape", "axes", "starts", "ends", "steps", "split", "pads", "value", "repeats", "scales", "sizes", "roi", "dtype", "allowzero",
            "momentum", "training_mode", "spatial"}  # fmt: skip
    for op in (name for name in _table() if canonical.schema(name, NEWEST) is not None):
        schema = canonical.schema(op, NEWEST)
        assert schema is not None
        assert set(op_row(op)["attributes"]) - set(schema.attributes) <= ours, op


def _table() -> list[str]:
    from rlflow.ops import op_names

    return [name for name in op_names() if name not in ("Input", "Constant", "Opaque")]


def test_operator_opset() -> None:
    assert operator_opset("LayerNormalization") == 17
    assert operator_opset("NoSuchOperator") is None
