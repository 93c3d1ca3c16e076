"""The plug-in execution provider: kernels in a session that somebody else makes."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import blocked_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_sessions import planned, with_metadata

import rlflow.kernels
from rlflow.errors import ModelError, RuntimeUnavailable
from rlflow.frontends import blocked
from rlflow.kernels import ALGORITHMS, Choice, KernelPlan, KernelsNotUsed, preparing, provider, shared_library
from rlflow.runtime import inprocess


def why_not() -> str | None:
    try:
        provider.register()
    except RuntimeUnavailable as error:
        return str(error)
    return None


needs_provider = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
pytestmark = needs_provider


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "model.onnx", planned())


def written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


def feeds(size: int = 24, batch: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)}


def with_provider(path: Path, threads: int = 1) -> ort.InferenceSession:
    """A session of the model itself, by the provider."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rlflow.kernels.add_provider(options, path)
    return ort.InferenceSession(path, options)


def plain(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def from_kernels(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a session with the custom operators answers: the provider's must be the same bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return rlflow.kernels.session(path).run(None, inputs)


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def with_plan(model: onnx.ModelProto) -> bytes:
    """The model with a plan for every place that a Winograd kernel can take."""
    raw = model.SerializeToString()
    block = preparing.block_here()
    sites = blocked.BlockedGraph(inprocess.optimised(raw), block).sites()
    choices = tuple(
        Choice(one.name, one.sizes, "winograd-2x2", 2.0) for one in sites if one.kind == ALGORITHMS["winograd-2x2"].kind
    )
    return with_metadata(raw, KernelPlan("1.0", block, 1, 1.5, choices).text())


def changed(change: Callable[[onnx.GraphProto], None], dynamic: bool = False) -> bytes:
    """The small network after a change, with a plan."""
    model = onnx.ModelProto.FromString(models.small_network(dynamic=dynamic))
    change(model.graph)
    return with_plan(model)


# --- the kernels are used ---------------------------------------------------------------------------------------------


def test_a_session_of_the_model_itself_uses_the_kernels(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    session = with_provider(path)
    assert session.get_providers() == [provider.NAME, "CPUExecutionProvider"]
    expected = from_kernels(path, feeds())
    assert not same(expected, plain(path).run(None, feeds()))  # rounded otherwise
    for _ in range(3):  # the first run tells the shapes, the others write where the runtime wants the outputs
        assert same(session.run(None, feeds()), expected)
    assert capfd.readouterr().err == ""


def test_inputs_of_many_shapes(tmp_path: Path) -> None:
    path = written(tmp_path / "model.onnx", planned(dynamic=True))
    session, expected = with_provider(path), rlflow.kernels.session(path)
    for size, batch in [(24, 1), (24, 1), (17, 2), (24, 1), (17, 2), *((size, 1) for size in range(3, 80))]:
        assert same(session.run(None, feeds(size, batch)), expected.run(None, feeds(size, batch)))


def more_outputs(graph: onnx.GraphProto) -> None:
    graph.node.append(helper.make_node("Shape", ["y"], ["shape"]))
    graph.node.append(helper.make_node("Greater", ["y", "zero"], ["positive"]))
    graph.node.append(helper.make_node("NonZero", ["positive"], ["where"]))
    graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
    graph.output.append(helper.make_tensor_value_info("sr", TensorProto.FLOAT, None))
    graph.output.append(helper.make_tensor_value_info("positive", TensorProto.BOOL, None))
    graph.output.append(helper.make_tensor_value_info("where", TensorProto.INT64, [4, "found"]))
    graph.output.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [4]))


def an_optional_input(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [20]))  # an initialiser, too


def an_unused_input(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("nobody", TensorProto.FLOAT, [1]))


def an_output_without_nodes(graph: onnx.GraphProto) -> None:
    graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [20]))


def a_branch(graph: onnx.GraphProto) -> None:
    def body(name: str, operator: str) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(f"{name}_z", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, ["y"], [f"{name}_z"])], name, [], [output])

    graph.node.append(
        helper.make_node("If", ["choice"], ["z"], then_branch=body("a", "Abs"), else_branch=body("b", "Neg"))
    )
    graph.input.append(helper.make_tensor_value_info("choice", TensorProto.BOOL, []))
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (more_outputs, {}),
        (an_optional_input, {}),
        (an_optional_input, {"b": np.arange(20, dtype=np.float32)}),
        (an_unused_input, {"nobody": np.zeros(1, np.float32)}),
        (an_output_without_nodes, {}),
        (a_branch, {"choice": np.array(True)}),
        (a_branch, {"choice": np.array(False)}),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_models_of_many_kinds(
    change: Callable[[onnx.GraphProto], None],
    more: dict[str, np.ndarray],
    dynamic: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path / "model.onnx", changed(change, dynamic))
    session = with_provider(path)
    assert "rlflow" not in capfd.readouterr().err
    for seed in range(4):  # the shape of `where` differs
        inputs = {**feeds(seed=seed), **more}
        expected = from_kernels(path, inputs)
        assert same(session.run(None, inputs), expected)
        names = [one.name for one in session.get_outputs()]
        assert same(session.run(names[-1:], inputs), expected[-1:])


def test_weights_in_another_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.ModelProto.FromString(planned()), path, save_as_external_data=True, location="w", size_threshold=0)
    assert same(with_provider(path).run(None, feeds()), from_kernels(path, feeds()))


def test_an_output_that_the_caller_allocated(path: Path) -> None:
    session, expected = with_provider(path), from_kernels(path, feeds())
    for _ in range(2):
        target = np.zeros_like(expected[0])
        binding = session.io_binding()
        binding.bind_cpu_input("x", feeds()["x"])
        binding.bind_output("y", "cpu", 0, np.float32, target.shape, target.ctypes.data)
        session.run_with_iobinding(binding)
        assert np.array_equal(target, expected[0])


