"""The worker process: what it answers, and what it survives."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rlflow.errors import ModelError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.runtime import FeedSpec, Measurement, RuntimeOptions, Worker, wire
from rlflow.runtime import client as client_module

FLOAT = TensorProto.FLOAT


def serialized(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    initializers: list[Any] | None = None,
    name: str = "g",
    **kw: Any,
) -> bytes:
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers or [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=kw.pop("opsets", opsets), ir_version=8).SerializeToString()


def value(name: str, shape: list[Any], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weights(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((size, size)).astype(np.float32)


def dense(size: int, name: str = "g") -> bytes:
    """``y = relu(x w)`` with a square weight."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    weight = onnx.numpy_helper.from_array(weights(size), "w")
    return serialized(nodes, [value("x", [4, size])], [value("y", [4, size])], [weight], name)


def endless() -> bytes:
    """A Loop of 2^62 steps: a real hang inside the runtime."""
    inner = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Identity", ["v"], ["v2"])]
    args = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [1])]
    body = helper.make_graph(inner, "body", args, [value("c2", [], TensorProto.BOOL), value("v2", [1])])
    start = [
        helper.make_tensor("n", TensorProto.INT64, [], [2**62]),
        helper.make_tensor("go", TensorProto.BOOL, [], [True]),
    ]
    loop = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
    return serialized([loop], [value("x", [1])], [value("y", [1])], start)


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture
def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}


def works(worker: Worker) -> bool:
    x = np.full((4, 16), 0.5, np.float32)
    handle = worker.load(dense(16))
    try:
        return bool(np.allclose(worker.run(handle, {"x": x})["y"], np.maximum(x @ weights(16), 0), atol=1e-5))
    finally:
        worker.unload(handle)


