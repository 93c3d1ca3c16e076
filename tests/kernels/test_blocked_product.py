"""Products of many rows by a constant matrix, plainly and by Strassen's algorithm, inside ONNX Runtime."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import blocked_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_product import model

import rlflow.kernels
from rlflow.frontends import blocked
from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import KEY, Choice, KernelPlan, KernelsNotUsed, unavailable
from rlflow.kernels.preparing import block_here

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

#: Largest error of an element over the sum of its terms' magnitudes, with Strassen's algorithm and without.
BOUND = {0: 1e-6, 1: 4e-6}


def made(depth: int, columns: int, block: int, kind: str = "MatMul", bias: bool = False, **more) -> tuple[bytes, ...]:
    """A model whose product is by the kernel; its weights, its bias. ``block``: 0 where the runtime has no blocked
    tensors. ``more``: the kernel's attributes, or Gemm's.
    """
    own = {name: more.pop(name) for name in ("strassen", "chunk") if name in more}
    raw, w, b = model(kind, depth, columns, bias, **more)
    found = BlockedGraph(raw, block).with_kernels({"product": {"strassen": 0, **own}})
    assert [one.op_type for one in onnx.ModelProto.FromString(found).graph.node] == ["BlockedProduct"]
    return found, w, b


def error_of(rows: tuple[int, ...], depth: int, columns: int, block: int, threads: int = 1, **more) -> float:
    raw, w, b = made(depth, columns, block, **more)
    x = np.random.default_rng(3).standard_normal((*rows, depth)).astype(np.float32)
    found = models.opened(raw, threads).run(None, {"x": x})[0]
    truth = x.astype(np.float64) @ w.astype(np.float64) + b
    assert found.shape == truth.shape
    terms = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64) + np.abs(b)
    return float((np.abs(found - truth) / terms).max(initial=0.0))


@pytest.mark.parametrize("strassen", [0, 1])
@pytest.mark.parametrize("block", [0, 8, 16])
@pytest.mark.parametrize("rows", [(), (1,), (2, 1), (0,), (5, 3), (1, 49), (2, 7, 28), (513,)], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(16, 16), (64, 48), (48, 64), (256, 112)])
def test_it_is_the_product(rows: tuple[int, ...], depth: int, columns: int, block: int, strassen: int) -> None:
    assert error_of(rows, depth, columns, block, threads=2, strassen=strassen) < BOUND[strassen]


@pytest.mark.parametrize("strassen", [0, 1])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_a_gemm_is_one_too(turned: int, bias: bool, strassen: int) -> None:
    error = error_of((50,), 64, 96, 16, kind="Gemm", transB=turned, bias=bias, strassen=strassen)
    assert error < BOUND[strassen]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 200),
    depth=st.integers(1, 12),
    columns=st.integers(1, 12),
    chunk=st.sampled_from([0, 48, 96]),
    threads=st.integers(1, 2),
    strassen=st.integers(0, 1),
)
def test_any_sizes(rows: int, depth: int, columns: int, chunk: int, threads: int, strassen: int) -> None:
    error = error_of((rows,), 16 * depth, 16 * columns, 16, threads, chunk=chunk, strassen=strassen)
    assert error < BOUND[strassen]


def test_strassens_algorithm_is_done_where_there_are_halves() -> None:
    """Its sums are others, and so is the last digit of some of them."""
    x = np.random.default_rng(3).standard_normal((64, 96)).astype(np.float32)

    def outputs(depth: int, columns: int) -> list[np.ndarray]:
        both = (made(depth, columns, 16, strassen=strassen)[0] for strassen in (0, 1))
        return [models.opened(raw).run(None, {"x": x[:, :depth]})[0] for raw in both]

    plain, strassen = outputs(96, 64)
    assert (plain != strassen).any()
    for depth, columns in ((48, 64), (96, 16)):
        plain, strassen = outputs(depth, columns)
        assert (plain == strassen).all()


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [({"strassen": 2}, "strassen is 2; expected 0 or 1"), ({"chunk": -1}, "a chunk of -1 rows is not between")],
)
def test_what_a_node_may_not_say_is_refused(attributes: dict, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        models.opened(made(32, 32, 16, **attributes)[0])


def test_rows_of_another_length_are_refused() -> None:
    session = models.opened(made(32, 32, 16)[0])
    with pytest.raises(Exception, match="another length"):
        session.run(None, {"x": np.ones((50, 31), np.float32)})


def with_plan(depth: int, columns: int, algorithm: str) -> bytes:
    """A MatMul, with a plan in its metadata that names the algorithm for it."""
    raw, *_ = model("MatMul", depth, columns, False)
    plan = KernelPlan("1.0", block_here(), 1, 1.5, (Choice("product", (depth, columns), algorithm, 2.0),))
    planned = onnx.ModelProto.FromString(raw)
    blocked.set_metadata(planned, KEY, plan.text())
    return planned.SerializeToString()


@pytest.mark.parametrize("algorithm", ["blocked-product", "product-strassen"])
def test_a_session_uses_the_plan(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path))
    raw = with_plan(64, 96, algorithm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = rlflow.kernels.session(raw)
    (prepared,) = tmp_path.rglob("*.onnx")
    assert [one.op_type for one in onnx.load(prepared).graph.node] == ["BlockedProduct"]
    x = np.random.default_rng(3).standard_normal((1, 50, 64)).astype(np.float32)
    plain = ort.InferenceSession(raw, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert np.abs(session.run(None, {"x": x})[0] - plain).max() < 1e-5 * np.abs(plain).max()


@pytest.mark.parametrize(("depth", "columns"), [(10, 24), (64, 40)])
def test_an_edited_plan_for_a_matrix_of_no_whole_blocks_changes_nothing(
    depth: int, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path))
    with pytest.warns(KernelsNotUsed):
        session = rlflow.kernels.session(with_plan(depth, columns, "product-strassen"))
    assert session.run(None, {"x": np.ones((50, depth), np.float32)})[0].shape == (50, columns)
