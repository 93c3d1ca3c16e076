"""The mixture against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from policies import needs_torch

from rlflow.errors import UsageError

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")


def mixture(batch: int = 5, k: int = 3, d: int = 4, seed: int = 0):
    from rlflow.nn.mdn import Mixture

    g = torch.Generator().manual_seed(seed)
    return Mixture(
        torch.randn(batch, k, generator=g),
        torch.randn(batch, k, d, generator=g),
        0.3 * torch.randn(batch, k, d, generator=g) - 1,
    )


def test_the_likelihood_is_the_closed_form() -> None:
    found, x = mixture(), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    logits, mean, std = (np.asarray(t, dtype=np.float64) for t in (found.logits, found.mean, found.log_std.exp()))
    weights = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    normal = np.exp(-0.5 * ((x.numpy()[:, None] - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(found.log_prob(x).numpy(), np.log((weights * normal.prod(2)).sum(1)), rtol=1e-4)


def test_one_component_is_a_gaussian_and_integrates_to_one() -> None:
    found = mixture(batch=1, k=1, d=1)
    grid = torch.linspace(-20, 20, 200_001).view(-1, 1)
    density = found.log_prob(grid.unsqueeze(1)).exp()
    assert float(density.sum()) * 40 / 200_000 == pytest.approx(1, abs=1e-3)
    gaussian = torch.distributions.Normal(found.mean[0, 0], found.log_std[0, 0].exp())
    torch.testing.assert_close(
        found.log_prob(grid[100_000:100_010].unsqueeze(1)).squeeze(), gaussian.log_prob(grid[100_000:100_010]).squeeze()
    )


def draws(found, temperature: float, count: int = 20_000):
    g = torch.Generator().manual_seed(2)
    many = type(found)(*(part.expand(count, *part.shape[1:]) for part in found))
    size = found.mean.shape[-1]
    return many.sample(temperature, torch.rand(count, generator=g), torch.randn(count, size, generator=g))


def test_draws_have_the_mixtures_mean_and_variance() -> None:
    found = mixture(batch=1)
    weights = torch.softmax(found.logits, -1).unsqueeze(-1)
    mean = (weights * found.mean).sum(1)
    variance = (weights * (found.log_std.exp() ** 2 + found.mean**2)).sum(1) - mean**2
    drawn = draws(found, 1.0)
    torch.testing.assert_close(drawn.mean(0, keepdim=True), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(drawn.var(0, keepdim=True), variance, atol=0.05, rtol=0.05)


def test_temperature_to_zero_is_the_mode() -> None:
    found = mixture(batch=1)
    mode = found.mean[0, int(found.logits[0].argmax())]
    torch.testing.assert_close(found.mode()[0], mode)
    torch.testing.assert_close(draws(found, 0.0, 3), mode.expand(3, -1))
    far = [float((draws(found, t) - mode).abs().max()) for t in (1e-6, 1e-4, 1e-2)]
    assert far[0] < 0.01 < far[2]
    assert far == sorted(far)


@pytest.mark.parametrize(("temperature", "factor"), [(0.25, 0.5), (1.0, 1.0), (4.0, 2.0)])
def test_temperature_acts_on_the_spread(temperature: float, factor: float) -> None:
    found = mixture(batch=1, k=1)
    torch.testing.assert_close(draws(found, temperature).std(0), factor * found.log_std[0, 0].exp(), rtol=0.03, atol=0)


def test_temperature_acts_on_the_choice() -> None:
    found = mixture(batch=1, k=2, d=1)._replace(
        logits=torch.tensor([[1.0, 0.0]]), mean=torch.tensor([[[-10.0], [10.0]]]), log_std=torch.full((1, 2, 1), -3.0)
    )
    for temperature in (0.5, 1.0, 3.0):
        share = float((draws(found, temperature) < 0).float().mean())
        assert share == pytest.approx(1 / (1 + math.exp(-1 / temperature)), abs=0.01)


def test_a_negative_temperature_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="expected 0 or more"):
        draws(mixture(batch=1), -1.0, 1)


def test_the_head_gives_each_component_its_own_numbers_and_bounds_the_spread() -> None:
    from rlflow.nn.mdn import MAX_STD, MIN_STD, MixtureHead

    head = MixtureHead(2, size=3, mixtures=2)
    with torch.no_grad():
        head.out.weight.zero_()
        head.out.bias.copy_(torch.tensor([0.5, -0.5, 1.0, 2, 3, -50, 1, 50, 4, 5, 6, 1, 1, 1.5]))
    found = head(torch.zeros(4, 2))
    assert found.logits.shape == (4, 2)
    assert found.mean[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    expected = torch.tensor([[math.log(MIN_STD), 0.0, math.log(MAX_STD)], [0.0, 0.0, 0.5]])
    torch.testing.assert_close(found.log_std[0], expected)
