"""Where an output may go, and where it may not."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import onnx
import pytest

from rlflow.errors import OutputError, UsageError
from rlflow.files import check_output, write_atomically
from rlflow.frontends import storage


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


@pytest.mark.parametrize("name", ["", "-"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="give the name of a file to write"):
        check_output(name, None)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250, "nul\0", "x" * 300 + "/o.onnx"], ids=len)
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written|there is no directory"):
        check_output(tmp_path / name, None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    model = _model_with_data(tmp_path)
    monkeypatch.setattr("os.stat", refused)  # whoever runs the tests may be allowed to search every folder
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        check_output(tmp_path / "sub" / "o.onnx", model)


# -- what is no plain file


def _null_device(folder: Path) -> Path:
    path = folder / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_bytes(b"x")
    except (AttributeError, OSError) as error:
        pytest.skip(f"a device cannot be made or used here: {error}")
    return path


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    device = _null_device(tmp_path)
    for output in (device, tmp_path / "link"):
        if output != device:
            output.symlink_to(device)
        check_output(output, None)
        write_atomically(output, b"gone")
        storage.write(onnx.ModelProto(), output, "", False)
        assert output.is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "null"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    check_output(pipe, None)
    write_atomically(pipe, b"through")
    reader.join(10)
    assert read == [b"through"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(there: bool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    target, link = tmp_path / "sub" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"before")
    link.symlink_to("sub/target")
    check_output(link, None)
    write_atomically(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_weights_lie_beside_what_a_link_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LARGEST_FILE", 1000)
    model = onnx.ModelProto()
    model.graph.initializer.add(name="w", dims=[512], data_type=onnx.TensorProto.FLOAT, raw_data=bytes(2048))
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to("sub/target.onnx")
    storage.write(model, tmp_path / "link.onnx", "", False)
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["target.onnx", "target.onnx.data"]
    with pytest.raises(OutputError, match="need a file beside it"):
        storage.write(model, _null_device(tmp_path), "", False)
