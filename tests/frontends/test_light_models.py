"""The nine real CNNs of the onnx wheel; their weights are one constant, so random numbers replace them first."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from model_tools import run
from onnx import numpy_helper

from rlflow.frontends import load_model, save_model

FOLDER = Path(next(iter(onnx.backend.test.__path__))) / "data" / "light"
MODELS = sorted(FOLDER.glob("light_*.onnx"))


def filled(path: Path) -> onnx.ModelProto:
    """The model with each ConstantOfShape weight as an initialiser: He-scaled, a variance positive."""
    model = onnx.load(path)
    shapes = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    positive = {name for node in norms for name in (node.input[1], node.input[4])}
    # One pool of numbers for all weights: drawing 140 million of them takes too long.
    pool = np.random.default_rng(11).standard_normal((1 << 20) - 3, dtype=np.float32)
    kept = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(dim) for dim in shapes[node.input[0]]]
        numbers = np.roll(pool, 977 * index) * np.float32((2 / max(prod(shape[1:]), 1)) ** 0.5)
        if node.output[0] in positive:
            numbers = np.abs(numbers) * np.float32(0.5) + np.float32(0.5)
        weight = model.graph.initializer.add(name=node.output[0], data_type=onnx.TensorProto.FLOAT, dims=shape)
        size = 4 * prod(shape)
        weight.raw_data = (numbers.tobytes() * (size // numbers.nbytes + 1))[:size]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def test_all_nine_are_there() -> None:
    assert len(MODELS) == 9


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_outputs_stay_the_same(path: Path) -> None:
    source = filled(path)
    imported = load_model(source)
    assert imported.passthrough is None
    assert not any("carried" in note for note in imported.notes), imported.notes
    saved = save_model(imported, imported.graph)
    assert {node.name for node in saved.graph.node} <= {node.name for node in source.graph.node}
    (feed,) = (info for info in saved.graph.input)
    shape = [dim.dim_value for dim in feed.type.tensor_type.shape.dim]
    feeds = {feed.name: np.random.default_rng(3).standard_normal(shape).astype(np.float32)}
    # With older containers the weights stay inputs, which this runtime wants fed.
    source.ir_version = max(source.ir_version, 4)
    for found, expected in zip(run(saved, feeds), run(source, feeds), strict=True):
        assert np.isfinite(expected).all()
        assert expected.std() > 0, "a constant output shows nothing"
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
