"""Every operator whose ONNX form depends on the opset: written at each opset, it reads back to the same graph and
computes the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

# Each case: its name and the first opset that can say it, then the graph.
FORMS = """
squeeze 7
    x: f32[1,3,1,4] = input
    y = Squeeze{axes=[0,2]}(x)
    return y
squeeze-one 7
    x: f32[1,3,1,4] = input
    y = Squeeze{axes=[2]}(x)
    return y
unsqueeze 7
    x: f32[3,4] = input
    y = Unsqueeze{axes=[0,3]}(x)
    return y
reduce-sum 7
    x: f32[2,3,4] = input
    y = ReduceSum{axes=[1], keepdims=1}(x)
    return y
reduce-sum-all 7
    x: f32[2,3,4] = input
    y = ReduceSum{axes=[0,1,2], keepdims=0}(x)
    return y
reduce-mean 7
    x: f32[2,3,4] = input
    y = ReduceMean{axes=[0,2], keepdims=0}(x)
    return y
reduce-max 7
    x: f32[2,3,4] = input
    y = ReduceMax{axes=[2], keepdims=1}(x)
    return y
reduce-l2 7
    x: f32[2,3,4] = input
    y = ReduceL2{axes=[1], keepdims=0}(x)
    return y
reduce-logsumexp 7
    x: f32[2,3,4] = input
    y = ReduceLogSumExp{axes=[2]}(x)
    return y
slice 7
    x: f32[4,6] = input
    y = Slice{starts=[1,2], ends=[3,6], axes=[0,1]}(x)
    return y
slice-step 10
    x: f32[4,6] = input
    y = Slice{starts=[1], ends=[6], axes=[1], steps=[2]}(x)
    return y
slice-back 10
    x: f32[4,6] = input
    y = Slice{starts=[5], ends=[-7], axes=[1], steps=[-1]}(x)
    return y
split 7
    x: f32[4,6] = input
    a, b = Split{axis=1, split=[2,4]}(x)
    return a, b
split-equal 7
    x: f32[4,6] = input
    a, b, c = Split{axis=1, split=[2,2,2]}(x)
    return c, a, b
pad 7
    x: f32[2,3] = input
    y = Pad{mode="constant", pads=[0,1,1,0], value=0.5}(x)
    return y
pad-zero 7
    x: f32[2,3] = input
    y = Pad{mode="constant", pads=[0,1,1,0], value=0.0}(x)
    return y
pad-edge 7
    x: f32[2,3] = input
    y = Pad{mode="edge", pads=[0,1,1,0], value=0.0}(x)
    return y
pad-int 11
    x: i64[2,3] = input
    y = Pad{mode="constant", pads=[0,1,1,0], value=7.0}(x)
    return y
clip 7
    x: f32[2,3] = input
    a: f32[] = const -0.5
    b: f32[] = const 0.25
    y = Clip(x, a, b)
    return y
clip-low 7
    x: f32[2,3] = input
    a: f32[] = const 0.1
    y = Clip(x, a)
    return y
clip-high 7
    x: f32[2,3] = input
    b: f32[] = const 0.25
    y = Clip(x, _, b)
    return y
clip-given 11
    x: f32[2,3] = input
    a: f32[] = input
    y = Clip(x, a)
    return y
reshape 7
    x: f32[2,6] = input
    y = Reshape{shape=[3,4]}(x)
    return y
reshape-symbol 7
    x: f32[N,6] = input
    y = Reshape{shape=[N,2,3]}(x)
    return y
reshape-rest 7
    x: f32[N,6] = input
    y = Reshape{shape=[N*2,3]}(x)
    return y
expand 8
    x: f32[1,3] = input
    y = Expand{shape=[4,3]}(x)
    return y
expand-symbol 8
    x: f32[N,1] = input
    y = Expand{shape=[1,5]}(x)
    return y
tile 7
    x: f32[2,3] = input
    y = Tile{repeats=[2,1]}(x)
    return y
softmax-last 7
    x: f32[2,3,4] = input
    y = Softmax{axis=2}(x)
    return y
softmax-ones 7
    x: f32[2,3,1] = input
    y = Softmax{axis=1}(x)
    return y
softmax-middle 13
    x: f32[2,3,4] = input
    y = Softmax{axis=1}(x)
    return y
log-softmax 7
    x: f32[2,3,4] = input
    y = LogSoftmax{axis=2}(x)
    return y
hardmax 7
    x: f32[2,3,4] = input
    y = Hardmax{axis=2}(x)
    return y
gemm 7
    a: f32[2,3] = input
    b: f32[3,4] = input
    y = Gemm{alpha=0.5}(a, b)
    return y
gemm-bias 7
    a: f32[2,3] = input
    b: f32[4,3] = input
    c: f32[4] = input
    y = Gemm{transB=1}(a, b, c)
    return y
topk 7
    x: f32[2,6] = input
    k: i64[1] = const [3]
    v, i = TopK{axis=1}(x, k)
    return v, i
