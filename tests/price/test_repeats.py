"""Sessions are opened again until they agree; a slow one is not believed, a refusal is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlflow.price.repeats import AGREEMENT, MOST_SESSIONS, PACED_MS, agreed, combined, fastest, repeated
from rlflow.runtime import Measurement


def sessions(*times: float, spread: float = 0.01) -> list[Measurement]:
    return [Measurement(ms, spread, 9) for ms in times]


@pytest.mark.parametrize(
    ("times", "enough"),
    [
        ((), False),
        ((20.0,), False),
        ((20.0, 20.1), True),
        ((20.0, 25.0), False),
        ((25.0, 20.0, 20.2), True),  # the slow one is left alone
        ((25.0, 25.2, 20.0), False),  # two slow ones agree, but a faster one was seen
        ((2.0, 2.0), False),  # small ones get a third session
        ((2.5, 2.0, 2.02), True),
        ((0.9, 0.9, 0.9), False),  # and very small ones a fourth
        ((1.4, 0.9, 1.3, 0.9), True),
        ((0.0010, 0.0014, 0.002, 0.003), True),  # half a microsecond is less than the clock tells apart
    ],
)
def test_when_sessions_agree(times: tuple[float, ...], enough: bool) -> None:
    assert agreed(sessions(*times)) is enough


@pytest.mark.parametrize(
    ("times", "ms", "spread"),
    [((2.0, 2.02), 2.01, 0.02), ((2.6, 2.0, 2.02), 2.01, 0.02), ((3.0, 2.0, 2.4), 2.2, 0.4), ((2.0,), 2.0, 0.01)],
)
def test_the_time_is_the_mean_of_the_two_fastest(times: tuple[float, ...], ms: float, spread: float) -> None:
    found = combined(sessions(*times))
    assert found.ms == pytest.approx(ms)
    assert found.spread_ms == pytest.approx(spread)
    assert found.samples == 9 * len(times)


class Clock:
    """Answers with the next of each item's times, and remembers what it was asked."""

    def __init__(self, times: dict[str, list[float | str]]) -> None:
        self.times = {key: iter(values) for key, values in times.items()}
        self.asked: list[list[str]] = []

    def __call__(self, items: Sequence[tuple[str, bytes, Any]]) -> dict[str, Measurement | str]:
        keys = [key for key, *_ in items]
        self.asked.append(keys)
        answers = {key: next(self.times[key]) for key in keys}
        return {key: one if isinstance(one, str) else sessions(one)[0] for key, one in answers.items()}


def test_only_what_does_not_agree_is_timed_again() -> None:
    clock = Clock({"calm": [10.0, 10.1], "unlucky": [13.0, 10.0, 10.1], "refused": ["no kernel"]})
    found = repeated(clock, [(key, b"", None) for key in clock.times])
    assert clock.asked == [["calm", "unlucky", "refused"], ["unlucky", "calm"], ["unlucky"]]
    assert found["calm"].ms == pytest.approx(10.05)  # type: ignore[union-attr]
    assert found["unlucky"].ms == pytest.approx(10.05)  # type: ignore[union-attr]
    assert found["refused"] == "no kernel"


def test_what_never_agrees_ends() -> None:
    wild = [1.0 * (1 + 2 * AGREEMENT) ** k for k in range(10, 0, -1)]
    clock = Clock({"wild": list(wild)})
    found = repeated(clock, [("wild", b"", None)])
    assert len(clock.asked) == MOST_SESSIONS
    assert found["wild"].ms == pytest.approx(sum(sorted(wild[:MOST_SESSIONS])[:2]) / 2)  # type: ignore[union-attr]


def beside(ms: float, slow: float = 1.0) -> Measurement:
    """A session of a machine that is so many times slower than at its best."""
    rows = tuple((ms * slow * up, slow * up, slow * up) for up in (0.99, 1.0, 1.01))
    return Measurement(ms * slow, 0.01, 3, rows)