class TestAnswers:
    def test_outputs_are_those_of_numpy(self, shared: Worker, feeds: dict[str, np.ndarray]) -> None:
        handle = shared.load(dense(16))
        np.testing.assert_allclose(
            shared.run(handle, feeds)["y"], np.maximum(feeds["x"] @ weights(16), 0), rtol=1e-5, atol=1e-5
        )

    def test_interface_has_names_types_and_symbols(self, shared: Worker) -> None:
        nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
        inputs = [value("t", ["rows", 3, None]), value("i", [2], TensorProto.INT64)]
        source = serialized(nodes, inputs, [value("y", [2, 3, None])])
        io_found = shared.inspect(shared.load(source))
        assert shared.interface(source) == io_found
        assert [(info.name, info.dtype, info.shape) for info in io_found.inputs] == [
            ("t", "float32", ("rows", 3, None)),
            ("i", "int64", (2,)),
        ]
        assert io_found.outputs[0].shape == (2, 3, None)

    def test_listed_initialisers_are_not_inputs(self, shared: Worker) -> None:
        node = helper.make_node("Add", ["x", "b"], ["y"])
        bias = onnx.numpy_helper.from_array(np.ones(2, np.float32), "b")
        model = serialized([node], [value("x", [2]), value("b", [2])], [value("y", [2])], [bias])
        assert [info.name for info in shared.load(model).io.inputs] == ["x"]

    def test_describe_identifies_the_machine(self, shared: Worker) -> None:
        found = shared.describe()
        assert found["runtime"] == "onnxruntime"
        assert found["version"][0].isdigit()
        assert found["device"]
        assert 1 <= found["threads_available"] <= (os.cpu_count() or 1)

    def test_bfloat16_crosses_as_float32(self, shared: Worker) -> None:
        kind = TensorProto.BFLOAT16
        node = helper.make_node("Identity", ["x"], ["y"])
        handle = shared.load(serialized([node], [value("x", [3], kind)], [value("y", [3], kind)]))
        x = np.array([1.0, 1.00390625, np.pi], np.float32)  # exact, half-way (to even), and rounded to 8 bits
        np.testing.assert_array_equal(shared.run(handle, {"x": x})["y"], np.array([1.0, 1.0, 3.140625], np.float32))

    def test_sequences_and_strings_come_back(self, shared: Worker) -> None:
        nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), helper.make_node("Identity", ["t"], ["u"])]
        sequence = helper.make_tensor_sequence_value_info("s", FLOAT, [2])
        string = TensorProto.STRING
        model = serialized(nodes, [value("x", [2]), value("t", [1], string)], [sequence, value("u", [1], string)])
        handle = shared.load(model)
        found = shared.run(handle, {"x": np.ones(2, np.float32), "t": np.array(["ä"], object)})
        assert [list(one) for one in found["s"]] == [[1.0, 1.0], [1.0, 1.0]]
        assert list(found["u"]) == ["ä"]
        timed = shared.time_interleaved([handle], {"x": np.ones(2, np.float32), "t": np.array(["ä"], object)}, rounds=2)
        assert timed.wall_ms.shape == (2, 1)

    def test_large_models_travel_as_one_shared_file(self, feeds: dict[str, np.ndarray]) -> None:
        model = dense(1100)
        assert len(model) > 4 << 20
        with Worker() as worker:
            first, second = worker.load(model), worker.load(model, level="disable")
            (spilled,) = worker._sources.spilled
            assert os.path.getsize(spilled) == len(model)
            worker.unload(first)
            assert os.path.exists(spilled)
            assert worker.run(second, {"x": np.ones((4, 1100), np.float32)})["y"].shape == (4, 1100)
            worker.unload(second)
            assert not os.path.exists(spilled)
            worker.load(model)
            folder = Path(spilled).parent
        assert not folder.exists()

    def test_external_data_load_by_path(self, shared: Worker, tmp_path: Path, feeds: dict[str, np.ndarray]) -> None:
        model = onnx.load_from_string(dense(16))
        path = tmp_path / "model.onnx"
        onnx.save_model(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
        inline = shared.run(shared.load(dense(16)), feeds)["y"]
        np.testing.assert_array_equal(shared.run(shared.load(path), feeds)["y"], inline)

    def test_profile_names_the_kernels(self, shared: Worker, feeds: dict[str, np.ndarray]) -> None:
        times = shared.profile(dense(16), feeds, runs=3)
        assert [time.op_type for time in times] == ["MatMul", "Relu"]
        assert all(time.runs == 3 and time.us >= 0 for time in times)

    def test_optimized_is_a_model_of_the_same_function(self, shared: Worker, feeds: dict[str, np.ndarray]) -> None:
        nodes = [
            helper.make_node("Identity", ["x"], ["a"]),
            helper.make_node("Identity", ["a"], ["b"]),
            helper.make_node("Abs", ["b"], ["y"]),
        ]
        model = serialized(nodes, [value("x", [4, 16])], [value("y", [4, 16])])
        after = shared.optimized(model, level="basic")
        assert [node.op_type for node in onnx.load_from_string(after).graph.node] == ["Abs"]
        np.testing.assert_array_equal(shared.run(shared.load(after), feeds)["y"], np.abs(feeds["x"]))


class TestRefusals:
    def test_garbage_is_refused_and_the_process_lives(self, shared: Worker) -> None:
        shared.describe()
        before = shared.pid
        with pytest.raises(RuntimeRefused, match="refused to load"):
            shared.load(b"this is not a model")
        assert shared.pid == before
        assert works(shared)

    def test_an_unknown_operator_is_refused_by_name(self, shared: Worker) -> None:
        with pytest.raises(RuntimeRefused, match="Nonsense"):
            shared.load(serialized([helper.make_node("Nonsense", ["x"], ["y"])], [value("x", [1])], [value("y", [1])]))

    def test_wrong_feeds_are_refused(self, shared: Worker) -> None:
        handle = shared.load(dense(16))
        with pytest.raises(RuntimeRefused, match="failed to run"):
            shared.run(handle, {"x": np.ones((4, 15), np.float32)})
        with pytest.raises(RuntimeRefused):
            shared.time_interleaved([handle], {"x": np.ones((4, 15), np.float32)}, rounds=1)
        assert works(shared)

    def test_a_missing_file_is_a_bad_model(self, shared: Worker, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"absent\.onnx does not exist"):
            shared.load(tmp_path / "absent.onnx")

    def test_an_unloaded_handle_is_a_mistake(self, shared: Worker, feeds: dict[str, np.ndarray]) -> None:
        handle = shared.load(dense(16))
        shared.unload(handle)
        shared.unload(handle)
        with pytest.raises(UsageError, match="not open"):
            shared.run(handle, feeds)

    def test_an_absent_provider_is_unavailable(self) -> None:
        with (
            Worker(RuntimeOptions(provider="NoSuchExecutionProvider")) as worker,
            pytest.raises(RuntimeUnavailable, match="NoSuch"),
        ):
            worker.load(dense(16))

    def test_a_missing_runtime_is_said_before_anything_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(RuntimeUnavailable, match="pip install onnxruntime"):
            Worker()

    @pytest.mark.parametrize("bad", [{"level": "most"}, {"threads": 0}, {"clock": "sun"}])
    def test_impossible_options(self, bad: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            RuntimeOptions(**bad)


class TestCrashes:
    def test_killed_between_requests(self, feeds: dict[str, np.ndarray]) -> None:
        with Worker() as worker:
            handle = worker.load(dense(16))
            before = worker.run(handle, feeds)["y"]
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            time.sleep(0.2)
            np.testing.assert_array_equal(worker.run(handle, feeds)["y"], before)
            assert worker.starts == 2

    def test_a_segfault_in_a_run_is_a_sentence(self, capfd: pytest.CaptureFixture[str]) -> None:
        with Worker() as worker:
            handle = worker.load(endless())
            assert worker.pid is not None
            threading.Timer(0.5, os.kill, (worker.pid, signal.SIGSEGV)).start()
            with pytest.raises(RuntimeCrashed, match=r"died while running a model .*SIGSEGV") as caught:
                worker.run(handle, {"x": np.ones(1, np.float32)})
            assert not caught.value.timed_out
            assert works(worker)
        assert capfd.readouterr() == ("", "")

    def test_a_hang_is_stopped_at_its_limit(self) -> None:
        with Worker() as worker:
            handle = worker.load(endless())
            with pytest.raises(RuntimeCrashed, match=r"did not answer within 0\.5 s while running") as caught:
                worker.run(handle, {"x": np.ones(1, np.float32)}, time_limit=0.5)
            assert caught.value.timed_out
            assert works(worker)

    def test_attention_without_bias(self) -> None:
        """A model on which ONNX Runtime 1.31 dies of a segmentation fault; a later one may run or refuse it."""
        node = helper.make_node("Attention", ["x", "w"], ["y"], domain="com.microsoft", num_heads=2)
        weight = onnx.numpy_helper.from_array(np.ones((8, 24), np.float32), "w")
        model = serialized([node], [value("x", [1, 4, 8])], [value("y", [1, 4, 8])], [weight])
        with Worker() as worker:
            with contextlib.suppress(RuntimeCrashed, RuntimeRefused):
                worker.run(worker.load(model), {"x": np.ones((1, 4, 8), np.float32)})
            assert works(worker)

    def test_an_interrupt_leaves_no_half_read_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Worker() as worker:
            handle = worker.load(dense(16))
            before = worker.pid

            def interrupted(stream: Any) -> Any:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(wire, "receive", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    worker.run(handle, {"x": np.ones((4, 16), np.float32)})
            assert worker.run(handle, {"x": np.zeros((4, 16), np.float32)})["y"].max() == 0.0
            assert worker.pid != before

    def test_the_process_ignores_ctrl_c_and_ends_with_its_pipe(self) -> None:
        worker = Worker()
        worker.describe()
        process = worker._process
        assert process is not None
        os.kill(process.child.pid, signal.SIGINT)
        assert works(worker)
        assert worker.pid == process.child.pid
        worker.close()
        assert process.child.returncode == 0


def test_a_worker_may_start_before_it_is_needed() -> None:
    with Worker() as worker:
        worker.begin()
        worker.begin()
        assert worker._starting is not None
        child = worker._starting.child
        assert worker.describe()["runtime"] == "onnxruntime"
        assert (worker.pid, worker.starts) == (child.pid, 1)
    assert child.poll() is not None


def test_a_worker_that_was_started_for_nothing_ends() -> None:
    with Worker() as worker:
        worker.begin()
        assert worker._starting is not None
        child = worker._starting.child
    assert child.poll() is not None


def test_a_forgotten_worker_ends_its_process() -> None:
    worker = Worker()
    worker.describe()
    assert worker._process is not None
    child = worker._process.child
    del worker
    gc.collect()
    assert child.returncode is not None


PARENT = """
import os, signal, sys
import numpy as np
from rlflow.runtime import Worker
worker = Worker()
worker.describe()
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to look for a process")
def test_a_worker_does_not_outlive_its_parent() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    parent = subprocess.run(
        [sys.executable, "-c", PARENT], env=environment, capture_output=True, check=False, timeout=60
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    orphan = Path("/proc") / parent.stdout.decode().strip() / "stat"
    deadline = time.monotonic() + 20
    while orphan.exists() and orphan.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not orphan.exists() or orphan.read_text().split()[2] == "Z"


FAULTY = """
import os, signal
from pathlib import Path
from rlflow.runtime import loops, worker

measure, once = loops.measure, Path(__file__).with_name("crashed-once")

def faulty(opener, source, *rest, **how):
    if b"always" in source or (b"sometimes" in source and not once.exists()):
        once.touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    return measure(opener, source, *rest, **how)

loops.measure = faulty
main = worker.main
"""


class TestMeasureMany:
    @pytest.mark.clock
    def test_good_bad_crashing_and_hanging_side_by_side(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "faulty_worker.py").write_text(FAULTY)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(Worker, "module", "faulty_worker")
        items = [
            ("small", dense(16), None),
            ("crash", dense(16, "always"), None),
            ("bad", b"garbage", None),
            ("shaky", dense(16, "sometimes"), None),
            ("hang", endless(), None),
            ("big", dense(256), {"x": FeedSpec((4, 256))}),
        ]
        with Worker() as worker:
            found = worker.measure_many(items, repeats=5, time_limit=3.0)
        assert sorted(found) == sorted(key for key, *_ in items)
        assert isinstance(found["small"], Measurement)
        assert isinstance(found["big"], Measurement)
        assert isinstance(found["shaky"], Measurement)
        assert "SIGSEGV" in str(found["crash"])
        assert "refused to load" in str(found["bad"])
        assert "did not answer within 3 s while measuring" in str(found["hang"])

    def test_batches_are_limited_in_size(self, monkeypatch: pytest.MonkeyPatch, shared: Worker) -> None:
        monkeypatch.setattr(client_module, "_BATCH_BYTES", 1)
        items = [(n, dense(8), None) for n in range(3)]
        assert client_module._batch(items) == items[:1]
        assert sorted(shared.measure_many(items, repeats=2)) == [0, 1, 2]

    @pytest.mark.clock
    def test_prices_grow_with_the_work(self, shared: Worker) -> None:
        items = [(size, dense(size), None) for size in (64, 512)]
        found = shared.measure_many(items)
        assert found[512].ms > found[64].ms > 0
        assert found[64].beside == ()
        assert found[64].samples == 9
        assert found[64].spread_ms >= 0

    def test_open_shapes_need_a_specification(self, shared: Worker) -> None:
        model = serialized([helper.make_node("Abs", ["x"], ["y"])], [value("x", ["N"])], [value("y", ["N"])])
        found = shared.measure_many([("open", model, None), ("said", model, {"x": FeedSpec((5,))})], repeats=2)
        assert "no static shape" in found["open"]
        assert isinstance(found["said"], Measurement)

    def test_integer_inputs_stay_in_range(self, shared: Worker) -> None:
        gather = helper.make_node("Gather", ["t", "i"], ["y"])
        model = serialized([gather], [value("t", [3, 2]), value("i", [9], TensorProto.INT64)], [value("y", [9, 2])])
        specs = {"t": FeedSpec((3, 2)), "i": FeedSpec((9,), "int64", 0, 2)}
        beyond = specs | {"i": FeedSpec((9,), "int64", 3, 3)}
        found = shared.measure_many([("in", model, specs), ("out", model, beyond)], repeats=2)
        assert isinstance(found["in"], Measurement)
        assert "out of" in found["out"]

    def test_repeats_are_spread_over_sessions(self, shared: Worker) -> None:
        assert shared.measure_many([("m", dense(64), None)], repeats=7, sessions=3)["m"].samples == 7

    @pytest.mark.parametrize(("flush", "rows"), [(0, 0), (1 << 20, 7)])
    def test_a_reference_is_timed_beside_every_cold_sample(self, shared: Worker, flush: int, rows: int) -> None:
        how = {"repeats": 7, "sessions": 2, "flush_bytes": flush, "reference": dense(256)}
        found = shared.measure_many([("m", dense(64), None)], **how)["m"]
        assert len(found.beside) == rows
        assert all(ms > 0 for row in found.beside for ms in row)
        assert not rows or found.ms == np.median([own for own, _, _ in found.beside])

    @pytest.mark.clock
    def test_cold_caches_cost_more(self, shared: Worker) -> None:
        items = [("m", dense(512), None)]
        hot, cold = (shared.measure_many(items, flush_bytes=size)["m"].ms for size in (0, 96 << 20))
        assert cold > hot


class TestInterleaved:
    @pytest.mark.clock
    def test_rows_are_rounds_and_columns_models(self, shared: Worker) -> None:
        small, large = shared.load(dense(16)), shared.load(dense(512))
        feeds = [{"x": np.ones((4, size), np.float32)} for size in (16, 512)]
        found = shared.time_interleaved([small, large], feeds, rounds=7, inner=3, seed=1)
        assert found.wall_ms.shape == found.cpu_ms.shape == (7, 2)
        assert found.inner == (3, 3)
        assert np.median(found.wall_ms[:, 1]) > np.median(found.wall_ms[:, 0]) > 0

    def test_time_ends_it_but_not_before_the_minimum(self, shared: Worker) -> None:
        handle = shared.load(dense(64))
        x = {"x": np.ones((4, 64), np.float32)}
        assert len(shared.time_interleaved([handle], x, rounds=1000, min_rounds=4, seconds=0.0).wall_ms) == 4
        assert len(shared.time_interleaved([handle], x, rounds=10**6, seconds=0.05).wall_ms) < 10**6

    @pytest.mark.clock
    def test_samples_last_long_enough(self, shared: Worker) -> None:
        handle = shared.load(dense(16))
        found = shared.time_interleaved([handle], {"x": np.ones((4, 16), np.float32)}, rounds=9, min_sample=2e-3)
        assert np.median(found.wall_ms[:, 0]) * found.inner[0] > 1.0

    def test_nothing_to_time_is_a_mistake(self, shared: Worker) -> None:
        with pytest.raises(UsageError, match="at least one model"):
            shared.time_interleaved([], {}, rounds=3)

    def test_one_thread_is_timed_by_the_processor_clock(self) -> None:
        assert RuntimeOptions(threads=2).effective_clock == "wall"
        assert RuntimeOptions(clock="wall").effective_clock == "wall"
        if sys.platform == "linux":
            assert RuntimeOptions().effective_clock == "cpu"


class TestWire:
    def test_messages_round_trip(self) -> None:
        stream = io.BytesIO()
        wire.send(stream, {"a": np.arange(3)})
        wire.send(stream, None)
        stream.seek(0)
        np.testing.assert_array_equal(wire.receive(stream)["a"], np.arange(3))
        assert wire.receive(stream) is None

    @pytest.mark.parametrize("kept", [0, 3, 8, 12])
    def test_a_cut_message_is_an_end_of_file(self, kept: int) -> None:
        stream = io.BytesIO()
        wire.send(stream, list(range(100)))
        with pytest.raises(EOFError):
            wire.receive(io.BytesIO(stream.getvalue()[:kept]))


def test_threads_spin_while_a_run_lasts_and_no_longer() -> None:
    """As they do by default, but for the end: what is timed in turn would wait for them."""
    from rlflow.runtime.onnxruntime import session_options

    found = session_options(RuntimeOptions(threads=2))
    assert found.get_session_config_entry("session.force_spinning_stop") == "1"
    with pytest.raises(RuntimeError):  # it has its default
        found.get_session_config_entry("session.intra_op.allow_spinning")
