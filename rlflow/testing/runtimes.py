"""What every runtime must do, as checks that raise ``AssertionError`` with a sentence.

>>> from rlflow.testing import check_runtime
>>> check_runtime("my-runtime")

What a runtime cannot do it declares (:class:`rlflow.runtime.Runtime`): then a refusal in a sentence is expected.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlflow.errors import RuntimeRefused
from rlflow.files import ScratchFolder
from rlflow.frontends import evaluate, graph_to_model
from rlflow.graph import Graph
from rlflow.runtime import Measurement, RuntimeOptions, Worker

TEXTS = {
    "dense": "x: f32[4,16] = input\nw: f32[16,8] = const\nb: f32[8] = const\na = MatMul(x, w)\nc = Add(a, b)\n"
    "y = Relu(c)\nreturn y",
    "convolution": "x: f32[1,3,8,8] = input\nw: f32[4,3,3,3] = const\ny = Conv{pads=[1,1,1,1]}(x, w)\nreturn y",
    "two ends": "x: f32[4,6] = input\nz: f32[4,6] = input\na = Add(x, z)\nb = Softmax{axis=1}(x)\nreturn a, b",
}
#: Allowed difference to the reference, which computes in another order: relative to 1 plus the size of the value.
_TOLERANCE = 1e-4


def _model(text: str) -> tuple[Graph, bytes, dict[str, np.ndarray]]:
    graph = Graph.parse(text)
    rng = np.random.default_rng(5)
    shapes = {graph.input_name(node): graph.shape(graph.node_outputs(node)[0]) for node in graph.inputs()}
    feeds = {name: rng.standard_normal(tuple(shape or ())).astype(np.float32) for name, shape in shapes.items()}
    return graph, graph_to_model(graph).SerializeToString(), feeds


def says_who_it_is(worker: Worker) -> None:
    """Its name, version and device, which key a price."""
    found = worker.describe()
    assert found["runtime"] == worker.runtime.name, f"{worker.runtime.name} describes itself as {found['runtime']!r}"
    for key in ("version", "device", "platform"):
        assert isinstance(found[key], str) and found[key], f"{worker.runtime.name} does not say its {key}"
    assert worker.options.provider in found["providers"], f"{worker.runtime.name} lacks the provider it was asked for"


def computes_the_same(worker: Worker) -> None:
    """Outputs are those of ONNX's reference evaluator, by name, in shape and type."""
    for name, text in TEXTS.items():
        graph, source, feeds = _model(text)
        handle = worker.load(source)
        found = worker.run(handle, feeds)
        right = evaluate(graph, feeds)
        assert list(found) == [info.name for info in handle.io.outputs], f"{name}: the outputs are called {list(found)}"
        for (output, got), expected in zip(found.items(), right, strict=True):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), f"{name}: {output} has another type"
            off = float(np.max(np.abs(got - expected) / (1.0 + np.abs(expected))))
            assert off < _TOLERANCE, f"{name}: {output} is off by {off:.2g}"
        first = next(iter(found))
        assert list(worker.run(handle, feeds, [first])) == [first], f"{name}: gives more outputs than were asked for"
        worker.unload(handle)


def knows_the_interface(worker: Worker) -> None:
    """Names, types and shapes of inputs and outputs, whether or not the model is opened."""
    for name, text in TEXTS.items():
        _, source, feeds = _model(text)
        handle = worker.load(source)
        assert worker.interface(source) == handle.io, f"{name}: the interface differs from that of the open model"
        shapes = {info.name: info.shape for info in handle.io.inputs}
        assert shapes == {key: array.shape for key, array in feeds.items()}, f"{name}: the inputs are {shapes}"
        worker.unload(handle)


def refuses_in_a_sentence(worker: Worker) -> None:
    """What is no model, and inputs that are missing, are refused; the process goes on."""
    worker.describe()
    before = worker.pid
    _refused(lambda: worker.load(b"no model at all"), "a file that is no model")
    handle = worker.load(_model(TEXTS["dense"])[1])
    _refused(lambda: worker.run(handle, {}), "a run without its input")
    worker.unload(handle)
    assert worker.pid == before, "a refusal ended the process"


def times_models(worker: Worker) -> None:
    """Interleaved rounds and single models have times above zero, by the clock that decides."""
    models = [_model(text) for text in (TEXTS["dense"], TEXTS["convolution"])]
    handles = [worker.load(source) for _, source, _ in models]
    feeds: list[Any] = [each for _, _, each in models]
    samples = worker.time_interleaved(handles, feeds, rounds=3, seed=1)
    assert samples.wall_ms.shape == (3, 2), f"3 rounds of 2 models gave {samples.wall_ms.shape} samples"
    assert (samples.by(worker.options.effective_clock) > 0).all(), "a run takes no time by the clock that decides"
    if worker.runtime.prices_regions:
        found = worker.measure_many([("one", models[0][1], None)], repeats=3)["one"]
        assert isinstance(found, Measurement), f"a small model cannot be measured: {found}"
        assert found.ms > 0, f"a small model takes {found.ms} ms"
    for handle in handles:
        worker.unload(handle)


def does_what_it_declares(worker: Worker) -> None:
    """The graph that it executes is handed out, or refused, as ``shows_graph`` says; so is a profile, or refused."""
    _, source, feeds = _model(TEXTS["dense"])
    if worker.runtime.shows_graph:
        assert worker.optimized(source), "the graph that is executed is empty"
        with ScratchFolder() as folder:
            worker.write_optimized(source, os.path.join(folder, "graph.onnx"))
            assert os.path.getsize(os.path.join(folder, "graph.onnx")), "the file of the graph is empty"
    else:
        _refused(lambda: worker.optimized(source), "the graph that is executed, which is not handed out,")
    with contextlib.suppress(RuntimeRefused):  # not every runtime has a profiler
        assert all(row.us >= 0 for row in worker.profile(source, feeds, runs=2)), "a node takes less than no time"


def _refused(ask: Callable[[], Any], what: str) -> None:
    try:
        ask()
    except RuntimeRefused as error:
        sentence = str(error)
    else:
        raise AssertionError(f"{what} is accepted; expected RuntimeRefused")
    assert sentence.strip(), f"{what} is refused without a word"


CHECKS: tuple[Callable[[Worker], None], ...] = (
    says_who_it_is,
    computes_the_same,
    knows_the_interface,
    refuses_in_a_sentence,
    times_models,
    does_what_it_declares,
)


def check_runtime(name: str, checks: Iterable[Callable[[Worker], None]] = CHECKS) -> None:
    """Run all checks of a runtime in a worker; raises ``AssertionError`` at the first that fails, and
    :class:`~rlflow.errors.RuntimeUnavailable` where it is not installed.
    """
    with Worker(RuntimeOptions(runtime=name)) as worker:
        for check in checks:
            check(worker)
