"""A metadata entry of a model's file is written without reading the rest of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from rlflow.errors import ModelError
from rlflow.frontends import storage


def model(*entries: tuple[str, str]) -> onnx.ModelProto:
    """One with a function, which a file has behind the metadata."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="d")], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    twice = helper.make_function("d", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets[:1])
    made = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=9)
    for key, value in entries:
        made.metadata_props.add(key=key, value=value)
    return made


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ([], "k", "new", [("k", "new")]),
        ([("a", "1")], "k", "new", [("a", "1"), ("k", "new")]),
        ([("k", "old"), ("a", "1")], "k", "new", [("a", "1"), ("k", "new")]),
        ([("k", "old"), ("k", "older")], "k", "", [("k", "")]),
        ([("a", "1"), ("k", "old")], "k", None, [("a", "1")]),
        ([("a", "1")], "k", None, [("a", "1")]),
    ],
)
def test_an_entry_is_set_or_removed_and_all_else_stays(
    before: list[tuple[str, str]], key: str, value: str | None, after: list[tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(*before).SerializeToString(deterministic=True))
    given = path.read_bytes()
    storage.write_metadata(path, key, value, tmp_path / "other.onnx")
    assert path.read_bytes() == given
    storage.write_metadata(path, key, value)
    expected = model(*after).SerializeToString(deterministic=True)
    assert [one.read_bytes() for one in sorted(tmp_path.iterdir())] == [expected] * 2


GROUP, VARINT = b"\xa3\x06\x08\x01\xa4\x06", b"\x70\x05"  # field 100 as a group; metadata_props as a number


@pytest.mark.parametrize("odd", [GROUP, VARINT], ids=["a group", "a number"])
@pytest.mark.parametrize("mapped", [True, False])
def test_what_protobuf_reads_keeps_its_model(odd: bytes, mapped: bool, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(("k", "old")).SerializeToString() + odd)
    if not mapped:
        monkeypatch.setattr(storage, "mmap", SimpleNamespace(mmap=_unmapped, ACCESS_READ=1))
    storage.write_metadata(path, "k", "new")
    written = onnx.load(path)
    assert [(one.key, one.value) for one in written.metadata_props] == [("k", "new")]
    assert written.graph == model().graph


def _unmapped(*_: object, **__: object) -> None:
    raise OSError(19, "No such device")


@pytest.mark.parametrize("content", [b"", b"\x3a\x7f half a graph", b"\x72\x02\x0a\x7f"])
def test_what_is_no_model_is_refused_and_stays(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is not a serialised ONNX ModelProto"):
        storage.write_metadata(path, "k", "v")
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
