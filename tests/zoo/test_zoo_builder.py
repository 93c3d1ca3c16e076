"""The model writer: each operator in each opset's form, seeded weights, and a sentence for each misuse."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from rlflow.errors import GraphError, UsageError
from rlflow.frontends.builder import INT64_MAX, ModelBuilder

OPSETS = [11, 12, 13, 17, 18, 20, 21, 24]
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def builder(opset: int = 17) -> tuple[ModelBuilder, str]:
    b = ModelBuilder("test", opset=opset)
    return b, b.input("x", np.float32, X.shape)


FORMS = {
    "squeeze": (
        lambda b, x: b.node("Squeeze", b.node("Unsqueeze", x, axes=[0, 4]), axes=[0]),
        lambda x: x[..., None],
    ),
    "reduce_mean": (lambda b, x: b.node("ReduceMean", x, axes=[1], keepdims=0), lambda x: x.mean(1)),
    "reduce_max": (lambda b, x: b.node("ReduceMax", x, axes=[-1], keepdims=1), lambda x: x.max(-1, keepdims=True)),
    "reduce_sum": (lambda b, x: b.node("ReduceSum", x, axes=[0, 2], keepdims=0), lambda x: x.sum((0, 2))),
    "split_sizes": (lambda b, x: b.node_outputs("Split", x, 2, axis=2, split=[1, 3])[1], lambda x: x[:, :, 1:]),
    "split_even": (lambda b, x: b.node_outputs("Split", x, 2, axis=2)[0], lambda x: x[:, :, :2]),
    "slice": (lambda b, x: b.node("Slice", x, starts=[1], ends=[INT64_MAX], axes=[2]), lambda x: x[:, :, 1:]),
    "slice_steps": (
        lambda b, x: b.node("Slice", x, starts=[0, 3], ends=[2, 0], axes=[1, 2], steps=[1, -2]),
        lambda x: x[:, :2, 3:0:-2],
    ),
    "clip": (lambda b, x: b.node("Clip", x, min=-0.5, max=0.25), lambda x: x.clip(-0.5, 0.25)),
    "clip_above": (lambda b, x: b.node("Clip", x, max=0.25), lambda x: np.minimum(x, 0.25)),
    "pad": (
        lambda b, x: b.node("Pad", x, pads=[0, 1, 0, 0, 0, 2], value=3.0, mode="constant"),
        lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=3.0),
    ),
    "reshape_expand": (
        lambda b, x: b.node("Expand", b.node("Reshape", x, shape=[1, 0, -1]), shape=[3, 1, 1]),
        lambda x: np.broadcast_to(x.reshape(1, 3, 8), (3, 3, 8)),
    ),
    "tile": (lambda b, x: b.node("Tile", x, repeats=[1, 2, 1]), lambda x: np.tile(x, (1, 2, 1))),
    "softmax": (
        lambda b, x: b.node("Softmax", x, axis=-1),
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    ),
    "resize": (
        lambda b, x: b.node("Resize", x, scales=[1.0, 1.0, 2.0], mode="nearest", nearest_mode="floor",
                            coordinate_transformation_mode="asymmetric"),
        lambda x: x.repeat(2, 2),
    ),
    "topk": (lambda b, x: b.node_outputs("TopK", x, 2, k=[2], axis=2)[0], lambda x: -np.sort(-x, 2)[:, :, :2]),
    "gelu": (lambda b, x: b.node("Gelu", x), lambda x: x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2)))),
    "gelu_tanh": (
        lambda b, x: b.node("Gelu", x, approximate="tanh"),
        lambda x: x * 0.5 * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "layer_norm": (
        lambda b, x: b.node("LayerNormalization", [x, b.constant([1, 2, 3, 4], np.float32)], axis=-1, epsilon=0.1),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1) * [1, 2, 3, 4],
    ),
}  # fmt: skip


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("form", FORMS)
def test_each_operator_computes_the_same_in_each_opsets_form(form, opset, run):
    write, expected = FORMS[form]
    b, x = builder(opset)
    b.output(write(b, x), "y")
    np.testing.assert_allclose(run(b.build(), {"x": X})[0], expected(X), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("op", "since", "attrs"),
    [
        ("Squeeze", 13, {"axes": [0]}), ("Unsqueeze", 13, {"axes": [0]}), ("ReduceSum", 13, {"axes": [1]}),
        ("ReduceMean", 18, {"axes": [1]}), ("ReduceL2", 18, {"axes": [1]}),
    ],
)  # fmt: skip
def test_axes_change_from_attribute_to_input(op, since, attrs):
    for opset in (since - 1, since):
        b = ModelBuilder("axes", opset=opset)
        b.output(b.node(op, b.input("x", np.float32, (1, 3)), **attrs))
        node = b.build().graph.node[-1]
        assert len(node.input) == (1 if opset < since else 2)
        assert [attribute.name for attribute in node.attribute] == (["axes"] if opset < since else [])


def test_a_weight_depends_on_seed_and_name_only():
    def value(names: list[str], seed: int, scope: str = "a") -> np.ndarray:
        b = ModelBuilder("weights", seed=seed)
        with b.scope(scope):
            for name in names:
                b.weight(name, (4, 8), 4)
            total = b.node("Identity", b.full_name("w"))
        b.output(total)
        return next(numpy_helper.to_array(t) for t in b.build().graph.initializer if t.name == f"{scope}.w")

    alone = value(["w"], 1)
    assert (value(["first", "w", "last"], 1) == alone).all()
    assert (value(["w"], 2) != alone).all()
    assert (value(["w"], 1, "b") != alone).all()


def test_weights_have_the_promised_spread():
    b = ModelBuilder("spread")
    b.weight("w", (400, 100), 400, gain=2.0)
    b.bias("bias", 10_000, spread=0.3)
    b.scale("scale", 10_000, center=0.5, spread=0.2)
    b.variance("variance", 10_000)
    b.output(b.node("Relu", b.input("x", np.float32, (1,))))
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in b.build().graph.initializer}
    assert all(array.dtype == np.float32 for array in found.values())
    assert found["w"].std() == pytest.approx(2.0 / 20.0, rel=0.02)
    assert found["bias"].std() == pytest.approx(0.3, rel=0.05)
    assert (found["scale"].min(), found["scale"].max()) == pytest.approx((0.4, 0.6), abs=1e-3)
    assert (found["variance"].min(), found["variance"].max()) == pytest.approx((0.5, 1.5), abs=1e-3)


def test_equal_constants_are_one_node():
    b, x = builder()
    first = b.node("Reshape", b.node("Reshape", x, shape=[6, 4]), shape=[24])
    b.output(b.node("Reshape", first, shape=[6, 4]))
    assert [node.op_type for node in b.build().graph.node].count("Constant") == 2


def test_constants_of_another_type_or_shape_are_other_nodes():
    b, _ = builder()
    assert len({b.constant(1, np.int64), b.constant([1], np.int64), b.constant(1, np.float32)}) == 3


@pytest.mark.parametrize(("opset", "ir"), [(11, 6), (13, 7), (17, 8), (20, 9), (21, 10), (25, 10)])
def test_the_container_version_follows_the_opset(opset, ir):
    b, x = builder(opset)
    b.output(b.node("Relu", x))
    assert b.build().ir_version == ir


def test_a_given_container_version_is_kept():
    b = ModelBuilder("ir", ir_version=9)
    b.output(b.node("Relu", b.input("x", np.float32, (1,))))
    assert b.build().ir_version == 9


def test_names_carry_their_scope_and_stay_unique():
    b, x = builder()
    with b.scope("outer"), b.scope("inner"):
        first = b.node("Relu", x)
        second = b.node("Relu", first)
        assert b.full_name("w") == "outer.inner.w"
    assert (first, second) == ("outer.inner.Relu", "outer.inner.Relu_1")
    assert b.full_name("w") == "w"


def test_an_output_is_renamed_everywhere_and_an_input_is_copied():
    b, x = builder()
    inner = b.node("Relu", x)
    b.node("Neg", inner)
    assert b.output(inner, "y") == "y"
    assert b.output(x, "copy") == "copy"
    graph = b.build().graph
    assert [info.name for info in graph.output] == ["y", "copy"]
    assert [(node.op_type, list(node.input), list(node.output)) for node in graph.node] == [
        ("Relu", ["x"], ["y"]), ("Neg", ["y"], ["Neg"]), ("Identity", ["x"], ["copy"]),
    ]  # fmt: skip


def test_symbolic_dimensions_reach_the_outputs():
    b = ModelBuilder("dynamic")
    b.output(b.node("Relu", b.input("x", np.float32, ("N", 3))), "y")
    dims = b.build().graph.output[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("N", 3)


def test_metadata_is_written():
    b, x = builder()
    b.output(b.node("Relu", x))
    b.metadata("who", "me")
    assert [(prop.key, prop.value) for prop in b.build().metadata_props] == [("who", "me")]


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda b, x: b.node("Rellu", x), ["operator 'Rellu' does not exist"]),
        (lambda b, x: b.node("Relu", x, alpha=1.0), ["no attribute alpha"]),
        (lambda b, x: b.node("Relu", "nothing"), ["value 'nothing'", "nothing makes it"]),
        (lambda b, x: b.output("nothing"), ["as a graph output"]),
        (lambda b, x: b.input("x", np.float32, (1,)), ["'x'", "two values"]),
        (lambda b, x: (b.bias("w", 1), b.bias("w", 1)), ["'w'", "two values"]),
        (lambda b, x: b.build(), ["no output"]),
        (lambda b, x: (b.output(b.node("SequenceAt", [x, b.constant(0, np.int64)])), b.build()), ["'SequenceAt'"]),
    ],
)
def test_misuse_is_a_sentence(misuse, words):
    b, x = builder()
    with pytest.raises(GraphError) as error:
        misuse(b, x)
    assert "model 'test'" in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_forms_that_an_old_opset_lacks_are_refused():
    b, x = builder(12)
    with pytest.raises(GraphError, match="Softmax below opset 13"):
        b.node("Softmax", x, axis=1)
    with pytest.raises(GraphError, match="negative axis"):
        b.node("LayerNormalization", [x, b.scale("g", 4)], axis=2)
    with pytest.raises(GraphError, match="no attribute axes"):
        b.node("Pad", x, pads=[1, 1], axes=[0])


def test_a_wrong_opset_or_seed_is_refused():
    newest = onnx.defs.onnx_opset_version()
    for opset in (10, newest + 1):
        with pytest.raises(UsageError, match=f"opset {opset}"):
            ModelBuilder("m", opset=opset)
    with pytest.raises(UsageError, match="seed -3"):
        ModelBuilder("m", seed=-3)
