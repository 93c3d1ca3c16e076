"""A slow moment of the machine is told from a slow region by what was timed beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow.price.pace import Pace, at_pace, pace_of, residuals, split
from rlflow.runtime import Measurement

BEST = Pace(1.0, 0.3)
Rows = tuple[tuple[float, float, float], ...]


def timed(parts: tuple[float, float], slow: Sequence[tuple[float, float]], noise: float = 0.0, seed: int = 0) -> Rows:
    """Samples of a region of which ``parts`` milliseconds compute and walk, while the machine was so many times slower
    at the one and the other.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for computing, walking in slow:
        own = (parts[0] * computing + parts[1] * walking) * float(np.exp(rng.normal(0, noise)))
        rows.append((own, BEST.computing_ms * computing, BEST.walking_ms * walking))
    return tuple(rows)


def measurement(rows: Rows) -> Measurement:
    return Measurement(float(np.median([own for own, _, _ in rows])), 0.1, len(rows), rows)


@pytest.mark.parametrize("parts", [(2.0, 0.0), (0.0, 0.5), (1.2, 0.7), (0.3, 3.0)])
@pytest.mark.parametrize("phase", [(1.0, 1.0), (1.25, 1.0), (1.05, 1.6), (1.3, 2.0)])
def test_a_slow_phase_leaves_no_trace(parts: tuple[float, float], phase: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    slow = [(phase[0] * up, phase[1] * down) for up, down in np.exp(rng.normal(0, [0.04, 0.2], (27, 2)))]
    found = at_pace(measurement(timed(parts, slow, noise=0.01)), BEST)
    assert found.ms == pytest.approx(sum(parts), rel=0.02)
    assert found.spread_ms < 0.05 * found.ms


def test_an_unlucky_session_of_three_is_left_aside() -> None:
    rng = np.random.default_rng(2)
    slow = [tuple(pair) for pair in np.exp(rng.normal(0, [0.04, 0.2], (27, 2)))]
    rows = timed((1.5, 0.2), slow, noise=0.01)
    spoilt = tuple((own * 1.2, one, other) for own, one, other in rows[:9]) + rows[9:]
    assert at_pace(measurement(spoilt), BEST).ms == pytest.approx(1.7, rel=0.02)
    off = residuals([spoilt[:9], spoilt[9:18], spoilt[18:]])
    assert off[0] - off[1] == pytest.approx(np.log(1.2), abs=0.03)
    assert abs(off[1] - off[2]) < 0.02


@pytest.mark.parametrize(("rows", "pace"), [((), BEST), (((1.0, 1.0, 0.3),), None)])
def test_without_a_pace_a_time_stays_as_it_is(rows: Rows, pace: Pace | None) -> None:
    one = Measurement(3.0, 0.1, 9, rows)
    assert at_pace(one, pace) == one


def test_the_best_pace_is_the_lowest_decile_of_each_reference() -> None:
    rows = tuple((1.0, 1.0 + k / 100, 2.0 - k / 100) for k in range(101))
    assert pace_of([measurement(rows[:50]), measurement(rows[50:])]) == pytest.approx((1.1, 1.1))
    assert pace_of([Measurement(1.0, 0.1, 9)]) is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.1, 10.0)),
        min_size=1,
        max_size=40,
    )
)
def test_whatever_the_samples_no_part_is_below_nothing(rows: list[tuple[float, float, float]]) -> None:
    table = np.array(rows)
    inputs = table[:, 1:] / table[:, :1]
    parts = split(inputs)
    assert (parts >= 0).all()
    assert np.isfinite(parts).all()
    assert parts.sum() > 0
