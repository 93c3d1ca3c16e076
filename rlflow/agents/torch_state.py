"""What a training keeps of PyTorch's networks and optimisers, as arrays, and what a card says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from rlflow.env.spec import ProblemSpec


def weights_of(policy: torch.nn.Module) -> dict[str, np.ndarray]:
    """A copy of the network's weights as arrays."""
    return {name: value.detach().cpu().numpy().copy() for name, value in policy.state_dict().items()}


def optimizer_arrays(optimizer: torch.optim.Optimizer, network: torch.nn.Module, name: str) -> dict[str, np.ndarray]:
    """Adam's state by parameter names, ``name`` in front."""
    return {
        f"{name}/{key}/{parameter_name}": value.detach().cpu().numpy()
        for parameter_name, parameter in network.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, network: torch.nn.Module, name: str, arrays: Mapping[str, np.ndarray]
) -> None:
    """The reverse of :func:`optimizer_arrays`; moments go where their parameters are."""
    for parameter_name, parameter in network.named_parameters():
        found = {
            key: torch.from_numpy(arrays[f"{name}/{key}/{parameter_name}"].copy())
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"{name}/{key}/{parameter_name}" in arrays
        }
        if found:
            optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in found.items()
            }


def card_of(specs: Sequence[ProblemSpec], seed: int, **more: Any) -> dict[str, Any]:
    """What every card says: versions, models, cost and seed; and ``more``."""
    from rlflow import __version__

    models = [spec.title for spec in specs]
    return {"rlflow": __version__, "torch": torch.__version__, "models": models, "cost": specs[0].cost, "seed": seed,
            **more}  # fmt: skip
