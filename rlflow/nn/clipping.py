"""The clipped surrogate of proximal policy optimisation (Schulman et al. 2017, equation 7)."""

from __future__ import annotations

from torch import Tensor


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The loss, a scalar: what a policy loses by having moved, averaged over steps.

    ``log_ratio`` [n]: log probability of the action under the policy less that under the one that acted; ``advantage``
    [n]. A ratio beyond ``1 ± clip`` gains nothing more.
    """
    ratio = log_ratio.exp()
    return -(ratio * advantage).minimum(ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def divergence(log_ratio: Tensor) -> float:
    """Schulman's estimate of KL(old, new) with little variance."""
    return float((log_ratio.exp() - 1 - log_ratio).mean())
