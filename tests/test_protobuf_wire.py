"""The reader of the wire format, beside protobuf's own."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow.protobuf_wire import NotProtobuf, fields, locations, parts


@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=9), st.lists(st.text(max_size=9), max_size=3))
def test_reads_what_protobuf_writes(version: int, producer: str, names: list[str]) -> None:
    model = onnx.ModelProto(ir_version=version, producer_name=producer)
    model.graph.node.add().input.extend(names)
    data = model.SerializeToString()
    found = {one.number: one for one in fields(data)}
    assert found[1].integer == version
    assert data[found[2].begin : found[2].end].decode() == producer
    (graph,) = parts(data, (0, len(data)), 7)
    (node,) = parts(data, graph, 1)
    assert [data[low:high].decode() for low, high in parts(data, node, 1)] == names


def test_fixed_widths_are_passed_over() -> None:
    tensor = onnx.TensorProto(name="w")
    attribute = onnx.AttributeProto(name="alpha", f=0.5)
    data = attribute.SerializeToString() + tensor.SerializeToString()
    assert [(one.number, one.end - one.begin) for one in fields(data)] == [(1, 5), (2, 4), (8, 1)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "ends inside a number"),
        (b"\x0a\x05ab", "ends after 2 of the 5 bytes"),
        (b"\x08\xff", "ends inside a number"),
        (b"\xff" * 12, "more than ten bytes"),
        (b"\x0d\x00\x00", "ends after 2 of the 4 bytes"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_what_is_no_message_has_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(NotProtobuf, match=reason):
        list(fields(data))


def test_a_message_does_not_reach_beyond_its_part() -> None:
    data = b"\x0a\x03abc"
    with pytest.raises(NotProtobuf):
        list(fields(data, 0, 4))


def _outside(name: str, file: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=file)
    tensor.external_data.add(key="length", value="4")
    return tensor


def test_data_files_are_found_wherever_the_tensors_stand() -> None:
    model = onnx.ModelProto()
    model.graph.initializer.extend([_outside("w", "w.bin"), onnx.TensorProto(name="v", raw_data=b"\x00" * 9)])
    model.graph.initializer.append(_outside("long", "x" * 200))
    model.graph.node.add().attribute.add(name="value", t=_outside("c", "./c.bin"))
    body = model.graph.node.add().attribute.add(name="body").g
    body.initializer.append(_outside("inner", "sub/inner.bin"))
    model.functions.add().node.add().attribute.add(name="value", t=_outside("f", "f.bin"))
    expected = {"w.bin", "x" * 200, "./c.bin", "sub/inner.bin", "f.bin"}
    assert locations(model.SerializeToString()) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"no model at all", onnx.ModelProto(producer_name="location").SerializeToString(), b"\n\x08location\x12\xff"],
    ids=["nothing", "text", "the word alone", "cut"],
)
def test_what_names_no_data_file(data: bytes) -> None:
    assert locations(data) == set()


def test_the_elements_of_weights_are_not_taken_for_names() -> None:
    model = onnx.ModelProto()
    model.graph.initializer.append(onnx.TensorProto(name="w", raw_data=_outside("t", "w.bin").SerializeToString()))
    assert locations(model.SerializeToString()) == set()
