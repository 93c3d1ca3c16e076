"""The second search for designs goes by what the clock said of the first one's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlflow.footprint import Stretch
from rlflow.footprint.squeeze import Design
from rlflow.pipeline import designing
from rlflow.pipeline.designing import Base, Designing, LookedAt, Wish


class Recorder:
    """Stands in for the search; finds one design that is known and one that is not."""

    most: float = 0.0

    def __init__(self, flow: Any, most: float, seconds: float, stop: Any) -> None:
        Recorder.most = most

    def run(self) -> list[Design]:
        return self.small()

    def small(self) -> list[Design]:
        return [design(1.2, 3), design(1.1, 5)]


def design(work: float, bands: int) -> Design:
    return Design(100, work, (Stretch(0, 1, bands),), 90)


def closer(monkeypatch: pytest.MonkeyPatch, paces: dict[float, float], speedup: float | None = None) -> list[Design]:
    """What a second search brings, after designs of such works took such times."""
    monkeypatch.setattr(designing, "Squeeze", Recorder)
    monkeypatch.setattr(Recorder, "most", 0.0)
    inputs = SimpleNamespace(feeds=[{}])
    context: Any = SimpleNamespace(inputs=lambda came: inputs, stop=SimpleNamespace(stopped=False))
    base: Any = Base(None, None, False, speedup)  # type: ignore[arg-type]
    seen: Any = None
    found = [LookedAt(base, design(work, 3), None, seen, pace) for work, pace in paces.items()]  # type: ignore[arg-type]
    return Designing(None, context, Wish(slower=1.1))._closer(base, found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("paces", "speedup", "most"),
    [
        ({1.2: 1.2}, None, 1.1),  # as estimated
        ({1.2: 1.1}, None, 1.2),  # half as slow
        ({1.2: 1.4}, None, 1.05),  # twice as slow
        ({1.2: 1.1, 1.4: 1.2, 1.3: 1.9}, None, 1.2),  # the median
        ({1.02: 1.5}, None, 1.1),  # too little work to tell
        ({}, None, 1.1),
        ({1.2: 0.9}, None, 1.4),  # faster than the original: four times the work at most
        ({1.2: 11.0}, None, 1.025),  # and a quarter at least
        ({1.2: 1.0}, 1.2, 1.32),  # of a base that was rewritten: 1.2 times the base's time, as estimated
    ],
)
def test_the_bound_is_read_by_the_clock(
    paces: dict[float, float], speedup: float | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = closer(monkeypatch, paces, speedup)
    assert Recorder.most == pytest.approx(most)
    assert [one.stretches[0].bands for one in found] == ([5] if paces else [3, 5]), "what is known is not there again"


@pytest.mark.parametrize(
    ("given", "most", "kept"),
    [([1, 2, 3], 5, [1, 2, 3]), ([1, 2, 3, 4], 2, [1, 3]), (list(range(9)), 4, [0, 2, 4, 6]), ([], 3, [])],
)
def test_a_long_front_is_thinned_out(given: list[int], most: int, kept: list[int]) -> None:
    assert designing._thinned(given, most) == kept


@pytest.mark.parametrize(("stopped", "seconds", "looked"), [(False, 9.0, 4), (True, 9.0, 2), (False, -1.0, 0)])
def test_designs_are_looked_at_while_there_is_time_and_nobody_stops(
    stopped: bool, seconds: float, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of four needs more than the original; whoever stops the search still gets the next."""
    inputs, asked = SimpleNamespace(feeds=[{}]), []
    told = SimpleNamespace(stopped=stopped)
    context: Any = SimpleNamespace(inputs=lambda came: inputs, stop=told, stage=lambda *words: None)

    def candidate(base: Any, one: Design) -> Any:
        asked.append(one)
        return SimpleNamespace(seen=SimpleNamespace(peak=200 if len(asked) == 1 else 50))

    made: Any = Designing(None, context, Wish())  # type: ignore[arg-type]
    monkeypatch.setattr(made, "_candidate", candidate)
    found = made._smaller([(None, design(1.0, bands)) for bands in range(2, 6)], 100, seconds)
    assert len(asked) == looked and len(found) == max(looked - 1, 0)
