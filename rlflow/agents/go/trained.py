"""GO's policy as a file, and the one that comes with the package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from rlflow.agents.go.config import GoConfig
from rlflow.agents.go.network import GoPolicy
from rlflow.nn.checkpoint import Checkpoint, read_once, shipped
from rlflow.nn.token_vocabulary import TokenVocabulary

#: File of the policy that ships.
SHIPPED = shipped("go")
#: GO reads sizes and edges, not names of operators.
NO_WORDS = TokenVocabulary((), ())


@dataclass
class GoCheckpoint(Checkpoint):
    """GO's: ``config`` is a :class:`GoConfig`; beside the weights a training keeps its optimiser and what it saw."""

    kind: ClassVar[str] = "go"
    verb: ClassVar[str] = "go"
    prefixes: ClassVar[tuple[str, str]] = ("policy/", "extra/")
    config_class: ClassVar[Any] = GoConfig

    def policy(self) -> GoPolicy:
        """The network with its weights."""
        with self.fitting():
            policy = GoPolicy(self.config)
            policy.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in self.weights.items()})
            return policy.eval()


def load_go(path: str | os.PathLike[str]) -> GoPolicy:
    """The policy of a checkpoint; read once per file and date. Raises ModelError."""
    return read_once(_read, path)


def _read(path: str) -> GoPolicy:
    return GoCheckpoint.load(path).policy()
