"""Parameters and multiply-accumulates: published figures, closed forms, and hand-counted single operators."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow import zoo
from rlflow.errors import ModelError
from rlflow.frontends.builder import ModelBuilder
from rlflow.frontends.stats import infer_types, stats


@pytest.mark.parametrize("name", ["squeezenet1.1", "inception-v3", "densenet-121"])
def test_convolutional_networks_have_the_published_figures(name):
    entry, found = zoo.entry(name), zoo.stats(zoo.build(name))
    assert found.parameters == entry.parameters
    assert round(found.macs / 1e6) == entry.macs / 1e6  # published to the million


def repvgg_blocks() -> list[tuple[int, int, int]]:
    """(input channels, output channels, output height) of the 22 blocks of RepVGG-A0 on a 224² image."""
    blocks, into, size = [], 3, 224
    for count, out in ((1, 48), (2, 48), (4, 96), (14, 192), (1, 1280)):
        size //= 2
        for _ in range(count):
            blocks.append((into, out, size))
            into = out
    return blocks


def test_repvgg_has_the_parameters_of_its_training_form():
    blocks = repvgg_blocks()
    identities = sum(1 for index, (into, out, _) in enumerate(blocks) if into == out and index != 1)
    assert identities == 17
    identity_channels = 48 + 3 * 96 + 13 * 192
    head = 1280 * 1000 + 1000
    training = head + sum(10 * i * o + 4 * o for i, o, _ in blocks) + 2 * identity_channels
    deployed = head + sum(9 * i * o + o for i, o, _ in blocks)
    found = zoo.stats(zoo.build("repvgg-a0"))
    assert found.parameters == training
    assert found.macs == sum(10 * i * o * size * size for i, o, size in blocks) + 1280 * 1000
    assert round(training / 1e4) * 10_000 == zoo.entry("repvgg-a0").parameters
    assert round(deployed / 1e6, 2) == 8.31  # the paper's deployed size, so the topology is the paper's


@pytest.mark.parametrize(("steps", "batch", "hidden"), [(5, 1, 512), (3, 4, 16)])
def test_nasrnn_shares_sixteen_matrices(steps, batch, hidden):
    model = zoo.build("nasrnn", steps=steps, batch=batch, hidden=hidden)
    rows = steps * batch + 1 + (steps - 1) * batch  # the initial state is one row for any batch
    assert zoo.stats(model) == (16 * hidden**2 + hidden, 8 * rows * hidden**2)
    apart = zoo.stats(zoo.build("nasrnn", steps=steps, batch=batch, hidden=hidden, shared=False))
    assert apart == (16 * steps * hidden**2 + hidden, 8 * rows * hidden**2)


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [({}, 1), ({"layers": 2, "hidden": 24, "heads": 3, "feed_forward": 40, "vocab": 60, "labels": 3, "seq": 9}, 2)],
)
def test_bert_follows_its_closed_form(sizes, batch):
    full = {**zoo.entry("bert6-classifier").options, "seq": 128, **sizes}
    n, h, f, s = (int(full[key]) for key in ("layers", "hidden", "feed_forward", "seq"))
    vocab, labels = int(full["vocab"]), int(full["labels"])
    layer = 4 * (h * h + h) + h * f + f + f * h + h + 4 * h
    encoder = (vocab + 512 + 2) * h + 2 * h + n * layer + h * h + h
    macs = n * (s * (4 * h * h + 2 * h * f) + 2 * s * s * h) + h * h + h * labels
    assert zoo.stats(zoo.build("bert6-classifier", batch=batch, **sizes)) == (
        encoder + h * labels + labels,
        batch * macs,
    )
    if not sizes:
        assert round((encoder + h * h + 3 * h) / 1e6, 1) == 67.5  # Turc et al. 2019, table 1, which counts the LM head


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [({}, 1), ({"layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "feed_forward": 40, "vocab": 60, "past": 9}, 2)],
)
def test_llama_step_follows_its_closed_form(sizes, batch):
    full = {**zoo.entry("llama-decoder-step").options, "past": 1024, **sizes}
    n, h, f, vocab, past = (int(full[key]) for key in ("layers", "hidden", "feed_forward", "vocab", "past"))
    narrow = h * int(full["kv_heads"]) // int(full["heads"])
    products = 2 * h * h + 2 * h * narrow + 3 * h * f
    parameters = n * (products + 2 * h) + h + 2 * vocab * h
    macs = n * (products + 2 * h * (past + 1)) + vocab * h
    assert zoo.stats(zoo.build("llama-decoder-step", batch=batch, **sizes)) == (parameters, batch * macs)


def test_single_operators_are_counted_by_hand():
    b = ModelBuilder("hand", opset=13)
    x = b.input("x", np.float32, (2, 4, 6, 6))
    grouped = b.node("Conv", [x, b.weight("grouped", (8, 2, 3, 3), 18), b.bias("bias", 8)], group=2, pads=[1, 1, 1, 1])
    up = b.node("ConvTranspose", [grouped, b.weight("up", (8, 5, 2, 2), 32)], strides=[2, 2])
    norm = b.node("BatchNormalization", [up, b.scale("g", 5), b.bias("b", 5), b.bias("m", 5), b.variance("v", 5)])
    rows = b.node("Reshape", norm, shape=[120, 12])
    b.output(b.node("Gemm", [rows, b.weight("w", (7, 120), 120)], transA=1, transB=1))
    conv, transposed, gemm = 2 * 8 * 36 * 2 * 9, 2 * 8 * 36 * 5 * 4, 12 * 7 * 120
    assert stats(b.build()) == (8 * 2 * 9 + 8 + 8 * 5 * 4 + 2 * 5 + 7 * 120, conv + transposed + gemm)


def test_constants_and_integers_are_no_parameters():
    b = ModelBuilder("none")
    x = b.node("Add", [b.input("x", np.float32, (3,)), b.constant([1.0, 2.0, 3.0], np.float32)])
    b.output(b.node("Gather", [x, b.parameter("index", np.zeros(2, np.int64))]))
    assert stats(b.build()) == (0, 0)


def test_a_symbolic_dimension_is_named_where_it_matters():
    b = ModelBuilder("dynamic")
    x = b.input("x", np.float32, ("N", 4))
    b.output(b.node("MatMul", [b.node("Relu", x), b.weight("w", (4, 5), 4)], name="product"))
    model = b.build()
    with pytest.raises(ModelError, match="'product' \\(MatMul\\)") as error:
        stats(model)
    assert "not known as integers" in str(error.value)


def test_inference_that_contradicts_itself_is_a_model_error():
    b = ModelBuilder("twisted")
    b.output(b.node("MatMul", [b.input("x", np.float32, (2, 4)), b.input("y", np.float32, (5, 2))]))
    with pytest.raises(ModelError, match="twisted"):
        b.build()


def test_types_of_initialisers_and_values_are_inferred():
    b = ModelBuilder("types")
    product = b.node("MatMul", [b.input("x", np.float32, (2, 100)), b.weight("large", (100, 50), 100)], name="product")
    b.output(b.node("Relu", product), "y")
    shapes = {name: [d.dim_value for d in t.tensor_type.shape.dim] for name, t in infer_types(b.build()).items()}
    assert shapes == {"x": [2, 100], "large": [100, 50], "product": [2, 50], "y": [2, 50]}