def test_the_inner_session_has_the_threads_of_the_outer_one(path: Path) -> None:
    def started(threads: int) -> int:
        before = len(os.listdir("/proc/self/task"))
        session = with_provider(path, threads)
        assert same(session.run(None, feeds()), from_kernels(path, feeds()))
        return len(os.listdir("/proc/self/task")) - before

    if not os.path.isdir("/proc/self/task"):
        pytest.skip("the system does not list threads")
    assert started(1) == 0
    assert started(3) == 4  # two more in each session


def test_many_sessions_and_threads(path: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.onnx", planned("winograd-2x2", dynamic=True))
    sessions = [with_provider(path), with_provider(path, 2), with_provider(other), with_provider(other)]
    expected = [from_kernels(one, feeds()) for one in (path, path, other, other)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            if not same(sessions[number % 4].run(None, feeds()), expected[number % 4]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not wrong


def test_a_run_that_shall_end_ends(tmp_path: Path) -> None:
    """The outer session looks only between its nodes, of which there is one."""
    session = with_provider(written(tmp_path / "model.onnx", planned(dynamic=True)))
    options, inputs = ort.RunOptions(), feeds(600, 4)
    begin = time.monotonic()
    session.run(None, inputs, options)
    whole = time.monotonic() - begin
    threading.Timer(whole / 10, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(Exception, match="terminate"):
        session.run(None, inputs, options)


def test_a_session_outlives_the_registration(path: Path) -> None:
    expected = from_kernels(path, feeds())
    session = with_provider(path)
    ort.unregister_execution_provider_library(provider.NAME)
    try:
        assert inprocess.provider_devices(provider.NAME) == []
        assert same(session.run(None, feeds()), expected)
        del session
        gc.collect()
    finally:
        provider.register()
    assert same(with_provider(path).run(None, feeds()), expected)


def test_registering_again_changes_nothing() -> None:
    provider.register()
    provider.register()
    assert [one.ep_name for one in provider.devices()] == [provider.NAME] * len(provider.devices())
    assert provider.devices()


# --- the plain model, with a line in the runtime's log ---


def an_output_of_text(graph: onnx.GraphProto) -> None:
    graph.node.append(helper.make_node("Cast", ["y"], ["text"], to=TensorProto.STRING))
    graph.output.append(helper.make_tensor_value_info("text", TensorProto.STRING, None))


def an_output_of_tensors(graph: onnx.GraphProto) -> None:
    graph.node.append(helper.make_node("SequenceConstruct", ["y", "sr"], ["both"]))
    graph.output.append(helper.make_tensor_sequence_value_info("both", TensorProto.FLOAT, None))


@pytest.mark.parametrize(
    ("change", "reason"),
    [(an_output_of_text, "no tensor of numbers"), (an_output_of_tensors, "no tensor of numbers")],
)
def test_what_the_provider_does_not_do(
    change: Callable[[onnx.GraphProto], None],
    reason: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path / "model.onnx", changed(change))
    session = with_provider(path)
    assert reason in capfd.readouterr().err
    for found, expected in zip(session.run(None, feeds()), plain(path).run(None, feeds()), strict=True):
        assert np.array_equal(np.asarray(found[0]), np.asarray(expected[0]))


# --- add_provider -----------------------------------------------------------------------------------------------------


def test_a_model_without_a_plan_gets_no_provider(tmp_path: Path) -> None:
    path, options = written(tmp_path / "model.onnx", models.small_network()), ort.SessionOptions()
    with pytest.warns(KernelsNotUsed, match="the model has no plan"):
        assert not rlflow.kernels.add_provider(options, path)
    assert ort.InferenceSession(path, options).get_providers() == ["CPUExecutionProvider"]


def test_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        rlflow.kernels.add_provider(ort.SessionOptions(), tmp_path / "missing.onnx")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda prepared: prepared.write_bytes(prepared.read_bytes()[:1000]),
        lambda prepared: prepared.write_bytes(bytes(reversed(prepared.read_bytes()))),
        lambda prepared: Path(f"{prepared}.data").unlink(),
    ],
)
def test_a_damaged_prepared_file_is_made_again(
    spoil: Callable[[Path], None], path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = from_kernels(path, feeds())
    spoil(Path(rlflow.kernels.prepare(path)))
    assert same(with_provider(path).run(None, feeds()), expected)
    assert capfd.readouterr().err == ""


def test_without_a_cache_there_is_no_provider(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "file").write_text("")
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(path.parent / "file"))
    with pytest.warns(KernelsNotUsed, match="cannot be kept"):
        assert not rlflow.kernels.add_provider(ort.SessionOptions(), path)


def test_tickets_go_with_the_prepared_file(path: Path, own_cache: Path) -> None:
    assert rlflow.kernels.add_provider(ort.SessionOptions(), path)
    assert len(list(own_cache.glob("*.ticket"))) == 1
    preparing.forget(rlflow.kernels.prepare(path))
    assert not list(own_cache.iterdir())


@pytest.mark.parametrize(
    ("version", "refused"), [("1.22.1", True), ("1.9.0", True), ("1.23.0", False), ("1.100.0", False), ("2.0", False)]
)
def test_older_runtimes_are_refused_in_a_sentence(version: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "version", lambda: version)
    if refused:
        with pytest.raises(RuntimeUnavailable, match=f"needs ONNX Runtime 1.23 or later, and this is {version}"):
            provider.register()
    else:
        provider.register()


def test_without_the_library_that_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_library, "library_path", lambda: os.fspath(tmp_path / "none.so"))
    with pytest.raises(RuntimeUnavailable, match="was not built"):
        provider.register()
