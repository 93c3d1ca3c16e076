"""Products with few rows inside ONNX Runtime against the same in double precision."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def model(kind: str, depth: int, columns: int, bias: bool, **attributes) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A MatMul or a Gemm with constant weights, the weights as [depth, columns], and the bias."""
    rng = np.random.default_rng(2)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((depth, columns), (columns,)))
    stored = w.T if attributes.get("transB") else w
    names = ["x", "w", *(["b"] if bias else [])]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], name="product", **attributes)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(stored), "w"), numpy_helper.from_array(b, "b")][: 1 + bias],
    )
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    return raw, w, b if bias else np.zeros(columns, np.float32)


def many(depth: int, columns: int, copies: int) -> tuple[bytes, np.ndarray]:
    """So many products of one operand with weights of their own, and their sum; the sum of the weights."""
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal((depth, columns)).astype(np.float32) for _ in range(copies)]
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], name=f"product{i}") for i in range(copies)]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(copies)], ["y"], name="sum"))
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    return raw, np.sum(weights, axis=0, dtype=np.float64)


def error_of(rows: tuple[int, ...], depth: int, columns: int, kind: str = "MatMul", **more) -> float:
    """The largest error of an element, over the sum of the magnitudes of its terms."""
    tuning, threads = more.pop("tuning", {}), more.pop("threads", 1)
    raw, w, b = model(kind, depth, columns, more.pop("bias", False), **more)
    graph = BlockedGraph(raw, 0)
    assert [(site.kind, site.sizes) for site in graph.sites()] == [("product", (depth, columns))]
    made = graph.with_kernels({"product": tuning})
    assert [one.op_type for one in onnx.ModelProto.FromString(made).graph.node] == ["RowProduct"]
    x = np.random.default_rng(3).standard_normal((*rows, depth)).astype(np.float32)
    found = models.opened(made, threads).run(None, {"x": x})[0]
    truth = x.astype(np.float64) @ w.astype(np.float64) + b
    assert found.shape == truth.shape
    terms = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64) + np.abs(b)  # whose sums are rounded
    return float((np.abs(found - truth) / terms).max(initial=0.0))


@pytest.mark.parametrize("rows", [(), (1,), (1, 1), (2, 1), (3,), (4,), (1, 7), (0,)], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (64, 64), (768, 100), (33, 257)])
def test_it_is_the_product(rows: tuple[int, ...], depth: int, columns: int) -> None:
    assert error_of(rows, depth, columns, threads=2) < 2e-6


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_a_gemm_is_one_too(turned: int, bias: bool) -> None:
    assert error_of((2,), 40, 70, "Gemm", transB=turned, bias=bias) < 2e-6


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 6), depth=st.integers(1, 300), columns=st.integers(1, 300), ahead=st.sampled_from([0, 8, 32])
)
def test_any_sizes(rows: int, depth: int, columns: int, ahead: int) -> None:
    assert error_of((rows,), depth, columns, tuning={"ahead": ahead}) < 2e-6


def test_products_of_one_operand_have_weights_of_their_own() -> None:
    raw, weights = many(40, 70, 3)
    graph = BlockedGraph(raw, 0)
    made = graph.with_kernels({site.name: {} for site in graph.sites()})
    x = np.random.default_rng(3).standard_normal((1, 40)).astype(np.float32)
    truth = x.astype(np.float64) @ weights
    found = models.opened(made).run(None, {"x": x})[0]
    assert np.abs(found - truth).max() < 2e-6 * np.abs(truth).max()


def test_the_weights_are_kept_once_and_only_where_they_are_read() -> None:
    raw, _, _ = model("MatMul", 64, 64, False)
    proto = onnx.ModelProto.FromString(raw)
    proto.graph.node.add().CopyFrom(helper.make_node("MatMul", ["x", "w"], ["z"], name="second"))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    graph = BlockedGraph(proto.SerializeToString(), 0)

    def constants(*names: str) -> list[str]:
        made = onnx.ModelProto.FromString(graph.with_kernels({name: {} for name in names}))
        return [one.name for one in made.graph.initializer]

    assert constants("product") == ["w", "w.panels"]
    assert constants("product", "second") == ["w.panels"]


@pytest.mark.parametrize(
    ("kind", "attributes"), [("Gemm", {"alpha": 2.0}), ("Gemm", {"transA": 1}), ("Gemm", {"beta": 0.5})]
)
def test_what_the_kernel_cannot_do_is_no_site(kind: str, attributes: dict) -> None:
    assert BlockedGraph(model(kind, 8, 8, True, **attributes)[0], 0).sites() == []


@pytest.mark.parametrize(
    ("attributes", "sentence"), [({"columns": 1}, "1 columns do not fill 2 panels"), ({"ahead": -1}, "-1 lines ahead")]
)
def test_what_a_node_may_not_say_is_refused(attributes: dict, sentence: str) -> None:
    made = BlockedGraph(model("MatMul", 8, 128, False)[0], 0).with_kernels({"product": attributes})
    with pytest.raises(Exception, match=sentence):
        models.opened(made)


def test_rows_of_another_length_are_refused() -> None:
    session = models.opened(BlockedGraph(model("MatMul", 8, 128, False)[0], 0).with_kernels({"product": {}}))
    with pytest.raises(Exception, match="another length"):
        session.run(None, {"x": np.ones((1, 9), np.float32)})
