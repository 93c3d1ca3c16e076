"""The nine real CNNs that the onnx wheel ships. Their weights are one constant: filled with seeded random numbers first."""

from __future__ import annotations

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
    # One pool of numbers, read from another place for each weight: drawing 140 million of them takes too long.
    pool = np.random.default_rng(11).standard_normal(1 << 20, dtype=np.float32)
    kept = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = shapes[node.input[0]]
        fan_in = max(int(np.prod(shape[1:])), 1) if len(shape) > 1 else 1
        weight = np.resize(np.roll(pool, 977 * index), shape) * np.float32((2 / fan_in) ** 0.5)
        if node.output[0] in positive:
            weight = np.abs(weight) * np.float32(0.5) + np.float32(0.5)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(weight, np.float32), node.output[0]))
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
