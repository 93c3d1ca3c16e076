"""Weights in files of their own: read lazily, embedded where one file holds them, written beside the model where it
does not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from model_tools import model, random, run, value
from onnx import helper

from rlflow.errors import ModelError, OutputError
from rlflow.frontends import load_model, save_model, storage


@pytest.fixture
def external(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Add", ["h", "b"], ["y"], name="sum"),
    ]
    source = model(nodes, [value("x", [2, 64])], [value("y", [2, 80])], {"w": random(64, 80), "b": random(80)})
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    onnx.save(source, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def check(original: Path, copy: Path) -> None:
    feeds = {"x": random(2, 64, seed=3)}
    np.testing.assert_array_equal(run(str(copy), feeds)[0], run(str(original), feeds)[0])


def test_small_models_become_one_file(external: Path, tmp_path: Path) -> None:
    imported = load_model(external)
    out = tmp_path / "out.onnx"
    written = save_model(imported, imported.graph, str(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.onnx"]
    assert written == onnx.load(out, load_external_data=False)
    assert not any(item.external_data for item in written.graph.initializer)
    check(external, out)


def test_large_models_keep_a_file_of_weights(external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_LARGE", 1000)
    imported = load_model(external)
    out = tmp_path / "out.onnx"
    save_model(imported, imported.graph, str(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.onnx", "out.onnx.data"]
    slim = onnx.load(out, load_external_data=False)
    outside = {item.name for item in slim.graph.initializer if item.data_location == onnx.TensorProto.EXTERNAL}
    assert outside == {"w"}, "what is below 1 kB stays inside"
    check(external, out)


def test_too_much_for_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", [2, 64])],
        [value("y", [2, 80])],
        {"w": random(64, 80)},
    )
    before = tmp_path / "before.onnx"
    onnx.save(source, before)
    monkeypatch.setattr(storage, "LARGEST_FILE", 1000)
    imported = load_model(before)
    out = tmp_path / "out.onnx"
    save_model(imported, imported.graph, str(out))
    assert (tmp_path / "out.onnx.data").stat().st_size == 64 * 80 * 4
    check(before, out)


def test_a_model_may_be_written_over_its_own_weights(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_LARGE", 1000)
    feeds = {"x": random(2, 64, seed=3)}
    expected = run(str(external), feeds)[0]
    imported = load_model(external)
    save_model(imported, imported.graph, str(external))
    np.testing.assert_array_equal(run(str(external), feeds)[0], expected)


@pytest.mark.parametrize(
    ("how", "target"),
    [
        ("path", "weights.bin"),
        ("path", "link"),
        ("path", "sub/../weights.bin"),
        ("message", "weights.bin"),
        ("message", "link"),
    ],
)
def test_a_model_is_not_saved_over_its_weights(
    how: str, target: str, external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = external.parent
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("weights.bin")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    monkeypatch.chdir(folder)
    imported = load_model(external.name if how == "path" else onnx.load(external, load_external_data=False))
    if how == "path":
        monkeypatch.chdir(folder.parent)
    with pytest.raises(OutputError, match="the original is never overwritten"):
        save_model(imported, imported.graph, folder / target)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def _kept_apart(folder: Path, name: str) -> Path:
    """A model with its weights in ``NAME.data`` beside it, as rlflow writes large ones."""
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", [2, 64])],
        [value("y", [2, 80])],
        {"w": random(64, 80)},
    )
    path = folder / name
    onnx.save(source, path, save_as_external_data=True, location=f"{name}.data", size_threshold=0)
    return path


@pytest.mark.parametrize("large", [1000, 1_000_000], ids=["weights in a file again", "weights inside"])
@pytest.mark.parametrize(
    ("source", "kept"),
    [("copy.onnx", True), ("sub/../copy.onnx", True), ("other.onnx", False), ("model.onnx", False)],
)
def test_old_weights_stay_while_another_model_has_them(
    source: str, kept: bool, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_LARGE", large)
    target = _kept_apart(tmp_path, "model.onnx")
    _kept_apart(tmp_path, "other.onnx")  # whose data file is another
    (tmp_path / "sub").mkdir()
    if "copy" in source:
        (tmp_path / "copy.onnx").write_bytes(target.read_bytes())
    feeds = {"x": random(2, 64, seed=3)}
    expected = run(str(target), feeds)[0]
    imported = load_model(tmp_path / source)
    save_model(imported, imported.graph, str(target))
    assert (tmp_path / "model.onnx.data").exists() == kept
    for path in tmp_path.glob("*.onnx"):
        np.testing.assert_array_equal(run(str(path), feeds)[0], expected)


def test_old_weights_stay_where_the_source_lies_above_them(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    target = _kept_apart(tmp_path / "sub", "model.onnx")
    above = onnx.load(target, load_external_data=False)
    above.graph.initializer[0].external_data[0].value = "sub/model.onnx.data"
    (tmp_path / "above.onnx").write_bytes(above.SerializeToString())
    imported = load_model(tmp_path / "above.onnx")
    save_model(imported, imported.graph, str(target))
    check(tmp_path / "above.onnx", target)


def test_without_a_path_the_weights_are_inside(external: Path) -> None:
    imported = load_model(external)
    built = save_model(imported, imported.graph)
    feeds = {"x": random(2, 64, seed=3)}
    np.testing.assert_array_equal(run(built, feeds)[0], run(str(external), feeds)[0])


def test_a_missing_data_file_is_named(external: Path) -> None:
    (external.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"'weights\.bin' is not beside the model"):
        load_model(external)


def test_data_outside_the_directory_is_refused(external: Path) -> None:
    source = onnx.load(external, load_external_data=False)
    for entry in source.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../secret.bin"
    (external.parent.parent / "secret.bin").write_bytes(bytes(1 << 16))
    external.write_bytes(source.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's directory"):
        load_model(external)


def test_an_interrupt_after_the_model_is_there_leaves_it_its_weights(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_LARGE", 1000)
    imported, plain, target = load_model(external), storage.write_atomically, tmp_path / "o.onnx"

    def interrupted(*given: object) -> None:
        plain(*given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "write_atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(imported, imported.graph, str(target))
    check(external, target)
