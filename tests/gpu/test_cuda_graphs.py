"""Graphs on the stand-in GPU against ONNX's reference evaluator: planner, kernels, memory, choices, captures."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow.errors import RuntimeRefused
from rlflow.frontends import evaluate, graph_to_model
from rlflow.graph import Graph
from rlflow.price.feed_specs import input_specs
from rlflow.runtime import RuntimeOptions, Worker, cuda
from rlflow.runtime.messages import feeds_from_specs

pytestmark = pytest.mark.usefixtures("fake_gpu")

_SPEC = importlib.util.spec_from_file_location("cuda_graph_cases", Path(__file__).with_name("graph_cases.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_CASES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CASES)
CONV, GRAPHS = _CASES.CONV, _CASES.GRAPHS


def opened(text: str, precision: str = "float32", rotate: int = 0) -> tuple[Graph, cuda.Session, dict[str, np.ndarray]]:
    graph = Graph.parse(text)
    options = RuntimeOptions(runtime="cudnn", precision=precision)
    session = cuda.Session(graph_to_model(graph).SerializeToString(), options, rotate=rotate)
    return graph, session, feeds_from_specs(input_specs(graph, {}), np.random.default_rng(1))


def steps(session: cuda.Session) -> str:
    assert session.executable is not None
    return "; ".join(session.executable.steps())


@pytest.mark.parametrize("name", GRAPHS)
def test_outputs_are_those_of_the_reference(name: str) -> None:
    text, wanted = GRAPHS[name]
    graph, session, feeds = opened(text)
    found = session.run(feeds)
    expected = evaluate(graph, feeds)
    assert list(found) == [f"output_{k}" for k in range(len(expected))]
    for got, right in zip(found.values(), expected, strict=True):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-5)
    assert wanted in steps(session)


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 1e-5), ("float16", 5e-3), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("name", ["conv residual relu", "matmul bias gelu", "layer norm of a sum", "softmax", "concat"])
def test_reduced_precision_stays_near(name: str, precision: str, tolerance: float) -> None:
    graph, session, feeds = opened(GRAPHS[name][0], precision)
    for got, right in zip(session.run(feeds).values(), evaluate(graph, feeds), strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=4 * tolerance)


def test_the_fastest_routine_is_chosen_and_those_that_fail_are_left_out() -> None:
    _, session, feeds = opened(GRAPHS["conv bias relu"][0])
    session.run(feeds)
    # The stand-in's clock: engine 1 with everything inside 22 us, engine 0 32 us; channels last 21 and 6 for turning.
    # Engine 2 wants more workspace than there is, engine 3 has tensor cores, and engine 5 does not take it.
    assert steps(session) == "convolution [6,4,3,3] with bias, Relu, plan 0 of engine 1"


CHAIN = (
    CONV + "b: f32[6] = const\nlow: f32[] = const -0.5\nhigh: f32[] = const 0.25\ny = Conv{pads=[1,1,1,1]}(x, w, b)\n"
)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (CHAIN + "z = Sigmoid(y)\nreturn z", "with bias, Sigmoid,"),
        (CHAIN + "z = Tanh(y)\nreturn z", "with bias, Tanh,"),
        (CHAIN + "z = Elu{alpha=0.5}(y)\nreturn z", "with bias, Elu,"),
        (CHAIN + "z = Clip(y, low, high)\nreturn z", "with bias, Clip,"),
        (CHAIN + "z = Mul(y, y)\nreturn z", "with bias, plan 0 of engine 1; pointwise Mul"),
        (CHAIN + "r: f32[2,6,7,6] = input\ns = Add(y, r)\nz = Tanh(s)\nreturn z", "with bias, residual, Tanh,"),
        (CONV + "r: f32[2,6,5,4] = input\ny = Conv(x, w)\ns = Add(r, y)\nreturn s", "with, residual,"),
        (CONV + "y = Conv(x, w)\nz = Relu(y)\nu = Neg(z)\nreturn u", "with Relu, then a kernel for the rest,"),
        (CONV + "y = Conv(x, w)\nz = Relu(y)\nreturn y, z", "[6,4,3,3], plan 0 of engine 1; pointwise Relu"),
        (CONV + "y = Conv{pads=[0,2,1,0], strides=[2,1]}(x, w)\nz = Relu(y)\nreturn z", "with Relu,"),
        ("x: f64[2,3,6,5] = input\nw: f64[4,3,3,3] = const\ny = Conv(x, w)\nreturn y", "engine 0"),
    ],
)
def test_what_a_convolution_takes_along(text: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan is run, not the fastest: all of the tail that cuDNN can take is inside."""
    monkeypatch.setattr(cuda, "GpuExecutable", functools.partial(cuda.GpuExecutable, tune=False))
    graph, session, feeds = opened(text)
    found = session.run(feeds)
    for got, right in zip(found.values(), evaluate(graph, feeds), strict=True):
        np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-5)
    assert taken in steps(session)


