"""The result may be for an older opset than the model, where ONNX Runtime computes the model faster by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow.options import Options
from rlflow.pipeline import Context, loaded


def pools(opset: int = 20, channels: int = 6) -> onnx.ModelProto:
    """Poolformer's mixing of tokens, twice, in so many channels."""
    nodes = []
    before = "x"
    for name in ("a", "b"):
        after = f"{name}-mixed"
        nodes += [
            helper.make_node("AveragePool", [before], [name], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Sub", [name, before], [f"{name}-less"]),
            helper.make_node("Mul", [f"{name}-less", "scale"], [after]),
        ]
        before = after
    shape = [1, channels, 96, 96]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", before))
    scale = numpy_helper.from_array(np.linspace(0.5, 2.0, channels, dtype=np.float32).reshape(-1, 1, 1), "scale")
    graph = helper.make_graph(nodes, "g", [x], [y], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def opset_of(model: onnx.ModelProto) -> int:
    return model.opset_import[0].version


def optimized(**options: Any) -> Any:
    return rlflow.optimize(pools(), quiet=True, **{"budget": "6s", "rules": ["shape"], "gate_seconds": 3.0, **options})


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (pools(), {}, 18),
        (pools(), {"keep_opset": True}, None),
        (pools(), {"runtime": "openvino"}, None),
        (pools(18), {}, None),
        (pools(channels=16), {}, None),
    ],
)
def test_what_graphs_are_written_for(model: onnx.ModelProto, options: dict[str, Any], expected: int | None) -> None:
    with Context(Options(rules=["shape"], **options)) as context:
        came = loaded(model, context)
    assert came.exports.older == expected
    assert opset_of(came.exports.export(came.graph).model) == (expected or opset_of(model))
    assert opset_of(came.exports.as_imported().model) == opset_of(model)


def test_it_is_a_gain_by_itself(tmp_path: Path) -> None:
    target = tmp_path / "faster.onnx"
    found = optimized(output=target)
    assert found.improved and found.report.speedup > 1.5 and not found.report.trace
    assert opset_of(found.model) == opset_of(onnx.load(target)) == 18
    assert any("opset 18" in note and "--keep-opset" in note for note in found.report.notes)
    assert rlflow.verify(pools(), target).passed
    assert opset_of(rlflow.replay(pools(), [])) == 18
    assert opset_of(rlflow.replay(pools(), [], keep_opset=True)) == 20


def test_it_is_left_where_the_user_wants_that() -> None:
    found = optimized(keep_opset=True)
    assert not found.improved and opset_of(found.model) == 20
