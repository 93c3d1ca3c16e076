"""Parameters and multiply-accumulates: published figures, closed forms, and hand-counted single operators."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow import zoo
from rlflow.errors import ModelError
from rlflow.frontends.builder import ModelBuilder
from rlflow.frontends.stats import describe, infer_types, stats

TORCHVISION = "torchvision's table of weights (it prints multiply-accumulates as GFLOPS)"
# Model -> parameters, multiply-accumulates, the unit to which these are published, where.
PUBLISHED = {
    "squeezenet1.1": (1_235_496, 349e6, 1e6, TORCHVISION),
    "resnet-18": (11_689_512, 1.814e9, 1e6, TORCHVISION),
    "resnet-50": (25_557_032, 4.089e9, 1e6, TORCHVISION),
    "resnext-50": (25_028_904, 4.23e9, 1e7, TORCHVISION),
    "inception-v3": (23_834_568, 5.713e9, 1e6, "torchvision without the auxiliary head"),
    "nasnet-a": (5_289_978, 564e6, 1e6, "Zoph et al. 2018, table 3; Keras NASNetMobile, trainable parameters"),
    "nasnet-a-large": (88_753_150, 23.8e9, 1e8, "Zoph et al. 2018, table 2; Keras NASNetLarge, trainable parameters"),
    "densenet-121": (7_978_856, 2.834e9, 1e6, TORCHVISION),
    "mobilenet-v2": (3_504_872, 301e6, 1e6, TORCHVISION),
    "shufflenet-v2": (2_278_604, 145e6, 1e6, TORCHVISION),
    "vit-base": (86_567_656, 17.564e9, 1e6, TORCHVISION),
}
# TASO's examples, counted from its scripts: operators with the activations fused into convolutions, weights,
# parameters in millions, multiply-accumulates in units of 10^9 with the decimals that are known.
TASO = {
    "taso/resnet50": (84, 52, 23.45, 3.97),
    "taso/resnext50": (86, 53, 22.91, 4.23),
    "taso/batched_resnet": (37, 23, 1.41, 0.53),
    "taso/nasnet_a": (383, 217, 39.84, 15.05),
    "taso/nasrnn": (230, 81, 20.97, 0.021),
    "taso/inceptionv3": (119, 94, 21.75, 182.8),
    "taso/bert": (113, 32, 33.55, 35.4),
}
FULL_DEPTH = {"taso/nasnet_a": {"cells": 5}, "taso/nasrnn": {"steps": 5}, "taso/bert": {"layers": 8}}


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_the_published_figures(name):
    parameters, macs, unit, _ = PUBLISHED[name]
    entry, found = zoo.entry(name), zoo.describe(name)
    assert (entry.parameters, entry.macs) == (parameters, macs)
    assert found.parameters == parameters
    assert round(found.macs / unit) == round(macs / unit)


def test_every_published_figure_of_an_entry_is_tested():
    others = {"repvgg-a0", "bert-base"}  # tests of their own below
    assert {name for name in zoo.names() if zoo.entry(name).parameters is not None} == set(PUBLISHED) | others
    assert {name for name in zoo.names() if zoo.entry(name).macs is not None} == set(PUBLISHED)


@pytest.mark.parametrize("name", TASO)
def test_taso_graphs_have_the_figures_of_tasos_scripts(name, small):
    operators, weights, parameters, macs = TASO[name]
    found = zoo.describe(name)
    assert round(found.parameters / 1e6, 2) == parameters
    decimals = len(str(macs).partition(".")[2])
    assert round(found.macs / 1e9, decimals) == macs
    graph = small(name, **FULL_DEPTH.get(name, {})).graph
    convolved = {node.output[0] for node in graph.node if node.op_type == "Conv"}
    fused = [node for node in graph.node if node.op_type == "Relu" and node.input[0] in convolved]
    assert found.nodes - len(fused) == operators
    assert len(graph.initializer) == weights


def test_a_description_needs_no_weights(model_name, small, sizes):
    assert zoo.describe(model_name, **sizes[model_name]) == describe(small(model_name))


@pytest.mark.parametrize(("image", "channels", "classes"), [(256, 32, 21), (48, 6, 5)])
def test_unet_follows_its_closed_form(image, channels, classes):
    convolutions = []  # (input channels, output channels, kernel area, output size)
    for level in range(5):
        into, out, size = (3 if level == 0 else channels << level - 1), channels << level, image >> level
        convolutions += [(into, out, 9, size), (out, out, 9, size)]
        if level < 4:  # the decoder's part of the level
            convolutions += [(2 * out, out, 1, size), (2 * out, out, 9, size), (out, out, 9, size)]
    head = channels * classes
    parameters = sum(area * i * o + 2 * o for i, o, area, _ in convolutions) + head + classes
    macs = sum(area * i * o * size * size for i, o, area, size in convolutions) + head * image * image
    found = zoo.describe("unet", image=image, channels=channels, classes=classes)
    assert (found.parameters, found.macs) == (parameters, macs)


@pytest.mark.parametrize(("image", "pyramid"), [(224, 256), (64, 24)])
def test_fpn_follows_its_closed_form(image, pyramid):
    backbone = zoo.describe("resnet-18", image=image)
    stages = [(64 << level, image // 4 >> level) for level in range(4)]
    lateral = [channels * pyramid for channels, _ in stages]
    smooth = 9 * pyramid * pyramid
    parameters = backbone.parameters - 513_000 + sum(lateral) + 4 * (smooth + 2 * pyramid)
    macs = backbone.macs - 512_000
    macs += sum(size * size * (part + smooth) for part, (_, size) in zip(lateral, stages, strict=True))
    found = zoo.describe("fpn-resnet18", image=image, pyramid=pyramid)
    assert (found.parameters, found.macs) == (parameters, macs)


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
    model = zoo.describe("nasrnn", steps=steps, batch=batch, hidden=hidden)
    rows = steps * batch + 1 + (steps - 1) * batch  # the initial state is one row for any batch
    assert model[:2] == (16 * hidden**2 + hidden, 8 * rows * hidden**2)
    apart = zoo.describe("nasrnn", steps=steps, batch=batch, hidden=hidden, shared=False)
    assert apart[:2] == (16 * steps * hidden**2 + hidden, 8 * rows * hidden**2)


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
    found = zoo.describe("bert6-classifier", batch=batch, **sizes)
    assert found[:2] == (encoder + h * labels + labels, batch * macs)
    base = zoo.describe("bert-base", batch=batch, **{key: size for key, size in sizes.items() if key != "labels"})
    deeper = (0 if sizes else 6) * layer  # twelve layers where the classifier has six
    assert base.parameters == encoder + deeper
    assert base.macs == batch * (macs - h * labels + (0 if sizes else macs - h * h - h * labels))
    if not sizes:
        assert base.parameters == zoo.entry("bert-base").parameters == 109_482_240  # the released checkpoint
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
    assert zoo.describe("llama-decoder-step", batch=batch, **sizes)[:2] == (parameters, batch * macs)


def layer_counts(hidden: int, inner: int, rows: int) -> tuple[int, int]:
    """Parameters and multiply-accumulates of a Transformer layer with biases, two norms and two dense layers."""
    weights = 4 * hidden * hidden + 2 * hidden * inner
    return weights + 4 * hidden + inner + hidden + 4 * hidden, rows * weights + 2 * rows * rows * hidden


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ({}, 1),
        ({"layers": 3, "hidden": 48, "heads": 6, "feed_forward": 40, "image": 60, "patch": 12, "classes": 7}, 2),
    ],
)
def test_vit_follows_its_closed_form(sizes, batch):
    full = {**zoo.entry("vit-base").options, **sizes}
    n, h, f, p, classes = (int(full[key]) for key in ("layers", "hidden", "feed_forward", "patch", "classes"))
    patches = (int(full["image"]) // p) ** 2
    parameters, macs = layer_counts(h, f, patches + 1)
    parameters = n * parameters + 3 * p * p * h + h + h + (patches + 1) * h + 2 * h + h * classes + classes
    macs = n * macs + patches * 3 * p * p * h + h * classes
    assert zoo.describe("vit-base", batch=batch, **sizes)[:2] == (parameters, batch * macs)


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ({}, 1),
        ({"audio_layers": 3, "label_layers": 1, "hidden": 48, "heads": 6, "feed_forward": 40, "frames": 11,
          "features": 7, "labels": 5, "vocab": 13}, 2),
    ],
)  # fmt: skip
def test_transducer_follows_its_closed_form(sizes, batch):
    full = {**zoo.entry("transducer").options, "frames": 80, **sizes}
    h, f, frames, labels = (int(full[key]) for key in ("hidden", "feed_forward", "frames", "labels"))
    features, vocab = int(full["features"]), int(full["vocab"])
    heard, known = layer_counts(h, f, frames), layer_counts(h, f, labels)
    deep, shallow = int(full["audio_layers"]), int(full["label_layers"])
    parameters = deep * heard[0] + shallow * known[0] + 4 * h  # two final norms
    parameters += features * h + h + vocab * h + 2 * h * h + h + h * vocab + vocab
    macs = deep * heard[1] + shallow * known[1] + frames * features * h
    macs += (frames + labels) * h * h + frames * labels * h * vocab
    assert zoo.describe("transducer", batch=batch, **sizes)[:2] == (parameters, batch * macs)


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [({}, 1), ({"layers": 3, "hidden": 48, "heads": 6, "feed_forward": 40, "seq": 9, "text": 7, "vocab": 60}, 2)],
)
def test_dalle_decoder_follows_its_closed_form(sizes, batch):
    full = {**zoo.entry("dalle-decoder").options, "seq": 256, **sizes}
    n, h, f, s, t = (int(full[key]) for key in ("layers", "hidden", "feed_forward", "seq", "text"))
    vocab = int(full["vocab"])
    parameters = n * (8 * h * h + 3 * h * f + 6 * h + 2 * f) + 2 * vocab * h + 256 * h + 4 * h
    own, cross = 4 * s * h * h + 2 * s * s * h, 2 * (s + t) * h * h + 2 * s * t * h
    macs = n * (own + cross + 3 * s * h * f) + s * h * vocab
    assert zoo.describe("dalle-decoder", batch=batch, **sizes)[:2] == (parameters, batch * macs)


@pytest.mark.parametrize("attend", [False, True])
def test_taso_bert_follows_its_closed_form(attend):
    found = zoo.describe("taso/bert", batch=3, seq=8, layers=2, hidden=32, heads=4, attend=attend)
    assert found[:2] == (2 * 4 * 32 * 32, 2 * 3 * (4 * 8 * 32 * 32 + 2 * 8 * 8 * 32))
    assert len(found.outputs) == (1 if attend else 3)


def test_a_description_says_operators_inputs_and_outputs():
    b = ModelBuilder("row")
    x = b.input("x", np.float32, ("N", 4))
    y = b.node("Add", [b.node("Relu", b.node("Relu", x)), b.constant(1.0, np.float32)])
    b.output(b.node("Cast", y, to=7), "whole")
    row = describe(b.build())
    assert list(row.operators.items()) == [("Relu", 2), ("Add", 1), ("Cast", 1)]
    assert (row.nodes, row.parameters, row.macs) == (4, 0, 0)
    assert (row.inputs, row.outputs) == (("x [N, 4] float32",), ("whole [N, 4] int64",))


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
