"""Rows of tokens: which axis they lie along, and that stretches of a transformer compute what the whole does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import Flow, Stretch, in_bands
from rlflow.footprint.bands import taken_whole
from rlflow.frontends.banding import with_bands
from rlflow.frontends.flows import flow_of

ort = pytest.importorskip("onnxruntime")


class Net:
    """A network in the making, of whole numbers, so that sums of products are exact in any order."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape
        self.rng = np.random.default_rng(seed)

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def weight(self, *shape: int) -> str:
        return self._constant(self.rng.integers(-2, 3, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self._constant(np.asarray(values, np.int64))

    def _constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def model(self, *outputs: str) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        start = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self.shape))
        graph = helper.make_graph(self.nodes, "net", [start], ends, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(made)
        del inferred.graph.value_info[:]
        return inferred


def run(model: onnx.ModelProto, shape: Sequence[int]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)})


def banded(model: onnx.ModelProto, shape: Sequence[int], stretch: Stretch, flow: Flow | None = None) -> int:
    """How many nodes the model has with the stretch in bands; its outputs are asserted to stay the same."""
    found = in_bands(flow or flow_of(model), [stretch])
    assert found is not None
    written = with_bands(model, found)
    onnx.checker.check_model(written, full_check=True)
    for one, other in zip(run(model, shape), run(written, shape), strict=True):
        np.testing.assert_array_equal(one, other)
    return len(written.graph.node)


def perceptron(net: Net, x: str, width: int, wide: int) -> str:
    hidden = net.add("Relu", net.add("Add", net.add("MatMul", x, net.weight(width, wide)), net.weight(wide)))
    return net.add("Add", x, net.add("MatMul", hidden, net.weight(wide, width)))


def heads(net: Net, x: str, tokens: int, width: int, count: int) -> str:
    """[1, tokens, width] as [1, count, tokens, width / count]."""
    apart = net.add("Reshape", net.add("MatMul", x, net.weight(width, width)), net.ints(1, tokens, count, -1))
    return net.add("Transpose", apart, perm=[0, 2, 1, 3])


def attention(net: Net, tokens: int, width: int, count: int) -> tuple[str, ...]:
    """Without a softmax, so that it stays exact; the values queries, keys, scores, and the result."""
    query, key, value = (heads(net, "x", tokens, width, count) for _ in range(3))
    key = net.add("Transpose", key, perm=[0, 1, 3, 2])
    scores = net.add("Relu", net.add("MatMul", query, key))
    mixed = net.add("Transpose", net.add("MatMul", scores, value), perm=[0, 2, 1, 3])
    joined = net.add("Reshape", mixed, net.ints(0, 0, width))
    return query, key, scores, net.add("Add", "x", joined)


def place_of(flow: Flow, value: str) -> int:
    return next(place for place, job in enumerate(flow.jobs) if value in job.outputs)


# --- axes -------------------------------------------------------------------------------------------------------------


def test_axes_follow_the_tokens_through_attention() -> None:
    net = Net(1, 10, 8)
    query, key, scores, result = attention(net, 10, 8, 2)
    flow = flow_of(net.model(result))
    assert {name: flow.axis(name) for name in ("x", query, key, scores, result)} == {
        "x": 1, query: 2, key: 3, scores: 2, result: 1,
    }  # fmt: skip
    assert all(job.rows is not None for job in flow.jobs)
    assert [flow.height(name) for name in (query, key, scores, result)] == [10, 10, 10, 10]


def test_axes_follow_an_image_into_the_layout_of_channels_last() -> None:
    net = Net(1, 4, 6, 5)
    convolved = net.add("Conv", "x", net.weight(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1])
    last = net.add("Transpose", convolved, perm=[0, 2, 3, 1])
    wide = net.add("Relu", net.add("MatMul", last, net.weight(4, 8)))
    back = net.add("Transpose", net.add("MatMul", wide, net.weight(8, 4)), perm=[0, 3, 1, 2])
    model = net.model(net.add("Add", "x", back))
    flow = flow_of(model)
    assert [flow.axis(name) for name in ("x", convolved, last, wide, back)] == [2, 2, 1, 1, 2]
    for bands in (2, 3, 6):
        banded(model, net.shape, Stretch(0, len(flow.jobs) - 1, bands, hidden=flow.hides))


@pytest.mark.parametrize(
    ("shape", "told", "axis"),
    [
        ((1, 6, 8), (1, 6, 2, 4), 1),
        ((1, 6, 8), (6, 8), 0),
        ((1, 6, 8), (1, 3, 2, 8), None),  # 6 tokens are no 3 times 2
        ((1, 6, 8), (1, 48), None),
        ((1, 1, 6, 8), (1, 6, 8), 1),
    ],
)
def test_a_reshape_keeps_rows_that_stay_whole(shape: tuple[int, ...], told: tuple[int, ...], axis: int | None) -> None:
    net = Net(*shape)
    wide = net.add("MatMul", "x", net.weight(8, 8))
    made = net.add("Reshape", wide, net.ints(*told))
    flow = flow_of(net.model(made))
    job = flow.jobs[place_of(flow, made)]
    assert (job.rows is None) == (axis is None)
    assert axis is None or flow.axis(made) == axis


