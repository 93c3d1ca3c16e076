"""No reward can be collected by wandering; a good graph is paid once."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import BY_NAME, tiny_episode

from rlflow import env
from rlflow.testing import optimum

GAMMA = 0.97


class NoisyTimer:
    """Says that every graph is somewhat faster or slower, at random, with an interval as wide as the noise."""

    def __init__(self, seed: int, noise: float = 0.05) -> None:
        self.rng, self.noise = np.random.default_rng(seed), noise

    def gain(self, graph: Any) -> tuple[float, float]:
        value = float(self.rng.uniform(-self.noise, self.noise))
        return value, value - self.noise


def rewards_of(episode: env.Episode, choices: list[int]) -> list[float]:
    """The rewards of a walk that takes choice mod (number of candidates), then stops."""
    rewards = []
    for choice in choices:
        if episode.ended:
            return rewards
        rewards.append(episode.step(1 + choice % max(1, episode.candidates - 1)))
    if not episode.ended:
        rewards.append(episode.step(env.STOP))
    return rewards


def discounted(rewards: list[float], gamma: float = GAMMA) -> float:
    return sum(reward * gamma**t for t, reward in enumerate(rewards))


@pytest.mark.parametrize("reward", [env.Improvement(), env.Potential(GAMMA)], ids=lambda reward: reward.name)
@settings(max_examples=40, deadline=None)
@given(choices=st.lists(st.integers(0, 50), max_size=10))
def test_an_episode_that_only_wanders_never_scores_above_one_that_stops(reward: Any, choices: list[int]) -> None:
    for name in ("plateau", "valley"):
        episode = tiny_episode(name, reward.fork())
        stopped = rewards_of(tiny_episode(name, reward.fork()), [])
        rewards = rewards_of(episode, choices)
        if episode.place.node.cost >= episode.start_ms * (1 - 1e-9) and episode.gain <= 1e-9:
            assert discounted(rewards) <= discounted(stopped) + 1e-12


@settings(max_examples=40, deadline=None)
@given(choices=st.lists(st.integers(0, 50), max_size=8), more=st.lists(st.integers(0, 50), min_size=1, max_size=4))
def test_wandering_on_after_a_gain_is_worth_nothing_either(choices: list[int], more: list[int]) -> None:
    """From any place: a way on that finds nothing better earns at most what stopping there earns, which is 0."""
    for reward in (env.Improvement(), env.Potential(GAMMA)):
        episode = tiny_episode("plateau", reward.fork(), horizon=100)
        for choice in choices:
            if not episode.ended:
                episode.step(1 + choice % (episode.candidates - 1))
        if episode.ended:
            continue
        here, best = episode.place.node.cost, episode.best_ms
        rest = rewards_of(episode, more)
        if episode.best_ms >= best * (1 - 1e-9) and episode.place.node.cost >= here * (1 - 1e-9):
            assert discounted(rest) <= 1e-12


def test_an_episode_earns_the_log_of_its_gain() -> None:
    for choices in itertools.product(range(3), repeat=4):
        episode = tiny_episode("exclusive")
        assert sum(rewards_of(episode, list(choices))) == pytest.approx(episode.gain, abs=1e-9)


def test_a_potential_adds_up_to_the_end_of_the_way() -> None:
    episode = tiny_episode("exclusive", env.Potential(GAMMA))
    rewards = rewards_of(episode, [0, 0])
    steps, end = episode.steps, episode.place.node.cost
    assert steps > 0
    assert discounted(rewards) == pytest.approx(GAMMA**steps * math.log(episode.start_ms / end))


def test_the_best_reward_leads_to_the_optimum() -> None:
    """Over all walks of the valley, the greatest return belongs to the way to the known optimum."""
    best = max(
        (
            (sum(rewards_of(episode, list(choices))), episode.best_ms)
            for choices in itertools.product(range(2), repeat=3)
            for episode in [tiny_episode("valley")]
        ),
        key=lambda pair: pair[0],
    )
    assert best[1] == pytest.approx(optimum(BY_NAME["valley"]).cost_ms)


def test_end_to_end_is_paid_every_k_steps_and_at_the_end() -> None:
    class Known:
        def gain(self, graph: Any) -> tuple[float, float]:
            relus = sum(graph.op(node) == "Relu" for node in graph.order())
            return (12 - relus) / 10, (12 - relus) / 10 - 0.01

    episode = tiny_episode("twins", env.EndToEnd(Known(), every=2))
    assert rewards_of(episode, [0, 0, 0]) == pytest.approx([0.0, 0.2, 0.0, 0.1])


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_the_clock_does_not_pay(seed: int) -> None:
    episode = tiny_episode("plateau", env.EndToEnd(NoisyTimer(seed), every=1), horizon=60)
    rng = np.random.default_rng(seed)
    assert sum(rewards_of(episode, rng.integers(0, 50, 60).tolist())) == 0.0


def test_a_graph_is_timed_once() -> None:
    class Counting:
        calls = 0

        def gain(self, graph: Any) -> tuple[float, float]:
            self.calls += 1
            return 0.0, -0.1

    timer = Counting()
    reward = env.EndToEnd(timer, every=1)
    for _ in range(3):
        rewards_of(tiny_episode("twins", reward.fork()), [0, 0])
    assert timer.calls == 2


# --- one step at a time -----------------------------------------------------------------------------------------------


def episode(start: float, floor: float = 0.0) -> Any:
    problem = SimpleNamespace(gain_floor=lambda cost: floor)
    return SimpleNamespace(start_ms=start, walks=SimpleNamespace(problem=problem))


def place(cost: float) -> Any:
    return SimpleNamespace(node=SimpleNamespace(cost=cost))


@pytest.mark.parametrize(
    ("costs", "earned"),
    [
        ([8.0], [math.log(10 / 8)]),
        ([9.9], [0.0]),  # within the noise of prices
        ([9.9, 9.8, 9.4], [0.0, 0.0, math.log(10 / 9.4)]),  # several that add up to more
        ([8.0, 12.0, 8.0, 5.0], [math.log(10 / 8), 0.0, 0.0, math.log(8 / 5)]),  # nothing is paid twice
    ],
)
def test_an_improvement_pays_for_what_is_new(costs: list[float], earned: list[float]) -> None:
    reward, world = env.Improvement(), episode(10.0, floor=0.5)
    reward.start(world)
    steps = zip([10.0, *costs], costs, strict=False)
    assert [reward.step(world, place(a), place(b)) for a, b in steps] == pytest.approx(earned)


@pytest.mark.parametrize(
    ("before", "after", "earned"),
    [
        (10.0, 5.0, 0.5 * math.log(2)),
        (5.0, 10.0, -math.log(2)),
        (10.0, 20.0, 0.0),  # worse than the start is worth as much as the start
        (20.0, 40.0, 0.0),
        (20.0, 5.0, 0.5 * math.log(2)),
    ],
)
def test_a_potential_is_never_below_zero(before: float, after: float, earned: float) -> None:
    found = env.Potential(0.5).step(episode(10.0), place(before), place(after))
    assert found == pytest.approx(earned)
