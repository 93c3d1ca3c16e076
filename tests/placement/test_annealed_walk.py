"""Annealing, a move at a time: what it accepts, what it goes on from, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow.placement import Devices, PlacementTask
from rlflow.placement.annealed_walk import AnnealedWalk, cooled, moves_of
from rlflow.placement.fusing import FusingTask
from rlflow.placement.ordering import OrderingTask
from rlflow.placement.sketches import drawn_sketch
from rlflow.testing.placers import layered_work


class Counted:
    """A task of which each 1 costs one, and that says what it was asked."""

    evidence = "exact"
    choices = 2

    def __init__(self, nodes: int) -> None:
        self.nodes, self.spent, self.asked = nodes, 0, []

    def scores(self, decisions: np.ndarray) -> np.ndarray:
        self.spent += len(decisions)
        self.asked += [int(row.sum()) for row in decisions]
        return decisions.sum(axis=1).astype(float)


def walk_of(ones: int, nodes: int = 12) -> AnnealedWalk:
    now = np.zeros(nodes, np.int32)
    now[:ones] = 1
    return AnnealedWalk(Counted(nodes), now, float(ones))


@pytest.mark.parametrize(("share", "heat"), [(0.0, 4.0), (0.5, 2.0), (1.0, 1.0)])
def test_it_cools_by_equal_factors(share: float, heat: float) -> None:
    assert cooled(4.0, 1.0, share) == pytest.approx(heat)


def test_a_cold_walk_never_goes_up_and_a_hot_one_goes_anywhere() -> None:
    cold, hot = walk_of(12), walk_of(0)
    seen = []
    for _ in range(300):
        cold.step(0.0, np.random.default_rng(len(seen)))
        seen.append(cold.score)
    assert seen == sorted(seen, reverse=True) and seen[-1] == 0.0
    rng = np.random.default_rng(0)
    for _ in range(300):
        hot.step(1e9, rng)
    assert hot.score == hot.task.asked[-1] > 0  # the last move was made, whatever it was
    assert hot.best == 0.0 and not hot.found.any()


def test_a_worse_move_is_made_as_often_as_its_heat_says() -> None:
    """From no ones at all every move that changes something costs k; it is made once in exp(k / heat) times."""
    made: dict[int, list[bool]] = {}
    rng = np.random.default_rng(0)
    for _ in range(4000):
        walk = walk_of(0)
        walk.step(1.0, rng)
        made.setdefault(walk.task.asked[-1], []).append(walk.score > 0)
    for cost in (1, 2, 3):
        assert np.mean(made[cost]) == pytest.approx(np.exp(-cost), abs=0.06)


def test_it_goes_on_from_what_is_no_worse_than_its_best() -> None:
    walk = walk_of(3)
    walk.now, walk.score = np.ones(12, np.int32), 12.0  # it has gone astray since
    walk.hear(np.ones(12, np.int64), 4.0)
    assert walk.score == 12.0 and walk.best == 3.0
    other = np.eye(12, dtype=np.int64)[4] + np.eye(12, dtype=np.int64)[6] + np.eye(12, dtype=np.int64)[8]
    walk.hear(other, 3.0)
    assert walk.score == walk.best == 3.0
    assert (walk.now == other).all() and (walk.found == other).all() and walk.now.dtype == np.int32
    walk.now[0] = 1
    assert walk.found[0] == 0  # what was found is a copy


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_moves_stay_within_the_choices_and_leave_what_they_were_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = drawn_sketch("inception", 30, rng)
    placing = PlacementTask(layered_work(rng, 4, 5), Devices.alike(3))
    for task in (placing, OrderingTask(sketch.flow()), FusingTask(sketch)):
        now = rng.integers(0, task.choices, task.nodes).astype(np.int32)
        given_to, move = now.copy(), moves_of(task)
        for _ in range(20):
            other = move(now, rng)
            assert (now == given_to).all() and other.shape == now.shape
            assert other.min() >= 0 and other.max() < task.choices


def test_a_walk_without_choice_is_stuck() -> None:
    work = layered_work(np.random.default_rng(0), 2, 2)
    found = [AnnealedWalk(PlacementTask(work, Devices.alike(n)), np.zeros(4, np.int32), 1.0).stuck for n in (1, 2)]
    assert found == [True, False]