@pytest.mark.parametrize("hidden", [False, True])
def test_a_reshape_that_takes_zeros_at_their_word_has_none_of_them(hidden: bool) -> None:
    net = Net(1, 6, 8)
    wide = net.add("MatMul", "x", net.weight(8, 8))
    apart = net.add("Reshape", wide, net.ints(1, 6, 2, 4), allowzero=1)
    model = net.model(net.add("Relu", net.add("Transpose", apart, perm=[0, 2, 1, 3])))
    flow = flow_of(model)
    assert all(job.rows is not None for job in flow.jobs)
    banded(model, net.shape, Stretch(0, len(flow.jobs) - 1, 3, hidden=hidden), flow)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Softmax", {"axis": 1}),
        ("Transpose", {"perm": [0, 2, 1]}),
        ("ReduceMean", {"keepdims": 0}),
        ("LayerNormalization", {"axis": 1}),
    ],
)
def test_what_mixes_tokens_needs_all_of_them(op: str, attributes: dict[str, object]) -> None:
    net = Net(1, 6, 8)
    wide = net.add("MatMul", "x", net.weight(8, 8))
    others = {"ReduceMean": (net.ints(1),), "LayerNormalization": (net.weight(6, 8),)}.get(op, ())
    made = net.add(op, wide, *others, **attributes)
    flow = flow_of(net.model(net.add("Relu", made)))
    if op == "Transpose":  # it mixes nothing, but then the rows are the last axis
        assert flow.axis(made) == 2
        return
    assert flow.jobs[place_of(flow, made)].rows is None


# --- stretches --------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 13), st.integers(2, 6), st.booleans(), st.integers(1, 3), st.integers(0, 99))
def test_a_wide_product_in_bands_is_the_whole(tokens: int, bands: int, hidden: bool, layers: int, seed: int) -> None:
    net = Net(2, tokens, 4, seed=seed)
    last = "x"
    for _ in range(layers):
        last = perceptron(net, last, 4, 9)
    model = net.model(last)
    flow = flow_of(model)
    if tokens < bands:
        assert in_bands(flow, [Stretch(0, len(flow.jobs) - 1, bands)]) is None
        return
    assert banded(model, net.shape, Stretch(0, len(flow.jobs) - 1, bands, hidden=hidden), flow) > len(flow.jobs)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("bands", [2, 3, 7])
def test_attention_in_bands_of_queries_is_the_whole(bands: int, hidden: bool) -> None:
    net = Net(1, 7, 8)
    _, _, scores, result = attention(net, 7, 8, 2)
    model = net.model(result)
    flow = flow_of(model)
    first = place_of(flow, scores) - 1
    banded(model, net.shape, Stretch(first, len(flow.jobs) - 1, bands, hidden=hidden), flow)


@pytest.mark.parametrize("late", [False, True])
def test_what_is_taken_whole_is_made_before_the_rows_that_meet_it(late: bool) -> None:
    """The values of attention stand behind the scores in the file; ``late``: they need the scores, so they stay."""
    net = Net(1, 6, 8)
    query, key = heads(net, "x", 6, 8, 2), heads(net, "x", 6, 8, 2)
    scores = net.add("Relu", net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2])))
    value = heads(net, "x", 6, 8, 2)
    if late:
        value = net.add("Add", value, net.add("MatMul", scores, value))
    mixed = net.add("MatMul", scores, value)
    model = net.model(net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), net.ints(1, 6, 8)))
    flow = flow_of(model)
    assert (place_of(flow, value) < place_of(flow, scores)) is not late
    made = set(flow.inputs)
    for job in flow.jobs:
        assert made.issuperset(job.inputs)
        made.update(job.outputs)
    stretch = Stretch(place_of(flow, scores) - 1, place_of(flow, mixed), 3, hidden=flow.hides)
    if late:
        assert in_bands(flow, [stretch]) is None
        return
    banded(model, net.shape, stretch, flow)


def test_bands_do_not_take_whole_what_bands_make() -> None:
    net = Net(1, 7, 8)
    _, key, scores, result = attention(net, 7, 8, 2)
    flow = flow_of(net.model(result))
    whole, behind = Stretch(0, len(flow.jobs) - 1, 2), Stretch(place_of(flow, scores) - 1, len(flow.jobs) - 1, 2)
    assert taken_whole(flow, whole) and in_bands(flow, [whole]) is None
    assert not taken_whole(flow, behind) and key in flow.jobs[behind.first].inputs


def test_a_repeat_in_bands_is_never_there_as_a_whole() -> None:
    net = Net(1, 6, 8)
    keys = net.add("Reshape", net.add("MatMul", "x", net.weight(8, 8)), net.ints(1, 6, 2, 1, 4))
    repeated = net.add("Expand", keys, net.ints(1, 1, 1, 3, 1))
    joined = net.add("Relu", net.add("Reshape", repeated, net.ints(1, 6, 24)))
    model = net.model(net.add("MatMul", joined, net.weight(24, 4)))
    flow = flow_of(model)
    assert flow.axis(repeated) == 1 and flow.jobs[place_of(flow, repeated)].rows is not None
    stretch = Stretch(0, len(flow.jobs) - 1, 3, hidden=flow.hides)
    banded(model, net.shape, stretch, flow)
    found = in_bands(flow, [stretch])
    assert found is not None
    assert max(found.bytes(value) for job in found.jobs for value in job.outputs) < flow.bytes(repeated)


@pytest.mark.parametrize("op", ["LayerNormalization", "Softmax", "ReduceMean", "Gemm"])
def test_operators_token_by_token(op: str) -> None:
    shape = (6, 8) if op == "Gemm" else (2, 6, 8)
    net = Net(*shape)
    wide = net.add("MatMul", "x", net.weight(8, 8))
    others = {
        "LayerNormalization": (net.weight(8),), "ReduceMean": (net.ints(-1),),
        "Gemm": (net.weight(8, 8), net.weight(8)),
    }.get(op, ())  # fmt: skip
    model = net.model(net.add("Relu", net.add(op, wide, *others)))
    flow = flow_of(model)
    assert all(job.rows is not None for job in flow.jobs)
    banded(model, net.shape, Stretch(0, len(flow.jobs) - 1, 3), flow)
