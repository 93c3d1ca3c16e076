"""The store of tensors: digests by content, facts that hold, every element type there and back."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlflow.frontends.constants import ConstantStore, array_to_proto, constant_array, facts, inline_values, onnx_dtype
from rlflow.graph import Graph, GraphBuilder

NAMES = """float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 uint16 int32 uint32 int64
uint64 bool int4 uint4 complex64"""
TYPES = [np.dtype(getattr(ml_dtypes, name, None) or name) for name in NAMES.split()]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_each_type_there_and_back(dtype: np.dtype) -> None:
    array = np.array([[0, 1, 3], [2, 1, 0]]).astype(dtype)
    store = ConstantStore()
    digest = store.put(array)
    proto = store.to_proto(digest, "w")
    onnx.checker.check_tensor(proto)
    other = ConstantStore()
    assert other.put_proto(proto) == digest
    np.testing.assert_array_equal(other[digest], array)
    assert other.content(digest).dtype == onnx_dtype(array)
    known = facts(onnx_dtype(array), array)
    if dtype.kind != "c":
        assert known == (0.0, float(array.max()), False, True)


def test_strings() -> None:
    store = ConstantStore()
    digest = store.put(np.array(["a", "bc"], object))
    assert store.to_proto(digest, "t").string_data == [b"a", b"bc"]
    assert store.put_proto(store.to_proto(digest, "t")) == digest
    assert facts(8, store[digest]) is None
    assert inline_values(8, store[digest]) is None


def test_digest_depends_on_type_shape_and_elements() -> None:
    store = ConstantStore()
    arrays = [
        np.zeros(4, np.float32),
        np.zeros((2, 2), np.float32),
        np.zeros(4, np.int32),
        np.zeros(8, np.float16),
        np.ones(4, np.float32),
    ]
    assert len({store.put(array) for array in arrays}) == 5
    assert store.put(np.zeros(4, np.float32)) == store.put(np.zeros(8, np.float32)[::2])


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32)))
def test_facts_hold(array: np.ndarray) -> None:
    low, high, uniform, finite = facts(1, array) or (0, 0, False, False)
    assert finite == bool(np.isfinite(array).all())
    if finite:
        assert (low, high) == (array.min(), array.max())
        assert uniform == bool((array == array[0]).all())
    else:
        assert (low, high, uniform) == (-np.inf, np.inf, False)


def test_large_integers_are_not_said_to_be_uniform() -> None:
    assert facts(7, np.array([2**60, 2**60 + 1])) == (2.0**60, 2.0**60, False, True)


def test_elements_are_read_only() -> None:
    store = ConstantStore()
    array = store[store.put(np.zeros(3, np.float32))]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_small_constants_of_the_core() -> None:
    graph = Graph.parse("c: f16[3] = const [0.5,1.0,2.0]\nb: bool[2] = const [1,0]\nd = Cast{to=1}(b)\nreturn c, d")
    found = [constant_array(graph, node, None) for node in graph.order() if graph.op(node) == "Constant"]
    assert [(array.dtype.name, array.tolist()) for array in found if array is not None] == [
        ("float16", [0.5, 1.0, 2.0]),
        ("bool", [True, False]),
    ]


def test_inline_limit_and_symbolic_range() -> None:
    assert inline_values(1, np.zeros(1024, np.float32)) is not None
    assert inline_values(1, np.zeros(1025, np.float32)) is None
    assert inline_values(7, np.array([np.iinfo(np.int64).max])) is None


def test_a_constant_of_a_file_and_one_of_the_core_are_one_node() -> None:
    builder = GraphBuilder()
    parsed = Graph.parse("c: i64[2] = const [3,4]\nreturn c")
    value = builder.constant(7, [2], "0" * 32, [3, 4], None)
    assert builder.finish([value]).digest == parsed.digest


def test_array_to_proto_keeps_rank_zero() -> None:
    assert list(array_to_proto(np.float32(2.5) + np.zeros((), np.float32), "s").dims) == []


def test_sympy_waits_until_it_is_used() -> None:
    code = (
        "import sys, rlflow.frontends.constants, onnx_ir; print('sympy.core' in sys.modules); "
        "print((onnx_ir.SymbolicDim('a') + 1).value); "
        "import sympy.core.numbers; from sympy import Symbol; print(Symbol('x') + 1, 'sympy.core' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["False", "a + 1", "x + 1 True"]