topk-small 11
    x: f32[2,6] = input
    k: i64[1] = const [3]
    v, i = TopK{axis=1, largest=0}(x, k)
    return v, i
upsample 7
    x: f32[1,2,3,3] = input
    y = Resize{scales=[1.0,1.0,2.0,2.0], coordinate_transformation_mode="asymmetric", nearest_mode="floor"}(x)
    return y
upsample-linear 7
    x: f32[1,2,3,3] = input
    y = Resize{mode="linear", scales=[1.0,1.0,2.0,2.0], coordinate_transformation_mode="asymmetric"}(x)
    return y
resize 11
    x: f32[1,2,3,3] = input
    y = Resize{mode="linear", scales=[1.0,1.0,2.0,1.5]}(x)
    return y
resize-sizes 11
    x: f32[1,2,3,3] = input
    y = Resize{mode="nearest", sizes=[1,2,5,7]}(x)
    return y
batch-norm 7
    x: f32[1,3,2,2] = input
    s: f32[3] = const [1.0,2.0,0.5]
    b: f32[3] = const [0.1,0.2,0.3]
    m: f32[3] = const [0.0,0.5,1.0]
    v: f32[3] = const [1.0,0.5,2.0]
    y = BatchNormalization{epsilon=0.001}(x, s, b, m, v)
    return y
scatter 9
    x: f32[3,3] = input
    i: i64[1,3] = const [2,0,1]
    u: f32[1,3] = input
    y = ScatterElements{axis=0}(x, i, u)
    return y
cast 7
    x: f32[2,3] = input
    y = Cast{to=11}(x)
    return y
conv 7
    x: f32[1,2,5,5] = input
    w: f32[3,2,3,3] = input
    y = Conv{pads=[1,1,1,1]}(x, w)
    return y
average-pool 7
    x: f32[1,2,5,5] = input
    y = AveragePool{kernel_shape=[2,2], strides=[2,2]}(x)
    return y
average-pool-dilated 19
    x: f32[1,2,5,5] = input
    y = AveragePool{kernel_shape=[2,2], dilations=[2,2]}(x)
    return y
max-pool 7
    x: f32[1,2,5,5] = input
    y = MaxPool{kernel_shape=[3,3]}(x)
    return y
argmax 7
    x: f32[2,5] = input
    y = ArgMax{axis=1, keepdims=0}(x)
    return y
argmax-last 12
    x: f32[2,5] = input
    y = ArgMax{axis=1, select_last_index=1}(x)
    return y
depth-to-space 7
    x: f32[1,8,2,2] = input
    y = DepthToSpace{blocksize=2}(x)
    return y
depth-to-space-crd 11
    x: f32[1,8,2,2] = input
    y = DepthToSpace{blocksize=2, mode="CRD"}(x)
    return y
relu-int 14
    x: i32[3] = input
    y = Relu(x)
    return y
layer-norm 17
    x: f32[2,4] = input
    s: f32[4] = input
    y = LayerNormalization(x, s)
    return y
gelu 20
    x: f32[2,4] = input
    y = Gelu(x)
    return y
zeros 9
    s: i64[2] = input
    y = ConstantOfShape{value=2.5, dtype=1}(s)
    return y
"""


def cases() -> Iterator[tuple[str, int, str]]:
    """(name, first opset, graph) of each case."""
    for block in re.split(r"\n(?=\S)", FORMS.strip()):
        head, _, text = block.partition("\n")
        name, since = head.split()
        yield name, int(since), text


CASES = [pytest.param(text, since, id=name) for name, since, text in cases()]


def feeds(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(7)
    made = {}
    for node in graph.inputs():
        value = graph.node_outputs(node)[0]
        shape = [dim if isinstance(dim, int) else 3 for dim in graph.shape(value) or []]
        dtype = {1: np.float32, 6: np.int32, 7: np.int64}[graph.dtype(value)]
        made[graph.input_name(node)] = (
            random.standard_normal(shape).astype(dtype) if dtype is np.float32 else random.integers(1, 4, shape, dtype)
        )
    return made


@pytest.mark.parametrize(("text", "since"), CASES)
def test_each_opset_reads_back_to_the_same_graph(text: str, since: int) -> None:
    graph = Graph.parse(text)
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
    graph = Graph.parse(text)
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
    graphs = (Graph.parse(text) for *_, text in cases())
    covered = {graph.op(node) for graph in graphs for node in graph.order()}
    written_elsewhere = {"Upsample", "Scatter", "CastLike", "Dropout"}
    reductions = {op for op in forms.adapted() if op.startswith("Reduce")}
    assert set(forms.adapted()) - covered - written_elsewhere - reductions == set()


# Operands of ONNX that are attributes in canonical form.
LISTS = ("shape", "axes", "starts", "ends", "steps", "split", "pads", "repeats", "scales", "sizes", "roi")


def test_rows_of_the_table_name_attributes_that_onnx_has() -> None:
    """The canonical form differs from ONNX's newest one by known attributes only."""
    ours = {*LISTS, "value", "dtype", "allowzero", "momentum", "training_mode"}
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
