"""Where an output may go, and where it may not."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from rlflow.errors import OutputError
from rlflow.files import check_output


def _model_with_data(folder: Path) -> Path:
    """A model whose two weights are in ``w.bin`` and ``sub/v.bin``."""
    model = onnx.ModelProto()
    (folder / "sub").mkdir()
    for name, file in (("w", "w.bin"), ("v", "sub/v.bin")):
        tensor = model.graph.initializer.add(name=name, data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=file)
        (folder / file).write_bytes(b"weights")
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("model.onnx", "is the input itself"),
        ("sub/../model.onnx", "is the input itself"),
        ("w.bin", "holds weights of the input"),
        ("sub/v.bin", "holds weights of the input"),
        ("link.bin", "holds weights of the input"),
    ],
)
def test_what_a_model_is_made_of_is_not_written_over(output: str, sentence: str, tmp_path: Path) -> None:
    model = _model_with_data(tmp_path)
    (tmp_path / "link.bin").symlink_to("w.bin")
    with pytest.raises(OutputError, match=sentence):
        check_output(tmp_path / output, model)


@pytest.mark.parametrize("output", ["new.onnx", "old.bin", "sub/w.bin"])
def test_other_files_may_be_written_over(output: str, tmp_path: Path) -> None:
    model = _model_with_data(tmp_path)
    (tmp_path / "old.bin").write_bytes(b"old")
    assert check_output(tmp_path / output, model) == tmp_path / output
