"""The reader of the wire format, beside protobuf's own."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow.protobuf_wire import NotProtobuf, fields, parts


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