def agree_twice(graph: Graph, session: cuda.Session, feeds: dict[str, np.ndarray], tolerance: float) -> None:
    """The second inputs are computed by the chosen plan alone: what another one had left there would be wrong."""
    for given in (feeds, {name: -0.75 * value for name, value in feeds.items()}):
        found = session.run(given)["output_0"]
        np.testing.assert_allclose(found, evaluate(graph, given)[0], rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("activation", ["LeakyRelu{alpha=0.1}", "Gelu", 'Gelu{approximate="tanh"}'])
def test_one_routine_is_compiled_where_cudnn_has_no_other(activation: str) -> None:
    graph, session, feeds = opened(f"{CHAIN}z = {activation}(y)\nreturn z")
    agree_twice(graph, session, feeds, 2e-4)
    assert f"with bias, {activation.partition('{')[0]}, channels last, plan 0 of engine 7" in steps(session)


@pytest.mark.parametrize(
    ("precision", "step"),
    [
        ("float32", "with bias, Relu, plan 0 of engine 1"),  # no tensor cores
        ("tf32", "with bias, Relu, channels last, plan 0 of engine 3"),
        ("float16", "with bias, Relu, channels last, plan 0 of engine 3"),
    ],
)
def test_the_layout_and_the_engine_are_chosen_by_the_clock(precision: str, step: str) -> None:
    """In tensor cores the stand-in takes 16 us, with channels last 9 and 3 for each turn of image and result."""
    graph, session, feeds = opened(GRAPHS["conv bias relu"][0], precision)
    agree_twice(graph, session, feeds, 5e-3 if precision == "float16" else 2e-4)
    assert step in steps(session)


def test_time_is_that_of_a_captured_chain() -> None:
    _, session, feeds = opened(GRAPHS["conv bias relu"][0])
    # 64 runs of 22 us in one replay, which costs 2 us itself.
    assert session.time(feeds, 3, 2.0) == pytest.approx([(64 * 22 + 2) / 64 / 1000] * 3, rel=1e-3)


def test_rotating_constants_changes_no_result() -> None:
    graph, session, feeds = opened(GRAPHS["matmul bias gelu"][0], rotate=4096)
    assert all(ms > 0 for ms in session.time(feeds, 2, 0.1))
    np.testing.assert_allclose(session.run(feeds)["output_0"], evaluate(graph, feeds)[0], rtol=1e-4, atol=1e-5)


def test_memory_is_reused_along_a_chain_and_given_back() -> None:
    links = [f"y{k} = Transpose{{perm=[1,0]}}({'x' if k == 0 else f'r{k - 1}'})\nr{k} = Relu(y{k})" for k in range(12)]
    text = "x: f32[64,65] = input\n" + "\n".join(links) + "\nreturn r11"
    graph, session, feeds = opened(text)
    np.testing.assert_array_equal(session.run(feeds)["output_0"], evaluate(graph, feeds)[0])
    assert session.executable is not None
    assert session.executable.memory < 4.5 * 64 * 65 * 4


def test_symbolic_dimensions_are_planned_for_each_shape() -> None:
    graph, session, _ = opened("x: f32[N,4] = input\nw: f32[4,3] = const\ny = MatMul(x, w)\nz = Relu(y)\nreturn z")
    for rows in (2, 5):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)}
        np.testing.assert_allclose(session.run(feeds)["output_0"], evaluate(graph, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x: f32[3,3] = input\ny = Det(x)\nreturn y", "cannot run Det here: there is no kernel for it"),
        (("x: f32[1,2,4,4] = input\ny, i = MaxPool{kernel_shape=[2,2]}(x)\nreturn y, i"), "positions of its maxima"),
        ("x: i64[3,3] = input\ny = MatMul(x, x)\nreturn y", "its operands have the types i64[3,3]"),
    ],
)
def test_what_cannot_run_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    _, session, feeds = opened(text)
    with pytest.raises(RuntimeRefused, match=sentence.replace("[", "\\[")):
        session.run(feeds)


def test_too_large_a_model_is_refused(fake_gpu: Path) -> None:
    _, session, feeds = opened("x: f32[8] = input\ny = Expand{shape=[40000000,8]}(x)\nreturn y")
    with pytest.raises(RuntimeRefused, match="out of memory"):
        session.run(feeds)


def test_the_process_after_this_one_starts_beside_it(fake_gpu: Path) -> None:
    with Worker(RuntimeOptions(runtime="cudnn")) as worker:
        handle = worker.load(graph_to_model(Graph.parse(GRAPHS["clip"][0])).SerializeToString())
        feeds = {"x": np.linspace(-1, 1, 9, dtype=np.float32)}
        right = worker.run(handle, feeds)["output_0"]
        pids, children = [worker.pid], []
        for number in range(3):
            following = worker._starting
            worker.restart()
            assert number == 0 or worker._process is following
            pids.append(worker.pid)
            children += [worker._process, worker._starting]
            np.testing.assert_array_equal(worker.run(handle, feeds)["output_0"], right)
        assert len(set(pids)) == worker.starts == 4
    assert all(child is not None and child.ended for child in children)


def test_what_a_session_says_of_the_model() -> None:
    _, session, feeds = opened(GRAPHS["integers"][0])
    assert [(info.name, info.dtype, info.shape) for info in session.io.inputs] == [("x", "int64", (6,))]
    with pytest.raises(RuntimeRefused, match="the input 'x' was not given"):
        session.run({})
    wrong: dict[str, Any] = {"x": feeds["x"][:3]}
    with pytest.raises(RuntimeRefused, match=r"has the shape \(3,\)"):
        session.run(wrong)
