"""A trained policy as a file, and the one that comes with the package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.nn.checkpoint import Checkpoint, read_once, shipped
from rlflow.nn.native_policy import NativePolicy

if TYPE_CHECKING:
    from rlflow.nn.policy import Policy

#: File of the agent that ships.
SHIPPED = shipped("xrlflow")


@dataclass
class PolicyCheckpoint(Checkpoint):
    """X-RLflow's: ``config`` is a :class:`TrainConfig`; beside the weights a training keeps its optimiser."""

    kind: ClassVar[str] = "policy"
    verb: ClassVar[str] = "xrlflow"
    prefixes: ClassVar[tuple[str, str]] = ("policy/", "optimizer/")
    config_class: ClassVar[Any] = TrainConfig

    def native(self) -> NativePolicy:
        """The network with its weights, for use; needs no torch. Raises :class:`ModelError` where they do not fit."""
        with self.fitting():
            return NativePolicy(self.config.policy, self.vocabulary, self.weights)

    def policy(self) -> Policy:
        """The network with its weights, for training. Raises :class:`ModelError` where they do not fit."""
        import torch

        from rlflow.nn.policy import Policy

        with self.fitting():
            policy = Policy(self.config.policy, self.vocabulary)
            policy.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in self.weights.items()})
            return policy.eval()


def load_policy(path: str | os.PathLike[str] | None = None) -> tuple[NativePolicy, TrainConfig]:
    """The policy of a checkpoint (default: the shipped one) and how it was trained; read once per file and date."""
    return read_once(_read_policy, path or SHIPPED)


def _read_policy(path: str) -> tuple[NativePolicy, TrainConfig]:
    checkpoint = PolicyCheckpoint.load(path)
    return checkpoint.native(), checkpoint.config
