"""Every zoo model at a small size: valid, runnable, alive in all its parts, and the same function at every opset."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from rlflow import zoo
from rlflow.errors import ModelError
from rlflow.frontends import load_model

CLASSIFIERS = (
    "squeezenet1.1", "resnet-18", "resnet-50", "resnext-50", "inception-v3", "nasnet-a", "nasnet-a-large",
    "densenet-121", "mobilenet-v2", "shufflenet-v2", "repvgg-a0", "vit-base",
)  # fmt: skip
OUTPUT_SHAPES = {
    **{name: [(1, 10)] for name in CLASSIFIERS},
    "unet": [(1, 4, 32, 32)],
    "fpn-resnet18": [(1, 16, 8, 8), (1, 16, 4, 4), (1, 16, 2, 2), (1, 16, 1, 1), (1, 16, 1, 1)],
    "nasrnn": [(1, 16)],
    "bert-base": [(1, 8, 32), (1, 32)],
    "bert6-classifier": [(1, 5)],
    "llama-decoder-step": [(1, 1, 50)] + [(1, 2, 8, 8)] * 4,
    "transducer": [(1, 9, 4, 10)],
    "dalle-decoder": [(1, 6, 50)],
    "taso/resnet50": [(1, 512, 2, 2)],
    "taso/resnext50": [(1, 512, 1, 1)],
    "taso/batched_resnet": [(1, 128, 8, 8)],
    "taso/nasnet_a": [(1, 600, 1, 1)],
    "taso/nasrnn": [(1, 16)],
    "taso/inceptionv3": [(1, 512, 1, 1)],
    "taso/bert": [(8, 32)] * 3,
}
# Between them the builder's forms change: operands that were attributes, Softmax, LayerNormalization and Gelu.
OPSETS = [11, 13, 18, 20, "newest"]
# Together these use every operator of the zoo, so that the newest and oldest form of each is written.
EVERY_OPERATOR = (
    "squeezenet1.1", "nasnet-a", "mobilenet-v2", "shufflenet-v2", "unet", "nasrnn", "vit-base",
    "llama-decoder-step", "transducer",
)  # fmt: skip


def test_every_model_passes_the_full_check_with_its_weights(model_name, small):
    model = small(model_name)
    onnx.checker.check_model(model, full_check=True)
    assert all(np.isfinite(numpy_helper.to_array(tensor)).all() for tensor in model.graph.initializer)


def test_outputs_are_finite_spread_and_of_the_declared_shape(model_name, small, feed, run):
    model = small(model_name)
    outputs = run(model, feed(model, 1))
    assert [output.shape for output in outputs] == OUTPUT_SHAPES[model_name]
    declared = [tuple(d.dim_value for d in info.type.tensor_type.shape.dim) for info in model.graph.output]
    assert declared == OUTPUT_SHAPES[model_name]
    for output in outputs:
        assert np.isfinite(output).all()
        assert output.std() > 1e-3


def test_every_input_changes_an_output(model_name, small, feed, run):
    model = small(model_name)
    base, other = feed(model, 1), feed(model, 2)
    reference = run(model, base)
    for name in base:
        changed = {**base, name: other[name]}
        if name == "attention_mask":
            changed[name] = base[name].copy()
            changed[name][:, 1] = 0
        if name == "input_ids":
            changed[name] = (base[name] + 1) % 50
        if name == "token_type_ids":
            changed[name] = 1 - base[name]
        outputs = run(model, changed)
        moved = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(reference, outputs, strict=True))
        assert moved > 1e-3, f"{model_name}: input '{name}' changes the outputs by {moved:.1e} of their size only"


def test_every_weight_and_node_reaches_an_output(model_name, small):
    graph = small(model_name).graph
    needed = {info.name for info in graph.output}
    for node in reversed(graph.node):
        assert needed.intersection(node.output), f"{model_name}: node '{node.name}' is dead"
        needed.update(node.input)
    unused = {tensor.name for tensor in graph.initializer} - needed
    assert not unused


def half(value: np.ndarray, index: int) -> np.ndarray:
    """One of the two members of a batch; a member may have several rows."""
    return np.split(value, 2)[index]


def test_a_batch_is_its_rows(model_name, small, feed, run):
    single, double = small(model_name), small(model_name, batch=2)
    values = feed(double, 3)
    together = run(double, values)
    for row in range(2):
        alone = run(single, {name: half(value, row) for name, value in values.items()})
        for whole, part in zip(together, alone, strict=True):
            np.testing.assert_allclose(half(whole, row), part, rtol=0, atol=2e-5 * np.abs(part).max())


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_computes_the_same(model_name, opset, newest_run_opset, small, feed, run):
    opset = newest_run_opset if opset == "newest" else opset
    reference, model = small(model_name), small(model_name, opset=opset)
    assert model.opset_import[0].version == opset
    values = feed(reference, 4)
    for expected, found in zip(run(reference, values), run(model, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_the_selection_uses_every_operator(sizes):
    used = {name: set(zoo.describe(name, **sizes[name]).operators) for name in zoo.names()}
    assert set().union(*(used[name] for name in EVERY_OPERATOR)) == set().union(*used.values())


@pytest.mark.parametrize("name", EVERY_OPERATOR)
def test_every_opset_that_onnx_knows_is_written(name, small):
    for opset in range(11, onnx.defs.onnx_opset_version() + 1):
        model = small(name, opset=opset)
        assert model.opset_import[0].version == opset
        assert model.ir_version <= 10


def test_the_seed_decides_every_byte(model_name, small, sizes):
    first, other = small(model_name), small(model_name, seed=6)
    again = zoo.build(model_name, **sizes[model_name])
    assert first.SerializeToString() == again.SerializeToString()
    for mine, yours in zip(first.graph.initializer, other.graph.initializer, strict=True):
        assert mine.name == yours.name
        assert mine.raw_data != yours.raw_data, f"{model_name}: weight '{mine.name}' ignores the seed"


def test_a_fresh_process_with_another_hash_seed_writes_the_same_bytes(small):
    code = (
        "import hashlib, sys; from rlflow import zoo;"
        "m = zoo.build('bert6-classifier', layers=1, hidden=32, heads=2, seq=8, feed_forward=64, vocab=50, labels=5);"
        "sys.stdout.write(hashlib.sha256(m.SerializeToString()).hexdigest())"
    )
    here = hashlib.sha256(small("bert6-classifier").SerializeToString()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout == here


def test_a_layer_keeps_its_weights_when_another_is_added(small):
    def weights(model: onnx.ModelProto) -> dict[str, bytes]:
        return {tensor.name: tensor.raw_data for tensor in model.graph.initializer}

    one, two = weights(small("bert6-classifier")), weights(small("bert6-classifier", layers=2))
    assert set(one) < set(two)
    assert all(two[name] == data for name, data in one.items())


def test_the_metadata_says_how_to_build_the_model_again(small):
    model = small("nasrnn", seed=9)
    entry = {prop.key: prop.value for prop in model.metadata_props}["rlflow.zoo"]
    name, *words = entry.split()
    options = dict(word.split("=") for word in words)
    assert name == "nasrnn"
    assert options["seed"] == "9"
    assert options["steps"] == "3"
    assert set(options) == {"batch", "seed", "steps", *zoo.entry("nasrnn").options}


def test_an_outline_is_the_same_graph_with_weights_of_its_own(model_name, small, sizes, monkeypatch):
    """Weights without values were once all equal, so that searches merged layers that share nothing."""
    for threshold in ("builder._SMALL_WEIGHT", "inference._SHAPE_LIKE_ELEMENTS"):
        monkeypatch.setattr(f"rlflow.frontends.{threshold}", 64)  # these models are small
    whole, outline = load_model(small(model_name)), load_model(zoo.outline(model_name, **sizes[model_name]))
    assert [outline.graph.op(node) for node in outline.graph.order()] == [
        whole.graph.op(node) for node in whole.graph.order()
    ]
    hollow = [digest for digest in outline.constants if outline.constants.outlined(digest)]
    assert hollow
    assert not any(whole.constants.outlined(digest) for digest in whole.constants)
    with pytest.raises(ModelError, match="weights have no values"):
        outline.constants[hollow[0]]
