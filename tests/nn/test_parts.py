"""Distributions, masks and advantages against closed forms."""

from __future__ import annotations

import numpy as np
from policies import needs_torch

from rlflow.nn.advantages import advantages, explained_variance

GAMMA, LAM = 0.9, 0.8


def test_returns_of_a_terminated_episode_are_discounted_sums() -> None:
    rewards, values = np.array([1.0, 0.0, 2.0]), np.array([0.3, -0.2, 0.7])
    found, returns = advantages(rewards, values, 0.0, GAMMA, 1.0)
    np.testing.assert_allclose(returns, [1 + GAMMA**2 * 2, GAMMA * 2, 2])
    np.testing.assert_allclose(found, returns - values)


def test_a_truncated_episode_goes_on_with_the_estimate() -> None:
    _, returns = advantages(np.array([1.0, 1.0]), np.array([5.0, 5.0]), 10.0, GAMMA, 1.0)
    np.testing.assert_allclose(returns, [1 + GAMMA + GAMMA**2 * 10, 1 + GAMMA * 10])


def test_generalised_advantages_are_the_weighted_sum_of_errors() -> None:
    rng = np.random.default_rng(0)
    rewards, values, bootstrap = rng.normal(size=7), rng.normal(size=7), 0.4
    following = np.append(values[1:], bootstrap)
    errors = rewards + GAMMA * following - values
    expected = [sum((GAMMA * LAM) ** k * errors[t + k] for k in range(7 - t)) for t in range(7)]
    np.testing.assert_allclose(advantages(rewards, values, bootstrap, GAMMA, LAM)[0], expected)


def test_a_perfect_value_function_leaves_no_advantage() -> None:
    rewards = np.array([0.5, 0.0, 1.5, 0.0])
    values = np.array([sum(GAMMA**k * r for k, r in enumerate(rewards[t:])) for t in range(4)])
    found, _ = advantages(rewards, values, 0.0, GAMMA, LAM)
    np.testing.assert_allclose(found, 0, atol=1e-12)
    assert explained_variance(values, values) == 1
    assert explained_variance(np.zeros(4), values) == 0
    assert explained_variance(values, np.ones(4)) == 0


@needs_torch
def test_a_ragged_choice_equals_one_choice_at_a_time() -> None:
    import torch

    from rlflow.nn.ragged import RaggedCategorical

    logits = torch.tensor([0.1, 2.0, -1.0, 5.0, 0.0, 0.0, 1.0])
    owner = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    found = RaggedCategorical(logits, owner, 3)
    alone = [torch.distributions.Categorical(logits=logits[owner == g]) for g in range(3)]
    action = torch.tensor([2, 0, 1])
    torch.testing.assert_close(
        found.log_prob(action), torch.stack([d.log_prob(a) for d, a in zip(alone, action, strict=True)])
    )
    torch.testing.assert_close(found.entropy(), torch.stack([d.entropy() for d in alone]))
    assert found.mode().tolist() == [1, 0, 2]
    assert RaggedCategorical(torch.zeros(7), owner, 3).mode().tolist() == [0, 0, 0]  # the first of equals


@needs_torch
def test_samples_follow_the_probabilities_whatever_the_company() -> None:
    import torch

    from rlflow.nn.ragged import RaggedCategorical

    logits = torch.log(torch.tensor([0.2, 0.5, 0.3]))
    together = RaggedCategorical(logits.repeat(4000), torch.arange(4000).repeat_interleave(3), 4000)
    generators = [np.random.default_rng(seed) for seed in range(4000)]
    drawn = together.sample(generators)
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 4000, [0.2, 0.5, 0.3], atol=0.03)
    alone = RaggedCategorical(logits, torch.zeros(3, dtype=torch.long), 1)
    assert [int(alone.sample([np.random.default_rng(seed)])[0]) for seed in range(20)] == drawn[:20].tolist()


@needs_torch
def test_the_surrogate_is_clipped_on_the_side_that_pays() -> None:
    import torch

    from rlflow.nn.clipping import clipped_surrogate, divergence

    for ratio, advantage, worth in (
        (1.0, 2.0, 2.0), (1.5, 2.0, 2.4), (0.5, 2.0, 1.0), (1.5, -2.0, -3.0), (0.5, -2.0, -1.6), (0.9, -1.0, -0.9),
    ):  # fmt: skip
        loss = clipped_surrogate(torch.tensor([ratio]).log(), torch.tensor([advantage]), 0.2)
        assert float(loss) == -np.float32(worth) or abs(float(loss) + worth) < 1e-6
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    drawn = torch.arange(3).repeat_interleave(torch.tensor([500, 300, 200]))  # as often as the old policy draws them
    exact = float((old * (old / new).log()).sum())
    assert abs(divergence((new / old).log()[drawn]) - exact) < 1e-5
    assert all(divergence(one) > 0 for one in (new / old).log()[[0, 2]].split(1))  # of any draw, not on average alone
