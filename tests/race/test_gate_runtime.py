"""The final gate on the real runtime: it must not be stopped."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.errors import BudgetError, CostError, UsageError
from rlflow.price.sampler import WorkerSampler
from rlflow.race.gate import CLEAR_BLOCKS, choose
from rlflow.race.track import RaceProgress
from rlflow.runtime import RuntimeOptions, Samples, Worker

SIZE = 192


def layered(repeats: int, scale: float = 1.0, extra: Sequence[Any] = ()) -> bytes:
    """``repeats`` products in a row, so that fewer of them are certainly faster."""
    weight = numpy_helper.from_array((np.eye(SIZE) * scale).astype(np.float32), "w")
    names = ["x", *(f"v{k}" for k in range(repeats))]
    nodes = [helper.make_node("MatMul", [one, "w"], [two]) for one, two in itertools.pairwise(names)]
    nodes += [*extra, helper.make_node("Identity", [names[-1]], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((64, SIZE)).astype(np.float32)}


class TestRealRuntime:
    @pytest.mark.clock
    def test_fewer_products_win_and_bad_candidates_are_dropped(
        self, feeds: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for part in ("DEAR_SELECTION", "DEAR_OPENING"):  # on a busy machine all are looked at, too
            monkeypatch.setattr(f"rlflow.race.gate.{part}", 100.0)
        candidates = {"half": layered(3), "more": layered(9), "garbage": b"no model", "overflow": layered(3, 1e30)}
        seen: list[RaceProgress] = []
        with Worker() as worker:
            found = choose(
                worker, layered(6), candidates, feeds, seconds=0.5, seed=3, beside={"as it came": layered(7)},
                on_progress=seen.append,
            )  # fmt: skip
            assert not worker._models
        assert found.winner == "half"
        assert (found.speedup or 0) > 1.0
        assert found.p_value is not None
        assert found.p_value < 0.01
        assert found.blocks >= CLEAR_BLOCKS
        assert set(found.timings) == {"baseline", "half", "as it came"}
        assert found.timings["as it came"].ms > found.timings["half"].ms
        assert "refused to load" in found.dropped["garbage"]
        assert "not finite" in found.dropped["overflow"]
        assert {told.what for told in seen} == {"selecting", "confirming"}
        assert [told.done for told in seen if told.what == "confirming"] == list(range(1, found.blocks + 1))
        assert all(told.speedup is None for told in seen if told.what == "selecting")
        assert seen[-1].speedup == pytest.approx(found.speedup, rel=0.2)

    @pytest.mark.clock
    @pytest.mark.parametrize("dear", ["DEAR_SELECTION", "DEAR_OPENING"])
    def test_where_a_selection_is_dear_the_first_that_runs_is_the_only_one(
        self, dear: str, feeds: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"rlflow.race.gate.{dear}", 0.0)
        asked: list[str] = []

        def made(name: str, model: bytes) -> Callable[[], bytes]:
            return lambda: asked.append(name) or model  # type: ignore[func-returns-value]

        candidates = {
            "bad": made("bad", b"no model"),
            "half": made("half", layered(3)),
            "best": made("best", layered(1)),
        }
        with Worker() as worker:
            found = choose(worker, layered(6), candidates, feeds, seconds=0.5, seed=1)
        assert found.winner == "half"
        assert asked == ["bad", "half"]
        assert "refused to load" in found.dropped["bad"]
        assert found.first_sample == {}

    @pytest.mark.clock
    def test_a_candidate_that_hangs_is_dropped(self, feeds: dict[str, np.ndarray]) -> None:
        args = [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("s", TensorProto.BOOL)]
        body = helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}2"]) for name in "cs"],
            "body",
            [helper.make_tensor_value_info(name, kind, []) for name, kind in args],
            [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("c2", "s2")],
        )
        count = helper.make_node("Constant", [], ["n"], value=helper.make_tensor("n", TensorProto.INT64, [], [2**62]))
        go = helper.make_node("Constant", [], ["go"], value=helper.make_tensor("go", TensorProto.BOOL, [], [True]))
        hanging = layered(2, extra=[count, go, helper.make_node("Loop", ["n", "go", "go"], ["end"], body=body)])
        with Worker(RuntimeOptions(level="disable"), time_limit=1.5) as worker:
            found = choose(worker, layered(2), {"endless": hanging}, feeds, seconds=0.2, seed=0)
        assert found.winner is None
        assert "did not answer" in found.dropped["endless"]
        assert found.reason == "No candidate was left to time."
        assert found.timings["baseline"].ms > 0

    @pytest.mark.clock
    def test_no_candidates_time_the_baseline_alone(self, feeds: dict[str, np.ndarray]) -> None:
        with Worker() as worker:
            found = choose(worker, layered(2), {}, feeds, seconds=0.2, beside={"original": layered(4)})
        assert found.reason == "No candidate was given."
        assert found.timings["original"].ms > found.timings["baseline"].ms > 0

    def test_a_bad_baseline_is_an_error(self, feeds: dict[str, np.ndarray]) -> None:
        with Worker() as worker, pytest.raises(CostError, match="model to compare with cannot be timed"):
            choose(worker, b"no model", {"a": layered(1)}, feeds, seconds=0.2)

    @pytest.mark.clock
    def test_blocks_use_new_processes_and_survive_a_kill(self, feeds: dict[str, np.ndarray]) -> None:
        with Worker() as worker, WorkerSampler(worker, {"a": layered(1), "b": layered(2)}, feeds) as sampler:
            assert sampler.screen("a") == {}
            first = worker.pid
            assert sampler.block(["a", "b"], 0, 0.05).wall_ms.shape[1] == 2  # goes on with the screening's sessions
            assert worker.pid == first
            found = sampler.block(["a", "b"], 1, 0.05)
            assert worker.pid != first
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            assert sampler.block(["b"], 2, 0.05).wall_ms.shape[1] == 1
            assert found.wall_ms.shape[1] == 2
            assert np.median(found.by("cpu")[:, 1]) > np.median(found.by("cpu")[:, 0])

    @pytest.mark.parametrize("count", [2, 3])
    def test_every_model_goes_first_equally_often(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Were the orders of loading and of rounds drawn alike, one model would always go first (and seem slower)."""
        from rlflow.runtime import loops

        class Recorded:
            options = RuntimeOptions()

            def __init__(self, name: str) -> None:
                self.name = name

            def runner(self, feeds: Any) -> Any:
                return functools.partial(order.append, self.name)

        class Recorder:
            options = RuntimeOptions()
            time_limit = 1.0

            def restart(self) -> None: ...

            def prepare(self, handles: Sequence[Any]) -> None:
                loaded.append(handles[0].name)

            def time_interleaved(self, handles: Sequence[Any], feeds: Any, **how: Any) -> Samples:
                return loops.time_interleaved(handles, [{}] * len(handles), 1, 1, how["seed"], None, 1, 0.0)

        names = "abc"[:count]
        monkeypatch.setattr(loops.gc, "collect", lambda: 0)  # slow in a large process, and of no interest here
        first: list[tuple[str, str]] = []
        loaded: list[str] = []
        sampler = WorkerSampler(Recorder(), {}, {})  # type: ignore[arg-type]
        sampler._handles = {name: Recorded(name) for name in names}  # type: ignore[misc]
        sampler._seconds = dict.fromkeys(names, 0.0)
        for seed in range(150):
            order: list[str] = []
            sampler.block(list(names), seed, 0.0)
            first.append((loaded[-1], order[-2 * count]))
        for pair in [(one, two) for one in names for two in names]:
            assert first.count(pair) == pytest.approx(150 / count**2, rel=0.5), pair

    def test_mistakes_of_the_caller(self, feeds: dict[str, np.ndarray]) -> None:
        with Worker() as worker:
            with pytest.raises(BudgetError, match="above zero"):
                choose(worker, layered(1), {}, feeds, seconds=0)
            with pytest.raises(UsageError, match="different names"):
                choose(worker, layered(1), {"a": layered(1)}, feeds, beside={"a": layered(1)})
