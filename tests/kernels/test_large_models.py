"""A plan for a model of large weights: they are written once, mapped by all that run them, and cross no pipe."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
import rlflow.kernels
from rlflow import zoo
from rlflow.frontends import load_model, storage
from rlflow.pipeline import Context, kernel_wishes
from rlflow.pipeline import kernel_planning as stage
from rlflow.pipeline.parts import ModelTimes
from rlflow.race import gate
from rlflow.runtime import wire

pytestmark = pytest.mark.skipif(rlflow.kernels.unavailable() is not None, reason=str(rlflow.kernels.unavailable()))

WIDTH = 1800
WEIGHTS = 2 * 4 * WIDTH * WIDTH  # bytes: more than models have that are run from memory


def normalised_products() -> bytes:
    """Two large matrix products of normalised rows."""
    rng = np.random.default_rng(3)
    shapes = {"scale": (WIDTH,), "v": (WIDTH, WIDTH), "w": (WIDTH, WIDTH)}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"]),
        helper.make_node("MatMul", ["n", "v"], ["a"]),
        helper.make_node("MatMul", ["n", "w"], ["b"]),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    found = tmp_path / "scratch"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path / "cache"))
    return found


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> list[int]:
    """A machine on which every kernel is near enough and wins; the bytes of all temporary files when the race began."""
    found: list[int] = []
    compared = stage.verified

    class Decision:
        winner, speedup, reason = "kernels", 1.5, ""

    def choose(*_: Any, **__: Any) -> Decision:
        found.append(sum(one.stat().st_size for one in scratch.rglob("*") if one.is_file()))
        return Decision()

    monkeypatch.setattr(
        stage, "measured", lambda graph, *_: {one.name: {"": 100.0, "row-norm": 50.0} for one in graph.sites()}
    )
    monkeypatch.setattr(stage, "verified", lambda *how: SimpleNamespace(passed=compared(*how) is not None))
    monkeypatch.setattr(gate, "choose", choose)
    return found


def planned(tmp_path: Path) -> onnx.ModelProto:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(normalised_products())
    result = rlflow.optimize(path, output=out, cost="analytic", search="greedy", budget="1x", kernels=True)
    assert any("is 1.50 times as fast" in note for note in result.report.notes), result.report.notes
    return onnx.load(out)


def test_a_model_that_takes_long_has_a_plan_and_nothing_else(
    tmp_path: Path, race: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither priced nor searched, and copied once, with the plan."""
    monkeypatch.setattr(Context, "pace", lambda *_: ModelTimes(0.6, 0.5))
    monkeypatch.setattr(kernel_wishes, "_gains_much", lambda graph: True)
    path, out, copies = tmp_path / "in.onnx", tmp_path / "out.onnx", list[str]()
    path.write_bytes(normalised_products())
    copied = storage.write_metadata
    monkeypatch.setattr(storage, "write_metadata", lambda *how: [copied(*how), copies.append(str(how[-1]))])
    report = rlflow.optimize(path, output=out, budget="60s", kernels=True).report
    assert report.reason.startswith("the model takes so long that rewrites and kernels are not both in 60 s")
    assert report.stages.keys() == {"starting", "loading", "kernels", "writing"}
    assert (race != [], copies) == (True, [str(out)])
    written = onnx.load(out)
    assert [entry.key for entry in written.metadata_props] == [rlflow.kernels.KEY]
    del written.metadata_props[:]
    assert written == onnx.load(path)


@pytest.mark.parametrize(
    ("model", "sizes", "much"),
    [
        ("bert6-classifier", {"layers": 1, "vocab": 100}, False),  # but for its pooled row
        ("vit-base", {"layers": 1}, False),  # its convolution meets no pixel twice
        ("llama-decoder-step", {"layers": 1}, True),
        ("squeezenet1.1", {}, True),
        ("shufflenet-v2", {}, False),  # depthwise, but for a convolution of stride 2
    ],
)
def test_nothing_but_kernels_is_for_models_that_they_gain_much_of(
    model: str, sizes: dict[str, int], much: bool
) -> None:
    assert kernel_wishes._gains_much(load_model(zoo.build(model, **sizes)).graph) is much


def test_no_weights_cross_a_pipe(tmp_path: Path, race: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0

    def measured(message: Any) -> Any:
        nonlocal largest
        largest = max(largest, len(pickle.dumps(message, protocol=5)))
        return message

    send, receive = wire.send, wire.receive
    monkeypatch.setattr(wire, "send", lambda stream, message: send(stream, measured(message)))
    monkeypatch.setattr(wire, "receive", lambda stream: measured(receive(stream)))
    planned(tmp_path)
    assert race
    assert 0 < largest < WEIGHTS / 20


def test_weights_are_written_once_and_nothing_is_left(tmp_path: Path, race: list[int], scratch: Path) -> None:
    model = planned(tmp_path)
    assert [one < 2 * WEIGHTS for one in race] == [True]  # and what the search made of one of them
    assert list(scratch.iterdir()) == []
    plan = rlflow.kernels.KernelPlan.parse(
        next(entry.value for entry in model.metadata_props if entry.key == rlflow.kernels.KEY)
    )
    assert {choice.algorithm for choice in plan.choices} == {"row-norm"}