@pytest.mark.parametrize(
    ("sessions", "enough"),
    [
        ([beside(2.0), beside(2.0)], False),  # small ones get a third session
        ([beside(2.0), beside(2.0, 1.3), beside(2.0, 1.1)], True),  # the machine was slow, not the model
        ([beside(2.0), beside(2.0), beside(2.3)], False),
        ([beside(2.0), beside(2.3), *[beside(2.0)] * 5], False),
        ([beside(9.0), beside(9.1)], True),
    ],
)
def test_when_sessions_beside_references_agree(sessions: list[Measurement], enough: bool) -> None:
    assert agreed(sessions) is enough


def test_what_takes_long_is_timed_beside_references() -> None:
    plain = Clock({"short": [PACED_MS / 2] * 4, "long": [PACED_MS * 2], "refused": ["no kernel"]})
    calls: list[list[str]] = []

    def paced(items: Sequence[tuple[str, bytes, Any]]) -> dict[str, Measurement | str]:
        calls.append([key for key, *_ in items])
        return {key: beside(PACED_MS * 2, slow=1.0 + len(calls) / 10) for key, *_ in items}

    found = repeated(plain, [(key, b"", None) for key in plain.times], paced)
    assert plain.asked == [["short", "long", "refused"], ["short"], ["short"], ["short"]]
    assert calls == [["long"]] * 4
    assert (found["short"].samples, found["long"].samples) == (36, 12)  # type: ignore[union-attr]
    assert len(found["long"].beside) == 12  # type: ignore[union-attr]
    assert found["refused"] == "no kernel"


@pytest.mark.parametrize("over_after", [0, 1, 2])
def test_no_session_is_opened_when_the_time_is_over(over_after: int) -> None:
    """Every item has one session; what does not agree yet counts as it is."""
    clock, asked = Clock({"wild": [20.0, 30.0, 40.0, 50.0]}), [0]

    def over() -> bool:
        asked[0] += 1
        return asked[0] > over_after

    found = repeated(clock, [("wild", b"", None)], over=over)
    assert len(clock.asked) == 1 + over_after
    assert found["wild"].ms == pytest.approx([20.0, 25.0, 25.0][over_after])  # type: ignore[union-attr]


def test_what_agrees_does_not_ask_for_the_time() -> None:
    clock = Clock({"calm": [20.0, 20.1], "refused": ["no kernel"]})
    asked: list[bool] = []
    repeated(clock, [(key, b"", None) for key in clock.times], over=lambda: bool(asked.append(False)))
    assert len(asked) == 1


def test_what_takes_long_is_not_timed_beside_references_when_the_time_is_over() -> None:
    plain = Clock({"long": [PACED_MS * 2]})
    found = repeated(plain, [("long", b"", None)], lambda items: pytest.fail("a further session"), over=lambda: True)
    assert found["long"].ms == PACED_MS * 2  # type: ignore[union-attr]


def test_in_haste_the_fastest_session_counts_and_short_ones_get_more_of_them() -> None:
    clock = Clock({"long": [9.0], "middling": [4.0, 3.0], "short": [0.9, 0.5, 0.7], "refused": ["no kernel"]})
    found = fastest(clock, [(key, b"", None) for key in clock.times])
    assert clock.asked == [["long", "middling", "short", "refused"], ["middling", "short"], ["short"]]
    times = {key: one if isinstance(one, str) else one.ms for key, one in found.items()}
    assert times == {"long": 9.0, "middling": 3.0, "short": 0.5, "refused": "no kernel"}


def test_a_refusal_of_a_later_session_stands() -> None:
    clock = Clock({"failing": [0.9, "no memory"]})
    assert fastest(clock, [("failing", b"", None)]) == {"failing": "no memory"}


def test_in_haste_there_is_one_session_where_the_time_is_over() -> None:
    clock = Clock({"short": [0.9, 0.5, 0.7]})
    assert fastest(clock, [("short", b"", None)], lambda: True)["short"].ms == 0.9  # type: ignore[union-attr]
