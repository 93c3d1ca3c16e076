"""Sliding-window UCB against the formula written out, and the gradient estimate by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from rlflow.errors import UsageError
from rlflow.tuner.bandits import SlidingWindowUCB
from rlflow.tuner.gradients import GradientRule


def oracle(history: list[tuple[int, float]], arms: int, window: int, c: float) -> list[float]:
    """Q_t(tau, a) + c sqrt(ln(min(t, tau)) / N_t(tau, a)), arm by arm, from the whole history."""
    t = len(history)
    found = []
    for arm in range(arms):
        rewards = [reward for pulled, reward in history[max(0, t - window) :] if pulled == arm]
        if not rewards:
            found.append(math.inf)
        else:
            found.append(sum(rewards) / len(rewards) + c * math.sqrt(math.log(min(t, window)) / len(rewards)))
    return found


@pytest.mark.parametrize(("arms", "window", "c"), [(2, 5, 0.25), (4, 7, 1.0), (3, 256, 0.25), (5, 1, 0.0)])
def test_scores_are_those_of_the_formula(arms: int, window: int, c: float) -> None:
    rng, bandit = np.random.default_rng(arms), SlidingWindowUCB(arms, window, c)
    history: list[tuple[int, float]] = []
    for _ in range(40):
        assert bandit.scores() == pytest.approx(oracle(history, arms, window, c))
        expected = oracle(history, arms, window, c)
        arm = bandit.choose()
        assert arm == expected.index(max(expected))
        reward = float(rng.random())
        history.append((arm, reward))
        bandit.tell(arm, reward)


def test_it_follows_an_arm_that_changes() -> None:
    """The best arm changes at step 300; a bandit without forgetting would need as long again to see it."""
    bandit, rng, late = SlidingWindowUCB(2, window=40), np.random.default_rng(1), []
    for step in range(600):
        arm = bandit.choose()
        good = 0 if step < 300 else 1
        bandit.tell(arm, float(np.clip(rng.normal(0.8 if arm == good else 0.3, 0.05), 0, 1)))
        late.append(arm)
    assert np.mean(np.array(late[100:300]) == 0) > 0.85
    assert np.mean(np.array(late[400:]) == 1) > 0.85


@pytest.mark.parametrize("bad", [(0, 5, 0.1), (2, 0, 0.1), (2, 5, -1.0), (2, 5, math.nan)])
def test_a_bandit_that_cannot_be_is_refused(bad) -> None:
    with pytest.raises(UsageError):
        SlidingWindowUCB(*bad)


@pytest.mark.parametrize(("arm", "reward"), [(2, 0.5), (-1, 0.5), (0, math.inf)])
def test_a_reward_that_cannot_be_is_refused(arm: int, reward: float) -> None:
    with pytest.raises(UsageError):
        SlidingWindowUCB(2).tell(arm, reward)


def task(rounds: list[float], flops: float = 1e6, weight: float = 1.0, family: str = "f") -> SimpleNamespace:
    subgraph = SimpleNamespace(flops=flops, weight=weight, family=family)
    return SimpleNamespace(rounds=rounds, seconds=rounds[-1], subgraph=subgraph)


def test_the_gradient_by_hand() -> None:
    rule = GradientRule(alpha=0.2, beta=2.0, window=3)
    falling = task([8.0, 6.0, 5.0, 4.0, 4.0], weight=3.0)
    # past: (4 - 6) / 3; ahead: min(4 - 4/5, 2 * 1e6 / (1e6 / 4)) - 4 = -0.8
    assert rule.estimate(falling, [falling]) == pytest.approx(3.0 * (0.2 * 2.0 / 3.0 + 0.8 * 0.8))


def test_a_slow_subgraph_of_a_fast_family_has_more_to_gain() -> None:
    rule = GradientRule()
    slow, fast = task([9.0, 9.0], flops=1e6), task([1.0, 1.0], flops=1e6)
    # ahead of the slow one: min(9 - 9/2, 2 * 1e6 / 1e6) - 9 = -7
    assert rule.estimate(slow, [slow, fast]) == pytest.approx(0.8 * 7.0)
    alone = task([9.0, 9.0], flops=1e6, family="g")
    assert rule.estimate(alone, [alone, fast]) == pytest.approx(0.8 * 4.5)


def test_what_never_ran_promises_nothing() -> None:
    broken = task([math.inf, math.inf])
    assert GradientRule().estimate(broken, [broken]) == 0.0
    assert GradientRule().estimate(task([math.inf, 2.0]), [task([math.inf, 2.0])]) == pytest.approx(0.8 * 1.0)
