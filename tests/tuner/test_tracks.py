"""Tracks: who is given up when, and the actor-critic that walks them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rlflow.errors import UsageError
from rlflow.nn.clipping import clipped_surrogate
from rlflow.tuner.actor_critic import ActorConfig, Agent, Experience, view
from rlflow.tuner.program_scores import KernelRidge
from rlflow.tuner.spaces import GROUPS, Sketch, Steps, TensorProgram, Tile
from rlflow.tuner.tasks import TuningTask
from rlflow.tuner.tracks import TrackConfig, TrackWalk, survivors
from tests.tuner import toys


@pytest.mark.parametrize(
    ("advantages", "count", "expected"),
    [
        ([0.1, 0.9, -1.0, 0.5], 2, [1, 3]),
        ([0.0, 0.0, 0.0, 0.0], 2, [0, 1]),
        ([3.0, 2.0, 1.0], 1, [0]),
        ([-5.0, -4.0], 2, [0, 1]),
    ],
)
def test_the_tracks_with_the_least_advantage_end(advantages, count, expected) -> None:
    assert survivors(np.array(advantages), count).tolist() == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TrackConfig(32, 8, 0.5, 8), [(32, 8), (16, 8), (8, 8)]),
        (TrackConfig(10, 4, 0.5, 3), [(10, 4), (5, 4), (3, 4)]),
        (TrackConfig(5, 2, 0.1, 4), [(5, 2), (4, 2)]),  # at least one ends
        (TrackConfig(6, 3, 0.9, 6), [(6, 3)]),
        (TrackConfig(32, 8, 0.5, 8, adaptive=False), [(32, 14)]),
    ],
)
def test_how_long_tracks_are(config: TrackConfig, expected) -> None:
    assert config.lengths() == expected


@pytest.mark.parametrize("tracks", [8, 13, 32, 64])
def test_tracks_of_fixed_length_make_as_many_steps(tracks: int) -> None:
    adaptive, fixed = TrackConfig(tracks, keep=4), TrackConfig(tracks, keep=4, adaptive=False)
    made = sum(count * length for count, length in fixed.lengths())
    assert adaptive.steps == fixed.steps
    assert 0 <= made - adaptive.steps < tracks


@pytest.mark.parametrize(
    "bad", [{"tracks": 4, "keep": 5}, {"keep": 0}, {"window": 0}, {"drop": 0.0}, {"drop": 1.0}, {"elite": 1.5}]
)
def test_tracks_that_cannot_be_are_refused(bad) -> None:
    with pytest.raises(UsageError):
        TrackConfig(**bad)


def known_task(seed: int = 0, count: int = 40) -> TuningTask:
    task = TuningTask(0, toys.engine(), KernelRidge())
    programs = task.fresh(np.random.default_rng(seed), count, None, [])
    task.add(programs, [toys.seconds_of(toys.SPACE, one) for one in programs])
    return task


class Scripted:
    """An agent that always leaves everything, with worths that say which tracks are good."""

    config = ActorConfig()

    def __init__(self, worth) -> None:
        self.worth, self.seen = worth, []

    def act(self, sketch, values, whole, rng):
        from rlflow.tuner.actor_critic import Acted

        self.seen.append(values.copy())
        still = np.array([sketch.moves.group.tolist().index(group) for group in range(len(GROUPS))])
        n = len(values)
        return Acted(np.tile(still, (n, 1)), np.zeros(4 * n, dtype=np.int64), np.zeros(n), np.zeros(n))

    def worths(self, sketch, values, whole):
        return self.worth(values)


def test_a_walk_gives_up_the_tracks_that_promise_least() -> None:
    """Nothing moves and nothing is earned, so the advantage is what the critic expects at the end: here the first
    factor, so that the tracks with the largest one stay.
    """
    agent = Scripted(lambda values: values[:, 0].astype(float))
    config = TrackConfig(tracks=16, window=2, drop=0.5, keep=4, train_every=0, elite=0.0)
    walk = TrackWalk(known_task(), 0, agent, config, np.random.default_rng(3))  # type: ignore[arg-type]
    walk.run()
    assert walk.ended == [8, 4]
    assert [len(values) for values in agent.seen] == [16, 16, 8, 8, 4, 4]
    begun, left = agent.seen[0][:, 0], agent.seen[-1][:, 0]
    assert sorted(left.tolist()) == sorted(begun.tolist())[-4:]


def test_tracks_of_fixed_length_are_never_given_up() -> None:
    agent = Scripted(lambda values: values[:, 0].astype(float))
    config = TrackConfig(tracks=16, window=2, drop=0.5, keep=4, adaptive=False, train_every=0)
    walk = TrackWalk(known_task(), 0, agent, config, np.random.default_rng(3))  # type: ignore[arg-type]
    walk.run()
    assert walk.ended == []
    assert {len(values) for values in agent.seen} == {16}


def test_a_walk_begins_at_the_fastest_and_visits_only_programs() -> None:
    task = known_task()
    walk = TrackWalk(task, 0, Agent(ActorConfig(), 0), TrackConfig(tracks=8, keep=4), np.random.default_rng(0))
    visited = walk.run()
    assert task.ranked(0)[0] in visited
    assert all(toys.SPACE.holds(one) and one.sketch == 0 for one in visited)
    assert walk.trainings == 4  # two stretches of 8 steps, one training every 4
    assert visited == pytest.approx(dict(zip(visited, task.predict(list(visited)), strict=True)))


# --- the actor-critic -------------------------------------------------------------------------------------------------


def test_only_legal_edits_have_a_chance() -> None:
    sketch, rng = toys.GEMM, np.random.default_rng(0)
    agent, values = Agent(ActorConfig(), 0), toys.GEMM.random(rng, 64)
    for _ in range(10):
        acted = agent.act(sketch, values, np.zeros((64, 4)), rng)
        assert np.take_along_axis(sketch.legal(values), acted.moves, axis=1).all()
        assert (sketch.moves.group[acted.moves] == np.arange(4)).all()
        values = sketch.moved(values, acted.moves)
    seen = view(sketch, values, np.zeros((64, 4)))
    assert len(seen.move) == sketch.legal(values).sum()
    assert (np.diff(seen.owner.numpy()) >= 0).all()


def experience(sketch: Sketch, agent: Agent, rng, reward, tracks: int = 16, steps: int = 4) -> Experience:
    values, columns = sketch.random(rng, tracks), [[], [], [], [], [], []]
    whole = np.zeros((tracks, 4))
    for _ in range(steps):
        acted = agent.act(sketch, values, whole, rng)
        after = sketch.moved(values, acted.moves)
        row = (values, whole, acted.actions.reshape(tracks, -1), acted.log_probs, acted.worths, reward(values, after))
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        values = after
    return Experience(sketch, *(np.stack(column) for column in columns), agent.worths(sketch, values, whole))


def test_gradients_reach_every_parameter() -> None:
    agent, rng = Agent(ActorConfig(), 0), np.random.default_rng(0)
    before = agent.weights()
    agent.learn(experience(toys.GEMM, agent, rng, lambda before, after: rng.random(16)))
    assert all(one.grad is not None and float(one.grad.abs().sum()) > 0 for one in agent.network.parameters())
    assert all((agent.weights()[name] != value).any() for name, value in before.items())


def test_it_learns_to_move_factors_inwards() -> None:
    """The reward is the growth of the innermost part; a trained actor earns several times what it did at first."""
    sketch = Sketch("one loop", (Tile("i", 64, 3),), (Steps("u", "unroll", (0, 1)),))
    agent, rng = Agent(ActorConfig(), 1), np.random.default_rng(1)

    def reward(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        return np.log2(after[:, 2] / before[:, 2])

    first = np.mean([experience(sketch, agent, rng, reward).rewards.mean() for _ in range(5)])
    for _ in range(40):
        agent.learn(experience(sketch, agent, rng, reward))
    last = np.mean([experience(sketch, agent, rng, reward).rewards.mean() for _ in range(5)])
    assert first < 0.15
    assert last > 0.4


def test_weights_depend_on_the_seed_alone_and_travel() -> None:
    one, other = Agent(ActorConfig(), 3).weights(), Agent(ActorConfig(), 3).weights()
    assert all((one[name] == other[name]).all() for name in one)
    taught = Agent(ActorConfig(), 4)
    assert any((taught.weights()[name] != one[name]).any() for name in one)
    taught.load(one)
    assert all((taught.weights()[name] == one[name]).all() for name in one)


def test_the_network_does_not_care_for_the_order_of_loops() -> None:
    """Tokens are a set: a program with its loops named in another order is worth the same."""
    there = Sketch("there", (Tile("i", 8, 2), Tile("j", 27, 2)))
    back = Sketch("back", (Tile("j", 27, 2), Tile("i", 8, 2)))
    agent = Agent(ActorConfig(), 0)
    one = agent.worths(there, np.array([[2, 4, 3, 9]]), np.zeros((1, 4)))
    other = agent.worths(back, np.array([[3, 9, 2, 4]]), np.zeros((1, 4)))
    assert one == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "expected"),
    [(0.0, 2.0, -2.0), (1.0, 1.0, -1.2), (1.0, -1.0, 2.718281828), (-1.0, 1.0, -0.367879441), (-1.0, -1.0, 0.8)],
)
def test_the_clipped_surrogate_by_hand(log_ratio: float, advantage: float, expected: float) -> None:
    found = clipped_surrogate(torch.tensor([log_ratio]), torch.tensor([advantage]), 0.2)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_programs_of_a_walk_are_python_integers() -> None:
    task = known_task()
    visited = TrackWalk(task, 1, Agent(ActorConfig(), 0), TrackConfig(tracks=8, keep=4), np.random.default_rng(0)).run()
    assert all(type(value) is int for one in visited for value in TensorProgram(*one).values)
