"""What a result shows, saves, and which kind of model it hands back."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir
import pytest

import rlflow
from rlflow import zoo
from rlflow.errors import OutputError

HOW = {"cost": "analytic", "budget": "20x", "search": "greedy"}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build("nasrnn", steps=2, hidden=8)


@pytest.fixture(scope="module")
def result(model: onnx.ModelProto) -> rlflow.OptimizeResult:
    return rlflow.optimize(model, **HOW)


def test_it_shows_itself_in_a_line_a_text_and_a_notebook(result: rlflow.OptimizeResult) -> None:
    assert repr(result).startswith("<OptimizeResult of ") and repr(result).count("\n") == 0 and len(repr(result)) < 300
    text = result.summary()
    assert text.startswith("Analytic cost ") and "MatMul" in text and "\x1b" not in text
    assert "<table>" in result._repr_html_() and "MatMul" in result._repr_html_()


def test_its_trace_is_typed_and_replays(result: rlflow.OptimizeResult, model: onnx.ModelProto) -> None:
    assert result.trace is not None and result.trace[0].rule and isinstance(result.trace[0].match, tuple)
    assert [step.to_dict() for step in result.trace] == [dict(step) for step in result.report.trace or ()]
    replayed = rlflow.replay(model, result.trace)
    assert len(replayed.graph.node) == len(result.model.graph.node)


def test_it_saves_its_model(result: rlflow.OptimizeResult, model: onnx.ModelProto, tmp_path: Path) -> None:
    result.save(tmp_path / "out.onnx")
    assert rlflow.verify(model, tmp_path / "out.onnx").passed
    assert onnx.load(tmp_path / "out.onnx") == result.model


def test_it_never_takes_the_originals_place(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OutputError, match="the input itself"):
        rlflow.optimize(path, **HOW).save(path)
    assert path.read_bytes() == model.SerializeToString()


def test_weights_in_another_file_are_taken_along(model: onnx.ModelProto, tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save_model(copy, folder / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    kept = rlflow.optimize(folder / "in.onnx", **HOW)
    kept.save(tmp_path / "out.onnx")
    assert rlflow.verify(model, tmp_path / "out.onnx").passed


def test_a_model_of_onnx_ir_gives_one_back(model: onnx.ModelProto, result: rlflow.OptimizeResult) -> None:
    given = onnx_ir.from_proto(model)
    found = rlflow.optimize(given, **HOW)
    assert isinstance(found.model, onnx_ir.Model)
    assert found.report.operators_after == result.report.operators_after
    assert rlflow.verify(given, found.model).passed
    assert onnx_ir.to_proto(given) == onnx_ir.to_proto(onnx_ir.from_proto(model))


def test_a_program_of_torch_gives_one_back(model: onnx.ModelProto) -> None:
    pytest.importorskip("torch")
    from torch.onnx import ONNXProgram

    found = rlflow.optimize(ONNXProgram(onnx_ir.from_proto(model), None), **HOW)
    assert isinstance(found.model, ONNXProgram)
    assert rlflow.verify(model, found.model).passed


def test_other_calls_take_a_model_of_onnx_ir_too(model: onnx.ModelProto, result: rlflow.OptimizeResult) -> None:
    given = onnx_ir.from_proto(model)
    assert rlflow.load(given).graph.digest == rlflow.load(model).graph.digest
    assert isinstance(rlflow.simplify(given), onnx_ir.Model)
    assert isinstance(rlflow.shrink(given, seconds=0.5, race_seconds=0.5, search=None).model, onnx.ModelProto)
    assert rlflow.verify(given, rlflow.replay(given, result.trace or ())).passed
    assert onnx_ir.to_proto(given) == onnx_ir.to_proto(onnx_ir.from_proto(model))
