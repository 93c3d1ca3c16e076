"""Tasks are done wherever there are workers, and the death of one changes nothing."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlflow import zoo
from rlflow.comparison import compare
from rlflow.crew import Workers
from rlflow.crew.task_list import TRIES, TaskList
from rlflow.errors import ModelError, RlflowError, UsageError
from rlflow.search import Budget
from rlflow.tuner import SharedEngine, Tuner, method
from rlflow.tuner.shared_engine import Measurer
from tests.crew import workers_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-bert.onnx"
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "feed_forward": 32, "vocab": 20}
    path.write_bytes(zoo.build("bert6-classifier", seq=8, **sizes).SerializeToString())
    return path


def without_seconds(value: Any) -> Any:
    """A result without what the clock says."""
    if isinstance(value, dict):
        return {key: without_seconds(one) for key, one in value.items() if key != "seconds"}
    return [without_seconds(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_are_in_the_order_of_the_tasks(count: int) -> None:
    with Workers(count).crew(workers_of.squaring) as crew:
        for size in (0, 1, 7):
            found = crew.in_order(range(size))
            assert [square for square, _ in found] == [number * number for number in range(size)]
            pids = {pid for _, pid in found}
            assert len(pids) <= max(count, 1)
            assert (os.getpid() in pids) == (count == 0 and size > 0)


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_is_the_senders(count: int) -> None:
    with Workers(count).crew(workers_of.failing) as crew:
        with pytest.raises(ModelError, match="no model"):
            crew.in_order([3])
        with pytest.raises(ZeroDivisionError if count == 0 else RlflowError, match="by zero"):
            crew.in_order([5])
    with Workers(count).crew(workers_of.never_made) as crew, pytest.raises(ModelError, match="nothing to work with"):
        crew.in_order([1])


def test_what_a_dead_worker_was_doing_is_done_again(tmp_path: Path) -> None:
    with Workers(3).crew(partial(workers_of.Dying, tmp_path, 4, 1)) as crew:
        assert crew.in_order(range(9)) == [number * number for number in range(9)]
        assert len(list(tmp_path.iterdir())) == 1
        assert crew.in_order(range(3)) == [0, 1, 4]  # its place was taken


def test_a_task_that_ends_every_worker_ends_in_a_sentence(tmp_path: Path) -> None:
    with Workers(2).crew(partial(workers_of.Dying, tmp_path, 4, 99)) as crew:
        with pytest.raises(RlflowError, match=r"Task 5 ended its worker 3 times \(exit code -9\)"):
            crew.in_order(range(6))
        assert len(list(tmp_path.iterdir())) == TRIES
        assert crew.in_order(range(4)) == [0, 1, 4, 9]


def test_whoever_leaves_early_waits_for_nobody() -> None:
    with Workers(2).crew(workers_of.sleeping) as crew:
        begun = time.monotonic()
        ended = crew.as_done([0.0, 60.0])
        assert next(ended)[0] == 0
        ended.close()
        assert crew.in_order([0.0, 0.0]) == [0.0, 0.0]
        assert time.monotonic() - begun < 30


def test_a_lost_task_goes_before_the_others() -> None:
    tasks = TaskList(3)
    first = tasks.take()
    assert (first, tasks.take()) == (0, 1)
    tasks.lost(0, "why")
    assert [tasks.take() for _ in range(3)] == [0, 2, None]
    tasks.done()
    assert tasks.left == 2


@pytest.mark.parametrize(
    ("text", "device", "says"),
    [
        ("many", None, "expected a whole number, ray, or ray://HOST:PORT"),
        ("-1", None, "expected a whole number"),
        ("2", "board", "--workers ray"),
    ],
)
def test_who_works_is_read_or_refused(text: str, device: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Workers.parse(text, device)
    assert Workers.parse("0").alone and Workers.parse("4") == Workers(4)


# --- what is shared out ---------------------------------------------------------------------------------------------


def test_a_comparison_is_the_same_whoever_searches_and_whoever_dies(model: Path) -> None:
    killed: list[int] = []

    def kill_one(stage: str) -> None:
        """Once the fourth search has begun, end the process that does it."""
        begun.append(stage)
        if len(begun) == 4:
            killed.append(max(one.pid or 0 for one in multiprocessing.active_children()))
            os.kill(killed[0], signal.SIGKILL)

    options: dict[str, Any] = {"budget": "40x", "cost": "analytic", "seeds": 3}
    strategies = ["greedy", "random:length=2", "annealing"]
    begun: list[str] = []
    alone = compare([model], strategies, **options)
    shared = compare([model], strategies, workers="3", on_stage=kill_one, **options)
    assert killed and len(begun) > 7  # the lost search was begun again
    assert without_seconds(shared.to_dict()) == without_seconds(alone.to_dict())


def test_searches_that_measure_do_not_share_a_machine(model: Path) -> None:
    with pytest.raises(UsageError, match="disturb each other"):
        compare([model], ["greedy", "beam"], workers="2", budget="2meas")


def test_rows_of_different_machines_are_not_compared(model: Path, tmp_path: Path) -> None:
    from rlflow.comparison.comparing import _Run
    from rlflow.comparison.searcher import Conditions
    from rlflow.search import StopToken

    conditions = Conditions(Budget(expansions=5), "onnxruntime", 1, {}, None, 1.0)
    run = _Run(["greedy"], 2, {"m": "m"}, conditions, True, tmp_path / "rows", lambda _: None, StopToken())
    row = {"kind": "search", "model": "m", "strategy": "greedy", "seed": 0, "measured_on": "a board"}
    run._add(row | conditions.settings)
    with pytest.raises(UsageError, match=r"'a board'.*'another board'"):
        run._add(row | conditions.settings | {"seed": 1, "measured_on": "another board"})
    assert len(run.kept) == len((tmp_path / "rows").read_text().splitlines()) == 1


def tuned(workers: Workers, seconds: float = 0.0, place: str = "a board") -> tuple[Any, float]:
    """Rounds and best programs of a tuning, and the seconds that it took once its workers were there."""
    with workers.crew(partial(Measurer, partial(workers_of.FixedLatency, seconds, place))) as crew:
        engine = SharedEngine(workers_of.FixedLatency(seconds), crew)
        first = next(iter(engine.subgraphs[0].space.programs()))
        begun = -math.inf
        while time.monotonic() - begun > 0.05 + 1.5 * seconds:  # until all of them are there
            begun = time.monotonic()
            engine.measure(0, [first] * crew.count)
        begun = time.monotonic()
        found = Tuner(engine, method("random", batch=16), seed=3).run(Budget(measurements=32))
        took = time.monotonic() - begun
    return [(one.programs, one.seconds) for one in found.rounds], took


@pytest.mark.clock
def test_four_workers_measure_three_and_a_half_times_as_fast() -> None:
    one, alone = tuned(Workers(1), 0.1)
    four, shared = tuned(Workers(4), 0.1)
    assert one == four
    assert alone / shared >= 3.5, f"{alone:.2f} s against {shared:.2f} s"


def test_times_of_another_device_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'another board'.*never mixed"):
        tuned(Workers(1), place="another board")
