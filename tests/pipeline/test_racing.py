"""The comparison of a run goes on with the time that the clean-up does not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow.pipeline import racing
from rlflow.pipeline.parts import ModelTimes, Parts
from rlflow.pipeline.racing import race
from rlflow.race import gate, track
from rlflow.race.gate import LEAST_BLOCKS, decide
from rlflow.runtime import Samples
from rlflow.search import StopToken, Visited

BLOCK_SECONDS = 1.0
CANDIDATE, CLEANUP = "candidate 1", racing.CLEANUP


class Clock:
    """A clock on which only blocks take time."""

    def __init__(self) -> None:
        self.now, self.blocks = 0.0, 0

    def __call__(self) -> float:
        return self.now


class Simulated:
    """Models of known speed, whose blocks take a second each; ``unlucky``: numbers of those in which the candidate
    seems a little slower.
    """

    clock = "wall"

    def __init__(self, true_ms: Mapping[str, float], clock: Clock, unlucky: Sequence[int]) -> None:
        self.true_ms, self.time, self.unlucky = true_ms, clock, unlucky

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.time.now += BLOCK_SECONDS
        self.time.blocks += 1
        slow = 1.06 if self.time.blocks in self.unlucky else 1.0
        mean = np.array([self.true_ms[name] * (slow if name == CANDIDATE else 1.0) for name in names])
        matrix = np.tile(mean, (5, 1))
        return Samples(matrix, matrix, (1,) * len(names))


class Run:
    """One race of a candidate within ``seconds``; the search has taken two thirds of them. ``original``: milliseconds
    of the model as it came, where the candidate takes 9.5 and the model as imported 10.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, original: float, seconds: float = 60.0, unlucky: Sequence[int] = ()
    ) -> None:
        self.unlucky = unlucky
        self.calls: list[dict[str, Any]] = []
        self.clock = Clock()
        times = {"baseline": 10.0, CANDIDATE: 9.5, "original": original, CLEANUP: 10.0}
        self.times, self.beside_of_cleanup = times, original
        monkeypatch.setattr(track.time, "perf_counter", self.clock)
        monkeypatch.setattr(gate, "choose", self.choose)
        monkeypatch.setattr(racing, "_memory", lambda *_: None)
        parts = Parts(seconds, clock=self.clock)
        parts.begin()
        parts.plan(ModelTimes(0.0, 0.0), models=2)
        self.clock.now = seconds * 2 / 3
        place = SimpleNamespace(command=None)
        options = SimpleNamespace(place=place, freeze={}, verify=False, seed=0, fresh=False)
        self.context: Any = SimpleNamespace(
            cost_model=SimpleNamespace(measures=True),
            options=options,
            parts=parts,
            notes=[],
            stage=lambda *_: None,
            interrupted=StopToken(),
            worker=None,
            inputs=lambda _: SimpleNamespace(feeds=[{}]),
        )

    def choose(self, clock: Any, baseline: Any, candidates: Mapping[str, Any], feeds: Any, **how: Any) -> Any:
        self.calls.append({"candidates": list(candidates), **how})
        times = dict(self.times)
        if baseline == b"original":
            times["baseline"] = self.beside_of_cleanup
        beside, stop, memory = how.pop("beside"), how.pop("stop"), how.pop("memory")
        how.pop("before_closing")
        return decide(
            Simulated(times, self.clock, self.unlucky), "baseline", list(candidates), beside=list(beside), stop=stop,
            memory=memory, **how,
        )  # fmt: skip

    def raced(self) -> Any:
        def export(graph: Any, trace: Any = None) -> Any:
            return SimpleNamespace(source=b"imported" if graph is self.graph else b"candidate", model=None)

        self.graph = SimpleNamespace(digest="0" * 32)
        loaded: Any = SimpleNamespace(
            graph=self.graph, source=b"original", weights=None, exports=SimpleNamespace(export=export)
        )
        best = Visited(SimpleNamespace(digest="1" * 32), "1" * 32, 9.5, ())
        found: Any = SimpleNamespace(finalists=[best], result=SimpleNamespace(cost_before_ms=10.0))
        return race(loaded, found, self.context)


def test_an_undecided_race_goes_on_where_the_clean_up_needs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, original=10.0, unlucky=[4])
    raced = run.raced()
    assert [call["candidates"] for call in run.calls] == [[CANDIDATE], [CANDIDATE]]
    assert run.calls[0]["at_most"] == pytest.approx(racing.FIRST_RACE * 20.0) and run.calls[1]["only"]
    assert raced.winner is not None and raced.decision.winner == CANDIDATE
    assert raced.decision.blocks == 12  # of both sittings together: the second look
    assert raced.decision.first_sample.keys() == {CANDIDATE}
    assert raced.decision.speedup == pytest.approx(10.0 / 9.5, rel=0.005)


def test_the_clean_up_has_its_own_race_where_it_seems_worth_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, original=10.4, unlucky=[4])
    run.raced()
    assert [call["candidates"] for call in run.calls] == [[CANDIDATE], [CLEANUP]]


def test_a_decided_race_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, original=10.0)
    raced = run.raced()
    assert raced.winner is not None and raced.decision.blocks == LEAST_BLOCKS
    assert len(run.calls) == 1


def test_a_race_that_is_left_open_again_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, original=10.0, unlucky=range(4, 40, 3))
    raced = run.raced()
    assert raced.winner is None and len(run.calls) == 2
    assert raced.decision.blocks > LEAST_BLOCKS and "the next run" in raced.reason
