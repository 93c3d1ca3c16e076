"""A mixture of diagonal Gaussians as a network's output (Bishop 1994), with Ha and Schmidhuber's temperature (2018).

The mixture is joint over the dimensions: one weight a component, not one a component and dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlflow.errors import UsageError

#: Spreads are kept in this range: without a floor the likelihood of a point that is met exactly has no bound.
MIN_STD, MAX_STD = 0.02, 2.0
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Mixture(NamedTuple):
    """``logits`` [..., k]; ``mean``, ``log_std`` [..., k, d]."""

    logits: Tensor
    mean: Tensor
    log_std: Tensor

    def log_prob(self, x: Tensor) -> Tensor:
        """Natural logarithm of the density at ``x`` [..., d]; shaped [...]."""
        scaled = (x.unsqueeze(-2) - self.mean) * torch.exp(-self.log_std)
        each = (-0.5 * scaled.square() - self.log_std - _HALF_LOG_TWO_PI).sum(-1)
        return torch.logsumexp(torch.log_softmax(self.logits, -1) + each, -1)

    def mode(self) -> Tensor:
        """[..., d]: the mean of the likeliest component; where components overlap, an approximation of the mode."""
        return _picked(self.mean, self.logits.argmax(-1))

    def sample(self, temperature: float, uniform: Tensor, normal: Tensor) -> Tensor:
        """A draw, [..., d]. ``uniform`` [...] in [0, 1) and ``normal`` [..., d] are the random numbers.

        The temperature divides the logits and multiplies the variance (as theirs does): 1 is the distribution
        itself, 0 its :meth:`mode`. Raises :class:`UsageError` below 0.
        """
        if temperature < 0:
            raise UsageError(f"The temperature of a mixture is {temperature:g}; expected 0 or more.")
        if temperature == 0:
            return self.mode()
        sums = torch.softmax(self.logits / temperature, -1).cumsum(-1)
        chosen = (sums < uniform.unsqueeze(-1) * sums[..., -1:]).sum(-1).clamp(max=self.logits.shape[-1] - 1)
        std = torch.exp(_picked(self.log_std, chosen)) * math.sqrt(temperature)
        return _picked(self.mean, chosen) + std * normal


class MixtureHead(nn.Module):
    """``forward(h [..., inputs]) -> Mixture`` of ``mixtures`` components over ``size`` dimensions."""

    def __init__(self, inputs: int, size: int, mixtures: int) -> None:
        super().__init__()
        self.size, self.mixtures = size, mixtures
        self.out = nn.Linear(inputs, mixtures * (2 * size + 1))

    def forward(self, h: Tensor) -> Mixture:
        out = self.out(h)
        logits, rest = out[..., : self.mixtures], out[..., self.mixtures :]
        mean, spread = rest.reshape(*out.shape[:-1], self.mixtures, 2 * self.size).chunk(2, -1)
        return Mixture(logits, mean, (spread - 1).clamp(math.log(MIN_STD), math.log(MAX_STD)))


def _picked(values: Tensor, chosen: Tensor) -> Tensor:
    """``values`` [..., k, d] at the component ``chosen`` [...]: [..., d]."""
    index = chosen[..., None, None].expand(*chosen.shape, 1, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)
