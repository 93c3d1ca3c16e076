"""A pooling window that lies in the padding, as dilation makes them, has the lowest number there is. No rule may move a
function past it: ``Relu`` of that is 0, and twice it is minus infinity."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from rlflow.frontends import load_model, save_model
from rlflow.rewrite import RuleLibrary, State, compiled, load_rules

POOL = "MaxPool<kernel_shape = [2], dilations = [{dilation}], pads = [1, 1]>"
BODIES = {
    "function before": "r = Relu(x)\ny = {pool}(r)",
    "function behind": "r = {pool}(x)\ny = Relu(r)",
    "doubled before": "r = Add(x, x)\ny = {pool}(r)",
    "doubled behind": "r = {pool}(x)\ny = Add(r, r)",
    "cubed before": "q = Mul(x, x)\nr = Mul(x, q)\ny = {pool}(r)",
    "cubed behind": "r = {pool}(x)\nq = Mul(r, r)\ny = Mul(q, r)",
}


@functools.cache
def rules() -> Any:
    """Those that are loaded by default, and the generated ones."""
    return compiled(RuleLibrary([*load_rules().values(), *load_rules(families=["generated"]).values()]))


def model(body: str, dilation: int) -> onnx.ModelProto:
    extent = 2 + 2 - dilation  # the operand's, both pads, and a window of two elements so far apart
    shapes = f"(float[1,1,2] x) => (float[1,1,{extent}] y)"
    text = body.format(pool=POOL.format(dilation=dilation))
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\ng {shapes} {{\n{text}\n}}')


def run(found: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": np.array([[[-1.0, -2.0]]], np.float32)})[0]
    return result


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("dilation", "some"), [(1, True), (3, None)])
def test_no_rule_changes_what_is_computed(body: str, dilation: int, some: bool | None) -> None:
    original = model(body, dilation)
    imported = load_model(original)
    state = State(imported.graph, rules())
    expected = run(original)
    count = len(state.moves())
    assert some is None or count > 0
    for index in range(count):
        np.testing.assert_array_equal(run(save_model(imported, state.child(index))), expected)
