"""The same on a Ray cluster of four processes on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlflow import zoo
from rlflow.comparison import compare
from rlflow.crew import Workers, ray_crew
from rlflow.crew.ray_crew import RESOURCE, SETTINGS, RayCrew, begin
from rlflow.errors import ModelError, RlflowError, UsageError
from rlflow.synthesis.generate import Effort, Recipe, generate_file, load_vocabulary
from tests.crew import workers_of
from tests.crew.test_crew import tuned, without_seconds

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'rlflow[ray]'"
    ),
    pytest.mark.xdist_group("ray"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Four workers, two of which are a device."""
    import ray

    os.environ.update(SETTINGS)
    begin(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
        resources={RESOURCE + "board": 2},
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-bert.onnx"
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "feed_forward": 32, "vocab": 20}
    path.write_bytes(zoo.build("bert6-classifier", seq=8, **sizes).SerializeToString())
    return path


def busy_workers() -> list[int]:
    """The processes that do a task of a crew now."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"ray::RayHand.answer" in title:
            found.append(int(folder.name))
    return found


def test_results_are_in_the_order_of_the_tasks() -> None:
    with RayCrew(workers_of.squaring) as crew:
        assert crew.count == 4
        found = crew.in_order(range(9))
        assert [square for square, _ in found] == [number * number for number in range(9)]
        assert os.getpid() not in {pid for _, pid in found}


def test_an_error_is_the_senders() -> None:
    with RayCrew(workers_of.failing, count=1) as crew:
        with pytest.raises(ModelError, match="no model"):
            crew.in_order([3])
        with pytest.raises(RlflowError, match=r"ZeroDivisionError in do: .*by zero"):
            crew.in_order([5])
    with RayCrew(workers_of.never_made, count=1) as crew, pytest.raises(ModelError, match="nothing to work with"):
        crew.in_order([1])


def test_what_a_dead_worker_was_doing_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "always").mkdir()
    with RayCrew(partial(workers_of.Dying, tmp_path / "once", 4, 1), count=2) as crew:
        assert crew.in_order(range(9)) == [number * number for number in range(9)]
        assert len(list((tmp_path / "once").iterdir())) == 1
    always = partial(workers_of.Dying, tmp_path / "always", 4, 99)
    with RayCrew(always, count=2) as crew, pytest.raises(RlflowError, match="Task 5 ended its worker 3 times"):
        crew.in_order(range(6))


def test_nobody_works_for_longer_than_the_wait_for_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only worker takes long to start, dies of a task, and its successor takes long again."""
    monkeypatch.setattr(ray_crew, "PATIENCE", 1.5)  # a busy machine needs more than half a second for a place
    late = partial(workers_of.Late(2.0), partial(workers_of.Dying, tmp_path, 2, 1))
    begun = time.monotonic()
    with RayCrew(late, count=1) as crew:
        assert crew.in_order(range(4)) == [0, 1, 4, 9]
    assert len(list(tmp_path.iterdir())) == 1 and time.monotonic() - begun >= 4.0


def test_a_place_that_others_have_is_awaited_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with RayCrew(workers_of.squaring) as first:
        assert len(first.in_order(range(4))) == 4
        second = RayCrew(workers_of.squaring, count=1)
        monkeypatch.setattr(ray_crew, "PATIENCE", 0.5)
        with pytest.raises(RlflowError, match=r"no place for a worker for 0\.5 s"):
            second.in_order([1])
        monkeypatch.setattr(ray_crew, "PATIENCE", 60.0)
        threading.Timer(0.5, first.close).start()
        with second:
            assert [square for square, _ in second.in_order([3])] == [9]


def test_a_worker_that_never_starts_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_crew, "STARTING", 0.3)
    late = partial(workers_of.Late(20.0), workers_of.squaring)
    with RayCrew(late, count=1) as crew, pytest.raises(RlflowError, match=r"started within 0\.3 s in the place"):
        crew.in_order([1])


def test_a_device_has_as_many_workers_as_joined_under_its_name() -> None:
    with RayCrew(workers_of.squaring, device="board") as crew:
        assert crew.count == 2
        assert [square for square, _ in crew.in_order(range(5))] == [0, 1, 4, 9, 16]
    with pytest.raises(UsageError, match="joined as the device 'pi4'; it has 'board'"):
        RayCrew(workers_of.squaring, device="pi4")


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlflow.__version__", "9.9.9", raising=False)
    with RayCrew(workers_of.squaring, count=1) as crew, pytest.raises(UsageError, match=r"and this is 9\.9\.9"):
        crew.in_order([1])


def test_a_comparison_is_the_same_after_kill_9(model: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        """End the first worker that is seen at a task."""
        while not killed and not over.is_set():
            for pid in busy_workers()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    options: dict[str, Any] = {"budget": "400x", "cost": "analytic", "seeds": 3}
    strategies = ["random:length=2", "annealing"]
    alone = compare([model], strategies, **options)
    over = threading.Event()
    killer = threading.Thread(target=kill_one)
    killer.start()
    shared = compare([model], strategies, workers="ray", **options)
    over.set()
    killer.join()
    assert killed
    assert without_seconds(shared.to_dict()) == without_seconds(alone.to_dict())


def test_rules_are_the_same_bytes_whoever_proves_them(tmp_path: Path) -> None:
    vocabulary = load_vocabulary("taso").only(["Relu", "Transpose"])
    recipe = Recipe(vocabulary, Effort(max_ops=2, samples=20), "2026-01-01")
    generate_file(recipe, tmp_path / "here.json")
    generate_file(recipe, tmp_path / "there.json", workers=Workers.parse("ray"))
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()
    assert json.loads((tmp_path / "here.json").read_text())["rules"]


@pytest.mark.clock
def test_four_workers_measure_three_and_a_half_times_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    four, shared = tuned(Workers.parse("ray"), 0.1)
    monkeypatch.setattr(RayCrew, "_places", lambda self: 1)
    one, alone = tuned(Workers.parse("ray"), 0.1)
    assert one == four
    assert alone / shared >= 3.5, f"{alone:.2f} s against {shared:.2f} s"
