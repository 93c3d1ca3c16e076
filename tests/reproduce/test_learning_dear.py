"""The bench of dear steps: the table of timed graphs, what a search needs of them, and the verdict."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning"), str(ROOT / "reproduce" / "common")]

import dear  # noqa: E402 - from reproduce/learning
import whole_times  # noqa: E402 - from reproduce/learning

from rlflow import search  # noqa: E402
from rlflow.errors import UsageError  # noqa: E402
from rlflow.graph import Graph  # noqa: E402
from rlflow.runtime import unavailable_reason  # noqa: E402

TEXT = """
x: f32[4,64] = input
w: f32[64,64] = const
m = MatMul(x, w)
r = Relu(m)
i = Identity(r)
y = Softmax{axis=1}(i)
return y
"""
START, FASTER, REFUSED = (Graph.parse(TEXT.replace("Relu", op)) for op in ("Relu", "Tanh", "Sigmoid"))
ROWS: list[dict[str, Any]] = [
    {"kind": "time", "family": "toy", "digest": FASTER.digest, "log_ratio": math.log(1.25), "refusal": None},
    {"kind": "time", "family": "toy", "digest": REFUSED.digest, "log_ratio": None, "refusal": "no"},
    {"kind": "time", "family": "other", "digest": START.digest, "log_ratio": 9.0, "refusal": None},
]


def test_the_table_gives_parts_of_the_originals_time_in_the_order_asked_for() -> None:
    model = whole_times.TimedWhole(ROWS, "toy")
    assert model.fill([START]).measured == 1
    report = model.fill([REFUSED, FASTER, START], limit=1)
    assert (report.measured, report.remaining, model.asked) == (1, 1, [-math.inf])
    model.fill([FASTER])
    times = [model.graph_time(graph.digest) for graph in (START, FASTER, REFUSED)]
    assert [one and one.ms for one in times] == [1.0, pytest.approx(0.8), None]
    assert model.asked == [-math.inf, pytest.approx(20.0)]
    assert list(model.graphs) == [REFUSED.digest, FASTER.digest]
    assert model.fresh == []


def test_what_the_table_lacks_needs_a_clock() -> None:
    model = whole_times.TimedWhole(ROWS[2:], "toy")
    model.fill([START])
    with pytest.raises(UsageError, match=r"toy is not among the recorded times"):
        model.fill([FASTER])


class FakeClock:
    def __init__(self, *ratios: float) -> None:
        self.left, self.sessions = list(ratios), 0

    def ratios(self, graph: Graph, sessions: int, seed: int) -> list[float]:
        self.sessions += sessions
        return [self.left.pop(0) for _ in range(sessions)]


def test_what_comes_near_the_best_is_timed_more_often() -> None:
    clock = FakeClock(0.5, 0.1, 0.1, 0.1)
    model = whole_times.TimedWhole(ROWS, "toy", clock)  # type: ignore[arg-type]
    model.fill([START])
    model.fill([Graph.parse(TEXT.replace("Relu", "Exp"))])
    worse = FakeClock(0.1)
    less = whole_times.TimedWhole(ROWS, "toy", worse)  # type: ignore[arg-type]
    less.fill([START])
    less.fill([Graph.parse(TEXT.replace("Relu", "Exp"))])
    assert (clock.sessions, worse.sessions) == (4, 1)
    assert [model.fresh[0][name] for name in ("family", "log_ratio", "sessions")] == ["toy", 0.1, 4]


@pytest.mark.skipif(unavailable_reason("onnxruntime") is not None, reason="ONNX Runtime is not installed")
def test_the_clock_tells_a_larger_graph_from_the_original() -> None:
    larger = TEXT.replace("r = Relu(m)", "".join(f"m{k} = MatMul(m{k - 1 if k else ''}, w)\n" for k in range(12)))
    larger = larger.replace("i = Identity(r)", "i = Identity(m11)")
    with whole_times.Clock(30.0) as clock:
        clock.begin(START)
        slower = clock.ratios(Graph.parse(larger), 2, 0)
    assert len(slower) == 2
    assert all(one < -0.1 for one in slower)
    with whole_times.Clock(-1.0) as late:
        late.begin(START)
        with pytest.raises(whole_times.OutOfTime):
            late.ratios(START, 1, 0)


def times(*figures: tuple[float | None, float | None]) -> list[dict[str, Any]]:
    """Rows of one family: as the searches saw the gains, and as they were confirmed."""
    return [
        {"kind": "time", "family": "toy", "digest": str(i), "log_ratio": seen}
        | ({} if again is None else {"confirmed": again})
        for i, (seen, again) in enumerate(figures)
    ]


def test_nothing_of_this_machine_is_known_to_an_entrant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dear, "WEIGHTS", tmp_path)
    made = {name: search.make(spec) for name, spec in dear.entrants("toy", 16).items() if name.startswith("surrogate")}
    others = str(tmp_path / "others-of-toy.jsonl")
    prices: list[Any] = [getattr(one, "prices", None) for one in made.values()]
    assert prices == [others, others, "none"]
    assert whole_times.TimedWhole(ROWS, "toy").timed_regions() == ()


def test_the_leaders_are_those_near_the_best() -> None:
    found = dear.leaders(times((0.05, None), (0.1, None), (None, None), (0.079, None), (0.081, None)), "toy")
    assert [row["digest"] for row in found] == ["1", "4"]
    assert dear.leaders(times((-0.1, None)), "toy") == []
    found = dear.leaders(times((0.5, 0.1), (0.09, None), (0.07, 0.12)), "toy")
    assert [row["digest"] for row in found] == ["2", "0"]
    assert len(dear.leaders(times(*[(0.1, None)] * 40), "toy")) == dear.LEADERS


def test_the_verdict_goes_by_what_was_confirmed() -> None:
    known = dear.known_gains(times((math.log(2.0), math.log(1.25)), (math.log(1.25), None), (None, None)))
    assert list(known.values()) == [pytest.approx(20.0), pytest.approx(20.0), -math.inf]


def test_timed_graphs_until_nine_tenths() -> None:
    assert dear.needed([1.0, 8.9, 9.0, 10.0], 10.0) == 3
    assert dear.needed([1.0, 8.9], 10.0) == math.inf
    assert [dear.ahead(12.0, one) for one in (59.0, 60.0, math.inf)] == [False, True, True]
    assert not dear.ahead(13.0, math.inf)


def rows(family: str, **runs: list[list[float]]) -> list[dict[str, Any]]:
    return [
        {"family": family, "name": name, "seed": seed, "timed": gains, "digests": [f"{gain}" for gain in gains]}
        for name, seeds in runs.items()
        for seed, gains in enumerate(seeds)
    ]


def test_the_verdict_counts_families_where_all_rivals_need_five_times_as_many() -> None:
    slow, slower = [0.0] * 9 + [10.0], [0.0] * 10 + [10.0]
    won = rows("won", surrogate=[[10.0], [0.0, 0.0, 10.0]], beam=[slow], mcts=[slower, slow], random=[[1.0]])
    lost = rows("lost", surrogate=[[0.0, 0.0, 10.0]], beam=[slow], mcts=[slower], random=[[1.0]])
    seldom = rows("seldom", surrogate=[[10.0], [1.0]], beam=[slow], mcts=[slow], random=[slow])
    poor = rows("poor", surrogate=[[1.0]], beam=[[0.0]], mcts=[[0.0]], random=[[0.0]])
    mostly = rows("mostly", surrogate=[[10.0], [1.0], [0.0, 10.0]], beam=[slow], mcts=[slow], random=[slow])
    every = [*won, *lost, *seldom, *poor, *mostly]
    known = {(row["family"], one): float(one) for row in every for one in row["digests"]}
    text = list(dear.lines(every, known))
    by_family = {line.split("`")[1]: line for line in text if "`" in line}
    assert by_family["won"].endswith("| 10.0 | 2 | 10 | 10.5 | more than 60 | beam, mcts, random |")
    assert by_family["lost"].endswith("| 10.0 | 3 | 10 | 11 | more than 60 | random |")
    assert by_family["seldom"].endswith("| 10.0 | more than 12 | 10 | 10 | 10 |  |")
    assert by_family["poor"].endswith("|  |")
    assert by_family["mostly"].endswith("| 10.0 | 2 | 10 | 10 | 10 | beam, mcts, random |")  # of 1, 2 and never
    assert text[-1] == "5 times fewer than each of beam, mcts, random: on 2 of 5 families."
