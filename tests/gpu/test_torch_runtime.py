"""The torch runtime: its translation of operators, on torch's CPU (only the capture needs a GPU)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rlflow.errors import RuntimeRefused, RuntimeUnavailable
from rlflow.frontends import evaluate, graph_to_model
from rlflow.graph import Graph
from rlflow.ops import op_names
from rlflow.price.feed_specs import input_specs
from rlflow.runtime import RuntimeOptions, Worker
from rlflow.runtime.messages import feeds_from_specs
from rlflow.runtime.torch_cuda.session import Session, torch
from rlflow.runtime.torch_cuda.torch_calls import OPS

_SPEC = importlib.util.spec_from_file_location("cuda_graph_cases", Path(__file__).with_name("graph_cases.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_CASES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CASES)

MORE = {
    "einsum": 'x: f32[2,3,4] = input\ny: f32[2,4,5] = input\nz = Einsum{equation="bij,bjk->bik"}(x, y)\nreturn z',
    "group norm": "x: f32[2,4,3,3] = input\ns: f32[4] = const\nb: f32[4] = const\n"
    "z = GroupNormalization{num_groups=2}(x, s, b)\nreturn z",
    "gather elements": "x: f32[3,4] = input\ni: i64[3,2] = const [0,-1,2,1,3,0]\n"
    "y = GatherElements{axis=1}(x, i)\nreturn y",
    "lower triangle": "x: f32[4,4] = input\ny = Trilu{upper=0}(x)\nreturn y",
    "average pool, uneven": "x: f32[1,2,5,5] = input\ny = AveragePool{kernel_shape=[3,3], pads=[0,0,1,1]}(x)\nreturn y",
    "slice backwards": "x: f32[6] = input\ny = Slice{starts=[4], ends=[0], axes=[0], steps=[-2]}(x)\nreturn y",
}


def run(text: str, precision: str = "float32") -> tuple[list[np.ndarray], list[np.ndarray]]:
    graph = Graph.parse(text)
    options = RuntimeOptions(runtime="torch", precision=precision)
    session = Session(graph_to_model(graph).SerializeToString(), options, device="cpu")
    feeds = feeds_from_specs(input_specs(graph, {}), np.random.default_rng(1))
    return list(session.run(feeds).values()), evaluate(graph, feeds)


@pytest.mark.parametrize("name", [*_CASES.GRAPHS, *MORE])
def test_outputs_are_those_of_the_reference(name: str) -> None:
    text = MORE[name] if name in MORE else _CASES.GRAPHS[name][0]
    for got, right in zip(*run(text), strict=True):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-5)


def test_half_precision_stays_near() -> None:
    for got, right in zip(*run(_CASES.GRAPHS["matmul bias gelu"][0], "bfloat16"), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, right, rtol=5e-2, atol=2e-1)


def test_every_translation_is_of_a_known_operator() -> None:
    assert set(OPS) <= set(op_names())


def test_what_has_no_translation_is_refused() -> None:
    with pytest.raises(RuntimeRefused, match="no translation of Det"):
        run("x: f32[3,3] = input\ny = Det(x)\nreturn y")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_worker_says_so() -> None:
    with Worker(RuntimeOptions(runtime="torch")) as worker:  # noqa: SIM117
        with pytest.raises(RuntimeUnavailable, match="sees no CUDA device"):
            worker.describe()
