"""The catalogue: names, entries, options, and the sentence for each wrong request."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from rlflow import zoo
from rlflow.errors import UsageError


def test_the_models_are_there():
    assert zoo.names() == [
        "squeezenet1.1", "resnet-18", "resnet-50", "resnext-50", "inception-v3", "nasnet-a", "nasnet-a-large",
        "densenet-121", "mobilenet-v2", "shufflenet-v2", "repvgg-a0", "unet", "fpn-resnet18", "nasrnn", "bert-base",
        "bert6-classifier", "vit-base", "llama-decoder-step", "transducer", "dalle-decoder", "taso/resnet50",
        "taso/resnext50", "taso/batched_resnet", "taso/nasnet_a", "taso/nasrnn", "taso/inceptionv3", "taso/bert",
    ]  # fmt: skip


def test_an_entry_is_frozen_and_complete(model_name):
    entry = zoo.entry(model_name)
    assert entry.name == model_name
    assert entry.title
    assert "arXiv" in entry.source or "doi" in entry.source
    assert "->" in entry.shapes
    assert (entry.seq is None) == (entry.seq_option is None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.batch = 3


def test_listing_opens_no_onnx():
    code = "import sys; from rlflow import zoo; zoo.entry(zoo.names()[0]); sys.exit('onnx' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("squeezenet", "squeezenet1.1"),
        ("densenet121", "densenet-121"),
        ("bert-classifier", "bert6-classifier"),
        ("resnet50", "taso/resnet50"),
        ("zzz", "There are: "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, near):
    with pytest.raises(UsageError, match=f"no model '{name}'") as error:
        zoo.build(name)
    assert near in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("squeezenet1.1", {"imag": 64}, ["unknown option 'imag'", "image"]),
        ("squeezenet1.1", {"seq": 4}, ["no sequence"]),
        ("squeezenet1.1", {"image": 3}, ["image is 3", "17 pixels"]),
        ("squeezenet1.1", {"batch": 0}, ["'batch' is 0", "1 or more"]),
        ("squeezenet1.1", {"batch": "N"}, ["'batch' is 'N'", "whole number"]),
        ("squeezenet1.1", {"batch": True}, ["whole number"]),
        ("inception-v3", {"image": 74}, ["75 pixels"]),
        ("densenet-121", {"image": 28}, ["29 pixels"]),
        ("nasrnn", {"seq": 3, "steps": 3}, ["same size"]),
        ("nasrnn", {"biases": 1}, ["True or False"]),
        ("nasrnn", {"inputs": "rows"}, ["steps, sequence"]),
        ("bert6-classifier", {"heads": 5}, ["5 heads", "divisor"]),
        ("resnext-50", {"width": 20}, ["width 20 leaves 24 channels", "32 groups"]),
        ("nasnet-a", {"image": 31}, ["32 pixels"]),
        ("nasnet-a", {"skip_reduction": 1}, ["True or False"]),
        ("unet", {"image": 40}, ["image is 40", "multiple of 16"]),
        ("fpn-resnet18", {"image": 48}, ["image is 48", "multiple of 32"]),
        ("bert-base", {"heads": 5}, ["5 heads", "divisor"]),
        ("vit-base", {"patch": 15}, ["patches of 15", "whole number"]),
        ("vit-base", {"heads": 7}, ["7 heads", "divisor"]),
        ("transducer", {"heads": 7}, ["7 heads", "divisor"]),
        ("transducer", {"hidden": 33, "heads": 3}, ["hidden is 33", "even"]),
        ("dalle-decoder", {"heads": 7}, ["7 heads", "divisor"]),
        ("taso/resnext50", {"width": 20}, ["32 groups"]),
        ("taso/inceptionv3", {"image": 74}, ["taso/inceptionv3", "75 pixels"]),
        ("taso/nasrnn", {"shared": True}, ["unknown option 'shared'"]),
        ("taso/bert", {"seq": 32}, ["heads of 64", "attend=True"]),
        ("taso/bert", {"heads": 7}, ["7 heads", "divisor"]),
        ("llama-decoder-step", {"kv_heads": 5}, ["5 key/value heads", "divisor"]),
        ("llama-decoder-step", {"hidden": 36, "kv_heads": 3}, ["even whole size"]),
        ("nasrnn", {"opset": 10}, ["opset 10", "11 to"]),
        ("nasrnn", {"opset": 999}, ["opset 999", "11 to"]),
        ("nasrnn", {"seed": -1}, ["seed -1"]),
    ],
)
def test_a_wrong_option_is_a_sentence(name, options, words):
    with pytest.raises(UsageError) as error:
        zoo.build(name, **options)
    for word in words:
        assert word in str(error.value)


def test_seq_sets_the_option_that_the_entry_names(small):
    steps = small("nasrnn", steps=None, seq=4).graph.input
    assert [info.name for info in steps] == ["x0", "x1", "x2", "x3"]
    past = small("llama-decoder-step", seq=None, past=9).graph
    assert next(info for info in past.input if info.name == "past.0.key").type.tensor_type.shape.dim[2].dim_value == 9


def test_none_means_the_default():
    defaults = zoo.entry("nasrnn").settle(None, None, {"hidden": None})
    assert defaults == {"batch": 1, "steps": 5, "hidden": 512, "biases": False, "shared": True, "inputs": "steps"}


def test_the_smallest_images_build(small):
    for name, image in (("squeezenet1.1", 17), ("inception-v3", 75), ("densenet-121", 29), ("repvgg-a0", 1),
                        ("resnet-18", 1), ("resnext-50", 1), ("mobilenet-v2", 1), ("shufflenet-v2", 1),
                        ("unet", 16)):  # fmt: skip
        assert small(name, image=image).graph.output[0].name == "logits"


def test_weights_beyond_the_memory_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(zoo, "_write", write)
    with pytest.raises(UsageError, match="'nasrnn': its weights take more memory than there is"):
        zoo.build("nasrnn")
