"""One update of the agent, against the formulas of PPO (Schulman et al. 2017) worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from policies import SMALL, needs_torch, observations, small_policy

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")


def config(**options: Any) -> Any:
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.nn.policy_config import PolicyConfig

    return TrainConfig(**{"horizon": 8, "minibatch": 32, "epochs": 1, "policy": PolicyConfig(**SMALL), **options})


def sample(policy: Any, log_ratio: float, advantages: list[float], returns: list[float] | None = None) -> Any:
    """The first states of the toys, each with its first action, whose ratio of probabilities is ``exp(log_ratio)``."""
    from rlflow.agents.xrlflow.ppo import Rollout
    from rlflow.nn.batch import Batch

    seen = observations(("plateau",))[:1] * len(advantages)
    with torch.no_grad():
        choice, values = policy(Batch.of(seen, policy.vocabulary.op_rows))
    actions = np.zeros(len(seen), dtype=np.int64)
    now = choice.log_prob(torch.from_numpy(actions)).numpy()
    rewards = values.numpy() if returns is None else np.array(returns, dtype=np.float32)
    return Rollout(
        seen, actions, now - np.float32(log_ratio), values.numpy(), np.array(advantages, dtype=np.float32), rewards
    )


def step(policy: Any, one: Any, options: Any, normal: list[float]) -> dict[str, float]:
    from rlflow.agents.xrlflow.ppo import _step

    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    every = np.arange(len(one.actions))
    return _step(policy, optimizer, one, np.array(normal, dtype=np.float32), every, options, "cpu")


def moved(policy: Any, before: list[Any]) -> float:
    """How far the weights went."""
    squares = [(one.detach() - two).square().sum() for one, two in zip(policy.parameters(), before, strict=True)]
    return float(sum(squares)) ** 0.5


def weights(policy: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in policy.parameters()]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "moves"),
    [
        (1.0, 1.0, -1.0, True),
        (1.5, 1.0, -1.2, False),  # far enough towards a good action: no further
        (1.5, -1.0, 1.5, True),  # too far towards a bad one: back
        (0.5, 1.0, -0.5, True),
        (0.5, -1.0, 0.8, False),
    ],
)
def test_the_surrogate_is_the_pessimist_s(ratio: float, advantage: float, loss: float, moves: bool) -> None:
    policy = small_policy()
    before = weights(policy)
    figures = step(
        policy,
        sample(policy, float(np.log(ratio)), [advantage]),
        config(clip=0.2, value_weight=0.0, entropy_weight=0.0),
        [advantage],
    )
    assert figures["policy_loss"] == pytest.approx(loss, rel=1e-4)
    assert figures["clip_fraction"] == float(ratio != 1.0)
    assert (moved(policy, before) > 1e-7) is moves


def test_entropy_is_rewarded() -> None:
    policy = small_policy()
    one = sample(policy, 0.0, [1.0])
    for _ in range(3):  # away from the choice by lot, which nothing can make more even
        step(policy, one, config(value_weight=0.0, entropy_weight=0.0, clip=9.0, grad_norm=0.5), [1.0])
    options = config(value_weight=0.0, entropy_weight=0.5, grad_norm=0.05)
    entropies = [step(policy, one, options, [0.0])["entropy"] for _ in range(8)]
    assert entropies[-1] > entropies[0]


def test_the_value_learns_the_returns() -> None:
    policy = small_policy()
    one = sample(policy, 0.0, [5.0, 5.0], [1.0, 3.0])
    value = one.values[0]
    figures = step(policy, one, config(entropy_weight=0.0), [0.0, 0.0])
    expected = 0.25 * ((value - 1.0) ** 2 + (value - 3.0) ** 2)
    assert figures["value_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_step_is_no_longer_than_the_norm_allows() -> None:
    policy = small_policy()
    before = weights(policy)
    figures = step(policy, sample(policy, 0.0, [1.0], [100.0]), config(grad_norm=0.25), [1.0])
    assert figures["gradient_norm"] > 1.0
    assert moved(policy, before) == pytest.approx(0.25, rel=1e-3)


def test_advantages_count_by_their_spread() -> None:
    """However large and wherever their middle, the same update follows."""
    from rlflow.agents.xrlflow.ppo import improve

    found = []
    for scale, shift in ((1.0, 0.0), (40.0, 7.0)):
        policy = small_policy()
        one = sample(policy, 0.0, [1.0, -1.0, 0.5])
        one = replace(one, advantages=one.advantages * scale + shift)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        improve(policy, optimizer, one, config(), np.random.default_rng(0), watch_kl=False)
        found.append(weights(policy))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
