"""Races between strategies: what may be said, what may not, and that nothing is run twice."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import interrupts, zoo
from rlflow.comparison import Comparison, compare, differences, half_width
from rlflow.comparison.searcher import BLOCKS
from rlflow.errors import UsageError
from tests.cli.commands import rlflow
from tests.learnt import learnt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-bert.onnx"
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "feed_forward": 32, "vocab": 20}
    path.write_bytes(zoo.build("bert6-classifier", seq=8, **sizes).SerializeToString())
    return path


def test_one_value_has_no_interval() -> None:
    assert half_width([1.0]) is None
    assert half_width([1.0, 1.0]) == 0.0
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)


def run(strategy: str, seed: int, cost_ms: float, digest: str = "d") -> dict[str, Any]:
    row = {"model": "m", "strategy": strategy, "seed": seed, "cost_before_ms": 10.0, "cost_after_ms": cost_ms}
    return row | {"digest": digest, "seconds": 1.0, "expansions": 5, "measurements": 0}


@pytest.mark.parametrize(
    ("one", "other", "better", "significant"),
    [
        ([5.0, 5.0, 5.0], [6.0, 6.0, 6.0], "a", True),  # no randomness: a difference is a difference
        ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0], "a", False),
        ([6.0, 6.1, 6.05], [5.0, 5.05, 5.1], "b", True),
        ([5.0, 7.0, 6.0], [6.0, 6.1, 5.9], "a", False),  # the noise of the seeds hides it
        ([5.0], [6.0], "a", False),  # one seed proves nothing
    ],
)
def test_a_lower_cost_is_claimed_only_where_it_is_certain(
    one: list[float], other: list[float], better: str, significant: bool
) -> None:
    runs = [run(name, seed, cost) for name, costs in (("a", one), ("b", other)) for seed, cost in enumerate(costs)]
    (found,) = differences(Comparison(["a", "b"], runs))
    assert found.significant is significant
    assert found.measure == "cost"
    assert found.better == better or not significant
    assert found.ratio >= 1.0 and found.low <= found.ratio <= found.high


@pytest.mark.parametrize(("gain", "significant"), [(0.05, True), (0.0005, False)])
def test_a_shorter_time_is_claimed_only_where_it_is_significant(gain: float, significant: bool) -> None:
    rng = np.random.default_rng(0)
    drift = rng.normal(0, 0.2, 10)  # of the machine: the same for all models of a block
    log_ms = {
        "baseline": (drift + rng.normal(0, 0.01, 10)).tolist(),
        "fast": (drift - gain + rng.normal(0, 0.01, 10)).tolist(),
    }
    runs = [run("a", 0, 5.0, "fast"), run("b", 0, 10.0, "unchanged")]
    found = Comparison(["a", "b"], runs, [{"model": "m", "log_ms": log_ms}])
    (timed,) = [one for one in differences(found) if one.measure == "time"]
    assert timed.significant is significant
    if significant:
        assert (timed.better, timed.worse) == ("a", "b")
        assert timed.low < math.exp(gain) < timed.high
    fast, unchanged = found.summary()
    assert fast["speedup"] == pytest.approx(math.exp(gain), rel=0.02)
    assert unchanged["speedup"] == 1.0


def test_a_comparison_runs_keeps_and_resumes(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tmp_path / "race.jsonl"
    options: dict[str, Any] = {"budget": "40x", "cost": "analytic", "keep": keep}
    found = compare([model], ["greedy", "random:length=2"], seeds=2, **options)
    assert [(one["strategy"], one["seed"]) for one in found.runs] == [
        ("greedy", 0), ("greedy", 1), ("random:length=2", 0), ("random:length=2", 1),
    ]  # fmt: skip
    assert not found.timings
    assert json.loads(json.dumps(found.to_dict()))["summary"][0]["relative_cost"] < 1.0
    assert [row["strategy"] for row in csv.DictReader(io.StringIO(found.csv()))][:2] == ["greedy", "greedy"]

    def refuse(*_: object) -> None:
        raise AssertionError("was run again")

    monkeypatch.setattr("rlflow.search.solve", refuse)
    again = compare([model], ["greedy", "random:length=2"], seeds=2, **options)
    assert again.to_dict() == found.to_dict()
    with pytest.raises(AssertionError, match="was run again"):
        compare([model], ["greedy", "random:length=2"], seeds=3, **options)


def test_winners_are_timed_end_to_end(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(learnt(tmp_path / "prices.sqlite").parent))
    found = compare([model], ["greedy", "random:walks=1"], budget="20meas", seeds=1, gate_seconds=1.0)
    (timing,) = found.timings
    assert set(timing["log_ms"]) <= {"baseline", *(one["digest"] for one in found.runs)}
    assert all(len(blocks) == BLOCKS for blocks in timing["log_ms"].values())
    assert {one.measure for one in found.differences} == {"cost", "time"}
    assert all(row["speedup"] > 0 for row in found.summary())


@pytest.mark.parametrize(
    ("strategies", "seeds", "says"),
    [
        (["greedy"], 3, "two or more"),
        (["greedy", "greedy:pick=best"], 3, "different"),
        (["greedy", "beam"], 0, "seeds"),
    ],
)
def test_mistakes_are_sentences(strategies: list[str], seeds: int, says: str, model: Path) -> None:
    with pytest.raises(UsageError, match=says):
        compare([model], strategies, seeds=seeds, budget="5x")


@pytest.mark.parametrize(
    "content",
    [b"not JSON", b"\xff\xfe", b"[1, 2]", b'{"kind": "search"}', b"null"],
    ids=["text", "bytes", "list", "other", "null"],
)
def test_a_file_that_keeps_something_else_is_refused(content: bytes, model: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep.jsonl"
    keep.write_bytes(content)
    with pytest.raises(UsageError, match=r"keep\.jsonl"):
        compare([model], ["greedy", "beam"], seeds=1, budget="5x", cost="analytic", keep=keep)
    assert keep.read_bytes() == content


def test_an_interrupted_comparison_shows_what_is_done(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.comparison import comparing

    begun, begin = [], comparing._Run._begun

    def interrupted(self: Any, task: Any) -> None:
        begun.append(task)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        begin(self, task)

    monkeypatch.setattr(comparing._Run, "_begun", interrupted)
    with interrupts.counting(lambda: None):
        done = rlflow("compare", model, "--search", "greedy,beam", "--seeds", "1", "--cost", "analytic", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 130, done.output
    assert [(row["strategy"], row["seed"]) for row in found["runs"]] == [("greedy", 0)]
    assert [row["strategy"] for row in found["summary"]] == ["greedy"]
    assert "rlflow: interrupted; 1 of 2 searches are done." in done.stderr
