"""Weights as trained networks have them, for models that were only initialised: nothing vanishes, nothing explodes.

An initialised network has layer scales of 1e-6, zero biases and BatchNormalization that does nothing. A rewrite that
folds any of these would be measured on a special case, and a check of outputs could not fail.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

#: A parameter whose elements are all nearly one value was not drawn: biases, norms' scales, layer scales.
_UNIFORM = 1e-7
_TINY = 1e-3


def calibrate(module: nn.Module, inputs: tuple[torch.Tensor, ...], seed: int) -> nn.Module:
    """The module in evaluation mode, with parameters that were constant drawn at random, and with running statistics of
    BatchNormalization that fit what one random input brings there."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            _draw(parameter, generator)
        module.eval()
        hooks = [m.register_forward_pre_hook(_measure) for m in module.modules() if _normalises(m)]
        module(*inputs)
        for hook in hooks:
            hook.remove()
    return module


def _normalises(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None


def _draw(parameter: torch.Tensor, generator: torch.Generator) -> None:
    """Ones become 0.5 to 1.5, zeros a small normal value, tiny layer scales about 0.1; the rest stays as drawn."""
    if not parameter.is_floating_point() or parameter.numel() < 2 or float(parameter.std()) > _UNIFORM:
        return
    value = float(parameter.flatten()[0])
    noise = torch.rand(parameter.shape, generator=generator)
    if value == 0:
        parameter.copy_((noise - 0.5) * 0.1)
    elif abs(value) < _TINY:
        parameter.copy_(noise * 0.2)
    else:
        parameter.copy_(value * (0.5 + noise))


def _measure(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """Before a normalisation runs: its statistics are those of its input (variance 1 where there is one element)."""
    x = inputs[0]
    axes = [axis for axis in range(x.dim()) if axis != 1]
    count = x.numel() // max(x.shape[1], 1)
    module.running_mean.copy_(x.mean(axes))
    variance = x.var(axes, unbiased=False) if count > 1 else torch.ones_like(module.running_var)
    module.running_var.copy_(variance.clamp(min=1e-3))
