"""A trained world model and who acts by it, as a file, and those that come with the package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.torch_state import weights_of
from rlflow.nn.checkpoint import Checkpoint, part_of, read_once, shipped
from rlflow.nn.token_vocabulary import TokenVocabulary


@dataclass
class WorldCheckpoint(Checkpoint):
    """A world model's and who acts by it; the networks' names are in front of the weights' names."""

    kind: ClassVar[str] = "worldmodel"
    verb: ClassVar[str] = "worldmodel"
    config_class: ClassVar[Any] = WorldConfig

    def networks(self) -> dict[str, Any]:
        """The networks with their weights, by name: ``world``, and for the latent form ``controller``."""
        with self.fitting():
            made = make_networks(self.config, self.vocabulary, 0)
            load_weights(made, self.weights)
            return made


def make_networks(config: WorldConfig, vocabulary: TokenVocabulary, seed: int) -> dict[str, Any]:
    """Fresh networks of a form."""
    if config.worldmodel == "graph":
        from rlflow.agents.rlflow.graph_world import make_graph_world

        return {"world": make_graph_world(config, vocabulary, seed)}
    from rlflow.agents.rlflow.dream import make_controller
    from rlflow.agents.rlflow.evolving import LinearController
    from rlflow.agents.rlflow.latent import make_world

    world = make_world(config, vocabulary, seed)
    by_cma = config.controller == "cma"
    controller = LinearController(config, world.rows) if by_cma else make_controller(config, world.rows, seed + 1)
    return {"world": world.eval(), "controller": controller.eval()}


def all_weights(networks: dict[str, Any]) -> dict[str, np.ndarray]:
    """A copy of the weights of several networks, their names in front."""
    return {f"{name}/{key}": value for name, network in networks.items() for key, value in weights_of(network).items()}


def load_weights(networks: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """The reverse of :func:`all_weights`."""
    for name, network in networks.items():
        mine = {key: torch.from_numpy(array.copy()) for key, array in part_of(weights, f"{name}/").items()}
        network.load_state_dict(mine)
        network.eval()


def shipped_world(form: str) -> Path:
    """The checkpoint of that form that comes with the package."""
    return shipped(f"rlflow-{form}")


def load_world(path: str | os.PathLike[str] | None, form: str = "graph") -> WorldCheckpoint:
    """A checkpoint (default: the shipped one of the form); read once per file and date."""
    return read_once(WorldCheckpoint.load, path or shipped_world(form))
